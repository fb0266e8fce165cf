//! Services: a pod speaks to an address that nobody has, and one of those behind it answers. Each
//! case in two networks with the same addresses at the same time.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use atoll_abi::{CONNECTION_LEADS_ON, Connection as Entry};
use atoll_datapath::{ConnectionState, DropReason};
use atoll_plan::{Backend, Service, ServiceKey, Side};
use atoll_testkit::{Hears, eventually};
use atoll_types::{NetAddr, NetworkId, Protocol};
use socket2::SockRef;

use crate::decisions::{change_entries, entries, let_time_pass};
use crate::fabric::{Fabric, Node, Pod, network};
use crate::forge;
use crate::talk::{LIMIT, Voice, connect, listen, udp};

pub(crate) const PORT: u16 = 80;
pub(crate) const TARGET: u16 = 8080;

/// The service's address of the family that `of` has.
pub(crate) fn vip(of: IpAddr) -> IpAddr {
    match of {
        IpAddr::V4(_) => [198, 18, 0, 1].into(),
        IpAddr::V6(_) => [0xfd18, 0, 0, 0, 0, 0, 0, 1].into(),
    }
}

pub(crate) fn front(of: IpAddr) -> SocketAddr {
    SocketAddr::new(vip(of), PORT)
}

pub(crate) fn key(network: NetworkId, ip: IpAddr, protocol: Protocol) -> ServiceKey {
    ServiceKey { network, ip, protocol, port: PORT.try_into().unwrap(), side: Side::Clients }
}

impl Fabric {
    /// Puts exactly these pods behind the service of their network, in both families and for every
    /// protocol, on all nodes.
    pub(crate) fn serve(&self, network: NetworkId, pods: &[&Pod], affinity: Option<Duration>) {
        for node in &self.nodes {
            let mut plan = node.plan.lock().unwrap();
            for (v4, protocol) in Protocol::ALL.into_iter().flat_map(|it| [(true, it), (false, it)])
            {
                let addrs = pods.iter().flat_map(|pod| pod.addrs());
                let addrs = addrs.filter(|addr| addr.ip.is_ipv4() == v4);
                let backend = |addr: NetAddr| Backend { addr, port: TARGET.try_into().unwrap() };
                let any = if v4 { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
                let backends: BTreeSet<_> = addrs.map(backend).collect();
                let service = Service { backends, affinity, ..Service::default() };
                plan.services.insert(key(network, vip(any), protocol), service);
            }
        }
        self.converge();
    }
}

/// A client, and pods behind the service: one on the client's node, one on another.
pub(crate) struct Tenant {
    pub(crate) client: Pod,
    pub(crate) near: Pod,
    pub(crate) far: Pod,
}

impl Tenant {
    fn new(fabric: &Fabric, number: u32) -> Tenant {
        let pod = |place, ip| fabric.planned_pod(place, network(number), ip);
        let last = fabric.nodes.len() - 1;
        Tenant { client: pod(0, "10.0.0.1"), near: pod(0, "10.0.0.2"), far: pod(last, "10.0.0.3") }
    }

    pub(crate) fn network(&self) -> NetworkId {
        self.client.network
    }

    pub(crate) fn backends(&self) -> [&Pod; 2] {
        [&self.near, &self.far]
    }
}

/// Two tenants alike in every address.
pub(crate) fn two_tenants(fabric: &Fabric) -> [Tenant; 2] {
    let tenants = [100, 200].map(|number| Tenant::new(fabric, number));
    fabric.converge();
    tenants
}

/// Both families of a pod.
pub(crate) fn voices(pod: &Pod) -> [Voice<'_>; 2] {
    [pod.v4(), pod.v6()]
}

fn server_of(client: Voice, server: &Pod) -> SocketAddr {
    let ip = if client.ip.is_ipv4() { server.ip.into() } else { server.ipv6.into() };
    SocketAddr::new(ip, TARGET)
}

pub(crate) fn voice<'a>(client: Voice, server: &'a Pod) -> Voice<'a> {
    Voice { pod: server, ip: server_of(client, server).ip() }
}

/// Sends bytes to and fro through the service over TCP; gives the client's end, and the client that the
/// server saw.
pub(crate) fn converse(
    client: Voice,
    listener: &TcpListener,
    bytes: usize,
) -> (TcpStream, SocketAddr) {
    let mut ours = connect(client, 0, front(client.ip), LIMIT).unwrap();
    assert_eq!(ours.peer_addr().unwrap(), front(client.ip));
    let (mut theirs, peer) = listener.accept().unwrap();
    let sent: Vec<u8> = (0..bytes).map(|n| (n * 31 % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut heard = vec![0; bytes];
            theirs.read_exact(&mut heard).unwrap();
            theirs.write_all(&heard).unwrap();
        });
        let mut writer = ours.try_clone().unwrap();
        let sent = &sent;
        scope.spawn(move || writer.write_all(sent).unwrap());
        let mut heard = vec![0; bytes];
        ours.read_exact(&mut heard).unwrap();
        assert!(heard == *sent, "what came back is not what was sent");
    });
    (ours, peer)
}

