//! Datagrams of pods to a service of the cluster's own, and the answers to them.
//!
//! What a pod sends from one port is a *flow*: it goes to one of those behind the service, from a socket of
//! its own, and what comes back there goes to the pod. The rules: whom a pod may call is asked at each of
//! its datagrams; a flow is one call of its pod's share, and a pod that has no more of them loses the one
//! that was silent longest, if it was for a moment, and never another pod's; and nothing here waits for
//! anybody: what cannot be passed on at once is lost, as datagrams may be.

mod flow;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use atoll_dns::hear_only;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use self::flow::Flow;
pub(super) use self::flow::{LARGEST, Patience};
use super::fronts::Offer;
use super::limits::Permit;
use super::turn_away::TurnAway;
use super::{Caller, Exchange};

/// Room for what one pod may send at once, and for others beside it.
const ROOM: usize = 4 << 20;

/// How many datagrams are passed on before somebody else has a turn.
const BATCH: usize = 64;

/// How often flows that are over are looked for.
const LOOK: Duration = Duration::from_secs(5);

/// How many of those behind a service are tried.
const TRIES: usize = 3;

/// Listens there, to one link alone where it is known.
pub(super) fn listen(at: SocketAddr, heard: Option<u32>) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    heard.map_or(Ok(()), |link| hear_only(&socket, link))?;
    // Without the right to exceed the system's limit, the limit is what we get.
    if setsockopt(&socket, sockopt::RcvBufForce, &ROOM).is_err() {
        socket.set_recv_buffer_size(ROOM)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    UdpSocket::from_std(socket.into())
}

/// Passes datagrams on for good.
pub(super) async fn serve(
    listener: Arc<UdpSocket>,
    offer: Arc<ArcSwap<Offer>>,
    exchange: Exchange,
) {
    Relay::new(listener, offer, exchange, Patience::default()).run(LOOK).await;
}

/// The flows to one port of a service.
pub(super) struct Relay {
    listener: Arc<UdpSocket>,
    offer: Arc<ArcSwap<Offer>>,
    exchange: Exchange,
    patience: Patience,
    /// By the UID of their pod, and the alias and port that they come from.
    flows: HashMap<Arc<str>, HashMap<SocketAddr, Flow>>,
    /// Whose turn it is among those behind the service.
    turn: usize,
}

impl Relay {
    pub(super) fn new(
        listener: Arc<UdpSocket>,
        offer: Arc<ArcSwap<Offer>>,
        exchange: Exchange,
        patience: Patience,
    ) -> Relay {
        Relay { listener, offer, exchange, patience, flows: HashMap::new(), turn: 0 }
    }

    /// Passes datagrams on, and looks so often for flows that are over.
    pub(super) async fn run(mut self, look: Duration) {
        let mut look = tokio::time::interval(look);
        let listener = self.listener.clone();
        loop {
            tokio::select! {
                ready = listener.readable() => match ready {
                    Ok(()) => self.take_some(),
                    Err(error) => tracing::warn!(%error, "cannot hear datagrams"),
                },
                _ = look.tick() => self.end_what_is_over(),
            }
        }
    }

    fn take_some(&mut self) {
        let mut said = [0; LARGEST + 1];
        for _ in 0..BATCH {
            let Ok((length, from)) = self.listener.try_recv_from(&mut said) else { return };
            if length > LARGEST {
                continue;
            }
            if let Err(why) = self.take(from, &said[..length]) {
                self.exchange.counters.turned_away(why);
                tracing::debug!(%from, ?why, "datagram turned away");
            }
        }
    }

    /// Passes one datagram on, in the flow that it is of or in a new one.
    fn take(&mut self, from: SocketAddr, said: &[u8]) -> Result<(), TurnAway> {
        let offer = self.offer.load_full();
        let caller = self.exchange.admit(from, &offer)?;
        let of_pod = self.flows.entry(caller.pod_uid.clone()).or_default();
        if let Some(flow) = of_pod.get(&from)
            && offer.targets.contains(&flow.target)
            && flow.send(said).is_ok()
        {
            return Ok(());
        }
        let former = of_pod.remove(&from).map(|flow| flow.target);
        let permit = self.permit(&caller)?;
        let flow = self.open(&offer, former, (from, caller.clone(), permit))?;
        self.exchange.counters.passed_on();
        // One that refuses at once is known by the next datagram.
        let _lost = flow.send(said);
        self.flows.entry(caller.pod_uid).or_default().insert(from, flow);
        Ok(())
    }

    /// One more flow of this pod, if need be in the place of another that it has here.
    fn permit(&mut self, caller: &Caller) -> Result<Permit, TurnAway> {
        let taken = self.exchange.limits.take(caller);
        let Err(why) = taken else { return taken };
        let of_pod = self.flows.get_mut(&caller.pod_uid).ok_or(why)?;
        let longest = of_pod.iter().min_by_key(|(_, flow)| flow.last_word());
        let longest = longest.filter(|(_, flow)| flow.last_word().elapsed() >= self.patience.rest);
        let longest = longest.map(|(from, _)| *from).ok_or(why)?;
        drop(of_pod.remove(&longest));
        self.exchange.limits.take(caller)
    }

    /// A flow to one of those behind the service, each in turn, and not to the former where there is
    /// another.
    fn open(
        &mut self,
        offer: &Offer,
        former: Option<SocketAddr>,
        (from, caller, permit): (SocketAddr, Caller, Permit),
    ) -> Result<Flow, TurnAway> {
        let others = offer.targets.iter().filter(|target| Some(**target) != former);
        let others: Vec<SocketAddr> = others.copied().collect();
        let targets = if others.is_empty() { &offer.targets } else { &others };
        self.turn = self.turn.wrapping_add(1);
        let first = self.turn.checked_rem(targets.len()).ok_or(TurnAway::NoTarget)?;
        let in_turn = targets.iter().cycle().skip(first).take(targets.len().min(TRIES));
        let (socket, target) =
            in_turn.copied().find_map(flow::connect).ok_or(TurnAway::NoTarget)?;
        Ok(Flow::new((socket, target), (self.listener.clone(), from), caller, permit))
    }

    /// Ends flows that nobody speaks in any more, and those whose pod may not call, or is another.
    fn end_what_is_over(&mut self) {
        let (offer, exchange, patience) = (self.offer.load(), &self.exchange, self.patience);
        let is_on = |from: &SocketAddr, flow: &Flow| {
            flow.is_on(patience) && exchange.admit(*from, &offer).as_ref() == Ok(&flow.caller)
        };
        self.flows.retain(|_, of_pod| {
            of_pod.retain(|from, flow| is_on(from, flow));
            !of_pod.is_empty()
        });
    }
}

#[cfg(test)]
mod tests;
