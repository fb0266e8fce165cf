//! A service that leads into another network of its tenant: the client and the backend may have one
//! address, and so may others beside them. Each case in two tenants alike in every address.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use atoll_datapath::DropReason;
use atoll_plan::{Backend, Place, Service, ServiceKey, Side};
use atoll_testkit::{Hears, PacketSocket, eventually, uninterrupted};
use atoll_types::{NetAddr, NetworkId, Protocol};

use crate::fabric::{Fabric, Node, OVERLAY_PORT, Pod, State, network};
use crate::forge;
use crate::services::{PORT, TARGET, converse, front, key, vip, voice, voices};
use crate::talk::{BRIEF, LIMIT, Voice, await_refusal, connect, listen, udp};

/// A tenant with two networks. In the first a client, in the second pods behind the service; in each,
/// pods with the addresses of those in the other.
pub(crate) struct Kin {
    pub(crate) client: Pod,
    pub(crate) near: Pod,
    pub(crate) far: Pod,
    /// Of the second network: with the client's address.
    double: Pod,
    /// Of the first network: with the backends' addresses.
    namesakes: [Pod; 2],
}

impl Kin {
    pub(crate) fn new(fabric: &Fabric, first: u32) -> Kin {
        let last = fabric.nodes.len() - 1;
        let pod = |place, number, ip| fabric.planned_pod(place, network(number), ip);
        Kin {
            client: pod(0, first, "10.0.0.1"),
            near: pod(0, first + 1, "10.0.0.2"),
            far: pod(last, first + 1, "10.0.0.3"),
            double: pod(last, first + 1, "10.0.0.1"),
            namesakes: [pod(0, first, "10.0.0.2"), pod(last, first, "10.0.0.3")],
        }
    }

    /// The pod of the second network that has the client's address.
    pub(crate) fn double(&self) -> &Pod {
        &self.double
    }

    pub(crate) fn backends(&self) -> [&Pod; 2] {
        [&self.near, &self.far]
    }

    /// Raw sockets of all who must hear nothing.
    fn others(&self) -> Vec<PacketSocket> {
        [&self.double, &self.namesakes[0], &self.namesakes[1]].map(Pod::packets).into()
    }
}

pub(crate) fn two_tenants(fabric: &Fabric) -> [Kin; 2] {
    let tenants = [100, 200].map(|first| Kin::new(fabric, first));
    fabric.converge();
    tenants
}

/// Whether a pod is on the node that has this plan.
fn is_here(node: &Node, addr: NetAddr) -> bool {
    let plan = node.plan.lock().unwrap();
    matches!(plan.endpoints.get(&addr).map(|it| &it.place), Some(Place::Here(_)))
}

impl Fabric {
    /// Has the VIP lead from this network to exactly these pods, in both families and for every
    /// protocol, as nodes compile it: what other nodes send is taken by pods of the node itself.
    pub(crate) fn lead_across(&self, from: NetworkId, pods: &[&Pod]) {
        for (node, v4) in self.nodes.iter().flat_map(|node| [(node, true), (node, false)]) {
            let addrs = pods.iter().flat_map(|pod| pod.addrs());
            let addrs: Vec<_> = addrs.filter(|addr| addr.ip.is_ipv4() == v4).collect();
            let backend =
                |addr: &NetAddr| Backend { addr: *addr, port: TARGET.try_into().unwrap() };
            let all: BTreeSet<_> = addrs.iter().map(backend).collect();
            let here = addrs.iter().filter(|addr| is_here(node, **addr));
            let here: BTreeSet<_> = here.map(backend).collect();
            let any = if v4 { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
            let mut plan = node.plan.lock().unwrap();
            for protocol in Protocol::ALL {
                let key = key(from, vip(any), protocol);
                plan.services.insert(key, Service { backends: all.clone(), ..Service::default() });
                let key = ServiceKey { side: Side::Backends, ..key };
                plan.services.remove(&key);
                if !here.is_empty() {
                    plan.services
                        .insert(key, Service { backends: here.clone(), ..Service::default() });
                }
            }
        }
        self.converge();
    }
}

/// One question over UDP and its answer; gives the client that the server saw.
fn ask(asker: &UdpSocket, answerer: &UdpSocket, word: &[u8]) -> SocketAddr {
    let ip = asker.local_addr().unwrap().ip();
    asker.send_to(word, front(ip)).unwrap();
    let mut buffer = [0; 64];
    let (length, peer) = answerer.hear_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], word);
    answerer.send_to(word, peer).unwrap();
    let (length, from) = asker.hear_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from), (word, front(ip)), "from where it was asked");
    peer
}

/// What a socket has heard that is no question of neighbours.
fn heard(socket: &PacketSocket) -> Vec<Vec<u8>> {
    let is_ip = |frame: &Vec<u8>| frame[12..14] == [8, 0];
    socket.received().unwrap().into_iter().filter(is_ip).collect()
}

