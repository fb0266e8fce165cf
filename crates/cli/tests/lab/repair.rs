//! What is changed on a node behind the agent's back: the size of the underlay's packets, a program, a
//! link, the tunnel's device, half of the pins. It is followed or put right, traffic goes on, and two
//! tenants stay apart.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use atoll_testkit::eventually;
use serde_json::{Value, json};

use crate::documents::{nics, pod, yaml};
use crate::fixture::{Lab, await_condition, await_some, kill_agent_and_await_the_next, state_dir};
use crate::several_networks::{answer, server};
use crate::tenants::{field, namespace};
use crate::threats::Player;
use crate::threats_to_flows::FAMILIES;

const PATIENCE: Duration = Duration::from_secs(60);
/// Of each family, the address of a service of `acme` that `far` stands behind.
const VIPS: [&str; 2] = ["198.18.0.20", "fd18::20"];
const NODES: [&str; 3] = ["node1", "node2", "node3"];

/// A tenant with ranges that others have, too, and addresses for its services.
fn tenant(name: &str) -> [Value; 2] {
    let spec = json!({"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16", "fd00::/64"]},
                      "serviceCIDRs": ["198.18.0.0/16", "fd18::/112"]});
    let tenant = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant",
                        "metadata": {"name": name}, "spec": spec});
    [tenant, namespace(name, name)]
}

fn service() -> Value {
    let ports = ["TCP", "UDP"].map(|protocol| {
        json!({"name": protocol.to_lowercase(), "port": 80, "targetPort": 9000,
               "protocol": protocol})
    });
    json!({"apiVersion": "v1", "kind": "Service",
           "metadata": {"name": "far", "namespace": "acme",
                        "annotations": {"atoll.dev/vip": VIPS.join(",")}},
           "spec": {"selector": {"app": "far"}, "ipFamilyPolicy": "RequireDualStack",
                    "ports": ports}})
}

/// Of `acme`: `web` and `near` on one node, `far` and `third` on the others. Of `globex`: `web`, with the
/// same address on the same node, and `only`, where `acme` has nobody.
pub(crate) fn fill_with_both_tenants(lab: &Lab) {
    let at = |name: &str, node: &str, last| {
        let labels = json!({"app": name.split_once('/').unwrap().1});
        pod(name, node, &labels, &nics("default", last))
    };
    let pods = [
        at("acme/web", "node1", 5),
        at("acme/near", "node1", 6),
        at("acme/far", "node2", 7),
        at("acme/third", "node3", 8),
        at("globex/web", "node1", 5),
        at("globex/only", "node2", 9),
    ];
    let tenants = [tenant("acme"), tenant("globex")].concat();
    lab.apply(&yaml(&[&tenants, &[service()][..], &pods].concat())).good();
    lab.wait_for_pods();
}

fn lab_with_both_tenants() -> Lab {
    let lab = Lab::up(3);
    fill_with_both_tenants(&lab);
    lab
}

/// What may be reached is, and what may not is not.
fn all_is_well(lab: &Lab) {
    for family in ["10.0.0.", "fd00::"] {
        for (name, last) in [("near", 6), ("far", 7), ("third", 8)] {
            let said = answer(lab, "acme/web", &format!("{family}{last}"));
            assert_eq!(said, (format!("acme/{name}"), format!("{family}5")));
            let back = answer(lab, &format!("acme/{name}"), &format!("{family}5"));
            assert_eq!(back, ("acme/web".to_owned(), format!("{family}{last}")));
        }
        let only = format!("{family}9");
        assert_eq!(answer(lab, "globex/web", &only).0, "globex/only");
        lab.connect("acme/web", "tcp", &server(&only)).bad();
    }
}

/// The size of packets of a pod's interface, as the pod sees it.
fn mtu(lab: &Lab, pod: &str) -> String {
    let said = lab.exec(pod, &["ip", "-o", "link", "show", "eth0"]).good();
    said.split_whitespace().skip_while(|word| *word != "mtu").nth(1).unwrap().to_owned()
}

fn await_mtu(lab: &Lab, pods: &[&str], wanted: u32) {
    for pod in pods {
        await_condition(|| mtu(lab, pod) == wanted.to_string())
            .unwrap_or_else(|()| panic!("{pod} has {} and never {wanted}", mtu(lab, pod)));
    }
}

#[test]
fn pods_follow_their_nodes_underlay_and_what_is_too_big_is_answered_also_through_a_service() {
    pods_follow_and_what_is_too_big_is_answered(&lab_with_both_tenants(), 50);
}

/// Pods have what the tunnel's header leaves of their node's underlay, whatever that comes to be.
pub(crate) fn pods_follow_and_what_is_too_big_is_answered(lab: &Lab, header: u32) {
    let (here, there) = (["acme/web", "acme/near", "globex/web"], ["acme/far", "acme/third"]);
    await_mtu(lab, &here, 1500 - header);
    for uplink in [1400, 1500] {
        lab.node("node1", &["ip", "link", "set", "eth0", "mtu", &uplink.to_string()]).good();
        await_mtu(lab, &here, uplink - header);
        all_is_well(lab);
    }
    await_mtu(lab, &there, 1500 - header);
    what_is_too_big_is_answered(lab, 1500 - header);
}

/// An agent that does nothing for as long as this value is there.
struct Stopped<'a> {
    lab: &'a Lab,
    node: &'static str,
}