/// The same where the server sees the client's own address and port.
pub(crate) fn converse_tcp(client: Voice, listener: &TcpListener, bytes: usize) -> SocketAddr {
    let (ours, peer) = converse(client, listener, bytes);
    assert_eq!(peer, ours.local_addr().unwrap(), "the client's own address and port");
    peer
}

/// One question to the service over UDP and its answer.
pub(crate) fn ask(asker: &UdpSocket, answerer: &UdpSocket, size: usize) {
    let question: Vec<u8> = (0..size).map(|n| (n * 7 % 251) as u8).collect();
    let ip = asker.local_addr().unwrap().ip();
    asker.send_to(&question, front(ip)).unwrap();
    let mut buffer = vec![0; size + 1];
    let (length, peer) = answerer.hear_from(&mut buffer).unwrap();
    assert!(buffer[..length] == question);
    assert_eq!(peer, asker.local_addr().unwrap());
    answerer.send_to(&question, peer).unwrap();
    let (length, from) = asker.hear_from(&mut buffer).unwrap();
    assert!(buffer[..length] == question);
    assert_eq!(from, front(ip), "the answer comes from where it was asked");
}

#[test]
fn a_service_leads_to_pods_here_and_elsewhere_which_see_their_client() {
    let fabric = Fabric::of(2);
    let tenants = two_tenants(&fabric);
    for place in [0, 1] {
        for tenant in &tenants {
            fabric.serve(tenant.network(), &[tenant.backends()[place]], None);
        }
        for family in [0, 1] {
            let speak = |tenant: &Tenant| {
                let client = voices(&tenant.client)[family];
                let server = voice(client, tenant.backends()[place]);
                converse_tcp(client, &listen(server, TARGET), 300_000);
                let (asker, answerer) = (udp(client, 5000), udp(server, TARGET));
                ask(&asker, &answerer, 100);
                ask(&asker, &answerer, 100);
            };
            std::thread::scope(|scope| {
                for tenant in &tenants {
                    scope.spawn(|| speak(tenant));
                }
            });
        }
    }
}

#[test]
fn nobody_behind_a_service_refuses_at_once() {
    let fabric = Fabric::of(1);
    let tenants = two_tenants(&fabric);
    for tenant in &tenants {
        fabric.serve(tenant.network(), &[], None);
    }
    for offloads in ["on", "off"] {
        for tenant in &tenants {
            let namespace = &tenant.client.namespace;
            namespace.command("ethtool", &["-K", "eth0", "tx", offloads]);
            voices(&tenant.client).into_iter().for_each(assert_refused);
        }
    }
    let dropped = fabric.nodes[0].dropped(Some(network(100)), DropReason::NoBackend);
    assert!(dropped >= 8, "each refusal is counted: {dropped}");
}

fn assert_refused(client: Voice) {
    let error = connect(client, 0, front(client.ip), LIMIT).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    let asker = udp(client, 0);
    asker.connect(front(client.ip)).unwrap();
    asker.send(b"hello?").unwrap();
    let error = asker.hear(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "and not because time ran out");
}

#[test]
fn a_service_is_nobodys_in_other_networks_and_at_other_ports() {
    let fabric = Fabric::of(1);
    let [acme, globex] = two_tenants(&fabric);
    fabric.serve(acme.network(), &[&acme.near], None);
    let _listening = listen(acme.near.v4(), TARGET);
    connect(acme.client.v4(), 0, front(acme.client.v4().ip), LIMIT).unwrap();
    let brief = crate::talk::BRIEF;
    connect(globex.client.v4(), 0, front(globex.client.v4().ip), brief).unwrap_err();
    let other = SocketAddr::new(vip(acme.client.v4().ip), PORT + 1);
    connect(acme.client.v4(), 0, other, brief).unwrap_err();
}

/// Takes away what leads clients to no backend, so that only that is left, as if it had just been
/// seen.
fn leave_leads(entry: Entry) -> Option<Entry> {
    let leads_on = entry.flags & CONNECTION_LEADS_ON != 0;
    leads_on.then_some(Entry { last_seen: entry.last_seen + 3600 * 1_000_000_000, ..entry })
}

