//! The kinds of traffic that are measured, and the two ends of each.
//!
//! The rule: the ends do as little as they can, so that what differs between two paths is the path.

mod answer;
mod ask;

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use atoll_types::Protocol;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::goal::Goal;
use crate::paths::Place;
use crate::pinned;
use crate::rounds::Length;

pub(crate) use answer::answer;

const ECHO_PORT: u16 = 7001;
const SINK_PORT: u16 = 7002;
const COUNT_PORT: u16 = 7003;
const BLOCK_PORT: u16 = 7004;
const CROWD_PORT: u16 = 7005;

/// Every port that an answering end listens on.
pub(crate) const PORTS: [(Protocol, u16); 5] = [
    (Protocol::Tcp, ECHO_PORT),
    (Protocol::Tcp, SINK_PORT),
    (Protocol::Udp, COUNT_PORT),
    (Protocol::Tcp, BLOCK_PORT),
    (Protocol::Tcp, CROWD_PORT),
];

/// So many bytes are sent before the other end says that it has them: as much is under way on one
/// path as on another, and it stays in the processor's cache.
const BLOCK: usize = 256 << 10;

/// So many streams make a crowd.
const STREAMS: usize = 8;

/// So many packets are sent before the other end says that it has them.
const WINDOW: u32 = 32;
/// With its headers, a payload of this size makes an Ethernet frame of 64 bytes, the smallest.
const SMALLEST_PAYLOAD: usize = 18;

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// One byte there and back over an open connection.
    RoundTrip,
    /// Connect, one byte there and back, close.
    Connect,
    /// Large blocks, each confirmed, both ends on one CPU.
    Bulk,
    /// One stream, as fast as it goes, both ends on one CPU.
    Stream,
    /// Many streams at once, likewise.
    Streams,
    /// One stream with the ends on two CPUs.
    StreamTwoCpus,
    /// The smallest UDP packets.
    Packets,
}

impl Kind {
    /// All kinds, in the order of the tables.
    pub(crate) const ALL: [Kind; 7] = [
        Kind::RoundTrip,
        Kind::Connect,
        Kind::Bulk,
        Kind::Stream,
        Kind::Streams,
        Kind::StreamTwoCpus,
        Kind::Packets,
    ];

    /// What it is called, whatever it is measured in.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::RoundTrip => "round trip",
            Kind::Connect => "connect-request-close",
            Kind::Bulk => "blocks",
            Kind::Stream => "stream",
            Kind::Streams => "streams",
            Kind::StreamTwoCpus => "stream, two CPUs",
            Kind::Packets => "64-byte UDP",
        }
    }

    /// The heading of a column of times and rates.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Kind::RoundTrip => "round trip µs",
            Kind::Connect => "connect-request-close µs",
            Kind::Bulk => "blocks Gbit/s",
            Kind::Stream => "stream Gbit/s",
            Kind::Streams => "8 streams Gbit/s",
            Kind::StreamTwoCpus => "stream, two CPUs, Gbit/s",
            Kind::Packets => "64-byte UDP, 1000 packets/s",
        }
    }

    /// Of what its programs and frames are counted.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Kind::RoundTrip => "round trip",
            Kind::Connect => "connection",
            Kind::Bulk | Kind::Stream | Kind::Streams | Kind::StreamTwoCpus => "64 KiB",
            Kind::Packets => "packet",
        }
    }

    /// How long one round of it takes.
    fn duration(self) -> Duration {
        Duration::from_millis(match self {
            Kind::RoundTrip | Kind::Connect | Kind::Packets => 150,
            Kind::Bulk | Kind::Stream | Kind::Streams | Kind::StreamTwoCpus => 200,
        })
    }

    /// What Atoll promises of it, against the limit of its place.
    pub(crate) fn goal(self, place: Place) -> Option<Goal> {
        match (self, place) {
            (Kind::RoundTrip, Place::SameNode) => Some(Goal::AtMost(1.08)),
            (Kind::RoundTrip, Place::AcrossNodes) => Some(Goal::AtMost(1.03)),
            (Kind::Connect, Place::SameNode) => Some(Goal::AtMost(1.10)),
            (Kind::Bulk | Kind::Stream | Kind::Streams, Place::SameNode) => {
                Some(Goal::AtLeast(0.97))
            }
            (Kind::Bulk | Kind::Stream | Kind::Streams, Place::AcrossNodes) => {
                Some(Goal::AtLeast(0.92))
            }
            (Kind::Connect, Place::AcrossNodes) | (Kind::StreamTwoCpus | Kind::Packets, _) => None,
        }
    }

    /// What Atoll promises of it through a service, against the limit of one node.
    pub(crate) fn goal_through_service(self, place: Place) -> Option<Goal> {
        match (self, place) {
            (Kind::RoundTrip | Kind::Connect, Place::SameNode) => Some(Goal::AtMost(1.12)),
            _ => None,
        }
    }

    /// What it cost in instructions when it was last made cheaper, and 3 to 5 % for noise.
    pub(crate) fn kept(self, place: Place) -> Option<Goal> {
        match (self, place) {
            (Kind::RoundTrip, Place::SameNode) => Some(Goal::AtMost(1.11)),
            (Kind::Connect, Place::SameNode) => Some(Goal::AtMost(1.17)),
            (Kind::RoundTrip, Place::AcrossNodes) => Some(Goal::AtMost(1.02)),
            (Kind::Connect, Place::AcrossNodes) => Some(Goal::AtMost(1.14)),
            _ => None,
        }
    }

    /// The same through a service.
    pub(crate) fn kept_through_service(self, place: Place) -> Option<Goal> {
        match (self, place) {
            (Kind::RoundTrip, Place::SameNode) => Some(Goal::AtMost(1.14)),
            (Kind::Connect, Place::SameNode) => Some(Goal::AtMost(1.25)),
            _ => None,
        }
    }

    fn cpu_of_asker(self) -> usize {
        match self {
            Kind::StreamTwoCpus => pinned::other_cpu(),
            _ => pinned::shared_cpu(),
        }
    }
}

