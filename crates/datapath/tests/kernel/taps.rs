//! Virtual machines: a pod whose interface is a tap, opened by a test that speaks in raw frames.

use atoll_datapath::{DropReason, open_tap};
use atoll_plan::{Device, Endpoint, Place};
use atoll_testkit::forge::{self, IP};
use atoll_testkit::{Hears, Machine, eventually};

use crate::fabric::{Fabric, Pod, network};
use crate::talk::{LIMIT, udp};

/// Starts the machine behind a pod's tap.
fn boot(pod: &Pod) -> Machine {
    Machine::boot(pod.namespace.run(|| open_tap("eth0").unwrap()), pod.into())
}

/// A pod with a tap, on the node at `place`.
fn planned_machine(fabric: &Fabric, place: usize, number: u32, ip: &str) -> Pod {
    let pod = fabric.planned_pod(place, network(number), ip);
    let mut plan = fabric.nodes[place].plan.lock().unwrap();
    plan.interfaces.get_mut(&pod.host_side).unwrap().device = Device::Tap;
    drop(plan);
    pod
}

fn machine_pod(fabric: &Fabric, place: usize, number: u32, ip: &str) -> Pod {
    let pod = planned_machine(fabric, place, number, ip);
    fabric.converge();
    pod
}

/// A client asks and the machine answers.
fn converse(client: &Pod, machine: &Machine) {
    let socket = udp(client.v4(), 0);
    socket.connect((machine.face.ip, 7)).unwrap();
    socket.send(b"are you there?").unwrap();
    machine.echo();
    let mut heard = [0; 64];
    let length = socket.hear(&mut heard).unwrap();
    assert_eq!(&heard[..length], b"are you there?");
}

#[test]
fn a_machine_behind_a_tap_is_answered_and_answers_like_a_pod() {
    let fabric = Fabric::of(2);
    let pod = machine_pod(&fabric, 0, 100, "10.0.0.1");
    let near = fabric.pod(0, network(100), "10.0.0.2");
    let far = fabric.pod(1, network(100), "10.0.0.3");
    let machine = boot(&pod);
    for client in [&near, &far] {
        converse(client, &machine);
        let ping = [8, 0, 0xf7, 0xfd, 0, 1, 0, 1];
        machine.send(&forge::packet(pod.v4(), client.ip.into(), 1, &ping));
        let is_reply = |it: &[u8]| it[12..14] == [8, 0] && it[IP + 9] == 1 && it[IP + 20] == 0;
        machine.await_frame("its ping was answered", is_reply);
    }
}

#[test]
fn a_machine_cannot_lie_and_no_frame_of_one_network_is_seen_in_another() {
    let fabric = Fabric::of(2);
    let pod = machine_pod(&fabric, 0, 100, "10.0.0.1");
    let neighbour = machine_pod(&fabric, 0, 100, "10.0.0.2");
    let foreign =
        [(0, "10.0.0.2"), (1, "10.0.0.4")].map(|(place, ip)| machine_pod(&fabric, place, 200, ip));
    let machine = boot(&pod);
    let (others, own) = (foreign.each_ref().map(boot), boot(&neighbour));
    let mac = pod.mac.octets();
    let everybody = "255.255.255.255".parse().unwrap();
    let lies = [
        (DropReason::SpoofedMac, forge::udp_from(neighbour.mac.octets(), pod.ip, neighbour.ip)),
        (DropReason::SpoofedAddress, forge::udp_from(mac, neighbour.ip, foreign[0].ip)),
        (DropReason::Multicast, forge::udp(&pod, everybody)),
        (DropReason::NoEndpoint, forge::udp(&pod, foreign[1].ip)),
        (DropReason::NotIp, forge::other(&pod, 0x88cc, &[0; 50])),
        (DropReason::VlanTagged, forge::tagged(&forge::udp(&pod, neighbour.ip), 5)),
    ];
    for (reason, frame) in lies {
        let dropped = || fabric.nodes[0].dropped(Some(network(100)), reason);
        let before = dropped();
        machine.send(&frame);
        eventually(&format!("it was {reason}"), || (dropped() > before).then_some(()));
    }
    machine.send(&forge::udp(&pod, neighbour.ip));
    own.await_frame("what is honest arrives", |it| it[12..14] == [8, 0]);
    for other in others.iter().chain([&own]) {
        assert!(other.has_heard_nothing());
    }
}

#[test]
fn a_machine_that_moves_takes_its_addresses_along_and_traffic_follows() {
    let fabric = Fabric::of(2);
    let client = fabric.pod(0, network(100), "10.0.0.2");
    let before = machine_pod(&fabric, 0, 100, "10.0.0.1");
    let source = boot(&before);
    let socket = udp(client.v4(), 5000);
    socket.connect((before.ip, 7)).unwrap();
    socket.send(b"one").unwrap();
    source.echo();
    let mut heard = [0; 64];
    assert_eq!(socket.hear(&mut heard).unwrap(), 3);

    fabric.nodes[0].plan.lock().unwrap().interfaces.remove(&before.host_side);
    let after = planned_machine(&fabric, 1, 100, "10.0.0.1");
    let there = Place::There(fabric.nodes[1].tunnel);
    for addr in after.addrs() {
        let endpoint = Endpoint { mac: after.mac, place: there.clone() };
        fabric.nodes[0].plan.lock().unwrap().endpoints.insert(addr, endpoint);
    }
    fabric.converge();
    let target = boot(&after);
    socket.send(b"again").unwrap();
    target.echo();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(socket.hear(&mut heard).unwrap(), 5, "the same socket, the same ports");
    assert!(source.has_heard_nothing(), "nothing at the place it left");
}

#[test]
fn a_tap_is_made_once_and_an_interface_of_another_is_not_taken() {
    let fabric = Fabric::of(1);
    let pod = planned_machine(&fabric, 0, 100, "10.0.0.1");
    pod.namespace.ip("link add eth0 type bridge");
    let desired = fabric.nodes[0].plan.lock().unwrap().clone();
    let failed = fabric.nodes[0].run(move |state| {
        let steps = atoll_plan::diff(&desired, &state.observe());
        steps.iter().find_map(|step| state.apply(step).err())
    });
    assert!(format!("{:?}", failed.unwrap()).contains("another interface of that name"));
    assert_eq!(fabric.nodes[0].namespace.ip("-br link").matches("atl").count(), 0);
    pod.namespace.ip("link delete eth0");
    fabric.converge();
    let machine = boot(&pod);
    fabric.nodes[0].namespace.ip(&format!("link delete {}", pod.host_side));
    fabric.converge();
    let peer = fabric.pod(0, network(100), "10.0.0.2");
    converse(&peer, &machine);
}