impl<'a> Stopped<'a> {
    fn agent_of(lab: &'a Lab, node: &'static str) -> Stopped<'a> {
        await_some(|| lab.agent(node));
        lab.signal_agent(node, "-STOP");
        Stopped { lab, node }
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.lab.signal_agent(self.node, "-CONT");
    }
}

/// The link on the node that leads to a pod of `acme`.
fn host_side(lab: &Lab, name: &str) -> String {
    let port = format!("{name}.eth0");
    field(lab, &["port", "-n", "acme", &port], "{.status.hostInterface}", |it| !it.is_empty())
}

/// Lets a pod send what the tunnel does not carry.
fn widen(lab: &Lab, name: &str, node: &str) {
    lab.node(node, &["ip", "link", "set", &host_side(lab, name), "mtu", "1500"]).good();
    lab.exec(&format!("acme/{name}"), &["ip", "link", "set", "eth0", "mtu", "1500"]).good();
}

/// The largest packet that a pod's kernel believes fits to `to`.
fn path_mtu(player: &Player, to: IpAddr) -> Option<u32> {
    let route = player.namespace.ip(&format!("route get {to}"));
    let mut words = route.split_whitespace().skip_while(|word| *word != "mtu");
    words.nth(1)?.parse().ok()
}

/// The pods of two nodes send more than fits, straight and through a service: each learns what fits, about
/// whom it spoke with, and a connection goes on with smaller packets.
fn what_is_too_big_is_answered(lab: &Lab, fits: u32) {
    let stopped = ["node1", "node2"].map(|node| Stopped::agent_of(lab, node));
    widen(lab, "web", "node1");
    widen(lab, "far", "node2");
    let [web, far] = ["web", "far"].map(|name| Player::find(lab, "acme", name));
    for (family, vip) in FAMILIES.into_iter().zip(VIPS) {
        let (own, other) = (family(&web.face), family(&far.face));
        let vip: IpAddr = vip.parse().unwrap();
        converse(&web, &far, SocketAddr::new(other, 9000), SocketAddr::new(vip, 80));
        assert_eq!(path_mtu(&web, vip), Some(fits), "of what the client sent");
        assert_eq!(path_mtu(&far, own), Some(fits), "of the answers");
        learns_what_fits(&web, own, SocketAddr::new(other, 80), fits);
    }
    drop(stopped);
    assert!(lab.drops(Some("acme.default"), "too-big") >= 6);
}

fn learns_what_fits(player: &Player, own: IpAddr, to: SocketAddr, fits: u32) {
    let socket = player.namespace.run(|| UdpSocket::bind((own, 0)).unwrap());
    eventually("the sender learns what fits", || {
        // Where it is known already, the kernel cuts the datagram by itself; where nobody listens, it says so.
        let _refused = socket.send_to(&[7; 1440], to);
        (path_mtu(player, to.ip()) == Some(fits)).then_some(())
    });
}

/// Half a megabyte there and back, through the service.
fn converse(client: &Player, served: &Player, at: SocketAddr, through: SocketAddr) {
    const WORD: usize = 500_000;
    let listener = served.namespace.run(|| TcpListener::bind(at).unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut heard = vec![0; WORD];
            stream.read_exact(&mut heard).unwrap();
            stream.write_all(&heard).unwrap();
        });
        let connect = || TcpStream::connect_timeout(&through, PATIENCE).unwrap();
        let mut stream = client.namespace.run(connect);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let word: Vec<u8> = (0..WORD).map(|place| (place % 251) as u8).collect();
        stream.write_all(&word).unwrap();
        let mut heard = vec![0; WORD];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(heard, word);
    });
}

/// All pins of a node.
fn pins(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut pins: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { pins(&path) } else { vec![path] }).collect();
    pins.sort();
    pins
}

#[test]
fn a_program_a_link_the_tunnel_and_half_of_the_pins_are_put_back_and_traffic_goes_on() {
    let lab = lab_with_both_tenants();
    all_is_well(&lab);
    let link = host_side(&lab, "web");
    let node = |command: &[&str]| lab.node("node1", command);
    let is_guarded =
        || node(&["tc", "filter", "show", "dev", &link, "ingress"]).out.contains("bpf");
    assert!(is_guarded());
    node(&["tc", "qdisc", "delete", "dev", &link, "clsact"]).good();
    await_condition(is_guarded).expect("the program is put back");
    all_is_well(&lab);
    for link in [link.as_str(), "atoll-vx"] {
        let index = || node(&["ip", "-o", "link", "show", link]).out;
        let before = index();
        node(&["ip", "link", "delete", link]).good();
        await_condition(|| !index().is_empty() && index() != before).expect("it is made again");
        all_is_well(&lab);
    }
    for (node, rest) in NODES.into_iter().zip([0, 1, 0]) {
        let all = pins(&state_dir(&lab.name).join("bpf").join(node));
        let half = all.iter().skip(rest).step_by(2);
        half.for_each(|pin| fs::remove_file(pin).unwrap());
        kill_agent_and_await_the_next(&lab, node);
        let folder = state_dir(&lab.name).join("bpf").join(node);
        await_condition(|| pins(&folder).len() >= all.len()).expect("the pins are back");
        all_is_well(&lab);
    }
}
