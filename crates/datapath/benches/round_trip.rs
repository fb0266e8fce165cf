//! What a packet's way costs: TCP round trips of one byte, client and server on one CPU, so that
//! time is CPU time. Rounds of all cases are interleaved and medians compared, which holds on a
//! busy machine. `cargo bench -p atoll-datapath --bench round_trip [rounds]`, as root.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on fails")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use atoll_testkit::{Namespace, eventually};

#[path = "../tests/kernel/fabric.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod fabric;

use fabric::{Fabric, Pod, network};

const PORT: u16 = 7003;
const ROUND: Duration = Duration::from_millis(500);

/// Two ends of a path and what keeps it up.
struct Case {
    name: &'static str,
    /// The case whose median is 1.00.
    limit: &'static str,
    client: Namespace,
    server: Namespace,
    target: &'static str,
    _keeps: Vec<Box<dyn std::any::Any>>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve"] => serve(),
        ["ask", target] => println!("{}", ask(target)),
        [rounds] => compare(rounds.parse().unwrap()),
        _ => compare(9),
    }
}

/// Answers every byte with itself.
fn serve() {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut byte = [0];
        while stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte)).is_ok() {}
    }
}

/// The median round trip in nanoseconds.
fn ask(target: &str) -> u128 {
    let mut stream = TcpStream::connect((target, PORT)).unwrap();
    stream.set_nodelay(true).unwrap();
    let (start, mut times, mut byte) = (Instant::now(), vec![], [7]);
    while start.elapsed() < ROUND {
        let sent = Instant::now();
        stream.write_all(&byte).unwrap();
        stream.read_exact(&mut byte).unwrap();
        times.push(sent.elapsed().as_nanos());
    }
    median(&mut times)
}

fn median(values: &mut [u128]) -> u128 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn compare(rounds: usize) {
    let cases = [direct(), bridge(), same_node(), routed(), across_nodes()];
    let _servers: Vec<Ended> = cases.iter().map(|case| Ended(start(case, &["serve"]))).collect();
    cases.iter().for_each(|case| eventually(case.name, || round(case).is_some().then_some(())));
    let mut times = vec![vec![]; cases.len()];
    for _ in 0..rounds {
        for (case, times) in cases.iter().zip(&mut times) {
            times.push(round(case).unwrap());
        }
    }
    let medians: Vec<u128> = times.iter_mut().map(|times| median(times)).collect();
    for (case, time) in cases.iter().zip(&medians) {
        let limit = cases.iter().position(|limit| limit.name == case.limit).unwrap();
        let ratio = *time as f64 / medians[limit] as f64;
        println!("{:14} {:8.2} us  {ratio:.3} of {}", case.name, *time as f64 / 1e3, case.limit);
    }
}

fn round(case: &Case) -> Option<u128> {
    let output = start(case, &["ask", case.target]).wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().ok()
}

/// This very program, on CPU 1 of the machine, inside the case's namespace.
fn start(case: &Case, arguments: &[&str]) -> Child {
    let namespace = if arguments[0] == "serve" { &case.server } else { &case.client };
    let this = std::env::current_exe().unwrap();
    namespace.run(|| {
        Command::new("nice")
            .args(["-n", "-20", "taskset", "-c", "1"])
            .arg(this)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    })
}

/// A child that ends with this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A veth pair between two namespaces, called `name` on this side.
fn pair(here: &Namespace, name: &str, there: &Namespace, peer: &str) {
    let there_path = there.path();
    let there_path = there_path.display();
    here.ip(&format!("link add {name} type veth peer name {peer} netns {there_path}"));
    here.ip(&format!("link set {name} up"));
    there.ip(&format!("link set {peer} up"));
}

/// The limit: nothing but a veth pair.
fn direct() -> Case {
    let (client, server) = (Namespace::new(), Namespace::new());
    pair(&client, "eth0", &server, "eth0");
    client.ip("address add 10.0.0.1/24 dev eth0");
    server.ip("address add 10.0.0.2/24 dev eth0");
    let name = "direct";
    Case { name, limit: name, client, server, target: "10.0.0.2", _keeps: vec![] }
}

/// A namespace with a bridge that has `address`, and one pod on it.
fn bridged(host: &Namespace, address: &str, pods: &[(&Namespace, &str)]) {
    host.ip("link add br0 type bridge");
    host.ip(&format!("address add {address}/24 dev br0"));
    host.ip("link set br0 up");
    for (number, (pod, ip)) in pods.iter().enumerate() {
        pair(host, &format!("port{number}"), pod, "eth0");
        host.ip(&format!("link set port{number} master br0"));
        pod.ip(&format!("address add {ip}/24 dev eth0"));
        pod.ip(&format!("route add default via {address}"));
    }
}

fn bridge() -> Case {
    let (host, client, server) = (Namespace::new(), Namespace::new(), Namespace::new());
    bridged(&host, "10.0.0.254", &[(&client, "10.0.0.1"), (&server, "10.0.0.2")]);
    let keeps: Vec<Box<dyn std::any::Any>> = vec![Box::new(host)];
    Case { name: "bridge", limit: "direct", client, server, target: "10.0.0.2", _keeps: keeps }
}

/// Two hosts that route to each other's bridge, without overlay.
fn routed() -> Case {
    let hosts = [Namespace::new(), Namespace::new()];
    let (client, server) = (Namespace::new(), Namespace::new());
    pair(&hosts[0], "uplink", &hosts[1], "uplink");
    bridged(&hosts[0], "10.0.1.254", &[(&client, "10.0.1.1")]);
    bridged(&hosts[1], "10.0.2.254", &[(&server, "10.0.2.1")]);
    for (host, (own, other)) in hosts.iter().zip([(1, 2), (2, 1)]) {
        host.ip(&format!("address add 192.168.77.{own}/24 dev uplink"));
        host.ip(&format!("route add 10.0.{other}.0/24 via 192.168.77.{other}"));
        host.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    }
    let keeps: Vec<Box<dyn std::any::Any>> = vec![Box::new(hosts)];
    Case { name: "routed", limit: "routed", client, server, target: "10.0.2.1", _keeps: keeps }
}

fn pods_of(fabric: Fabric, name: &'static str, limit: &'static str) -> Case {
    let last = fabric.nodes.len() - 1;
    let pod = |place, ip| -> Pod { fabric.pod(place, network(100), ip) };
    let (client, server) = (pod(0, "10.0.0.1"), pod(last, "10.0.0.2"));
    let (client, server) = (client.namespace, server.namespace);
    Case { name, limit, client, server, target: "10.0.0.2", _keeps: vec![Box::new(fabric)] }
}

fn same_node() -> Case {
    pods_of(Fabric::of(1), "same node", "direct")
}

fn across_nodes() -> Case {
    pods_of(Fabric::of(2), "across nodes", "routed")
}
