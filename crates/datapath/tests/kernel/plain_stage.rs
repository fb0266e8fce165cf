//! Where services of plain pods are tried: a node that routes between its pods and another machine, as
//! the reference plugin `ptp` leaves them, and how those on it talk. Everything in both families.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_datapath::{OutsideConfig, PlainServices};
use atoll_plan::{Backend, PLAIN, Service, ServiceKey, Side};
use atoll_testkit::{BpfFileSystem, Hears, Namespace, Worker, bound, eventually};
use atoll_types::{NetAddr, Protocol};
use socket2::{Domain, Socket, Type};

use crate::talk::LIMIT;

const PORT: u16 = 80;
pub(crate) const TARGET: u16 = 8080;
/// Of the node, towards other machines.
pub(crate) const OUTSIDE: OutsideConfig =
    OutsideConfig { underlay: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), overlay_port: 4789 };
pub(crate) const BOTH: [bool; 2] = [true, false];

/// What lives on the node's own thread.
pub(crate) struct State {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) bpf: BpfFileSystem,
    pub(crate) root: PathBuf,
    pub(crate) plain: PlainServices,
}

/// Somebody with an address of each family.
pub(crate) struct Host {
    pub(crate) namespace: Namespace,
    pub(crate) ipv4: Ipv4Addr,
    pub(crate) ipv6: Ipv6Addr,
}

impl Host {
    pub(crate) fn ip(&self, v4: bool) -> IpAddr {
        if v4 { self.ipv4.into() } else { self.ipv6.into() }
    }
}

/// A node with two plain pods, and another machine that routes to them.
pub(crate) struct Stage {
    pub(crate) worker: Worker<State>,
    pub(crate) node: Namespace,
    pub(crate) client: Host,
    pub(crate) near: Host,
    pub(crate) far: Host,
}

pub(crate) fn settings(namespace: &Namespace) {
    namespace.run(|| {
        for (name, value) in [
            ("ipv4/ip_forward", "1"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv6/conf/default/accept_dad", "0"),
        ] {
            std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
        }
    });
}

/// A pod as `ptp` makes it: an address of its own, and a route to it on the node.
pub(crate) fn pod(node: &Namespace, number: u8) -> Host {
    let namespace = Namespace::new();
    settings(&namespace);
    let (link, path) = (format!("veth{number}"), namespace.path());
    node.ip(&format!("link add {link} type veth peer name eth0 netns {}", path.display()));
    let (ipv4, ipv6) = (Ipv4Addr::new(10, 244, 1, number), last(0xfd44, number));
    for (ip, gateway) in [(ipv4.to_string(), "10.244.1.1"), (ipv6.to_string(), "fd44::1")] {
        let family = if gateway.contains(':') { "-6" } else { "-4" };
        node.ip(&format!("{family} address add {gateway} dev {link}"));
        node.ip(&format!("link set {link} up"));
        node.ip(&format!("{family} route add {ip} dev {link}"));
        namespace.ip(&format!("{family} address add {ip} dev eth0"));
        namespace.ip("link set eth0 up");
        namespace.ip(&format!("{family} route add {gateway} dev eth0"));
        namespace.ip(&format!("{family} route add default via {gateway} dev eth0"));
    }
    Host { namespace, ipv4, ipv6 }
}

pub(crate) fn last(first: u16, number: u8) -> Ipv6Addr {
    Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, number.into())
}

fn machine(node: &Namespace) -> Host {
    let namespace = Namespace::new();
    settings(&namespace);
    let path = namespace.path();
    node.ip(&format!("link add uplink type veth peer name uplink netns {}", path.display()));
    let (ipv4, ipv6) = (Ipv4Addr::new(192, 0, 2, 2), last(0x2001, 2));
    for (place, number) in [(node, 1), (&namespace, 2)] {
        place.ip(&format!("address add 192.0.2.{number}/24 dev uplink"));
        place.ip(&format!("address add 2001::{number}/64 dev uplink"));
        place.ip("link set uplink up");
    }
    namespace.ip("route add 10.244.1.0/24 via 192.0.2.1");
    namespace.ip("-6 route add fd44::/64 via 2001::1");
    Host { namespace, ipv4, ipv6 }
}

impl State {
    fn start() -> Self {
        let bpf = BpfFileSystem::mount_for_this_thread();
        let root = bpf.path().join("node");
        std::fs::create_dir(&root).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let plain = runtime.block_on(open(&root));
        State { runtime, bpf, root, plain }
    }
}

/// As an agent that starts: on the links of all pods that are there.
pub(crate) async fn open(root: &Path) -> PlainServices {
    let mut plain = PlainServices::open(root, OUTSIDE).await.unwrap();
    let ranges = ["10.244.1.0/24".parse().unwrap(), "fd44::/64".parse().unwrap()];
    plain.serve_all(&ranges).await.unwrap();
    plain
}

