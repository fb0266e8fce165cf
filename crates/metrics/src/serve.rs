//! The address where metrics are read.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::{TcpListener, TcpSocket};

/// The text format's version, as Prometheus asks for it.
const FORMAT: &str = "text/plain; version=0.0.4";

/// How many readers may wait.
const BACKLOG: u32 = 64;

/// Binds the address of the metrics.
pub async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| cannot_serve(address))
}

/// Binds the address of the metrics, which another process of the same user may have as well: one of
/// them is read then. Replicas that share a node are so, and a new one that comes before the old one
/// has gone.
pub fn share(address: SocketAddr) -> Result<TcpListener> {
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    bind().with_context(|| cannot_serve(address))
}

fn cannot_serve(address: SocketAddr) -> String {
    format!("cannot serve metrics at {address} (--metrics-address)")
}

/// Serves metrics for ever; `write` gives the page each time that it is asked for.
pub async fn serve(listener: TcpListener, write: impl Fn() -> String + Send + Sync + 'static) {
    let write = Arc::new(write);
    let page = move || async move { ([(CONTENT_TYPE, FORMAT)], write()) };
    let router = Router::new().route("/metrics", get(page));
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "metrics are served no more");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn an_address_in_use_is_named() -> Result<()> {
        let taken = listen("127.0.0.1:0".parse()?).await?;
        let address = taken.local_addr()?;
        let error = listen(address).await.map(|_| ()).map_err(|error| error.to_string());
        let named = |text: &String| {
            text.contains(&address.to_string()) && text.contains("--metrics-address")
        };
        assert!(error.as_ref().is_err_and(named), "{error:?}");
        Ok(())
    }

    #[tokio::test]
    async fn an_address_that_is_shared_is_taken_twice_and_never_from_who_shares_not() -> Result<()>
    {
        let first = share("127.0.0.1:0".parse()?)?;
        share(first.local_addr()?)?;
        let alone = listen("127.0.0.1:0".parse()?).await?;
        let error = share(alone.local_addr()?).map(|_| ()).map_err(|error| error.to_string());
        assert!(error.as_ref().is_err_and(|text| text.contains("--metrics-address")), "{error:?}");
        Ok(())
    }

    #[tokio::test]
    async fn the_page_is_written_anew_each_time_it_is_read() -> Result<()> {
        let listener = listen("127.0.0.1:0".parse()?).await?;
        let address = listener.local_addr()?;
        let count = std::sync::atomic::AtomicU32::new(0);
        let page =
            move || format!("reads {}\n", count.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
        let serving = tokio::spawn(serve(listener, page));
        for reads in ["reads 0", "reads 1"] {
            let mut stream = TcpStream::connect(address).await?;
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                .await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            assert!(text.contains(reads) && text.contains(FORMAT), "{text}");
        }
        serving.abort();
        Ok(())
    }
}
