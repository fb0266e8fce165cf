//! The listeners behind doors to services: one port of the agent for each address and port of each
//! exported service, the same for the pods of all networks. No number is one of TCP and one of UDP: a way
//! back is known by it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use atoll_dns::hear_only;
use atoll_model::compile::Front;
use atoll_model::export::Audience;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

use super::{Exchange, calls, datagrams};

/// The agent's ports behind doors to services, beyond those that kernels give to outgoing
/// connections.
const LISTENERS: std::ops::RangeInclusive<u16> = 61100..=61999;
/// An address and port of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) ip: IpAddr,
    pub(super) port: u16,
    /// Whether the port is of UDP; else it is of TCP.
    pub(super) datagrams: bool,
}

/// What is offered there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// To whom.
    pub(super) to: Audience,
    /// Those behind the service.
    pub(super) targets: Vec<SocketAddr>,
}

/// What hears pods.
#[derive(Clone)]
enum Ear {
    Calls(Arc<TcpListener>),
    Datagrams(Arc<UdpSocket>),
}

impl Ear {
    fn open(at: SocketAddr, datagrams: bool, heard: Option<u32>) -> io::Result<Ear> {
        match datagrams {
            true => Ok(Ear::Datagrams(Arc::new(datagrams::listen(at, heard)?))),
            false => Ok(Ear::Calls(Arc::new(calls::listen(at, heard)?))),
        }
    }

    fn hear_only(&self, link: u32) -> io::Result<()> {
        match self {
            Ear::Calls(listener) => hear_only(&**listener, link),
            Ear::Datagrams(socket) => hear_only(&**socket, link),
        }
    }

    /// Passes on what is heard, for good.
    fn serve(&self, offer: Arc<ArcSwap<Offer>>, exchange: Exchange) -> JoinHandle<()> {
        match self {
            Ear::Calls(listener) => tokio::spawn(calls::serve(listener.clone(), offer, exchange)),
            Ear::Datagrams(socket) => {
                tokio::spawn(datagrams::serve(socket.clone(), offer, exchange))
            }
        }
    }
}

/// A listener that is at work. It ends with this value, and datagrams with it; calls that were passed on
/// go on.
struct Listening {
    port: u16,
    offer: Offer,
    shared: Arc<ArcSwap<Offer>>,
    ear: Ear,
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
        let front = |(place, it): (&Place, &'_ Listening)| (*place, it.port);
        let fronts = self.listening.iter().map(|entry| (front(entry), &entry.1.offer.to));
        let front = |((place, listener), to)| {
            let Place { ip, port, datagrams } = place;
            Front { ip, port, datagrams, listener, to }
        };
        fronts.map(front).collect()
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
            listening.try_for_each(|it| it.ear.hear_only(link))?;
            self.heard = Some(link);
        }
        Ok(())
    }

    fn begin(&mut self, place: Place, offer: Offer, exchange: &Exchange) {
        match self.bind(place) {
            Ok((port, ear)) => {
                let shared = Arc::new(ArcSwap::from_pointee(offer.clone()));
                let task = ear.serve(shared.clone(), exchange.clone());
                self.listening.insert(place, Listening { port, offer, shared, ear, task });
            }
            Err(error) => {
                let (ip, port) = (place.ip, place.port);
                tracing::warn!(%ip, port, %error, "no pod can call this service: cannot listen");
            }
        }
    }

    /// The first port that nobody has.
    fn bind(&self, place: Place) -> io::Result<(u16, Ear)> {
        let ip = self.behind[usize::from(place.ip.is_ipv6())];
        let is_taken = |port: &u16| self.listening.values().any(|it| it.port == *port);
        for port in LISTENERS.filter(|port| !is_taken(port)) {
            match Ear::open(SocketAddr::new(ip, port), place.datagrams, self.heard) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                done => return done.map(|ear| (port, ear)),
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
