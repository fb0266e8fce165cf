//! What an attacker in a pod tries with raw frames, row by row of the list of threats: what must
//! reach nobody, under which reason it must be counted, and beside it what an honest pod does, which
//! must arrive.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use atoll_abi::DropReason::{
    self, IcmpRedirect, Malformed, Multicast, NoConnection, NoEndpoint, OverlappingFragment,
    Protocol, SourceRouted, SpoofedAddress, SpoofedArp, SpoofedMac, SpoofedNd, TinyFragment,
    UnrelatedIcmp, UnwantedArp, UnwantedNd,
};
use atoll_types::{GATEWAY_V4, GATEWAY_V6};

use crate::forge::{self, Face, IP, Origin, datagram, fragment, packet, tcp};
use crate::{PacketSocket, eventually};

/// A row of the list.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its number.
    pub number: u8,
    /// What must be dropped, and why.
    pub forged: Vec<(DropReason, Vec<u8>)>,
    /// What must arrive, before anything of the above is sent.
    pub honest: Vec<Vec<u8>>,
}

impl Row {
    /// Plays it, and holds that it goes as it must: the honest frames arrive at the victim first, so
    /// that what follows meets all the state there can be; of the forged ones each is counted, and
    /// nobody hears any. `heard` listens at everybody who could, the victim first; `dropped` says how
    /// many packets were dropped for a reason.
    pub fn holds(
        &self,
        attacker: &PacketSocket,
        heard: impl Fn() -> Vec<PacketSocket>,
        dropped: impl Fn(DropReason) -> u64,
    ) {
        for frame in &self.honest {
            let heard = heard();
            attacker.send(frame).expect("an honest frame is sent");
            let arrived = forge::arrived_of(&heard[0], [frame[12], frame[13]]);
            assert_eq!(arrived[IP..], frame[IP..], "row {}", self.number);
        }
        let heard = heard();
        for (place, (reason, frame)) in self.forged.iter().enumerate() {
            let before = dropped(*reason);
            attacker.send(frame).expect("a forged frame is sent");
            eventually(&format!("row {}, frame {place} was {reason}", self.number), || {
                (dropped(*reason) > before).then_some(())
            });
        }
        for heard in heard {
            let heard = heard.received().expect("a socket can be read");
            assert_eq!(heard, Vec::<Vec<u8>>::new(), "row {}", self.number);
        }
    }
}

/// Who plays: an attacker, two pods of its network, one of another, and where nodes and services are.
#[derive(Clone, Debug)]
pub struct Cast {
    /// The pod that lies.
    pub attacker: Face,
    /// A pod of its network on the same node.
    pub near: Face,
    /// A pod of its network on another node.
    pub far: Face,
    /// A pod of another network.
    pub foreign: Face,
    /// The number of that network.
    pub foreign_network: u32,
    /// The nodes' addresses, of each family that they have.
    pub nodes: Vec<IpAddr>,
    /// Addresses of services, those of the attacker's own tenant among them.
    pub services: Vec<IpAddr>,
    /// The tunnel's port.
    pub tunnel_port: u16,
}

/// The address of a pod in the family of `origin`.
fn address_like(face: &Face, origin: Origin) -> IpAddr {
    if origin.ip.is_ipv4() { face.ip.into() } else { face.ipv6.into() }
}

/// Of these addresses, those in the family of `origin`.
fn like(addresses: &[IpAddr], origin: Origin) -> impl Iterator<Item = IpAddr> {
    let is_alike = move |it: &&IpAddr| it.is_ipv4() == origin.ip.is_ipv4();
    addresses.iter().filter(is_alike).copied()
}

/// The same packet with another source address.
fn from(source: IpAddr, mut frame: Vec<u8>) -> Vec<u8> {
    match source {
        IpAddr::V4(ip) => frame[IP + 12..IP + 16].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => frame[IP + 8..IP + 24].copy_from_slice(&ip.octets()),
    }
    frame
}