#[test]
fn a_word_to_a_service_needs_one_entry_and_its_connection_is_looked_for_again_in_a_second() {
    let fabric = Fabric::of(1);
    let tenants = two_tenants(&fabric);
    let node = &fabric.nodes[0];
    for tenant in &tenants {
        fabric.serve(tenant.network(), &[&tenant.near], None);
    }
    for voice_of_client in tenants.iter().flat_map(|tenant| voices(&tenant.client)) {
        let tenant = tenants.iter().find(|it| it.network() == voice_of_client.pod.network).unwrap();
        let client = udp(voice_of_client, 0);
        let server = udp(voice(voice_of_client, &tenant.near), TARGET);
        let ask = |word: &[u8]| {
            client.send_to(word, front(voice_of_client.ip)).unwrap();
            let mut heard = [0; 8];
            let (size, from) = server.hear_from(&mut heard).expect("a word was lost");
            assert_eq!((&heard[..size], from), (word, client.local_addr().unwrap()));
            from
        };
        for word in [b"one", b"two"] {
            server.send_to(b"!", ask(word)).unwrap();
            assert_eq!(client.hear_from(&mut [0; 8]).unwrap().1, front(voice_of_client.ip));
        }
        change_entries(node, leave_leads);
        ask(b"three");
        assert_eq!(node.connections(tenant.network()), []);
        let_time_pass::<3602>(node);
        server.send_to(b"!", ask(b"four")).unwrap();
        assert_eq!(client.hear_from(&mut [0; 8]).unwrap().1, front(voice_of_client.ip));
        assert_eq!(node.connections(tenant.network()).len(), 1);
        change_entries(node, |_| None);
    }
}

/// What leads a client to its backend and the connection with it come to be in the same state.
fn both_are(node: &Node, client: SocketAddr, state: ConnectionState) {
    let port = client.port().to_be_bytes();
    eventually(&format!("both sides are {state:?}"), || {
        let all = entries(node).into_iter();
        let own = all.filter(|(key, _)| key.low_port == port || key.high_port == port);
        let states: Vec<u8> = own.map(|(_, entry)| entry.state).collect();
        (states == [state as u8; 2]).then_some(())
    });
}

#[test]
fn both_sides_of_a_service_see_how_far_a_connection_is_until_its_end() {
    let fabric = Fabric::of(2);
    let tenant = Tenant::new(&fabric, 100);
    fabric.converge();
    let node = &fabric.nodes[0];
    for backend in tenant.backends() {
        fabric.serve(tenant.network(), &[backend], None);
        for client in voices(&tenant.client) {
            let listener = listen(voice(client, backend), TARGET);
            let ours = connect(client, 0, front(client.ip), LIMIT).unwrap();
            let (theirs, peer) = listener.accept().unwrap();
            both_are(node, peer, ConnectionState::Established);
            ours.shutdown(Shutdown::Write).unwrap();
            both_are(node, peer, ConnectionState::Closing);
            drop(theirs);
            both_are(node, peer, ConnectionState::Closed);
            for is_by_client in [true, false] {
                let ours = connect(client, 0, front(client.ip), LIMIT).unwrap();
                let (theirs, peer) = listener.accept().unwrap();
                both_are(node, peer, ConnectionState::Established);
                let (breaker, other) = if is_by_client { (ours, theirs) } else { (theirs, ours) };
                SockRef::from(&breaker).set_linger(Some(Duration::ZERO)).unwrap();
                drop(breaker);
                both_are(node, peer, ConnectionState::Closed);
                drop(other);
            }
        }
    }
}

#[test]
fn a_datagrams_connection_is_established_on_both_sides_of_a_service_by_its_answer() {
    let fabric = Fabric::of(2);
    let tenant = Tenant::new(&fabric, 100);
    fabric.converge();
    let node = &fabric.nodes[0];
    for backend in tenant.backends() {
        fabric.serve(tenant.network(), &[backend], None);
        for client in voices(&tenant.client) {
            let (asker, answerer) = (udp(client, 0), udp(voice(client, backend), TARGET));
            asker.send_to(b"?", front(client.ip)).unwrap();
            let (_, from) = answerer.hear_from(&mut [0; 8]).unwrap();
            both_are(node, from, ConnectionState::New);
            answerer.send_to(b"!", from).unwrap();
            assert_eq!(asker.hear_from(&mut [0; 8]).unwrap().1, front(client.ip));
            both_are(node, from, ConnectionState::Established);
        }
    }
}

#[test]
fn a_pod_that_has_a_services_address_too_cannot_speak_into_connections_with_the_service() {
    let fabric = Fabric::of(1);
    let pod = |ip| fabric.planned_pod(0, network(100), ip);
    let (client, backend, double) = (pod("10.0.0.5"), pod("10.0.0.2"), pod("198.18.0.1"));
    fabric.converge();
    fabric.serve(client.network, &[&backend], None);
    let (asker, answerer) = (udp(client.v4(), 0), udp(backend.v4(), TARGET));
    ask(&asker, &answerer, 16);
    let heard = [&client, &backend].map(Pod::packets);
    let say = |port: u16| {
        let ports = (port, asker.local_addr().unwrap().port());
        let content = forge::datagram(ports, b"as the service");
        let packet = forge::packet(double.v4(), client.ip.into(), 17, &content);
        double.packets().send(&packet).unwrap();
    };
    let dropped = || fabric.nodes[0].dropped(Some(client.network), DropReason::NoConnection);
    say(PORT);
    eventually("it was dropped", || (dropped() == 1).then_some(()));
    heard.iter().for_each(|it| assert_eq!(it.received().unwrap(), Vec::<Vec<u8>>::new()));
    ask(&asker, &answerer, 16);
    let heard = client.packets();
    say(PORT + 1);
    forge::arrived_of(&heard, [8, 0]);
}
