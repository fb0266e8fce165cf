//! Calls of pods to a service of the cluster's own, over TCP: each is passed on to one of those behind the
//! service, or broken off.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use atoll_dns::{hear_all, hear_only};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::Exchange;
use super::fronts::Offer;
use super::splice::splice;
use super::turn_away::TurnAway;

const BACKLOG: u32 = 1024;

/// Calls that say nothing for so long are ended. Watches of the API are refreshed far more often.
const IDLE: Duration = Duration::from_secs(3600);

/// How long one of those behind a service may take to answer, and how many are tried.
const PATIENCE: Duration = Duration::from_secs(3);
const TRIES: usize = 3;

/// How long after a failed accept the next is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens there, to one link alone where it is known.
pub(super) fn listen(at: SocketAddr, heard: Option<u32>) -> io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    heard.map_or(Ok(()), |link| hear_only(&socket, link))?;
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

/// Takes calls for good.
pub(super) async fn serve(
    listener: Arc<TcpListener>,
    offer: Arc<ArcSwap<Offer>>,
    exchange: Exchange,
) {
    let turn = Arc::new(AtomicUsize::new(0));
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let Ok(stream) = hear_all(&stream).and_then(|()| at_once(stream)) else { continue };
                let call = Call { stream, from, offer: offer.load_full(), turn: turn.clone() };
                tokio::spawn(take(call, exchange.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a call");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// A call that was accepted.
struct Call {
    stream: TcpStream,
    from: SocketAddr,
    offer: Arc<Offer>,
    /// Whose turn it is among those behind the service.
    turn: Arc<AtomicUsize>,
}

/// Passes a call on, or turns it away.
async fn take(call: Call, exchange: Exchange) {
    let Call { stream, from, offer, turn } = call;
    let admitted = exchange.admit(from, &offer);
    let admitted = admitted.and_then(|caller| exchange.limits.take(&caller));
    let reached = match admitted {
        Ok(permit) => reach(&offer.targets, &turn).await.map(|target| (permit, target)),
        Err(why) => Err(why),
    };
    match reached {
        Ok((permit, target)) => {
            exchange.counters.passed_on();
            let ended = splice(stream, target, IDLE).await;
            tracing::debug!(%from, ?ended, "call ended");
            drop(permit);
        }
        Err(why) => {
            exchange.counters.turned_away(why);
            tracing::debug!(%from, ?why, "call turned away");
            let _broken_off = stream.set_zero_linger();
        }
    }
}

/// One of those behind a service, each first in turn.
async fn reach(targets: &[SocketAddr], turn: &AtomicUsize) -> Result<TcpStream, TurnAway> {
    let first = turn.fetch_add(1, Ordering::Relaxed);
    for step in 0..targets.len().min(TRIES) {
        let target = targets[first.wrapping_add(step) % targets.len()];
        match tokio::time::timeout(PATIENCE, TcpStream::connect(target)).await {
            Ok(Ok(stream)) => return at_once(stream).map_err(|_| TurnAway::NoTarget),
            Ok(Err(error)) => tracing::debug!(%target, %error, "does not answer"),
            Err(_) => tracing::debug!(%target, "does not answer in time"),
        }
    }
    Err(TurnAway::NoTarget)
}

/// What is passed on is passed on at once: the sender has gathered it already.
fn at_once(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}
