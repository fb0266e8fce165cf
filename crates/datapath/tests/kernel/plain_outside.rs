//! Node ports of services of no tenant's namespaces: a machine speaks to a port of the node, and one of those
//! behind the service answers, on this node or on another. Each case in both families.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket,
};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use atoll_datapath::PlainServices;
use atoll_plan::{Backend, PLAIN, Service, ServiceKey, Side};
use atoll_testkit::{Hears, Namespace, uninterrupted};
use atoll_types::{NetAddr, Protocol};

use crate::plain_stage::{
    BOTH, Host, Stage, TARGET, accept, accept_any, ask, both_by_all, connect, exchange, last,
    listen, open, settings, udp,
};
use crate::talk::LIMIT;

pub(crate) const NODE_PORT: u16 = 30_080;

const LOCAL_PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Within this time each connection that speaks has been written down anew: that is done once in a second.
const LOOKED_AT_AGAIN: Duration = Duration::from_millis(2500);

/// A node whose uplink leads to one machine and by it to another: either may be a client, or stand for
/// another node with a pod.
pub(crate) struct Scene {
    pub(crate) stage: Stage,
    pub(crate) beyond: Host,
}

fn beyond(far: &Host, node: &Namespace) -> Host {
    let namespace = Namespace::new();
    settings(&namespace);
    let path = namespace.path();
    far.namespace.ip(&format!("link add below type veth peer name above netns {}", path.display()));
    for (place, link, number) in [(&far.namespace, "below", 1), (&namespace, "above", 2)] {
        place.ip(&format!("address add 198.51.100.{number}/24 dev {link}"));
        place.ip(&format!("address add 2003::{number}/64 dev {link}"));
        place.ip(&format!("link set {link} up"));
    }
    [&far.namespace, &namespace].into_iter().for_each(Namespace::await_links);
    namespace.ip("route add default via 198.51.100.1");
    namespace.ip("-6 route add default via 2003::1");
    node.ip("route add 198.51.100.0/24 via 192.0.2.2");
    node.ip("-6 route add 2003::/64 via 2001::2");
    Host { namespace, ipv4: Ipv4Addr::new(198, 51, 100, 2), ipv6: last(0x2003, 2) }
}

pub(crate) fn node_ip(v4: bool) -> IpAddr {
    if v4 { [192, 0, 2, 1].into() } else { last(0x2001, 1).into() }
}

pub(crate) fn node_port(v4: bool) -> SocketAddr {
    SocketAddr::new(node_ip(v4), NODE_PORT)
}

