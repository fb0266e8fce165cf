//! The decisions of `from_node`: what the node says to an alias, and which of it is an answer of the
//! agent.

use std::net::{IpAddr, SocketAddr};

use atoll_abi::{DNS_PORT, DOOR_LINK, DOOR_PORT, Door, aliases_of};
use atoll_datapath::DropReason::{self, NoEndpoint, NotIp, UnknownInterface};
use atoll_types::MacAddr;

use super::{Table, Verdict, with};
use crate::doors::{alias, ip, twins};
use crate::fabric::Pod;
use crate::forge::{self, Face, IP, Origin, packet, summed_datagram, tcp};

/// So many hops are left to what the node itself says.
const OWN_HOPS: u8 = 255;

fn node(ip: IpAddr) -> Origin {
    let face = Face { mac: MacAddr::for_ip(ip), ip: [169, 254, 1, 2].into(), ipv6: [0; 8].into() };
    Origin { face, ip }
}

/// With so many hops left, and right in the checksum of its header.
fn hops(mut frame: Vec<u8>, left: u8) -> Vec<u8> {
    if frame[IP] >> 4 == 6 {
        return with(frame, IP + 7, &[left]);
    }
    frame[IP + 8] = left;
    let header = etherparse::Ipv4Header::from_slice(&frame[IP..]).unwrap().0;
    let sum = header.calc_header_checksum().to_be_bytes();
    with(frame, IP + 10, &sum)
}

pub(super) const ANSWERS: &[DropReason] = &[NoEndpoint, NotIp, UnknownInterface];

#[test]
fn what_the_node_says_to_an_alias() {
    let (fabric, pods) = twins();
    pods.iter().for_each(Pod::silence);
    let at = &fabric.nodes[0];
    let table = Table::on(at, "from_node", DOOR_LINK);
    for (family, resolver) in [(0, ip("10.96.0.10")), (1, ip("fd96::a"))] {
        for pod in &pods {
            let (to, behind) = (alias(at, pod, resolver), Door::Cluster.listeners()[family]);
            let say = |from: IpAddr, to: IpAddr, port| {
                packet(node(from), to, 17, &summed_datagram((from, to), (port, 4000), b"!"))
            };
            let own = |from, to, port| hops(say(from, to, port), OWN_HOPS);
            let (nobody, drop) = (aliases_of(4711)[family], Verdict::Drop);
            let asker = SocketAddr::new(pod.ips()[family], 4000);
            let stranger = if family == 0 { ip("192.0.2.9") } else { ip("2001:db8::9") };
            let prober = Door::Prober.listeners()[family];
            let probe =
                |port, flags| hops(packet(node(prober), to, 6, &tcp((port, 80), flags)), OWN_HOPS);
            let probed = SocketAddr::new(asker.ip(), 80);
            table.hold(
                at,
                vec![
                    (
                        "an answer of its resolver",
                        own(behind, to, DOOR_PORT),
                        Verdict::Led(pod.mac.octets(), resolver, asker),
                    ),
                    (
                        "the same, forwarded for somebody",
                        hops(say(behind, to, DOOR_PORT), 64),
                        drop(NoEndpoint),
                    ),
                    ("from another port", own(behind, to, DNS_PORT), drop(NoEndpoint)),
                    (
                        "to an alias of nobody",
                        own(behind, nobody, DOOR_PORT),
                        drop(UnknownInterface),
                    ),
                    (
                        "of somebody whom the pod never called",
                        own(stranger, to, 80),
                        drop(NoEndpoint),
                    ),
                    ("a probe", probe(62_000, 2), Verdict::Led(pod.mac.octets(), prober, probed)),
                    (
                        "from the prober's address and another port",
                        probe(4000, 2),
                        drop(NoEndpoint),
                    ),
                    ("LLDP", forge::other(node(behind).face, 0x88cc, &[0; 50]), drop(NotIp)),
                ],
            );
        }
    }
    table.reasons_are(ANSWERS);
}
