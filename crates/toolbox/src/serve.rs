//! The echo server: TCP lines, HTTP, UDP and gRPC's health checks on one port. Every answer says who the server is and
//! whom it sees.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use crate::answer::Answer;
use crate::{ServeArgs, grpc, local_address_towards, sctp};

/// A line longer than this ends the connection: nobody asks that much.
const LONGEST_LINE: u64 = 64 * 1024;
const LARGEST_PACKET: usize = 64 * 1024;

/// Who this server is, read once from the environment.
#[derive(Clone, Debug)]
struct Identity {
    pod: String,
    node: String,
}

impl Identity {
    /// From what a kubelet puts into the environment, else the machine's name.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let name = variable("POD_NAME").or_else(|| variable("HOSTNAME")).unwrap_or_default();
        let pod = match variable("POD_NAMESPACE") {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name,
        };
        Identity { pod, node: variable("NODE_NAME").unwrap_or_default() }
    }

    fn answer(&self, ip: IpAddr, peer: SocketAddr, asked: &str) -> Answer {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let echo = Some(asked.trim_end()).filter(|text| !text.is_empty()).map(str::to_owned);
        Answer { pod: self.pod.clone(), ip: ip.to_canonical(), node: self.node.clone(), peer, echo }
    }
}

/// Serves on all ports until the process is told to end, or its input ends where that counts.
pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let variable = |name: &str| std::env::var(name).ok();
    let identity = Arc::new(Identity::read(variable));
    let mut serving = JoinSet::new();
    for port in &args.ports {
        let bound = bind(*port).await.with_context(|| format!("cannot serve on {port}"))?;
        eprintln!("serving on port {port} as {}", identity.pod);
        serving.spawn(serve_tcp(bound.0, identity.clone()));
        serving.spawn(serve_udp(bound.1, identity.clone()));
    }
    if args.sctp {
        sctp::serve(args.ports).context("cannot serve SCTP")?;
    }
    if args.until_eof {
        serving.spawn_blocking(|| end_of(io::stdin().lock()));
        serving.join_next().await.transpose()?.transpose()?;
        return Ok(ExitCode::SUCCESS);
    }
    while let Some(ended) = serving.join_next().await {
        ended??;
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until nobody can say anything more.
pub(crate) fn end_of(mut input: impl io::Read) -> io::Result<()> {
    io::copy(&mut input, &mut io::sink()).map(drop)
}

/// Both families where the kernel has both, else IPv4.
async fn bind(port: u16) -> io::Result<(TcpListener, UdpSocket)> {
    let any = match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await {
        Ok(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        Err(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
    };
    let listener = TcpListener::bind((any, port)).await?;
    let port = listener.local_addr()?.port();
    Ok((listener, UdpSocket::bind((any, port)).await?))
}

async fn serve_tcp(listener: TcpListener, identity: Arc<Identity>) -> io::Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let identity = identity.clone();
                tokio::spawn(async move {
                    if let Err(error) = talk(stream, peer, &identity).await {
                        eprintln!("{peer}: {error}");
                    }
                });
            }
            Err(error) => eprintln!("cannot accept a connection: {error}"),
        }
    }
}

/// Answers every line of one connection, or its one HTTP request, or its health checks.
async fn talk(stream: TcpStream, peer: SocketAddr, identity: &Identity) -> io::Result<()> {
    let mut first = [0; grpc::PREFACE.len()];
    let length = stream.peek(&mut first).await?;
    if first[..length] == *grpc::PREFACE {
        return grpc::talk(stream).await.map_err(io::Error::other);
    }
    let ip = stream.local_addr()?.ip();
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    while let Some(line) = next_line(&mut reader).await? {
        if is_http(&line) {
            while next_line(&mut reader).await?.is_some_and(|header| !header.trim().is_empty()) {}
            return writer.write_all(http(&identity.answer(ip, peer, "")).as_bytes()).await;
        }
        writer.write_all(identity.answer(ip, peer, &line).to_line().as_bytes()).await?;
    }
    Ok(())
}

