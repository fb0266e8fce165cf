//! How evenly connections are spread over the backends of a service, and which of them are led
//! elsewhere when one backend goes: told by real connections from the same ports, before and after.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use atoll_plan::{Backend, Service, ServiceKey, Side};
use atoll_types::{NetAddr, NetworkId, Protocol};
use socket2::{Domain, Socket, Type};

use crate::paths::{Cluster, Ends, Place, Setting, VIP};

/// How many backends there are: ports of one pod.
pub(super) const BACKENDS: u16 = 10;
/// How many connections are opened.
pub(super) const FLOWS: u16 = 4_000;
const FIRST_BACKEND: u16 = 8_001;
const FIRST_SOURCE: u16 = 20_000;
const SERVICE_PORT: u16 = 8_000;
const PATIENCE: Duration = Duration::from_secs(5);

/// What became of the connections.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spread {
    /// How many each backend had.
    pub(super) counts: Vec<u32>,
    /// The share that was led elsewhere when a backend went.
    pub(super) moved: f64,
    /// The share that was led elsewhere though its backend was still there.
    pub(super) moved_needlessly: f64,
}

impl Spread {
    fn compare(before: &[u16], after: &[u16], gone: u16) -> Self {
        let flows = before.len() as f64;
        let counts = (0..BACKENDS).map(|it| before.iter().filter(move |backend| **backend == it));
        let moved: Vec<u16> =
            before.iter().zip(after).filter(|(was, is)| was != is).map(|(was, _)| *was).collect();
        let needless = moved.iter().filter(|was| **was != gone).count();
        Spread {
            counts: counts.map(|it| u32::try_from(it.count()).unwrap_or(u32::MAX)).collect(),
            moved: moved.len() as f64 / flows,
            moved_needlessly: needless as f64 / flows,
        }
    }

    /// How far the counts are from even: about one less than there are backends where chance alone
    /// is at work.
    pub(super) fn chi_square(&self) -> f64 {
        let all: f64 = self.counts.iter().copied().map(f64::from).sum();
        let expected = all / self.counts.len() as f64;
        self.counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum()
    }
}

/// Opens the connections while all backends are there, and once one is gone.
pub(super) fn measure(network: u32) -> Result<Spread> {
    let gone = BACKENDS / 2;
    let before = backends_of_all(network, None)?;
    let after = backends_of_all(network, Some(gone))?;
    Ok(Spread::compare(&before, &after, gone))
}

/// The backend of every connection, on nodes that remember none: what they remember would hide how
/// they choose.
fn backends_of_all(network: u32, gone: Option<u16>) -> Result<Vec<u16>> {
    let cluster = Cluster::new(&Setting { policy: false, ..Setting::everything(&[network]) })?;
    let ends = cluster.ends(Place::SameNode).into_iter().next().context("a cluster has pods")?;
    let network = NetworkId::try_from(network)?;
    let port = NonZeroU16::try_from(SERVICE_PORT)?;
    let (protocol, side) = (Protocol::Tcp, Side::Clients);
    let key = ServiceKey { network, ip: VIP.into(), protocol, port, side };
    let all: BTreeSet<u16> = (0..BACKENDS).collect();
    cluster.change(key, service(network, ends.target, &all)?)?;
    if let Some(gone) = gone {
        let left = &all - &BTreeSet::from([gone]);
        cluster.change(key, service(network, ends.target, &left)?)?;
    }
    open_all(&ends, &listen(&ends)?)
}

fn service(network: NetworkId, ip: IpAddr, backends: &BTreeSet<u16>) -> Result<Service> {
    let backend = |number: &u16| -> Result<Backend> {
        let port = NonZeroU16::try_from(FIRST_BACKEND + number)?;
        Ok(Backend { addr: NetAddr::new(network, ip), port })
    };
    let backends = backends.iter().map(backend).collect::<Result<_>>()?;
    Ok(Service { backends, ..Service::default() })
}

fn listen(ends: &Ends) -> Result<Vec<TcpListener>> {
    let one = |number: u16| {
        let listener = TcpListener::bind(("0.0.0.0", FIRST_BACKEND + number))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    ends.server.run(|| (0..BACKENDS).map(one).collect())
}

/// The backend of every connection, each from a port of its own.
fn open_all(ends: &Ends, listeners: &[TcpListener]) -> Result<Vec<u16>> {
    let ports = FIRST_SOURCE..FIRST_SOURCE + FLOWS;
    ends.client.run(|| ports.map(|port| open(port, listeners)).collect())
}

/// Opens a connection and closes it by a reset, so that its port is free at once.
fn open(source: u16, listeners: &[TcpListener]) -> Result<u16> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_linger(Some(Duration::ZERO))?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, source)).into())?;
    let target = SocketAddr::from((VIP, SERVICE_PORT));
    let opened = socket.connect_timeout(&target.into(), PATIENCE);
    opened.with_context(|| format!("cannot connect to {target} from port {source}"))?;
    accepted(listeners).with_context(|| format!("nobody took the connection from port {source}"))
}

/// Which of these took the connection that was just opened.
fn accepted(listeners: &[TcpListener]) -> Result<u16> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        for (number, listener) in (0..).zip(listeners) {
            if listener.accept().is_ok() {
                return Ok(number);
            }
        }
    }
    bail!("no backend was called within {} s", PATIENCE.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_spread_has_no_distance_and_a_heap_has_much() {
        let of =
            |counts: [u32; 4]| Spread { counts: counts.into(), moved: 0.0, moved_needlessly: 0.0 };
        assert_eq!(of([5, 5, 5, 5]).chi_square(), 0.0);
        assert_eq!(of([20, 0, 0, 0]).chi_square(), 60.0);
    }

    #[test]
    fn whoever_loses_its_backend_moves_and_whoever_else_moves_does_so_needlessly() {
        let spread = Spread::compare(&[0, 1, 2, 2], &[0, 3, 3, 4], 2);
        assert_eq!((spread.moved, spread.moved_needlessly), (0.75, 0.25));
        assert_eq!(spread.counts[..3], [1, 1, 2]);
    }
}
