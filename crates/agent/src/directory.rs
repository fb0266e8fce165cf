//! Who is who on this node, for people: names for the numbers in an event.
//!
//! The rule of this file: the interface says who sent a packet; the packet says only what it claims.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use atoll_cni::{EventKind, EventReport, PacketEnd};
use atoll_datapath::{Event, Happening};
use atoll_model::compile::Occupant;
use atoll_plan::HostInterface;
use atoll_types::{NetAddr, NetworkId, PodRef};
use k8s_openapi::jiff::Timestamp;

use crate::seen::Seen;

/// A pod at an address, and the object name of the network that it has it in.
#[derive(Debug)]
struct Resident {
    pod: PodRef,
    network: String,
}

/// Names for networks, addresses and interfaces.
#[derive(Debug)]
pub(crate) struct Directory {
    networks: BTreeMap<NetworkId, String>,
    residents: BTreeMap<NetAddr, Resident>,
    senders: BTreeMap<u32, PodRef>,
}

impl Directory {
    /// As things stand: the ports that were seen, and the pods behind `interfaces`.
    pub(crate) fn of(
        seen: &Seen,
        occupants: &BTreeMap<HostInterface, Occupant>,
        interfaces: &BTreeMap<u32, HostInterface>,
    ) -> Self {
        let sender = |(index, name): (&u32, &HostInterface)| {
            Some((*index, occupants.get(name)?.pod.clone()))
        };
        let mut directory = Directory {
            networks: BTreeMap::new(),
            residents: BTreeMap::new(),
            senders: interfaces.iter().filter_map(sender).collect(),
        };
        for (_, port) in seen.ports() {
            directory.networks.entry(port.network).or_insert_with(|| port.network_name.clone());
            for ip in &port.ips {
                let resident =
                    Resident { pod: port.pod.clone(), network: port.network_name.clone() };
                directory.residents.insert(NetAddr::new(port.network, *ip), resident);
            }
        }
        directory
    }

    /// The event with names.
    pub(crate) fn report(&self, event: &Event) -> EventReport {
        let (kind, reason) = match event.what {
            Happening::Dropped(reason) => (EventKind::Dropped, Some(reason)),
            Happening::Opened => (EventKind::Opened, None),
            Happening::Closed => (EventKind::Closed, None),
        };
        let time = Timestamp::try_from(event.at).unwrap_or_default();
        EventReport {
            time: format!("{time:.6}"),
            kind,
            reason: reason.map(|reason| reason.name().to_owned()),
            meaning: reason.map(|reason| reason.meaning().to_owned()),
            network: event.network.map(|network| self.network_name(network, event)),
            protocol: protocol(event.protocol),
            sender: self.senders.get(&event.ifindex).cloned(),
            source: self.end(event, event.source),
            destination: self.end(event, event.destination),
            rules: Vec::new(),
        }
    }

    /// Networks of one VPC share a number; whoever has the source address knows which it is.
    fn network_name(&self, network: NetworkId, event: &Event) -> String {
        let resident = self.residents.get(&NetAddr::new(network, event.source.ip()));
        let name = resident.map(|resident| &resident.network);
        let name = name.or_else(|| self.networks.get(&network));
        name.map_or_else(|| network.to_string(), Clone::clone)
    }

    fn end(&self, event: &Event, end: SocketAddr) -> Option<PacketEnd> {
        let is_ip = !event.source.ip().is_unspecified() || !event.destination.ip().is_unspecified();
        let resident =
            || self.residents.get(&NetAddr::new(event.network?, end.ip())).map(|it| it.pod.clone());
        is_ip.then(|| PacketEnd {
            address: end.ip(),
            port: Some(end.port()).filter(|port| *port != 0 && has_ports(event.protocol)),
            pod: resident(),
        })
    }
}

const NAMED: [(u8, &str); 5] =
    [(1, "icmp"), (6, "tcp"), (17, "udp"), (58, "icmpv6"), (132, "sctp")];

/// The name of a protocol, or its number; none where there is no IP packet.
fn protocol(number: u8) -> Option<String> {
    let named = NAMED.iter().find(|(known, _)| *known == number);
    let name = named.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned());
    (number != 0).then_some(name)
}

fn has_ports(protocol: u8) -> bool {
    [6, 17, 132].contains(&protocol)
}