fn mac_of(face: &Face, mut frame: Vec<u8>) -> Vec<u8> {
    frame[6..12].copy_from_slice(&face.mac.octets());
    frame
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn udp(own: Origin, to: IpAddr) -> Vec<u8> {
    packet(own, to, 17, &datagram((1, 2), b"honest"))
}

impl Cast {
    /// What `own`, which is the attacker, tries against `victim`.
    pub fn rows(&self, own: Origin, victim: Origin) -> Vec<Row> {
        vec![
            self.sources(own, victim),
            self.links(own, victim),
            self.routers(victim),
            self.tunnels(own, victim),
            parts(own, victim),
            routes(own, victim),
            strays(own, victim),
            floods(own),
            messages(own, victim),
        ]
    }

    /// The attacker's and a victim's addresses of both families.
    pub fn encounters(&self, victim: &Face) -> [(Origin, Origin); 2] {
        [(self.attacker.v4(), victim.v4()), (self.attacker.v6(), victim.v6())]
    }

    fn foreign_sources(&self, own: Origin) -> Vec<IpAddr> {
        let others = [&self.near, &self.far, &self.foreign].map(|face| address_like(face, own));
        let others = others.into_iter().filter(|other| *other != own.ip);
        let nobodys = if own.ip.is_ipv4() {
            [GATEWAY_V4.into(), ip("127.0.0.1"), Ipv4Addr::UNSPECIFIED.into()]
        } else {
            [GATEWAY_V6.into(), ip("::1"), Ipv6Addr::UNSPECIFIED.into()]
        };
        others
            .chain(like(&self.nodes, own))
            .chain(like(&self.services, own))
            .chain(nobodys)
            .collect()
    }

    fn sources(&self, own: Origin, victim: Origin) -> Row {
        let honest = udp(own, victim.ip);
        let sources = self.foreign_sources(own);
        let lies = sources.iter().map(|source| (SpoofedAddress, from(*source, honest.clone())));
        let mut forged: Vec<_> = lies.collect();
        let inner = from(sources[0], honest.clone());
        for (protocol, header) in [(4, &[][..]), (41, &[]), (47, &[0, 0, 8, 0])] {
            let content = [header, &inner[IP..]].concat();
            forged.push((Protocol, packet(own, victim.ip, protocol, &content)));
        }
        Row { number: 1, forged, honest: vec![honest] }
    }

    fn links(&self, own: Origin, victim: Origin) -> Row {
        let (pod, near, mac) = (self.attacker, self.near, self.attacker.mac.octets());
        let honest = udp(own, victim.ip);
        let all = "ff02::1".parse().expect("an address");
        let solicitation = forge::nd(135, GATEWAY_V6, mac);
        let claim = forge::nd(136, near.ipv6, mac);
        let forged = vec![
            (SpoofedMac, mac_of(&near, honest.clone())),
            (SpoofedArp, forge::arp(pod, 1, (mac, near.ip), near.ip)),
            (SpoofedArp, forge::arp(pod, 2, (mac, near.ip), pod.ip)),
            (UnwantedArp, forge::arp(pod, 2, (mac, pod.ip), near.ip)),
            (SpoofedNd, forge::icmp6(pod, (near.ipv6, all), &solicitation)),
            (UnwantedNd, forge::icmp6(pod, (pod.ipv6, all), &claim)),
        ];
        let forged = forged.into_iter().chain(self.leases()).collect();
        let ports = if own.ip.is_ipv4() { (67, 68) } else { (547, 546) };
        let offer = packet(own, victim.ip, 17, &datagram(ports, b""));
        Row { number: 2, forged, honest: vec![honest, offer] }
    }

    /// What clients and servers of DHCP say to everybody. No server ever hears of a client, so that an offer to
    /// one pod alone is a datagram like any other, which nobody waits for.
    fn leases(&self) -> Vec<(DropReason, Vec<u8>)> {
        let pod = self.attacker;
        let nobody = Origin { face: pod, ip: Ipv4Addr::UNSPECIFIED.into() };
        let near_by = Origin { face: pod, ip: ip("fe80::5") };
        let (discover, offer) = (datagram((68, 67), b""), datagram((67, 68), b""));
        let (solicit, advertise) = (datagram((546, 547), b""), datagram((547, 546), b""));
        let (everybody, servers) = (ip("255.255.255.255"), ip("ff02::1:2"));
        vec![
            (SpoofedAddress, packet(nobody, everybody, 17, &discover)),
            (Multicast, packet(pod.v4(), everybody, 17, &discover)),
            (Multicast, packet(pod.v4(), everybody, 17, &offer)),
            (SpoofedAddress, packet(near_by, servers, 17, &solicit)),
            (Multicast, packet(pod.v6(), servers, 17, &solicit)),
            (Multicast, packet(pod.v6(), ip("ff02::1"), 17, &advertise)),
        ]
    }

    fn routers(&self, victim: Origin) -> Row {
        let pod = self.attacker;
        let forged = advertisements(&pod, self.near.ipv6).map(|frame| (UnwantedNd, frame));
        let ping = [128, 0, 0, 0, 0, 1, 0, 1];
        let honest = packet(pod.v6(), victim.face.ipv6.into(), 58, &ping);
        Row { number: 3, forged: forged.into(), honest: vec![honest] }
    }

    fn tunnels(&self, own: Origin, victim: Origin) -> Row {
        let inner = udp(own, address_like(&self.foreign, own));
        let carried = forge::vxlan(self.foreign_network, &inner);
        let tunnelled = datagram((self.tunnel_port, self.tunnel_port), &carried);
        let itself = ip(if own.ip.is_ipv4() { "127.0.0.1" } else { "::1" });
        let targets = like(&self.nodes, own).chain([itself]);
        let to = |to| (NoEndpoint, packet(own, to, 17, &tunnelled));
        let honest = vec![packet(own, victim.ip, 17, &tunnelled)];
        Row { number: 4, forged: targets.map(to).collect(), honest }
    }
}

/// What a pod says as if it were a router: to everybody, to one pod, and as the gateway.
pub fn advertisements(pod: &Face, near: Ipv6Addr) -> [Vec<u8>; 3] {
    let advertisement = [&[134, 0, 0, 0, 64, 0, 0xff, 0xff][..], &[0; 8]].concat();
    let all = "ff02::1".parse().expect("an address");
    [(pod.ipv6, all), (pod.ipv6, near), (GATEWAY_V6, near)]
        .map(|ends| forge::icmp6(*pod, ends, &advertisement))
}

fn parts(own: Origin, victim: Origin) -> Row {
    let ends = (own, victim);
    let whole = datagram((1, 2), &[1; 56]);
    let forged = vec![
        (TinyFragment, fragment(ends, 6, 1, (0, true), &tcp((1, 2), 2)[..8])),
        (TinyFragment, fragment(ends, 6, 1, (8, false), &[0; 16])),
        (OverlappingFragment, fragment(ends, 17, 2, (8, true), &[2; 64])),
        (Malformed, fragment(ends, 17, 3, (0xfff8, false), &[2; 64])),
    ];
    let honest = vec![
        fragment(ends, 17, 2, (0, true), &whole),
        fragment(ends, 17, 2, (64, false), &[1; 16]),
        fragment(ends, 17, 4, (64, false), &[1; 16]),
    ];
    Row { number: 6, forged, honest }
}

fn routes(own: Origin, victim: Origin) -> Row {
    let to = victim.face;
    let forged = if own.ip.is_ipv4() {
        let with = |it: &[u8]| forge::udp_with_options(own.face, to.ip, it);
        vec![
            (SourceRouted, with(&[131, 7, 4, 10, 0, 0, 4, 0])),
            (SourceRouted, with(&[137, 7, 4, 10, 0, 0, 4, 0])),
        ]
    } else {
        let routing = [17, 2, 0, 1, 0, 0, 0, 0];
        let endless = [60, 0, 1, 4, 0, 0, 0, 0].repeat(9);
        vec![
            (SourceRouted, forge::udp6_with(own.face, to.ipv6, 43, &routing)),
            (Malformed, forge::udp6_with(own.face, to.ipv6, 60, &endless)),
        ]
    };
    Row { number: 7, forged, honest: vec![udp(own, victim.ip)] }
}

fn strays(own: Origin, victim: Origin) -> Row {
    let send = |ports, flags| packet(own, victim.ip, 6, &tcp(ports, flags));
    let forged = [0, 0x03, 0x06, 0x07].map(|flags| (NoConnection, send((11, 12), flags)));
    Row { number: 9, forged: forged.into(), honest: vec![send((13, 14), 0x02)] }
}

fn floods(own: Origin) -> Row {
    let groups = if own.ip.is_ipv4() {
        ["224.0.0.251", "239.1.2.3", "255.255.255.255"]
    } else {
        ["ff02::1", "ff02::fb", "ff05::2"]
    };
    let flood = groups.iter().cycle().take(30);
    let forged = flood.map(|group| (Multicast, udp(own, ip(group)))).collect();
    Row { number: 19, forged, honest: vec![] }
}

fn messages(own: Origin, victim: Origin) -> Row {
    let quote = packet(victim, own.ip, 17, &datagram((2, 99), b"never sent"));
    let send = |kind, code| {
        let content = forge::icmp_error(kind, code, &quote);
        packet(own, victim.ip, forge::icmp_of(own.ip), &content)
    };
    let forged = if own.ip.is_ipv4() {
        vec![(UnrelatedIcmp, send(3, 4)), (IcmpRedirect, send(5, 1))]
    } else {
        vec![(UnrelatedIcmp, send(2, 0)), (UnwantedNd, send(137, 0))]
    };
    Row { number: 21, forged, honest: vec![] }
}
