//! Asking upstreams.
//!
//! Its rule: an answer from outside is hard to forge. Each question has a random id and a socket
//! of its own, so a random port too, which hears only the upstream; the same question of one
//! network is asked once at a time, so that nobody can guess at many at once.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{timeout, timeout_at};

use crate::cache::Foreign;
use crate::config::Forwarding;
use crate::counters::Refused;
use crate::limits::lock;
use crate::network::Network;
use crate::response::{Demand, Guard, Unusable};

/// What came of a question to upstreams.
pub(crate) type Outcome = Result<Arc<Foreign>, Refused>;

type Running = Shared<BoxFuture<'static, Outcome>>;

/// What is asked: a name and a type.
type Asked = (Vec<u8>, u16);

/// The questions of one network that upstreams have not answered yet.
#[derive(Default)]
pub(crate) struct Pending(Mutex<UnderWay>);

#[derive(Default)]
struct UnderWay {
    /// How many there were.
    turns: u64,
    /// Each with its turn.
    questions: HashMap<Asked, (u64, Running)>,
}

impl Pending {
    /// Nobody waits any more for what is under way, but those who do already.
    pub(crate) fn forget(&self) {
        lock(&self.0).questions.clear();
    }

    /// The question that is under way, or a new one.
    fn join(&self, asked: &Asked, start: impl FnOnce(u64) -> Running) -> Running {
        let mut under_way = lock(&self.0);
        let UnderWay { turns, questions } = &mut *under_way;
        let begin = || {
            *turns += 1;
            (*turns, start(*turns))
        };
        questions.entry(asked.clone()).or_insert_with(begin).1.clone()
    }

    /// The question of this turn is over. Another may be under way, if this one was forgotten.
    fn end(&self, asked: &Asked, turn: u64) {
        let mut under_way = lock(&self.0);
        let questions = &mut under_way.questions;
        if questions.get(asked).is_some_and(|(own, _)| *own == turn) {
            questions.remove(asked);
        }
    }
}

/// How upstreams are asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) wait: Duration,
    pub(crate) tries: usize,
}

/// Asks the upstreams of a network for a name, or waits for the same question that is on its way.
pub(crate) async fn ask(
    network: &Arc<Network>,
    name: &[u8],
    kind: u16,
    patience: Patience,
) -> Outcome {
    let asked = (name.to_vec(), kind);
    let start = |turn| start(network.clone(), asked.clone(), turn, patience);
    network.pending.join(&asked, start).await
}

fn start(network: Arc<Network>, asked: Asked, turn: u64, patience: Patience) -> Running {
    let asking = async move {
        let forwarding = network.forwarding.load_full();
        let outcome = upstreams(&network, &forwarding, &asked.0, asked.1, patience).await;
        if let Ok(foreign) = &outcome {
            keep(&network, &forwarding, &asked, foreign);
        }
        network.pending.end(&asked, turn);
        outcome
    };
    asking.boxed().shared()
}

/// Keeps an answer for as long as the rules hold under which it was asked for. Whoever changes them
/// forgets afterwards what is kept: so does this, where they changed meanwhile.
fn keep(
    network: &Network,
    forwarding: &Arc<Forwarding>,
    (name, kind): &Asked,
    foreign: &Arc<Foreign>,
) {
    network.cache.put(name, *kind, foreign.clone(), Instant::now());
    if !Arc::ptr_eq(forwarding, &network.forwarding.load_full()) {
        network.cache.clear();
    }
}

async fn upstreams(
    network: &Network,
    forwarding: &Forwarding,
    name: &[u8],
    kind: u16,
    patience: Patience,
) -> Outcome {
    let upstreams = forwarding.upstreams.iter().cycle().take(match forwarding.upstreams.len() {
        0 => 0,
        _ => patience.tries,
    });
    let guard =
        Guard { refuse_private: forwarding.refuse_private, zones: network.zones.load_full() };
    for upstream in upstreams {
        let exchange = Exchange { network, upstream: *upstream, wait: patience.wait };
        let Some(demand) = demand(name, kind) else { return Err(Refused::UpstreamFailed) };
        match exchange.run(&demand, &guard).await {
            Ok(foreign) => return Ok(Arc::new(foreign)),
            Err(Unusable::Rebinding) => return Err(Refused::Rebinding),
            Err(Unusable::Failed | Unusable::Mismatch | Unusable::Truncated) => {}
        }
    }
    Err(Refused::UpstreamFailed)
}

fn demand(name: &[u8], kind: u16) -> Option<Demand> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).ok()?;
    Some(Demand { id, name: name.to_vec(), kind })
}

/// One question to one upstream.
struct Exchange<'a> {
    network: &'a Network,
    upstream: SocketAddr,
    wait: Duration,
}

impl Exchange<'_> {
    async fn run(&self, demand: &Demand, guard: &Guard) -> Result<Foreign, Unusable> {
        match self.udp(demand, guard).await {
            Err(Unusable::Truncated) => {
                let answer = timeout(self.wait, self.tcp(demand)).await;
                let packet = answer.ok().and_then(Result::ok).ok_or(Unusable::Failed)?;
                demand.read(&packet, guard)
            }
            other => other,
        }
    }

    async fn udp(&self, demand: &Demand, guard: &Guard) -> Result<Foreign, Unusable> {
        let deadline = tokio::time::Instant::now() + self.wait;
        let socket = self.send(demand).await.map_err(|_| Unusable::Failed)?;
        let mut packet = vec![0; 4096];
        loop {
            let heard = timeout_at(deadline, socket.recv(&mut packet)).await;
            let len = heard.ok().and_then(Result::ok).ok_or(Unusable::Failed)?;
            match demand.read(&packet[..len], guard) {
                Err(Unusable::Mismatch) => self.network.counters.mismatched(),
                other => return other,
            }
        }
    }

    /// A socket at a port that the kernel chose, and that hears nobody but the upstream.
    async fn send(&self, demand: &Demand) -> std::io::Result<UdpSocket> {
        let any: IpAddr = match self.upstream {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(self.upstream).await?;
        socket.send(&demand.packet()).await?;
        Ok(socket)
    }

    async fn tcp(&self, demand: &Demand) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.upstream).await?;
        let packet = demand.packet();
        stream.write_all(&[&(packet.len() as u16).to_be_bytes()[..], &packet].concat()).await?;
        let mut answer = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_was_forgotten_does_not_end_the_one_that_took_its_place() {
        let (pending, asked) = (Pending::default(), (b"\x01a\x00".to_vec(), 1));
        let mut turns = vec![];
        let mut join = || {
            let never = |turn| {
                turns.push(turn);
                std::future::pending().boxed().shared()
            };
            drop(pending.join(&asked, never));
            turns.clone()
        };
        assert_eq!(join(), [1]);
        assert_eq!(join(), [1], "the same question is asked once at a time");
        pending.forget();
        assert_eq!(join(), [1, 2]);
        pending.end(&asked, 1);
        assert_eq!(join(), [1, 2], "the second is still under way");
        pending.end(&asked, 2);
        assert_eq!(join(), [1, 2, 3]);
    }
}
