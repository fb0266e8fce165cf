//! `atoll dns`: what a pod would be told about a name, and why; and the resolver of a DNS pod.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use atoll_abi::{DNS_PORT, NODE_RESOLVER};
use atoll_cni::wire::{AgentReply, AgentRequest, NameQuestion, NameReport, ask};
use atoll_dns::Secondary;
use atoll_types::PodRef;
use comfy_table::{Table, presets};
use tokio::signal::unix::{SignalKind, signal};

use crate::agents::Agents;
use crate::output::{self, Format};

/// How long a DNS pod that is told to end goes on answering. Its grace period is longer.
const ANSWERS_ON: Duration = Duration::from_secs(3);
/// How long a check waits for the answer.
const CHECK_WAITS: Duration = Duration::from_millis(1500);

/// What can be asked about names.
#[derive(clap::Subcommand)]
pub(crate) enum DnsCommand {
    /// What a pod would be told about a name, and why
    Query(QueryArgs),
    /// Answer the names of the network that this pod is in
    Serve(ServeArgs),
    /// Whether the resolver in this pod answers: exits with 1 where it does not
    Check(CheckArgs),
}

/// Whom to ask.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  atoll dns check                what the readiness probe of a DNS pod runs
  kubectl exec -n NAMESPACE POD -- atoll dns check")]
pub(crate) struct CheckArgs {
    /// The UDP port that it answers at.
    #[arg(long, default_value_t = 53)]
    port: u16,
}

/// Where a DNS pod answers, and what it follows.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  atoll dns serve                what the DNS pods of a network with dns.mode dedicated run
  atoll dns serve --port 5353")]
pub(crate) struct ServeArgs {
    /// The UDP and TCP port to answer at, on all addresses of the pod.
    #[arg(long, default_value_t = 53)]
    port: u16,
    /// The resolver of the node, which tells the network's names and is asked for others.
    #[arg(long, default_value_t = IpAddr::V4(NODE_RESOLVER.0))]
    source: IpAddr,
}

/// Which pod, which name.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  atoll dns query --as acme/web db              on the pod's node
  atoll dns query --lab demo --as acme/web db-0.db
  atoll dns query --lab demo --as acme/web -t srv _http._tcp.db")]
pub(crate) struct QueryArgs {
    /// The pod that would ask.
    #[arg(long = "as", value_name = "NAMESPACE/POD", value_parser = output::pod)]
    pod: PodRef,
    /// The name, as a program in the pod would write it.
    name: String,
    /// The type of records.
    #[arg(short = 't', long = "type", default_value = "A")]
    kind: String,
    #[command(flatten)]
    agents: Agents,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Exits with 1 where the name has no answer.
pub(crate) fn run(command: DnsCommand) -> Result<ExitCode> {
    match command {
        DnsCommand::Query(args) => run_query(args),
        DnsCommand::Serve(args) => serve(&args),
        DnsCommand::Check(args) => check(&args),
    }
}

fn check(args: &CheckArgs) -> Result<ExitCode> {
    let resolver = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), args.port);
    let asked = atoll_dns::check(resolver, CHECK_WAITS);
    asked.with_context(|| format!("no resolver answers at {resolver} over UDP"))?;
    Ok(ExitCode::SUCCESS)
}

/// Serves until the pod ends. One that is told to end answers on for a while: until every node has
/// heard of it, questions still come.
fn serve(args: &ServeArgs) -> Result<ExitCode> {
    output::log_to_standard_error();
    let listen = vec![SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), args.port)];
    let secondary = Secondary::new(listen, SocketAddr::new(args.source, DNS_PORT));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut end = signal(SignalKind::terminate())?;
        tokio::select! {
            failed = secondary.run() => failed?,
            () = async {
                end.recv().await;
                tokio::time::sleep(ANSWERS_ON).await;
            } => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn run_query(args: QueryArgs) -> Result<ExitCode> {
    let sockets = args.agents.sockets()?;
    let question = NameQuestion { pod: args.pod, name: args.name, kind: args.kind };
    let report = query(sockets.into_iter().map(|(_, socket)| socket), &question)?;
    match args.output {
        Format::Table => println!("{}", table(&question.pod, &report)),
        Format::Json => println!("{}", serde_json::to_string(&report)?),
    }
    let is_answered = report.tries.iter().any(|one| !one.records.is_empty());
    Ok(if is_answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The report of the first agent that has the pod.
fn query(sockets: impl Iterator<Item = PathBuf>, question: &NameQuestion) -> Result<NameReport> {
    for socket in sockets {
        match ask(&socket, &AgentRequest::Name(question.clone()))? {
            AgentReply::Name(report) => return Ok(report),
            AgentReply::Failed(error) => bail!("{error}: {}", error.details),
            AgentReply::NotOurs => {}
            AgentReply::Attached(_)
            | AgentReply::Done
            | AgentReply::Drops(_)
            | AgentReply::Traffic(_) => {
                bail!("the agent gave no answer about names")
            }
        }
    }
    bail!("no pod {} is attached here; ask on its node", question.pod)
}

fn table(pod: &PodRef, report: &NameReport) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["NAME", "RECORDS", "WHY"]);
    for one in &report.tries {
        let records = if one.records.is_empty() { "-".into() } else { one.records.join("\n") };
        table.add_row([one.name.clone(), records, one.outcome.clone()]);
    }
    format!("{pod} is answered from network {}\n{}", report.network, table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use atoll_cni::wire::NameTry;

    use super::*;

    #[test]
    fn the_table_has_the_network_and_each_name_with_its_reason() {
        let one = |name: &str, records: &[&str]| NameTry {
            name: name.into(),
            outcome: "because".into(),
            records: records.iter().map(ToString::to_string).collect(),
        };
        let tries = vec![one("db.acme.", &[]), one("db.", &["A 10.0.0.1", "A 10.0.0.2"])];
        let report = NameReport { network: "acme.default".into(), tries };
        let table = table(&PodRef::new("acme", "web"), &report);
        assert!(table.starts_with("acme/web is answered from network acme.default\n"), "{table}");
        for cell in ["db.acme.", "because", "A 10.0.0.1", "A 10.0.0.2"] {
            assert!(table.contains(cell), "{table}");
        }
    }
}