async fn next_line(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    reader.take(LONGEST_LINE).read_until(b'\n', &mut line).await?;
    if line.len() as u64 == LONGEST_LINE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
    }
    Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()))
}

fn is_http(line: &str) -> bool {
    let line = line.trim_end();
    line.ends_with(" HTTP/1.1") || line.ends_with(" HTTP/1.0")
}

fn http(answer: &Answer) -> String {
    let body = answer.to_line();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    )
}

async fn serve_udp(socket: UdpSocket, identity: Arc<Identity>) -> io::Result<()> {
    let mut packet = vec![0; LARGEST_PACKET];
    loop {
        // An error here is a peer's ICMP complaint about an earlier answer, not the end.
        let Ok((length, peer)) = socket.recv_from(&mut packet).await else { continue };
        let asked = String::from_utf8_lossy(&packet[..length]);
        let Ok(ip) = local_address_towards(peer.ip()).await else { continue };
        let answer = identity.answer(ip, peer, &asked).to_line();
        if let Err(error) = socket.send_to(answer.as_bytes(), peer).await {
            eprintln!("cannot answer {peer}: {error}");
        }
    }
}

/// A server on a free port, for tests of the clients.
#[cfg(test)]
pub(crate) async fn serve_for_test() -> u16 {
    let identity = Arc::new(Identity { pod: "acme/web-1".into(), node: "node1".into() });
    let (listener, socket) = bind(0).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(serve_tcp(listener, identity.clone()));
    tokio::spawn(serve_udp(socket, identity));
    port
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn exchange(port: u16, sent: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        said
    }

    #[test]
    fn the_identity_is_the_pods_and_else_the_machines_name() {
        let pod = Identity::read(|name| match name {
            "POD_NAME" => Some("web-1".into()),
            "POD_NAMESPACE" => Some("acme".into()),
            "NODE_NAME" => Some("node1".into()),
            _ => None,
        });
        assert_eq!((pod.pod.as_str(), pod.node.as_str()), ("acme/web-1", "node1"));
        let machine = Identity::read(|name| (name == "HOSTNAME").then(|| "box".into()));
        assert_eq!((machine.pod.as_str(), machine.node.as_str()), ("box", ""));
    }

    #[tokio::test]
    async fn every_line_of_a_connection_gets_its_own_answer() {
        let said = exchange(serve_for_test().await, "one\ntwo\n").await;
        let answers: Vec<Answer> =
            said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let echoes: Vec<_> = answers.iter().map(|answer| answer.echo.as_deref()).collect();
        assert_eq!(echoes, [Some("one"), Some("two")]);
        assert!(answers.iter().all(|answer| answer.pod == "acme/web-1"));
        assert!(answers.iter().all(|answer| answer.peer.ip() == IpAddr::from([127, 0, 0, 1])));
    }

    #[tokio::test]
    async fn an_http_request_on_the_same_port_gets_the_answer_as_its_body() {
        let request = "GET /who HTTP/1.1\r\nhost: web\r\n\r\n";
        let said = exchange(serve_for_test().await, request).await;
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert_eq!(serde_json::from_str::<Answer>(body).unwrap().node, "node1");
    }

    #[test]
    fn an_input_ends_when_nobody_can_say_more_and_not_before() {
        let (reader, mut writer) = io::pipe().unwrap();
        let ended = std::thread::spawn(|| end_of(reader));
        io::Write::write_all(&mut writer, b"words").unwrap();
        assert!(!ended.is_finished(), "it goes on");
        drop(writer);
        ended.join().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_line_without_end_closes_the_connection_instead_of_filling_memory() {
        let said = exchange(serve_for_test().await, &"x".repeat(LONGEST_LINE as usize)).await;
        assert_eq!(said, "");
    }
}
