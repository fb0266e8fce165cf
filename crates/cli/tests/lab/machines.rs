//! A virtual machine in a pod: the test opens the pod's tap, as the machine's process would, and
//! speaks in raw frames.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use atoll_datapath::open_tap;
use atoll_testkit::forge::{Face, IP};
use atoll_testkit::{Hears, Machine, Namespace, Stops, Talk, eventually};
use serde_json::{Value, json};

use crate::documents::{nics, pod, tenant, yaml};
use crate::fixture::Lab;

const PATIENCE: Duration = Duration::from_secs(60);

/// The machine's pod of a tenant on a node. Its process is the test.
fn machine(tenant: &str, node: &str) -> Value {
    let nic = json!([{"ips": ["10.0.0.5", "fd00::5"], "type": "tap"}]).to_string();
    let marks = json!({"atoll.dev/nics": nic, "atoll.dev/persistent": "true"});
    let mut machine = pod(&format!("{tenant}/vm"), node, &json!({}), &marks);
    machine["spec"]["containers"][0]["command"] = json!(["sleep", "infinity"]);
    machine
}

/// The port of a pod (`namespace/pod`).
fn port_of(lab: &Lab, pod: &str) -> Value {
    let (namespace, pod) = pod.split_once('/').unwrap();
    lab.kubectl(&["get", "port", "-n", namespace, &format!("{pod}.eth0"), "-o", "json"]).json()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The namespace of the pod that has a port.
fn namespace(lab: &Lab, port: &Value) -> Namespace {
    let pod = format!("{}/{}", text(&port["metadata"]["namespace"]), text(&port["spec"]["pod"]));
    Namespace::at(&lab.sandbox(&pod))
}

/// Who the machine of a tenant is.
fn face_of(lab: &Lab, tenant: &str) -> Face {
    let spec = &port_of(lab, &format!("{tenant}/vm"))["spec"];
    assert_eq!(spec["interfaceType"], "tap");
    Face {
        mac: text(&spec["mac"]).parse().unwrap(),
        ip: text(&spec["ips"][0]).parse().unwrap(),
        ipv6: text(&spec["ips"][1]).parse().unwrap(),
    }
}

fn boot(lab: &Lab, tenant: &str) -> Machine {
    let port = port_of(lab, &format!("{tenant}/vm"));
    let tap = namespace(lab, &port).run(|| open_tap("eth0").unwrap());
    Machine::boot(tap, face_of(lab, tenant))
}

/// A connection of a pod with the machine, and the machine's end of it.
fn connect(lab: &Lab, pod: &str, machine: &Machine) -> (TcpStream, Talk) {
    let namespace = namespace(lab, &port_of(lab, pod));
    let connect = || TcpStream::connect_timeout(&"10.0.0.5:8".parse().unwrap(), PATIENCE).unwrap();
    let (client, talk) = thread::scope(|scope| {
        let client = scope.spawn(|| namespace.run(connect));
        let talk = machine.accept();
        (client.join().unwrap(), talk)
    });
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    (client, talk)
}

fn goes_on((client, talk): &mut (TcpStream, Talk), machine: &Machine, word: &str) {
    client.write_all(word.as_bytes()).unwrap();
    machine.say_back(talk);
    let mut heard = vec![0; word.len()];
    client.read_exact(&mut heard).unwrap();
    assert_eq!(heard, word.as_bytes());
}

/// A socket of a pod that speaks with the machine.
fn client(lab: &Lab, pod: &str) -> UdpSocket {
    let socket = namespace(lab, &port_of(lab, pod)).run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.connect("10.0.0.5:7").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

#[test]
fn a_machine_on_the_lab_moves_to_another_node_with_its_addresses_and_connections() {
    let lab = Lab::up(2);
    lab.apply(&tenant("acme")).good();
    let clients = [("near", "node1", 6), ("far", "node2", 7)].map(|(name, node, last)| {
        pod(&format!("acme/{name}"), node, &json!({}), &nics("default", last))
    });
    lab.apply(&yaml(&clients)).good();
    lab.wait_for_pods();
    let clients = ["acme/near", "acme/far"].map(|name| client(&lab, name));
    let (mut faces, mut connections) = (vec![], vec![]);
    for node in ["node1", "node2"] {
        lab.apply(&yaml(&[machine("acme", node)])).good();
        lab.wait_for_pods();
        let machine = boot(&lab, "acme");
        for client in &clients {
            client.send(node.as_bytes()).unwrap();
            machine.echo();
            let mut heard = [0; 16];
            let length = client.hear(&mut heard).unwrap();
            assert_eq!(&heard[..length], node.as_bytes());
        }
        if connections.is_empty() {
            connections =
                ["acme/near", "acme/far"].map(|name| connect(&lab, name, &machine)).into();
        }
        connections.iter_mut().for_each(|connection| goes_on(connection, &machine, node));
        faces.push(machine.face);
        lab.kubectl(&["delete", "pod", "-n", "acme", "vm"]).good();
    }
    assert_eq!(faces[0], faces[1], "the same addresses, the same sockets of its clients");
}

/// A client says its tenant's name and a number to the machine, a thousand a second, until told to stop.
fn count_aloud(tenant: &str, client: &UdpSocket, stop: &AtomicBool, said: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let number = said.fetch_add(1, Ordering::Relaxed);
        // Refused while the address is nobody's.
        client.send(format!("{tenant} {number}").as_bytes()).ok();
        thread::sleep(Duration::from_millis(1));
    }
}

/// The numbers that a machine has heard up to now; whatever else it heard was no datagram, and none was
/// of another tenant.
fn numbers(machine: &Machine, tenant: &str) -> Vec<u64> {
    let frames = std::iter::from_fn(|| machine.receive(Duration::ZERO));
    let datagrams = frames.filter(|frame| frame[12..14] == [8, 0] && frame[IP + 9] == 17);
    let number = |frame: Vec<u8>| {
        let word = String::from_utf8_lossy(&frame[IP + 28..]).into_owned();
        let (of, number) = word.split_once(' ').unwrap();
        assert_eq!(of, tenant, "a frame of another network: {word}");
        number.parse().unwrap()
    };
    datagrams.map(number).collect()
}

/// The next numbers that a machine hears.
fn next_numbers(machine: &Machine, tenant: &str) -> Vec<u64> {
    eventually(&format!("the machine of {tenant} hears its own"), || {
        Some(numbers(machine, tenant)).filter(|heard| !heard.is_empty())
    })
}

/// The tap of a pod that is about to come, as soon as it is up.
fn first_tap(lab: &Lab, before: &BTreeSet<PathBuf>) -> File {
    let up = |sandbox: PathBuf| {
        let namespace = Namespace::at(&sandbox);
        let links = namespace.command("ip", &["-o", "link", "show", "eth0", "up"]);
        (!links.stdout.is_empty()).then(|| namespace.run(|| open_tap("eth0")).ok()).flatten()
    };
    eventually("the machine has its interface", || {
        let new = lab.sandboxes().difference(before).next().cloned()?;
        // A namespace is there before it can be entered, and before it has an interface.
        thread::scope(|scope| scope.spawn(|| up(new)).join()).ok()?
    })
}

/// Has the machine of `acme` go to a node. Gives it there, and how many packets passed it by after its interface
/// was up.
fn moved(lab: &Lab, node: &str, face: Face, said: &AtomicU64) -> (Machine, u64) {
    lab.kubectl(&["delete", "pod", "-n", "acme", "vm"]).good();
    let before = lab.sandboxes();
    lab.apply(&yaml(&[machine("acme", node)])).good();
    let machine = Machine::boot(first_tap(lab, &before), face);
    let up = said.load(Ordering::Relaxed);
    let late = next_numbers(&machine, "acme")[0].saturating_sub(up);
    lab.wait_for_pods();
    assert_eq!(face_of(lab, "acme"), face, "the same addresses on {node}");
    (machine, late)
}

/// What is sent to a machine follows it within a second of its interface being there. Told by packets, of which
/// a thousand are said in a second at most: a machine that is too busy to say them is too busy for more.
#[test]
fn what_is_sent_to_a_machine_follows_it_to_another_node_and_never_into_another_network() {
    const A_SECOND: u64 = 1000;
    let lab = Lab::up(2);
    for name in ["acme", "globex"] {
        let client = pod(&format!("{name}/far"), "node2", &json!({}), &nics("default", 7));
        lab.apply(&tenant(name)).good();
        lab.apply(&yaml(&[client, machine(name, "node1")])).good();
    }
    lab.wait_for_pods();
    let clients = ["acme/far", "globex/far"].map(|name| client(&lab, name));
    let (mut here, other) = (boot(&lab, "acme"), boot(&lab, "globex"));
    assert_eq!(here.face, other.face, "two machines with the very same addresses");
    let (stop, said) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    let mut late = vec![];
    thread::scope(|scope| {
        let _stopped = Stops(&stop);
        scope.spawn(|| count_aloud("acme", &clients[0], &stop, &said[0]));
        scope.spawn(|| count_aloud("globex", &clients[1], &stop, &said[1]));
        next_numbers(&here, "acme");
        next_numbers(&other, "globex");
        for node in ["node2", "node1", "node2", "node1", "node2"] {
            let (there, passed_by) = moved(&lab, node, here.face, &said[0]);
            here = there;
            late.push(passed_by);
            next_numbers(&here, "acme");
            next_numbers(&other, "globex");
        }
    });
    late.sort_unstable();
    println!("packets that passed it by after each move: {late:?}");
    assert!(late[late.len() / 2] <= A_SECOND, "packets that passed it by: {late:?}");
}
