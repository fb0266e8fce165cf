//! What happened to packets, as the agent tells it to whoever listens: names instead of numbers.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use atoll_types::PodRef;
use serde::{Deserialize, Serialize};

/// What somebody wants to hear of. What is left out does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventFilter {
    /// Only of this network, by object name.
    pub network: Option<String>,
    /// Only of packets from or to this pod.
    pub pod: Option<PodRef>,
    /// Only packets dropped for this reason, by its stable name.
    pub reason: Option<String>,
    /// Only this kind.
    pub kind: Option<EventKind>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// A packet was dropped.
    Dropped,
    /// A connection was opened.
    Opened,
    /// A connection was closed.
    Closed,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [EventKind; 3] = [EventKind::Dropped, EventKind::Opened, EventKind::Closed];

    /// The name, as it is written and read.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Dropped => "dropped",
            EventKind::Opened => "opened",
            EventKind::Closed => "closed",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for EventKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == text);
        kind.ok_or_else(|| format!("it is one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventReport {
    /// When, as RFC 3339 has it.
    pub time: String,
    /// What happened.
    pub kind: EventKind,
    /// Of a drop: the reason's stable name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a drop: what the reason means, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// The network's object name, or its number where the node does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The protocol of an IP packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The pod behind the interface where the packet came in, whatever the packet says of itself;
    /// none for a packet that came through the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<PodRef>,
    /// Where an IP packet says that it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<PacketEnd>,
    /// Where it wants to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<PacketEnd>,
    /// The rules of policy that let the connection be or refused it, the sender's first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
}

/// One end of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PacketEnd {
    /// The address.
    pub address: IpAddr,
    /// The port, where the protocol has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The pod that has the address in the packet's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
}

impl EventFilter {
    /// Whether somebody wants to hear of this.
    pub fn wants(&self, event: &EventReport) -> bool {
        let is =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        is(&self.network, &event.network)
            && is(&self.reason, &event.reason)
            && self.kind.is_none_or(|kind| kind == event.kind)
            && self.pod.as_ref().is_none_or(|pod| event.pods().any(|one| one == pod))
    }
}

impl EventReport {
    /// Every pod that had to do with it.
    fn pods(&self) -> impl Iterator<Item = &PodRef> {
        let ends = [&self.source, &self.destination].into_iter().flatten();
        self.sender.iter().chain(ends.filter_map(|end| end.pod.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> EventReport {
        let end = |last: u8, pod: &str| {
            let pod = Some(PodRef::new("acme", pod));
            Some(PacketEnd { address: [10, 0, 0, last].into(), port: Some(80), pod })
        };
        EventReport {
            time: "2026-01-01T00:00:00Z".into(),
            kind: EventKind::Dropped,
            reason: Some("spoofed-address".into()),
            meaning: Some("a lie".into()),
            network: Some("acme.default".into()),
            protocol: Some("udp".into()),
            sender: Some(PodRef::new("acme", "liar")),
            source: end(5, "web"),
            destination: end(6, "db"),
            rules: vec![],
        }
    }

    #[test]
    fn each_part_of_a_filter_must_be_met_and_what_is_left_out_does_not_matter() {
        assert!(EventFilter::default().wants(&event()));
        let network = |name: &str| EventFilter { network: Some(name.into()), ..<_>::default() };
        let reason = |name: &str| EventFilter { reason: Some(name.into()), ..<_>::default() };
        let kind = |kind| EventFilter { kind: Some(kind), ..<_>::default() };
        for wanted in [network("acme.default"), reason("spoofed-address"), kind(EventKind::Dropped)]
        {
            assert!(wanted.wants(&event()), "{wanted:?}");
        }
        for unwanted in [network("globex.default"), reason("no-endpoint"), kind(EventKind::Opened)]
        {
            assert!(!unwanted.wants(&event()), "{unwanted:?}");
        }
        let both = EventFilter { kind: Some(EventKind::Opened), ..network("acme.default") };
        assert!(!both.wants(&event()));
    }

    #[test]
    fn a_pod_is_meant_as_the_sender_and_as_either_end() {
        let of = |pod: &str| EventFilter { pod: Some(PodRef::new("acme", pod)), ..<_>::default() };
        assert!(["liar", "web", "db"].into_iter().all(|pod| of(pod).wants(&event())));
        assert!(!of("other").wants(&event()));
    }

    #[test]
    fn a_kind_that_there_is_not_is_told_which_there_are() {
        assert_eq!("closed".parse(), Ok(EventKind::Closed));
        let complaint = "flow".parse::<EventKind>().unwrap_err();
        assert_eq!(complaint, "it is one of dropped, opened, closed");
    }
}
