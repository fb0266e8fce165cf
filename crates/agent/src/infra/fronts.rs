//! The listeners behind doors to services: one port of the agent for each address and port of each
//! exported service, the same for the pods of all networks.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use atoll_dns::{hear_all, hear_only};
use atoll_model::compile::Front;
use atoll_model::export::Audience;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use super::splice::splice;
use super::turn_away::TurnAway;
use super::{Caller, Exchange};

/// The agent's ports behind doors to services, beyond those that kernels give to outgoing
/// connections.
const LISTENERS: std::ops::RangeInclusive<u16> = 61100..=61999;
const BACKLOG: u32 = 1024;

/// Calls that say nothing for so long are ended. Watches of the API are refreshed far more often.
const IDLE: Duration = Duration::from_secs(3600);

/// How long one of those behind a service may take to answer, and how many are tried.
const PATIENCE: Duration = Duration::from_secs(3);
const TRIES: usize = 3;

/// How long after a failed accept the next is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// An address and port of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) ip: IpAddr,
    pub(super) port: u16,
}

/// What is offered there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// To whom.
    pub(super) to: Audience,
    /// Those behind the service.
    pub(super) targets: Vec<SocketAddr>,
}

/// A listener that is at work. It ends with this value; calls that were passed on go on.
struct Listening {
    port: u16,
    offer: Offer,
    shared: Arc<ArcSwap<Offer>>,
    listener: Arc<TcpListener>,
    task: JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All listeners.
pub(super) struct Fronts {
    /// Where to listen, one address of each family.
    behind: [IpAddr; 2],
    /// The link that is heard, once it is one alone.
    heard: Option<u32>,
    listening: BTreeMap<Place, Listening>,
}

impl Fronts {
    pub(super) fn behind(addresses: [IpAddr; 2]) -> Self {
        Fronts { behind: addresses, heard: None, listening: BTreeMap::new() }
    }

    pub(super) fn list(&self) -> Vec<Front<'_>> {
        let front = |(place, it): (&Place, &'_ Listening)| (place.ip, place.port, it.port);
        let fronts = self.listening.iter().map(|entry| (front(entry), &entry.1.offer.to));
        fronts.map(|((ip, port, listener), to)| Front { ip, port, listener, to }).collect()
    }

    /// Listens for exactly these.
    pub(super) fn match_offers(&mut self, offers: BTreeMap<Place, Offer>, exchange: &Exchange) {
        self.listening.retain(|place, _| offers.contains_key(place));
        for (place, offer) in offers {
            match self.listening.get_mut(&place) {
                Some(listening) => listening.renew(offer),
                None => self.begin(place, offer, exchange),
            }
        }
    }

    /// Hears this link alone from now on. Calls that were accepted go on by whichever link they come:
    /// nobody else knows where they are.
    pub(super) fn hear(&mut self, link: u32) -> io::Result<()> {
        if self.heard != Some(link) {
            let mut listening = self.listening.values();
            listening.try_for_each(|it| hear_only(&*it.listener, link))?;
            self.heard = Some(link);
        }
        Ok(())
    }

    fn begin(&mut self, place: Place, offer: Offer, exchange: &Exchange) {
        match self.bind(place) {
            Ok((port, listener)) => {
                let shared = Arc::new(ArcSwap::from_pointee(offer.clone()));
                let listener = Arc::new(listener);
                let serving = serve(listener.clone(), shared.clone(), exchange.clone());
                let task = tokio::spawn(serving);
                self.listening.insert(place, Listening { port, offer, shared, listener, task });
            }
            Err(error) => {
                let (ip, port) = (place.ip, place.port);
                tracing::warn!(%ip, port, %error, "no pod can call this service: cannot listen");
            }
        }
    }

    /// The first port that nobody has.
    fn bind(&self, place: Place) -> io::Result<(u16, TcpListener)> {
        let ip = self.behind[usize::from(place.ip.is_ipv6())];
        let is_taken = |port: &u16| self.listening.values().any(|it| it.port == *port);
        for port in LISTENERS.filter(|port| !is_taken(port)) {
            match listen(SocketAddr::new(ip, port), self.heard) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                done => return done.map(|listener| (port, listener)),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}

impl Listening {
    fn renew(&mut self, offer: Offer) {
        if self.offer != offer {
            self.shared.store(Arc::new(offer.clone()));
            self.offer = offer;
        }
    }
}

fn listen(at: SocketAddr, heard: Option<u32>) -> io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    heard.map_or(Ok(()), |link| hear_only(&socket, link))?;
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

async fn serve(listener: Arc<TcpListener>, offer: Arc<ArcSwap<Offer>>, exchange: Exchange) {
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
    let admitted = admit(from, &offer, &exchange);
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

fn admit(from: SocketAddr, offer: &Offer, exchange: &Exchange) -> Result<Caller, TurnAway> {
    let callers = exchange.callers.load();
    let caller = (exchange.interface_of)(from.ip()).and_then(|index| callers.get(&index));
    let caller = caller.ok_or(TurnAway::UnknownCaller)?;
    if offer.to.has(&caller.tenant) { Ok(caller.clone()) } else { Err(TurnAway::NotExported) }
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

#[cfg(test)]
impl Fronts {
    /// Where calls over IPv4 are listened for.
    pub(super) fn address_of_ipv4(&self) -> IpAddr {
        self.behind[0]
    }

    /// Those behind each.
    pub(super) fn targets(&self) -> Vec<Vec<SocketAddr>> {
        self.listening.values().map(|it| it.offer.targets.clone()).collect()
    }
}
