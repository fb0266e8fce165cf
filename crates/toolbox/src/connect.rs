//! The client: asks one server, or many at once, who they are.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol as IpProtocol, Socket, Type};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::task::JoinSet;

use crate::answer::{Answer, Failure, FailureKind, Outcome, Report};
use crate::target::{Protocol, Target};
use crate::{ConnectArgs, Output, ProbeArgs, icmp, sctp};

/// How many targets `probe` tries at the same time.
const AT_ONCE: usize = 32;
/// An empty line: who are you?
const QUESTION: &[u8] = b"\n";

/// `connect`: exit 0 with the server's answer, 1 with the reason.
pub(crate) async fn run_one(args: &ConnectArgs) -> anyhow::Result<ExitCode> {
    let target = Target::new(args.protocol, &args.address)?;
    let report = attempt(target, args.source_port, args.timeout).await;
    let reached = !matches!(report.outcome, Outcome::Failed(_));
    match print(&report, args.output) {
        (text, true) => println!("{text}"),
        (text, false) => eprintln!("{text}"),
    }
    Ok(if reached { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What to print for one try, and whether it belongs on standard output.
fn print(report: &Report, output: Output) -> (String, bool) {
    let (mut line, sentence) = match &report.outcome {
        Outcome::Answered(answer) => (serde_json::json!(answer), None),
        Outcome::Replied(ip) => (serde_json::json!({ "ip": ip }), None),
        Outcome::Failed(failure) => (serde_json::json!(failure), Some(&failure.message)),
    };
    match (sentence, output) {
        (Some(sentence), Output::Text) => (sentence.clone(), false),
        (_, Output::Json) => {
            line["rtt_ms"] = report.rtt_ms.into();
            (line.to_string(), true)
        }
        (None, Output::Text) => (line.to_string(), true),
    }
}

/// `probe`: one line of JSON for each target, in the order they end.
pub(crate) async fn run_many(args: ProbeArgs) -> anyhow::Result<ExitCode> {
    let mut waiting = args.targets.into_iter();
    let mut running: JoinSet<Report> = JoinSet::new();
    loop {
        while running.len() < AT_ONCE
            && let Some(target) = waiting.next()
        {
            running.spawn(attempt(target, None, args.timeout));
        }
        let Some(report) = running.join_next().await else { return Ok(ExitCode::SUCCESS) };
        println!("{}", serde_json::to_string(&report?)?);
    }
}

/// Asks `target` once and tells how it ended.
pub(crate) async fn attempt(
    target: Target,
    source_port: Option<u16>,
    patience: Duration,
) -> Report {
    let begun = Instant::now();
    let asked = tokio::time::timeout(patience, ask(target, source_port, patience)).await;
    let outcome = match asked {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => Outcome::Failed(Failure::from_io(&target, &error)),
        Err(_) => Outcome::Failed(Failure::timeout(&target, patience)),
    };
    Report { target, outcome, rtt_ms: begun.elapsed().as_secs_f64() * 1000.0 }
}

async fn ask(target: Target, source_port: Option<u16>, patience: Duration) -> io::Result<Outcome> {
    match target.protocol {
        Protocol::Tcp => ask_tcp(target.address, source_port).await,
        Protocol::Udp => ask_udp(target.address, source_port).await,
        Protocol::Icmp => icmp::ask(target.address.ip(), patience).await,
        Protocol::Sctp => sctp::ask(target.address, patience).await,
    }
}

async fn ask_tcp(server: SocketAddr, source_port: Option<u16>) -> io::Result<Outcome> {
    let socket = bound_socket(server, Type::STREAM, source_port)?;
    let stream = TcpSocket::from_std_stream(socket.into()).connect(server).await?;
    let (reader, mut writer) = stream.into_split();
    writer.write_all(QUESTION).await?;
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).await?;
    Ok(understand(&line))
}

async fn ask_udp(server: SocketAddr, source_port: Option<u16>) -> io::Result<Outcome> {
    let socket = UdpSocket::from_std(bound_socket(server, Type::DGRAM, source_port)?.into())?;
    socket.connect(server).await?;
    socket.send(QUESTION).await?;
    let mut packet = [0; 4096];
    let length = socket.recv(&mut packet).await?;
    Ok(understand(&String::from_utf8_lossy(&packet[..length])))
}

/// A socket of the server's family, bound to the wanted local port.
fn bound_socket(server: SocketAddr, kind: Type, source_port: Option<u16>) -> io::Result<Socket> {
    let protocol = if kind == Type::STREAM { IpProtocol::TCP } else { IpProtocol::UDP };
    let socket = Socket::new(Domain::for_address(server), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    if let Some(port) = source_port {
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::new(unspecified(server.ip()), port).into())?;
    }
    Ok(socket)
}

/// The address that means "any" in the family of `like`.
pub(crate) fn unspecified(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() }
}

fn understand(line: &str) -> Outcome {
    match serde_json::from_str::<Answer>(line) {
        Ok(answer) => Outcome::Answered(answer),
        Err(_) => Outcome::Failed(Failure {
            error: FailureKind::Other,
            message: format!("the server is no toolbox: it said {line:?}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering};

    use super::*;
    use crate::serve::serve_for_test;

    const PATIENCE: Duration = Duration::from_secs(60);

    async fn ask_local(protocol: Protocol, port: u16, source_port: Option<u16>) -> Report {
        let target = Target::new(protocol, &format!("127.0.0.1:{port}")).unwrap();
        attempt(target, source_port, PATIENCE).await
    }

    fn answer(report: Report) -> Answer {
        match report.outcome {
            Outcome::Answered(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// A free port below those that the kernel gives away: nobody gets it in the meantime.
    fn free_port() -> u16 {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let first = 20_000 + (std::process::id() % 8_000) as u16;
        let is_free = |port: &u16| {
            let tcp = std::net::TcpListener::bind(("127.0.0.1", *port));
            tcp.is_ok() && std::net::UdpSocket::bind(("127.0.0.1", *port)).is_ok()
        };
        let ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed));
        ports.take(1_000).find(is_free).unwrap()
    }

    #[tokio::test]
    async fn the_server_says_who_it_is_over_tcp_and_udp() {
        let port = serve_for_test().await;
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let answer = answer(ask_local(protocol, port, None).await);
            assert_eq!((answer.pod.as_str(), answer.node.as_str()), ("acme/web-1", "node1"));
            assert_eq!(answer.ip, IpAddr::from([127, 0, 0, 1]));
        }
    }

    #[tokio::test]
    async fn the_server_sees_the_source_port_that_was_asked_for() {
        let port = serve_for_test().await;
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let source = free_port();
            assert_eq!(answer(ask_local(protocol, port, Some(source)).await).peer.port(), source);
        }
    }

    #[tokio::test]
    async fn a_closed_port_is_refused() {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let report = ask_local(protocol, free_port(), None).await;
            let Outcome::Failed(failure) = report.outcome else { panic!("{report:?}") };
            assert_eq!(failure.error, FailureKind::Refused, "{protocol:?}");
        }
    }

    #[tokio::test]
    async fn a_silent_server_is_a_timeout() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = format!("udp/{}", silent.local_addr().unwrap()).parse().unwrap();
        let report = attempt(target, None, Duration::from_millis(50)).await;
        let Outcome::Failed(failure) = report.outcome else { panic!("{report:?}") };
        assert_eq!(failure.error, FailureKind::Timeout);
        assert!(failure.message.contains("within 50 ms"), "{}", failure.message);
    }

    #[test]
    fn a_server_that_is_no_toolbox_is_told_so() {
        let Outcome::Failed(failure) = understand("220 smtp ready") else { panic!() };
        assert!(failure.message.contains("220 smtp ready"));
    }

    #[test]
    fn a_failure_is_a_sentence_for_people_and_json_for_programs() {
        let target: Target = "udp/10.0.0.5:8080".parse().unwrap();
        let failure = Failure::timeout(&target, Duration::from_secs(5));
        let report = Report { target, outcome: Outcome::Failed(failure), rtt_ms: 5000.0 };
        let (text, on_stdout) = print(&report, Output::Text);
        assert_eq!(
            (text.as_str(), on_stdout),
            ("no answer from udp/10.0.0.5:8080 within 5000 ms", false)
        );
        let (text, on_stdout) = print(&report, Output::Json);
        assert!(on_stdout && text.contains("\"error\":\"timeout\""), "{text}");
    }
}
