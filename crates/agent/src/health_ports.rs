//! Ports of this node at which machines outside ask whether it has anybody behind a load balancer, before
//! they send clients here: the `healthCheckNodePort` of a Service.
//!
//! The rules: such a port says how many are ready here of the one service that it belongs to, and nothing
//! of any other; it is at the node's own addresses alone, which no pod of a tenant reaches; and nobody who
//! asks slowly, or often, keeps others from their answer.

mod answer;
mod visitors;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use nix::sys::socket::{Shutdown, shutdown};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

pub(crate) use self::answer::Health;
pub(crate) use self::visitors::Visitors;
use crate::report::{Report, ServiceReport};

/// How many may wait to be heard at one port.
const BACKLOG: u32 = 64;

/// How long after a failed accept the next is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// What is asked about at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The tenant whose service it is, where it is one's.
    pub(crate) tenant: Option<String>,
    /// The service's UID.
    pub(crate) uid: String,
    /// What is said; none where it is not known yet, and what was said before stands.
    pub(crate) health: Option<Health>,
}

/// A port that is listened at. It ends with this value.
struct Listening {
    tenant: Option<String>,
    says: Arc<ArcSwap<Health>>,
    listener: Arc<TcpListener>,
    task: JoinHandle<()>,
}

impl Drop for Listening {
    /// The port is free at once: the task may end a moment later.
    fn drop(&mut self) {
        let _closed_already = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        self.task.abort();
    }
}

/// All such ports.
pub(crate) struct HealthPorts {
    /// How many there may be.
    most: usize,
    visitors: Visitors,
    reports: UnboundedSender<Report>,
    listening: BTreeMap<SocketAddr, Listening>,
    /// Those that cannot be listened at, as people were told.
    told: BTreeSet<SocketAddr>,
}

impl HealthPorts {
    /// None yet, and never more than this. People are told of those that cannot be had.
    pub(crate) fn within(
        most: usize,
        visitors: Visitors,
        reports: UnboundedSender<Report>,
    ) -> HealthPorts {
        let (listening, told) = (BTreeMap::new(), BTreeSet::new());
        HealthPorts { most, visitors, reports, listening, told }
    }

    /// Answers at exactly these ports, at these addresses. One that cannot be had is tried again each time.
    pub(crate) fn answer(&mut self, at: &[IpAddr], asked: &BTreeMap<NonZeroU16, Asked>) {
        let is_asked = |place: &SocketAddr| {
            let port = NonZeroU16::new(place.port());
            at.contains(&place.ip()) && port.is_some_and(|port| asked.contains_key(&port))
        };
        self.listening.retain(|place, _| is_asked(place));
        self.told.retain(is_asked);
        for (port, asked) in asked {
            for ip in at {
                self.answer_at(SocketAddr::new(*ip, port.get()), asked);
            }
        }
    }

    fn answer_at(&mut self, place: SocketAddr, asked: &Asked) {
        let Some(health) = &asked.health else { return };
        if let Some(listening) = self.listening.get(&place) {
            if **listening.says.load() != *health {
                listening.says.store(Arc::new(health.clone()));
            }
            return;
        }
        match self.begin(place, health, asked.tenant.as_deref()) {
            Ok(()) => drop(self.told.remove(&place)),
            Err(error) if self.told.insert(place) => {
                tracing::warn!(%place, service = ?health.service, %error, "nobody is told of health");
                let report =
                    ServiceReport::health_port_taken(&health.service, &asked.uid, place, &error);
                let _reporter_may_have_ended = self.reports.send(Report::Service(report));
            }
            Err(_) => {}
        }
    }

    fn begin(
        &mut self,
        place: SocketAddr,
        health: &Health,
        tenant: Option<&str>,
    ) -> io::Result<()> {
        if !self.has_room_for(tenant) {
            return Err(io::Error::other("this node answers at as many ports as it can"));
        }
        let listener = Arc::new(listen(place)?);
        let says = Arc::new(ArcSwap::from_pointee(health.clone()));
        let task =
            tokio::spawn(serve(listener.clone(), place, says.clone(), self.visitors.clone()));
        let tenant = tenant.map(ToOwned::to_owned);
        self.listening.insert(place, Listening { tenant, says, listener, task });
        Ok(())
    }

    /// A tenant has no more than it leaves to others.
    fn has_room_for(&self, tenant: Option<&str>) -> bool {
        let left = self.most.saturating_sub(self.listening.len());
        let own = self.listening.values().filter(|it| it.tenant.as_deref() == tenant).count();
        left > 0 && (tenant.is_none() || own < left)
    }
}

fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

async fn serve(
    listener: Arc<TcpListener>,
    at: SocketAddr,
    says: Arc<ArcSwap<Health>>,
    visitors: Visitors,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => visitors.admit(at, answer::converse(stream, says.load_full())),
            Err(error) => {
                tracing::warn!(%error, %at, "cannot accept a question about health");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
