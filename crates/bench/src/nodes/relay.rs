//! A way through to the API on which bytes and connections are counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The most that is passed on at once.
const PIECE: usize = 16 << 10;

/// What went through so far.
#[derive(Debug, Default)]
pub(super) struct Counted {
    connections: AtomicU64,
    /// Bytes from the API to its clients.
    told: AtomicU64,
}

impl Counted {
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn told(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }
}

/// A relay. It takes no more callers once this value is gone.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    pub(super) counted: Arc<Counted>,
    accepting: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Relay {
    /// Passes callers on to `target`.
    pub(super) async fn to(target: SocketAddr) -> Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen")?;
        let address = listener.local_addr()?;
        let counted = Arc::new(Counted::default());
        let counting = counted.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                counting.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(pass(caller, target, counting.clone()));
            }
        });
        Ok(Relay { address, counted, accepting })
    }
}

/// A caller that goes away, or a server that does, ends it; the other side is told by the end.
async fn pass(mut caller: TcpStream, target: SocketAddr, counted: Arc<Counted>) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let (mut from_caller, mut to_caller) = caller.split();
    let (mut from_server, mut to_server) = server.split();
    let asked = tokio::io::copy(&mut from_caller, &mut to_server);
    let told = async {
        let mut piece = vec![0; PIECE];
        while let Ok(length @ 1..) = from_server.read(&mut piece).await {
            counted.told.fetch_add(length as u64, Ordering::Relaxed);
            if to_caller.write_all(&piece[..length]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! { _ = asked => (), () = told => () }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_told_passes_and_is_counted() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay::to(server.local_addr().unwrap()).await.unwrap();
        let mut caller = TcpStream::connect(relay.address).await.unwrap();
        caller.write_all(b"what is new?").await.unwrap();
        let (mut served, _) = server.accept().await.unwrap();
        let mut asked = [0; 12];
        served.read_exact(&mut asked).await.unwrap();
        assert_eq!(&asked, b"what is new?");
        served.write_all(b"nothing").await.unwrap();
        let mut told = [0; 7];
        caller.read_exact(&mut told).await.unwrap();
        assert_eq!(&told, b"nothing");
        assert_eq!((relay.counted.connections(), relay.counted.told()), (1, 7));
    }
}
