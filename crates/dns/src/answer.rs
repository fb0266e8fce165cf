//! From a question to its answer, from one network's view.
//!
//! Its rule: what is the network's own is answered here and at once. What is not is refused,
//! answered from what is known already, or left to be asked for.

use std::sync::Arc;
use std::time::Instant;

use atoll_zones::{Asked, Found, ZoneSet};

use crate::cache::Foreign;
use crate::counters::{Answered, Refused};
use crate::feed::FEED;
use crate::network::Network;
use crate::query::{Query, Rcode};
use crate::reply::{Reply, Way};

const IXFR: u16 = 251;
const AXFR: u16 = 252;

/// What became of a question.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The answer was written, so many bytes long.
    Done(usize),
    /// An upstream has to be asked.
    Ask,
}

/// A question in its place: the packet that holds it, and the way that its answer goes.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) query: &'a Query,
    pub(crate) packet: &'a [u8],
    pub(crate) way: Way,
    /// Which of several addresses comes first.
    pub(crate) turn: usize,
}

/// Answers a question, or says that an upstream has to be asked.
pub(crate) fn answer(network: &Network, question: Question<'_>, out: &mut [u8]) -> Step {
    let query = question.query;
    if matches!(query.kind, 0 | IXFR | AXFR | FEED) {
        return Step::Done(refuse(network, question, Refused::NotOffered, out));
    }
    let zones = network.zones.load();
    let Some(zones) = zones.as_ref() else {
        return Step::Done(refuse(network, question, Refused::NoView, out));
    };
    let found = zones.find(&query.name(), query.known_kind());
    if found == Found::Outside {
        return outside(network, question, out);
    }
    let mut reply = start(network, question, out);
    reply.authoritative();
    if let Found::Alias { record, target } = found {
        reply.alias(&record);
        return follow(network, zones, question, target, reply);
    }
    Step::Done(own(network, found, question.turn, reply))
}

/// What the network itself knows about a name.
fn own(network: &Network, found: Found<'_>, turn: usize, mut reply: Reply<'_>) -> usize {
    let (how, rcode) = match found {
        Found::Records(records) => {
            reply.records(&records, turn);
            (Answered::Records, Rcode::NoError)
        }
        Found::Address(ip, ttl) => {
            reply.address(ip, ttl);
            (Answered::Records, Rcode::NoError)
        }
        Found::NoData(negative) => {
            reply.negative(&negative);
            (Answered::NoData, Rcode::NoError)
        }
        Found::NoName(negative) => {
            reply.negative(&negative);
            (Answered::NoName, Rcode::NxDomain)
        }
        Found::Alias { .. } | Found::Outside => (Answered::Records, Rcode::NoError),
    };
    finish(network, reply, how, rcode)
}

/// Goes on after an alias: one step inside the network, else outside. A second alias is left to
/// the asker, so that no circle is walked.
fn follow(
    network: &Network,
    zones: &ZoneSet,
    question: Question<'_>,
    target: &[u8],
    mut reply: Reply<'_>,
) -> Step {
    let mut next = Query::new();
    if next.read_name(target).is_none() {
        return Step::Done(finish(network, reply, Answered::Records, Rcode::NoError));
    }
    let found = zones.find(&next.name(), question.query.known_kind());
    if found != Found::Outside {
        return Step::Done(own(network, found, question.turn, reply));
    }
    match known(network, &next.name(), question.query.kind) {
        Known::Refused => Step::Done(finish(network, reply, Answered::Records, Rcode::NoError)),
        Known::Cached(foreign, age) => {
            write(&mut reply, &foreign, age);
            Step::Done(finish(network, reply, Answered::Cached, foreign.rcode))
        }
        Known::Ask => Step::Ask,
    }
}

/// A name that is not the network's own.
fn outside(network: &Network, question: Question<'_>, out: &mut [u8]) -> Step {
    match known(network, &question.query.name(), question.query.kind) {
        Known::Refused => Step::Done(refuse(network, question, Refused::NotForwarded, out)),
        Known::Cached(foreign, age) => {
            let mut reply = start(network, question, out);
            write(&mut reply, &foreign, age);
            Step::Done(finish(network, reply, Answered::Cached, foreign.rcode))
        }
        Known::Ask => Step::Ask,
    }
}

enum Known {
    Refused,
    Cached(Arc<Foreign>, u32),
    Ask,
}

fn known(network: &Network, name: &Asked<'_>, kind: u16) -> Known {
    if network.forwarding.load().upstreams.is_empty() {
        return Known::Refused;
    }
    match network.cache.get(name.wire(), kind, Instant::now()) {
        Some((foreign, age)) => Known::Cached(foreign, age),
        None => Known::Ask,
    }
}

/// The name that an upstream has to be asked for: the one in the question, or the one that an
/// alias stands for.
pub(crate) fn wanted(zones: Option<&ZoneSet>, query: &Query) -> Query {
    let mut wanted = query.clone();
    if let Some(zones) = zones
        && let Found::Alias { target, .. } = zones.find(&query.name(), query.known_kind())
    {
        wanted.read_name(target);
    }
    wanted
}

/// The answer to a question with what an upstream said, and with the names that it was asked for.
pub(crate) fn relay(
    network: &Network,
    zones: Option<&ZoneSet>,
    question: Question<'_>,
    outcome: &Result<Arc<Foreign>, Refused>,
    out: &mut [u8],
) -> usize {
    let foreign = match outcome {
        Ok(foreign) => foreign,
        Err(why) => return refuse(network, question, *why, out),
    };
    let mut reply = start(network, question, out);
    if let Some(zones) = zones
        && let Found::Alias { record, .. } =
            zones.find(&question.query.name(), question.query.known_kind())
    {
        reply.alias(&record);
    }
    write(&mut reply, foreign, 0);
    finish(network, reply, Answered::Forwarded, foreign.rcode)
}

/// Tells the asker that there will be no answer, and counts why.
pub(crate) fn refuse(
    network: &Network,
    question: Question<'_>,
    why: Refused,
    out: &mut [u8],
) -> usize {
    network.counters.refused(why);
    let rcode = match why {
        Refused::NoView | Refused::UpstreamFailed | Refused::Busy => Rcode::ServFail,
        Refused::PodForwards | Refused::TenantForwards => Rcode::ServFail,
        _ => Rcode::Refused,
    };
    start(network, question, out).end(rcode)
}

fn start<'b>(network: &Network, question: Question<'_>, out: &'b mut [u8]) -> Reply<'b> {
    let mut reply = Reply::new(question.query, question.packet, question.way, out);
    if !network.forwarding.load().upstreams.is_empty() {
        reply.recursion();
    }
    reply
}

fn finish(network: &Network, reply: Reply<'_>, how: Answered, rcode: Rcode) -> usize {
    network.counters.answered(how);
    if reply.truncated() {
        network.counters.truncated();
    }
    reply.end(rcode)
}

/// Writes what an upstream said, with what is left of its time.
fn write(reply: &mut Reply<'_>, foreign: &Foreign, age: u32) {
    let from = reply.place();
    reply.foreign(&foreign.answers, foreign.count, &foreign.authority);
    let written = reply.bytes(from);
    for at in foreign.ttl_at.iter().map(|at| usize::from(*at)) {
        if let Some(Ok(ttl)) = written.get(at..at + 4).map(<[u8; 4]>::try_from) {
            let left = u32::from_be_bytes(ttl).saturating_sub(age);
            written[at..at + 4].copy_from_slice(&left.to_be_bytes());
        }
    }
}
