//! The thread for everything that waits: TCP, and questions to upstreams.
//!
//! Its rule: it may be slow, full or stuck, and the network's own names are still answered over
//! UDP.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::answer::{Question, refuse, relay, wanted};
use crate::asker::Asker;
use crate::counters::Refused;
use crate::forward::{Patience, ask};
use crate::limits::{Permit, Share, Whose};
use crate::network::Network;
use crate::query::Query;
use crate::reply::{TCP_BUFFER, UDP_BUFFER, Way};
use crate::server::Shared;

/// A question over UDP that an upstream has to be asked for.
pub(crate) struct Job {
    pub(crate) asker: Asker,
    pub(crate) network: Arc<Network>,
    pub(crate) packet: Vec<u8>,
    pub(crate) socket: Arc<UdpSocket>,
    pub(crate) from: SocketAddr,
}

/// Works off the questions that the UDP threads hand over.
pub(crate) async fn run(shared: Arc<Shared>, mut jobs: mpsc::Receiver<Job>) {
    while let Some(job) = jobs.recv().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            let answer = outside(&shared, &job.asker, &job.network, &job.packet, Way::Udp).await;
            // An answer that cannot be sent is a packet lost: the asker asks again.
            let _ = job.socket.send_to(&answer, job.from);
        });
    }
}

/// The answer to a question for which an upstream has to be asked.
pub(crate) async fn outside(
    shared: &Shared,
    asker: &Asker,
    network: &Arc<Network>,
    packet: &[u8],
    way: Way,
) -> Vec<u8> {
    let mut query = Query::new();
    if query.read(packet).is_err() {
        return vec![];
    }
    let zones = network.zones.load_full();
    let outcome = match permit(shared, asker) {
        Ok(_permit) => {
            let patience =
                Patience { wait: shared.config.upstream_wait, tries: shared.config.upstream_tries };
            let wanted = wanted(zones.as_deref(), &query);
            ask(network, wanted.name().wire(), query.kind, patience).await
        }
        Err(why) => Err(why),
    };
    let room = if way == Way::Udp { UDP_BUFFER } else { TCP_BUFFER };
    let mut out = vec![0; room];
    let question = Question { query: &query, packet, way, turn: 0 };
    let len = relay(network, zones.as_deref(), question, &outcome, &mut out);
    out.truncate(len);
    out
}

fn permit(shared: &Shared, asker: &Asker) -> Result<Permit, Refused> {
    let limits = &shared.config.limits;
    let (pod, tenant) = (limits.pod_forwards, limits.tenant_forwards);
    let share = Share { pod, tenant, all: shared.config.forwards };
    shared.forwards.take(asker, share).map_err(|whose| match whose {
        Whose::Pod(_) => Refused::PodForwards,
        Whose::Tenant(_) => Refused::TenantForwards,
    })
}

/// The answer where the slow thread has no room for another question.
pub(crate) fn busy(network: &Network, question: Question<'_>, out: &mut [u8]) -> usize {
    refuse(network, question, Refused::Busy, out)
}
