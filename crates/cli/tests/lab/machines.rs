//! A virtual machine in a pod: the test opens the pod's tap, as the machine's process would, and
//! speaks in raw frames.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use atoll_datapath::open_tap;
use atoll_testkit::forge::Face;
use atoll_testkit::{Machine, Namespace, Talk};
use serde_json::{Value, json};

use crate::documents::{nics, pod, tenant, yaml};
use crate::fixture::{Lab, state_dir};

const PATIENCE: Duration = Duration::from_secs(20);

/// The machine's pod on a node. Its process is the test.
fn machine(node: &str) -> Value {
    let nic = json!([{"ips": ["10.0.0.5", "fd00::5"], "type": "tap"}]).to_string();
    let marks = json!({"atoll.dev/nics": nic, "atoll.dev/persistent": "true"});
    let mut machine = pod("acme/vm", node, &json!({}), &marks);
    machine["spec"]["containers"][0]["command"] = json!(["sleep", "infinity"]);
    machine
}

fn port_of(lab: &Lab, pod: &str) -> Value {
    lab.kubectl(&["get", "port", "-n", "acme", &format!("{pod}.eth0"), "-o", "json"]).json()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The namespace of the pod that has a port.
fn namespace(lab: &Lab, port: &Value) -> Namespace {
    let uid = text(&port["spec"]["podUID"]);
    Namespace::at(&state_dir(&lab.name).join(format!("netns/pod-{uid}")))
}

fn boot(lab: &Lab) -> Machine {
    let port = port_of(lab, "vm");
    let spec = &port["spec"];
    assert_eq!(spec["interfaceType"], "tap");
    let face = Face {
        mac: text(&spec["mac"]).parse().unwrap(),
        ip: text(&spec["ips"][0]).parse().unwrap(),
        ipv6: text(&spec["ips"][1]).parse().unwrap(),
    };
    Machine::boot(namespace(lab, &port).run(|| open_tap("eth0").unwrap()), face)
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
    let clients = ["near", "far"].map(|name| client(&lab, name));
    let (mut faces, mut connections) = (vec![], vec![]);
    for node in ["node1", "node2"] {
        lab.apply(&yaml(&[machine(node)])).good();
        lab.wait_for_pods();
        let machine = boot(&lab);
        for client in &clients {
            client.send(node.as_bytes()).unwrap();
            machine.echo();
            let mut heard = [0; 16];
            let length = client.recv(&mut heard).unwrap();
            assert_eq!(&heard[..length], node.as_bytes());
        }
        if connections.is_empty() {
            connections = ["near", "far"].map(|name| connect(&lab, name, &machine)).into();
        }
        connections.iter_mut().for_each(|connection| goes_on(connection, &machine, node));
        faces.push(machine.face);
        lab.kubectl(&["delete", "pod", "-n", "acme", "vm"]).good();
    }
    assert_eq!(faces[0], faces[1], "the same addresses, the same sockets of its clients");
}
