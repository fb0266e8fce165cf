//! One check of one pod, from the call to what it means.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use atoll_abi::PROBER_PORTS;
use atoll_model::probes::{Check, How};
use tokio::net::{TcpSocket, TcpStream};

use super::{Line, grpc, http};

/// Of the time that the kubelet gives, what is left for our answer to reach it.
const MARGIN: u32 = 10;

/// Makes the check: nothing to complain about, or the reason.
pub(super) async fn make(check: &Check, line: Line) -> Result<(), String> {
    let allowed = Duration::from_secs(check.timeout.into());
    let allowed = allowed - allowed / MARGIN;
    match tokio::time::timeout(allowed, ask(check, line)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {} s", check.timeout)),
    }
}

async fn ask(check: &Check, line: Line) -> Result<(), String> {
    match &check.how {
        How::Tcp { port } => {
            let stream = connect(line, *port).await?;
            // Nobody waits for its end: a node that probes often must not keep what is over.
            stream.set_zero_linger().map_err(|error| error.to_string())
        }
        How::Http(request) => http::get(request, check.hook, line).await,
        How::Grpc { port, service } => grpc::ask_health(*port, service, line).await,
    }
}

/// How many of our ports are tried: another probe of the same pod may have one.
const TRIES: usize = 16;

/// A connection to a port of the pod.
pub(super) async fn connect(line: Line, port: u16) -> Result<TcpStream, String> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..TRIES {
        match open(line, port).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
        if !matches!(last.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) {
            break;
        }
    }
    Err(format!("cannot connect to port {port} of {}: {last}", line.own))
}

async fn open(line: Line, port: u16) -> io::Result<TcpStream> {
    let socket = match line.called.is_ipv4() {
        true => TcpSocket::new_v4(),
        false => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(line.from, next_port()))?;
    let stream = socket.connect(SocketAddr::new(line.called, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The ports that the kernel lets probes come from, each in turn.
fn next_port() -> u16 {
    static TURN: AtomicU16 = AtomicU16::new(0);
    PROBER_PORTS + TURN.fetch_add(1, Ordering::Relaxed) % (u16::MAX - PROBER_PORTS + 1)
}