#[test]
fn a_vip_leads_into_another_network_here_and_elsewhere_whoever_has_the_same_addresses() {
    let fabric = Fabric::of(2);
    let tenants = two_tenants(&fabric);
    let others: Vec<_> = tenants.iter().flat_map(Kin::others).collect();
    for place in [0, 1] {
        for tenant in &tenants {
            fabric.lead_across(tenant.client.network, &[tenant.backends()[place]]);
        }
        for family in [0, 1] {
            let speak = |tenant: &Kin| {
                let client = voices(&tenant.client)[family];
                let server = voice(client, tenant.backends()[place]);
                let (_, seen) = converse(client, &listen(server, TARGET), 300_000);
                assert_eq!(seen.ip(), vip(client.ip), "the backend sees the service's address");
                let (asker, answerer) = (udp(client, 0), udp(server, TARGET));
                let seen = ask(&asker, &answerer, b"who am I?");
                assert_eq!(seen.ip(), vip(client.ip));
                assert_eq!(ask(&asker, &answerer, b"and now?"), seen, "the same port");
            };
            std::thread::scope(|scope| {
                for tenant in &tenants {
                    scope.spawn(|| speak(tenant));
                }
            });
        }
    }
    for socket in others {
        assert_eq!(heard(&socket), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn checksums_across_networks_are_right_with_every_offload_off() {
    let fabric = Fabric::of(2);
    let [tenant, _other] = two_tenants(&fabric);
    for pod in [&tenant.client, &tenant.near, &tenant.far] {
        let off = ["-K", "eth0", "tx", "off", "tso", "off", "gso", "off"];
        assert!(pod.namespace.command("ethtool", &off).status.success());
    }
    for server in tenant.backends() {
        fabric.lead_across(tenant.client.network, &[server]);
        for client in voices(&tenant.client) {
            let server = voice(client, server);
            converse(client, &listen(server, TARGET), 100_000);
            ask(&udp(client, 0), &udp(server, TARGET), b"one");
        }
    }
}

/// Clients of two networks with one address and one port speak with one backend at once.
#[test]
fn clients_with_one_address_and_port_are_told_apart_by_their_backend() {
    let fabric = Fabric::of(2);
    let [tenant, _other] = two_tenants(&fabric);
    let third = network(150);
    let twins =
        [0, 1].map(|place| fabric.planned_pod(place, third, ["10.0.0.1", "10.0.0.4"][place]));
    fabric.converge();
    for server in tenant.backends() {
        for from in [tenant.client.network, third] {
            fabric.lead_across(from, &[server]);
        }
        for family in [0, 1] {
            let clients = [&tenant.client, &twins[0], &twins[1]].map(|it| voices(it)[family]);
            let askers = clients.map(|client| udp(client, 5000));
            let answerer = udp(voice(clients[0], server), TARGET);
            let words = [&b"one"[..], b"two", b"three"];
            let seen = [0, 1, 2].map(|which| ask(&askers[which], &answerer, words[which]));
            assert_eq!(BTreeSet::from(seen).len(), 3, "{seen:?}");
            for which in [2, 0, 1] {
                answerer.send_to(words[which], seen[which]).unwrap();
                let mut buffer = [0; 8];
                let length = askers[which].hear(&mut buffer).unwrap();
                assert_eq!(&buffer[..length], words[which]);
            }
        }
    }
}

#[test]
fn errors_reach_the_other_end_across_networks_in_both_directions() {
    let fabric = Fabric::of(2);
    for tenant in &two_tenants(&fabric) {
        for server in tenant.backends() {
            fabric.lead_across(tenant.client.network, &[server]);
            for client in voices(&tenant.client) {
                let asker = udp(client, 0);
                asker.connect(front(client.ip)).unwrap();
                await_refusal(&asker);
                let answerer = udp(voice(client, server), TARGET);
                let asker = udp(client, 0);
                let seen = ask(&asker, &answerer, b"hello");
                drop(asker);
                answerer.connect(seen).unwrap();
                await_refusal(&answerer);
            }
        }
    }
}

#[test]
fn what_is_too_big_for_the_tunnel_is_answered_across_networks_and_tcp_goes_on() {
    let fabric = Fabric::of(2);
    let [tenant, _other] = two_tenants(&fabric);
    fabric.lead_across(tenant.client.network, &[&tenant.far]);
    for node in &fabric.nodes {
        node.namespace.ip("link set uplink mtu 1400");
        node.run(State::open);
    }
    for client in voices(&tenant.client) {
        converse(client, &listen(voice(client, &tenant.far), TARGET), 500_000);
        for pod in [&tenant.client, &tenant.far] {
            let route = pod.namespace.ip(&format!("route get {}", vip(client.ip)));
            assert!(route.contains("mtu 1350"), "{route}");
        }
    }
}

#[test]
fn udp_moves_from_a_backend_that_goes_and_tcp_ends_with_its_pod() {
    let fabric = Fabric::of(2);
    for tenant in &two_tenants(&fabric) {
        let from = tenant.client.network;
        fabric.lead_across(from, &[&tenant.far]);
        let client = tenant.client.v4();
        let [near, far] = tenant.backends().map(|server| udp(server.v4(), TARGET));
        let asker = udp(client, 0);
        ask(&asker, &far, b"one");
        let listener = listen(tenant.far.v4(), TARGET);
        let mut ours = connect(client, 0, front(client.ip), LIMIT).unwrap();
        let mut theirs = listener.accept().unwrap().0;
        fabric.lead_across(from, &[&tenant.near]);
        ask(&asker, &near, b"two");
        ours.write_all(b"still").unwrap();
        theirs.read_exact(&mut [0; 5]).unwrap();
        theirs.write_all(b"here").unwrap();
        ours.read_exact(&mut [0; 4]).unwrap();
        fabric.remove(&tenant.far);
        ours.write_all(b"gone?").unwrap();
        let error = ours.read_exact(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        ask(&asker, &near, b"three");
    }
}

#[test]
fn a_connection_across_networks_is_closed_and_opened_again_from_the_same_port() {
    let fabric = Fabric::of(2);
    let [tenant, _other] = two_tenants(&fabric);
    for server in tenant.backends() {
        fabric.lead_across(tenant.client.network, &[server]);
        let listener = listen(server.v4(), TARGET);
        for _ in 0..3 {
            let mut ours =
                connect(tenant.client.v4(), 6000, front(tenant.client.v4().ip), LIMIT).unwrap();
            let (mut theirs, _) = listener.accept().unwrap();
            ours.write_all(b"word").unwrap();
            theirs.read_exact(&mut [0; 4]).unwrap();
            drop(theirs);
            assert_eq!(
                uninterrupted(|| ours.read(&mut [0; 1])).unwrap(),
                0,
                "the server closed it first"
            );
        }
    }
}

/// A datagram from the client to the service, as its node would send it on.
fn to_service(client: Voice) -> Vec<u8> {
    forge::packet(client, vip(client.ip), 17, &forge::datagram((5000, PORT), b"forged"))
}

#[test]
fn a_node_leads_nobody_across_but_its_own_pods_and_other_tenants_nowhere() {
    let fabric = Fabric::of(2);
    let [tenant, other] = two_tenants(&fabric);
    fabric.lead_across(tenant.client.network, &[&tenant.far]);
    let backend = tenant.far.packets();
    let tunnel = |from: usize, vni: NetworkId, frame: &[u8]| {
        let node = &fabric.nodes[from];
        let socket = node.namespace.run(|| UdpSocket::bind((node.underlay, 0)).unwrap());
        let to = (fabric.nodes[1].underlay, OVERLAY_PORT);
        socket.send_to(&forge::vxlan(vni.get(), frame), to).unwrap();
    };
    let dropped = |network, reason| fabric.nodes[1].dropped(Some(network), reason);
    let is_dropped = |network, reason, send: &dyn Fn()| {
        let before = dropped(network, reason);
        send();
        eventually(&format!("dropped as {reason}"), || {
            (dropped(network, reason) > before).then_some(())
        });
    };
    let own = tenant.client.network;
    // A client that is said to be on the wrong node, and one that nobody knows.
    let spoofed = to_service(tenant.namesakes[1].v4());
    is_dropped(own, DropReason::OverlaySpoof, &|| tunnel(0, own, &spoofed));
    // Another tenant's client, in its own network and in the backend's.
    let foreign = to_service(other.client.v4());
    let theirs = other.client.network;
    is_dropped(theirs, DropReason::NoEndpoint, &|| tunnel(0, theirs, &foreign));
    let inside = tenant.far.network;
    is_dropped(inside, DropReason::OverlaySpoof, &|| tunnel(0, inside, &foreign));
    let brief = connect(other.client.v4(), 0, front(other.client.v4().ip), BRIEF);
    brief.unwrap_err();
    assert_eq!(heard(&backend), Vec::<Vec<u8>>::new());
    // And the client itself arrives.
    tunnel(0, own, &to_service(tenant.client.v4()));
    let arrived = forge::arrived(&backend);
    assert_eq!(arrived[26..30], [198, 18, 0, 1], "from the service's address");
    // Its connection is not for another node to speak in.
    let port = u16::from_be_bytes([arrived[34], arrived[35]]);
    let answer = forge::datagram((TARGET, port), b"forged");
    let answer = forge::packet(tenant.far.v4(), vip(tenant.far.v4().ip), 17, &answer);
    is_dropped(inside, DropReason::OverlaySpoof, &|| tunnel(0, inside, &answer));
}