fn loopback(v4: bool) -> IpAddr {
    if v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

/// Where a node port is: for those who come from outside, and for those who are on the node.
fn places(v4: bool, protocol: Protocol) -> [ServiceKey; 3] {
    let port = NODE_PORT.try_into().unwrap();
    let key = |ip, side| ServiceKey { network: PLAIN, ip, protocol, port, side };
    [
        key(node_ip(v4), Side::Outside),
        key(node_ip(v4), Side::Clients),
        key(loopback(v4), Side::Clients),
    ]
}

impl Scene {
    /// With exactly these behind the node port.
    pub(crate) fn serving(chosen: impl Fn(&Scene) -> Vec<&Host>) -> Scene {
        let stage = Stage::serving(|_| vec![]);
        let beyond = beyond(&stage.far, &stage.node);
        let scene = Scene { stage, beyond };
        scene.serve(&chosen(&scene), None);
        scene
    }

    pub(crate) fn serve(&self, hosts: &[&Host], affinity: Option<Duration>) {
        self.serve_at(hosts, TARGET, affinity);
    }

    /// With these behind the node port, each at this port of its own.
    pub(crate) fn serve_at(&self, hosts: &[&Host], port: u16, affinity: Option<Duration>) {
        let mut wanted = BTreeMap::new();
        for (v4, protocol) in both_by_all() {
            let port = port.try_into().unwrap();
            let backend = |host: &&Host| Backend { addr: NetAddr::new(PLAIN, host.ip(v4)), port };
            let backends: BTreeSet<_> = hosts.iter().map(backend).collect();
            let service = Service { backends, affinity, ..Service::default() };
            wanted.extend(places(v4, protocol).map(|place| (place, service.clone())));
        }
        self.stage.worker.run(move |state| {
            state.plain.set(&wanted).unwrap();
            state.runtime.block_on(state.plain.serve_outside(true)).unwrap();
        });
    }

    fn switch_offloads_off(&self) {
        self.stage.node.switch_offloads_off("uplink");
        self.stage.far.namespace.switch_offloads_off("uplink");
        self.stage.far.namespace.switch_offloads_off("below");
        self.beyond.namespace.switch_offloads_off("above");
    }
}

fn is_refused(client: &Host, v4: bool) {
    let refused = connect(client, 0, node_port(v4)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    a_datagram_is_refused(client, v4);
}

fn a_datagram_is_refused(client: &Host, v4: bool) {
    let asker = udp(client, v4, 0);
    asker.connect(node_port(v4)).unwrap();
    asker.send(b"?").unwrap();
    let refused = asker.hear(&mut [0; 8]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
}

/// Who answers at one address of a host. It is made once for each: a port that was given up may still be
/// held by a child that another test has just started.
struct Server {
    listener: TcpListener,
    answerer: UdpSocket,
}

impl Server {
    fn of(host: &Host, v4: bool) -> Self {
        Server { listener: listen(host, v4), answerer: udp(host, v4, TARGET) }
    }

    fn v4(&self) -> bool {
        self.listener.local_addr().unwrap().is_ipv4()
    }
}

/// Speaks by TCP, and by datagrams of all sizes; gives the client, and whom the server took it for, by each.
fn talk(client: &Host, server: &Server) -> [(SocketAddr, SocketAddr); 2] {
    let to = node_port(server.v4());
    let ours = connect(client, 0, to).unwrap();
    assert_eq!(ours.peer_addr().unwrap(), to);
    let (theirs, from) = accept(&server.listener);
    exchange(&ours, &theirs, 100_000);
    let asker = udp(client, server.v4(), 0);
    let asked = [64, 4000, 20_000].map(|bytes| ask(&asker, &server.answerer, to, bytes));
    assert!(asked.iter().all(|from| *from == asked[0]), "{asked:?}");
    [(ours.local_addr().unwrap(), from), (asker.local_addr().unwrap(), asked[0])]
}

#[test]
fn a_node_port_leads_to_a_pod_of_the_node_which_sees_its_clients_own_address() {
    let scene = Scene::serving(|scene| vec![&scene.stage.near]);
    let servers = BOTH.map(|v4| Server::of(&scene.stage.near, v4));
    for is_bare in [false, true] {
        if is_bare {
            scene.switch_offloads_off();
        }
        for (server, client) in
            servers.iter().flat_map(|it| [(it, &scene.stage.far), (it, &scene.beyond)])
        {
            for (client, seen) in talk(client, server) {
                assert_eq!(seen, client);
            }
        }
    }
}

/// Who asks, and who answers.
type Ends = fn(&Scene) -> (&Host, &Host);

#[test]
fn a_node_port_leads_to_a_pod_of_another_node_which_sees_the_nodes_address() {
    let ends: [Ends; 2] =
        [|scene| (&scene.beyond, &scene.stage.far), |scene| (&scene.stage.far, &scene.beyond)];
    for chosen in ends {
        let scene = Scene::serving(|scene| vec![chosen(scene).1]);
        let (client, server) = chosen(&scene);
        let servers = BOTH.map(|v4| Server::of(server, v4));
        for is_bare in [false, true] {
            if is_bare {
                scene.switch_offloads_off();
            }
            for (_, seen) in servers.iter().flat_map(|server| talk(client, server)) {
                assert_eq!(seen.ip(), node_ip(seen.is_ipv4()));
            }
        }
    }
}

/// The node, as one that a pod which uses its network is reached at.
fn as_host(node: &Namespace) -> Host {
    let namespace = Namespace::at(&node.path());
    Host { namespace, ipv4: Ipv4Addr::new(192, 0, 2, 1), ipv6: last(0x2001, 1) }
}

#[test]
fn a_node_port_leads_to_a_pod_that_uses_the_nodes_network() {
    let scene = Scene::serving(|_| vec![]);
    let server = as_host(&scene.stage.node);
    scene.serve(&[&server], None);
    for v4 in BOTH {
        a_datagram_is_refused(&scene.beyond, v4);
        for (client, seen) in talk(&scene.beyond, &Server::of(&server, v4)) {
            assert_eq!(seen, client);
        }
    }
}

#[test]
fn who_is_on_the_node_is_led_by_its_node_ports_too() {
    let scene = Scene::serving(|scene| vec![&scene.stage.near]);
    scene.stage.worker.run(|state| state.plain.serve_node().unwrap());
    for v4 in BOTH {
        let server = Server::of(&scene.stage.near, v4);
        for (client, seen) in talk(&scene.stage.client, &server) {
            assert_eq!(seen, client, "a pod of the node");
        }
        for ip in [node_ip(v4), loopback(v4)] {
            let to = SocketAddr::new(ip, NODE_PORT);
            let ours = scene.stage.node.run(|| TcpStream::connect_timeout(&to, LIMIT).unwrap());
            ours.set_read_timeout(Some(LIMIT)).unwrap();
            assert_eq!(ours.peer_addr().unwrap(), to);
            exchange(&ours, &accept(&server.listener).0, 1000);
        }
    }
}

#[test]
fn what_comes_to_no_node_port_passes_as_it_is() {
    let scene = Scene::serving(|scene| vec![&scene.stage.near]);
    for v4 in BOTH {
        let own = scene.stage.node.run(|| TcpListener::bind((node_ip(v4), TARGET)).unwrap());
        own.set_nonblocking(true).unwrap();
        let of_pod = listen(&scene.stage.near, v4);
        for listener in [&own, &of_pod] {
            let to = listener.local_addr().unwrap();
            let ours = connect(&scene.stage.far, 0, to).unwrap();
            let (theirs, from) = accept(listener);
            assert_eq!(from, ours.local_addr().unwrap());
            exchange(&ours, &theirs, 1000);
        }
    }
}

#[test]
fn a_node_port_that_nobody_stands_behind_refuses_at_once() {
    let scene = Scene::serving(|scene| vec![&scene.stage.near]);
    for v4 in BOTH {
        talk(&scene.beyond, &Server::of(&scene.stage.near, v4));
    }
    scene.serve(&[], None);
    for v4 in BOTH {
        is_refused(&scene.beyond, v4);
    }
}

#[test]
fn what_a_backends_machine_says_of_a_datagram_reaches_who_came_by_a_node_port() {
    let scene = Scene::serving(|_| vec![]);
    for server in [&scene.stage.near, &scene.stage.far] {
        scene.serve(&[server], None);
        for v4 in BOTH {
            a_datagram_is_refused(&scene.beyond, v4);
            talk(&scene.beyond, &Server::of(server, v4));
        }
    }
}

#[test]
fn who_came_by_a_node_port_keeps_its_stream_and_its_datagrams_move_with_the_service() {
    let scene = Scene::serving(|_| vec![]);
    let hosts = |v4| [&scene.stage.near, &scene.stage.far].map(|it| (it, Server::of(it, v4)));
    let hosts = BOTH.map(|v4| (v4, hosts(v4)));
    for (v4, [first, second]) in
        hosts.iter().flat_map(|(v4, [one, other])| [(*v4, [one, other]), (*v4, [other, one])])
    {
        scene.serve(&[first.0], None);
        let ours = connect(&scene.beyond, 0, node_port(v4)).unwrap();
        let (theirs, _) = accept(&first.1.listener);
        let asker = udp(&scene.beyond, v4, 0);
        ask(&asker, &first.1.answerer, node_port(v4), 64);
        scene.serve(&[second.0], None);
        exchange(&ours, &theirs, 1000);
        ask(&asker, &second.1.answerer, node_port(v4), 64);
        scene.serve(&[], None);
        exchange(&ours, &theirs, 1000);
    }
}

#[test]
fn no_two_clients_have_one_port_of_the_node_towards_a_backend() {
    let scene = Scene::serving(|scene| vec![&scene.stage.far]);
    for v4 in BOTH {
        let listener = listen(&scene.stage.far, v4);
        let mut open = vec![];
        let mut seen = BTreeSet::new();
        for port in 4000..4060 {
            let ours = connect(&scene.beyond, port, node_port(v4)).unwrap();
            let (theirs, from) = accept(&listener);
            assert!(seen.insert(from), "{from} is another's already");
            open.push((ours, theirs));
        }
        for (ours, theirs) in &open {
            exchange(ours, theirs, 100);
        }
    }
}

/// Has the node as few ports for its clients as it can, 256, so that several of them want the same; and not
/// so few that one of them could find all that it tries taken.
fn leave_few_ports(scene: &Scene) {
    let most_are_sockets = || std::fs::write(LOCAL_PORTS, "1024 64511").unwrap();
    scene.stage.node.run(most_are_sockets);
    scene.serve(&[&scene.stage.far], None);
}

fn connections(scene: &Scene, at: &TcpListener, ports: Range<u16>) -> Vec<(TcpStream, TcpStream)> {
    let connection = |port| {
        let ours = connect(&scene.beyond, port, node_port(true)).unwrap();
        (ours, accept(at).0)
    };
    ports.map(connection).collect()
}

#[test]
fn a_connection_keeps_its_port_of_the_node_when_another_that_had_a_better_one_ends() {
    let scene = Scene::serving(|_| vec![]);
    leave_few_ports(&scene);
    let listener = listen(&scene.stage.far, true);
    let first = connections(&scene, &listener, 4000..4040);
    let later = connections(&scene, &listener, 4040..4080);
    drop(first);
    let begin = Instant::now();
    while begin.elapsed() < LOOKED_AT_AGAIN {
        for (ours, theirs) in &later {
            exchange(ours, theirs, 100);
        }
    }
}

#[test]
fn who_has_said_its_last_word_is_answered_to_the_end_whoever_comes_meanwhile() {
    let scene = Scene::serving(|_| vec![]);
    leave_few_ports(&scene);
    let listener = listen(&scene.stage.far, true);
    let silent = connections(&scene, &listener, 4000..4040);
    for (ours, theirs) in &silent {
        ours.shutdown(Shutdown::Write).unwrap();
        assert_eq!(
            uninterrupted(|| (&*theirs).read(&mut [0; 1])).unwrap(),
            0,
            "the last word came"
        );
    }
    let _others = connections(&scene, &listener, 4040..4080);
    for (ours, theirs) in &silent {
        (&*theirs).write_all(b"the rest").unwrap();
        (&*ours).read_exact(&mut [0; 8]).unwrap();
    }
}

#[test]
fn clients_of_a_node_port_are_spread_and_kept_together_where_the_service_says_so() {
    let scene = Scene::serving(|_| vec![]);
    let both = [&scene.stage.near, &scene.stage.far];
    for v4 in BOTH {
        let (near, far) = (listen(both[0], v4), listen(both[1], v4));
        let led_to_near = |ports: Range<u16>| {
            let led = ports.filter(|port| {
                let _ours = connect(&scene.beyond, *port, node_port(v4)).unwrap();
                accept_any(&[&near, &far]).0 == 0
            });
            led.count()
        };
        scene.serve(&both, None);
        let apart = led_to_near(4000..4040);
        assert!((1..40).contains(&apart), "{apart} of 40");
        scene.serve(&both, Some(Duration::from_secs(3600)));
        let together = led_to_near(4040..4080);
        assert!(together == 0 || together == 40, "{together} of 40");
    }
}

/// The programs of ours on the uplink, by their kernel's numbers.
fn filters_of_uplink() -> Vec<String> {
    let list = |way: &str| {
        let output = Command::new("tc").args(["filter", "show", "dev", "uplink", way]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let ours = text.lines().filter(|line| line.contains("_outside"));
        ours.map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    [list("ingress"), list("egress")].concat()
}

#[test]
fn an_agent_that_starts_again_replaces_the_programs_at_the_uplink_and_connections_go_on() {
    let backends: [fn(&Scene) -> &Host; 2] = [|scene| &scene.stage.near, |scene| &scene.stage.far];
    for chosen in backends {
        let scene = Scene::serving(|scene| vec![chosen(scene)]);
        let server = Server::of(chosen(&scene), true);
        let ours = connect(&scene.beyond, 0, node_port(true)).unwrap();
        let (theirs, _) = accept(&server.listener);
        let before = scene.stage.node.run(filters_of_uplink);
        scene.stage.worker.run(|state| {
            state.plain = state.runtime.block_on(open(&state.root));
            state.runtime.block_on(state.plain.serve_outside(true)).unwrap();
        });
        let after = scene.stage.node.run(filters_of_uplink);
        assert_eq!((before.len(), after.len()), (2, 2), "{before:?} {after:?}");
        assert!(before.iter().all(|filter| !after.contains(filter)), "{before:?} {after:?}");
        exchange(&ours, &theirs, 10_000);
        talk(&scene.beyond, &server);
    }
}

#[test]
fn without_a_node_port_nothing_is_at_the_uplink_and_what_was_led_is_refused() {
    let scene = Scene::serving(|scene| vec![&scene.stage.near]);
    talk(&scene.beyond, &Server::of(&scene.stage.near, true));
    assert_eq!(scene.stage.node.run(filters_of_uplink).len(), 2);
    scene.stage.worker.run(|state| {
        for _ in 0..2 {
            state.runtime.block_on(state.plain.serve_outside(false)).unwrap();
        }
    });
    assert_eq!(scene.stage.node.run(filters_of_uplink), Vec::<String>::new());
    is_refused(&scene.beyond, true);
}

#[test]
fn withdrawn_nothing_of_a_node_port_is_left() {
    let scene = Scene::serving(|scene| vec![&scene.stage.near]);
    talk(&scene.beyond, &Server::of(&scene.stage.near, true));
    scene.stage.worker.run(|state| {
        state.runtime.block_on(PlainServices::withdraw(&state.root)).unwrap();
        assert_eq!(state.bpf.files(), Vec::<PathBuf>::new());
    });
    assert_eq!(scene.stage.node.run(filters_of_uplink), Vec::<String>::new());
    is_refused(&scene.beyond, true);
}