pub(crate) fn vip(v4: bool) -> IpAddr {
    if v4 { [10, 96, 0, 9].into() } else { last(0xfd96, 9).into() }
}

pub(crate) fn front(v4: bool) -> SocketAddr {
    SocketAddr::new(vip(v4), PORT)
}

pub(crate) fn key(ip: IpAddr, protocol: Protocol) -> ServiceKey {
    let port = PORT.try_into().unwrap();
    ServiceKey { network: PLAIN, ip, protocol, port, side: Side::Clients }
}

/// Both families, by every protocol.
pub(crate) fn both_by_all() -> impl Iterator<Item = (bool, Protocol)> {
    BOTH.into_iter().flat_map(|v4| Protocol::ALL.map(|protocol| (v4, protocol)))
}

impl Stage {
    /// With exactly these behind the service.
    pub(crate) fn serving(chosen: impl Fn(&Stage) -> Vec<&Host>) -> Stage {
        let node = Namespace::new();
        settings(&node);
        let (far, client, near) = (machine(&node), pod(&node, 2), pod(&node, 3));
        let places = [&node, &far.namespace, &client.namespace, &near.namespace];
        places.into_iter().for_each(Namespace::await_links);
        let worker = Worker::start(&node, State::start);
        let stage = Stage { worker, node, client, near, far };
        stage.serve(&chosen(&stage), None);
        stage
    }

    pub(crate) fn serve(&self, hosts: &[&Host], affinity: Option<Duration>) {
        let mut wanted = BTreeMap::new();
        for (v4, protocol) in both_by_all() {
            let addr = |host: &&Host| NetAddr::new(PLAIN, host.ip(v4));
            let port = TARGET.try_into().unwrap();
            let backends: BTreeSet<_> =
                hosts.iter().map(|host| Backend { addr: addr(host), port }).collect();
            wanted.insert(
                key(vip(v4), protocol),
                Service { backends, affinity, ..Service::default() },
            );
        }
        self.worker.run(move |state| state.plain.set(&wanted).unwrap());
    }

    pub(crate) fn serve_nobody(&self) {
        self.serve(&[], None);
    }
}

pub(crate) fn listen(host: &Host, v4: bool) -> TcpListener {
    let listener = host.namespace.run(|| bound(|| TcpListener::bind((host.ip(v4), TARGET))));
    listener.set_nonblocking(true).unwrap();
    listener
}

pub(crate) fn udp(host: &Host, v4: bool, port: u16) -> UdpSocket {
    let socket = host.namespace.run(|| bound(|| UdpSocket::bind((host.ip(v4), port))));
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

/// A TCP connection from the host's own address and `port` (0: any).
pub(crate) fn connect(host: &Host, port: u16, to: SocketAddr) -> io::Result<TcpStream> {
    host.namespace.run(|| {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::new(host.ip(to.is_ipv4()), port).into())?;
        socket.connect_timeout(&to.into(), LIMIT)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(stream)
    })
}

/// The next connection of a listener.
pub(crate) fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let (_, stream, from) = accept_any(&[listener]);
    (stream, from)
}

/// The next connection of any of these, and whose it is.
pub(crate) fn accept_any(listeners: &[&TcpListener]) -> (usize, TcpStream, SocketAddr) {
    let (place, (stream, from)) = eventually("a connection comes", || {
        let accepted = listeners.iter().map(|listener| listener.accept().ok());
        accepted.enumerate().find_map(|(place, it)| Some((place, it?)))
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    (place, stream, from)
}

/// Sends bytes to and fro.
pub(crate) fn exchange(ours: &TcpStream, theirs: &TcpStream, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|n| (n * 31 % 251) as u8).collect();
    let (mut ours, mut theirs) = (ours.try_clone().unwrap(), theirs.try_clone().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut heard = vec![0; bytes];
            theirs.read_exact(&mut heard).unwrap();
            theirs.write_all(&heard).unwrap();
        });
        let mut writer = ours.try_clone().unwrap();
        scope.spawn({
            let sent = sent.clone();
            move || writer.write_all(&sent).unwrap()
        });
        let mut heard = vec![0; bytes];
        ours.read_exact(&mut heard).unwrap();
        assert!(heard == sent, "what came back is not what was sent");
    });
}

/// A question of so many bytes and its answer; gives the client that the server saw.
pub(crate) fn ask(
    ours: &UdpSocket,
    theirs: &UdpSocket,
    to: SocketAddr,
    bytes: usize,
) -> SocketAddr {
    let question = vec![b'?'; bytes];
    let mut buffer = vec![0; 65536];
    ours.send_to(&question, to).unwrap();
    let (length, from) = theirs.hear_from(&mut buffer).unwrap();
    assert!(buffer[..length] == question);
    theirs.send_to(&question, from).unwrap();
    let (length, answerer) = ours.hear_from(&mut buffer).unwrap();
    assert_eq!((length, answerer), (bytes, to));
    from
}
