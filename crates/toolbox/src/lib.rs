//! Small network programs for pods that need no image: an echo server that says who it is and whom
//! it sees, a client, a prober of many targets, and a flow that counts every lost packet.
//!
//! The rule of this crate: what it prints on standard output is one JSON object per line, and a
//! connection that fails is named by its reason, so that people and programs read the same thing.

mod answer;
mod connect;
mod flow;
mod grpc;
mod icmp;
mod resolve;
mod row;
mod sctp;
mod serve;
mod target;

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

pub use answer::{Answer, Failure, FailureKind, Outcome, Report};
pub use row::{Row, Wrong};
pub use target::{DEFAULT_PORT, Protocol, Target, TargetError};

/// What `atoll toolbox` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum ToolboxCommand {
    /// Answer on TCP, UDP and HTTP with who I am and whom I see.
    ///
    /// One port serves all three, and gRPC's health checks. Over TCP every line sent gets one line of JSON back; over UDP
    /// every packet gets one; an HTTP request gets it as the body.
    #[command(after_help = "Examples:\n  atoll toolbox serve\n  atoll toolbox serve --port 9000")]
    Serve(ServeArgs),
    /// Ask one server who it is; exit 0 with its answer, 1 with the reason.
    #[command(after_help = "Examples:\n  atoll toolbox connect tcp 10.0.0.5:8080\n  \
                      atoll toolbox connect udp 10.0.0.5 --source-port 40000\n  \
                      atoll toolbox connect icmp 10.0.0.5 --timeout 500ms")]
    Connect(ConnectArgs),
    /// Try many targets at once, one line of JSON for each.
    #[command(after_help = "Example:\n  atoll toolbox probe tcp/10.0.0.5:8080 icmp/10.0.0.6")]
    Probe(ProbeArgs),
    /// Try rows of a truth table: read lines of JSON with who must answer and who must not, and
    /// say for each what is wrong.
    #[command(
        after_help = "Example:\n  echo '{\"open\":[\"tcp/10.0.0.5:80\"],\"closed\":[],\"patience\":500}' \
                      | atoll toolbox rows"
    )]
    Rows,
    /// Send numbered packets to an echo server and count what is lost, doubled or out of order.
    #[command(
        after_help = "Examples:\n  atoll toolbox flow --udp 10.0.0.5:8080 --rate 1000 --seconds 5\n  \
                      atoll toolbox flow --tcp 10.0.0.5:8080 --seconds 10"
    )]
    Flow(FlowArgs),
    /// Ask for the addresses of a name as every program here would; exit 1 with the reason.
    #[command(after_help = "Example:\n  atoll toolbox resolve db.acme.svc.cluster.local")]
    Resolve(ResolveArgs),
}

/// Options of `resolve`.
#[derive(Clone, Debug, Args)]
pub struct ResolveArgs {
    /// The name.
    pub name: String,
}

/// Options of `serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// TCP and UDP ports to answer on, with a comma between.
    #[arg(long = "port", default_values_t = [DEFAULT_PORT], value_delimiter = ',')]
    pub ports: Vec<u16>,
    /// Answer SCTP's INIT on these ports, too. Needs a raw socket.
    #[arg(long)]
    pub sctp: bool,
    /// End when standard input does.
    #[arg(long)]
    pub until_eof: bool,
}

/// Options of `connect`.
#[derive(Clone, Debug, Args)]
pub struct ConnectArgs {
    /// How to ask.
    pub protocol: Protocol,
    /// Whom to ask: an address, or address:port (port 8080 when left out).
    #[arg(value_name = "ADDR[:PORT]")]
    pub address: String,
    /// Local port to send from.
    #[arg(long)]
    pub source_port: Option<u16>,
    /// How long to wait for the answer, such as 500ms or 2s.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// `json` prints failures as JSON too, and adds the round-trip time.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Options of `probe`.
#[derive(Clone, Debug, Args)]
pub struct ProbeArgs {
    /// What to try, as PROTOCOL/ADDR:PORT or icmp/ADDR.
    #[arg(required = true)]
    pub targets: Vec<Target>,
    /// How long to wait for each answer.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// Options of `flow`.
#[derive(Clone, Debug, Args)]
pub struct FlowArgs {
    /// Send UDP packets to this echo server.
    #[arg(
        long,
        value_name = "ADDR[:PORT]",
        conflicts_with = "tcp",
        required_unless_present = "tcp"
    )]
    pub udp: Option<String>,
    /// Send lines over one TCP connection to this echo server.
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub tcp: Option<String>,
    /// Packets a second.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: u32,
    /// How long to send.
    #[arg(long, default_value_t = 5)]
    pub seconds: u32,
    /// Go on after that until standard input ends.
    #[arg(long)]
    pub until_eof: bool,
    /// How long to wait for late answers after the last packet.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    pub linger: Duration,
    /// Let no more packets be under way than this: a server on a busy machine may not run for
    /// seconds, and what its socket cannot keep until then was lost by no network.
    #[arg(long, value_name = "PACKETS")]
    pub under_way: Option<u64>,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people: failures are a sentence on standard error.
    Text,
    /// For programs: failures are JSON on standard output.
    Json,
}

/// Runs one command of the toolbox to its end.
pub fn run(command: ToolboxCommand) -> anyhow::Result<ExitCode> {
    // One thread is enough for a tool, and keeps a pod that only serves small.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            ToolboxCommand::Serve(args) => serve::run(args).await,
            ToolboxCommand::Connect(args) => connect::run_one(&args).await,
            ToolboxCommand::Probe(args) => connect::run_many(args).await,
            ToolboxCommand::Rows => row::run().await,
            ToolboxCommand::Flow(args) => flow::run(&args).await,
            ToolboxCommand::Resolve(args) => resolve::run(&args),
        }
    })
}

/// Reads `250ms`, `2s`, `1.5s` or a bare number of seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time such as 500ms or 2s");
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * unit;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// The address that packets to `peer` leave from.
async fn local_address_towards(peer: IpAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = if peer.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    let socket = tokio::net::UdpSocket::bind((any, 0)).await?;
    socket.connect((peer, DEFAULT_PORT)).await?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_with_its_unit() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
    }

    #[test]
    fn a_time_that_is_none_is_refused_by_name() {
        for text in ["", "soon", "-1s", "ms"] {
            assert!(parse_duration(text).is_err_and(|said| said.contains(&format!("{text:?}"))));
        }
    }
}