/// What an asking end says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Answer {
    /// Microseconds, Gbit/s, or thousands of packets a second.
    pub(crate) value: f64,
    /// How many units of its kind were carried.
    pub(crate) units: f64,
    /// How often the asking end waited meanwhile: turns that both ends took, where they share a CPU.
    pub(crate) turns: f64,
}

impl Answer {
    /// As one process tells it to another.
    pub(crate) fn told(self) -> String {
        format!("{} {} {}", self.value, self.units, self.turns)
    }

    /// What another process told.
    pub(crate) fn read(line: &str) -> Result<Self> {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next = || numbers.next().context("there is no answer");
        Ok(Answer { value: next()??, units: next()??, turns: next()?? })
    }
}

/// One question: this kind of traffic to that target.
#[derive(Clone, Debug, Args)]
pub(crate) struct Ask {
    kind: Kind,
    target: IpAddr,
    /// For a third of the usual time
    #[arg(long)]
    brief: bool,
}

impl Ask {
    /// The arguments that make this program ask it.
    pub(crate) fn arguments(kind: Kind, target: IpAddr, length: Length) -> Vec<String> {
        let kind = kind.to_possible_value().map(|value| value.get_name().to_owned());
        let mut arguments = vec!["ask".to_owned(), kind.unwrap_or_default(), target.to_string()];
        match length {
            Length::Whole => {}
            Length::Brief => arguments.push("--brief".into()),
        }
        arguments
    }

    /// Asks for as long as a round takes, and gives what was measured.
    pub(crate) fn run(&self) -> Result<Answer> {
        pinned::stay_on(self.kind.cpu_of_asker())?;
        let whole = self.kind.duration();
        let (target, duration) = (self.target, if self.brief { whole / 3 } else { whole });
        let before = waited()?;
        let answer = match self.kind {
            Kind::RoundTrip => ask::round_trip(target, duration),
            Kind::Connect => ask::connect(target, duration),
            Kind::Bulk => ask::blocks(target, duration),
            Kind::Stream | Kind::StreamTwoCpus => ask::stream(target, duration),
            Kind::Streams => ask::streams(target, duration),
            Kind::Packets => ask::packets(target, duration),
        }?;
        Ok(Answer { turns: waited()? - before, ..answer })
    }
}

/// How often this thread has waited until now.
fn waited() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/thread-self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Ok(line.context("the kernel does not tell how often a thread waited")?.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reads_as_it_was_told() {
        let answer = Answer { value: 7.25, units: 12_000.0, turns: 3.0 };
        assert_eq!(Answer::read(&format!("{}\n", answer.told())).unwrap(), answer);
        assert!(Answer::read("").is_err());
    }
}
