//! The decisions of `from_pod` about what a pod may not have, or has no more of: services without
//! backends, ways out, ports, questions, a place among the connections, a family.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use atoll_abi::{DNS_PORT, DOOR_PORT, Door, Egress as Entry, EgressKey, NODE_MAC};
use atoll_datapath::DropReason::{
    self, ConnectionsExhausted, Ipv6NotServed, NatPortsSpent, NoBackend, NoEndpoint, OutsideClosed,
    TooManyQuestions,
};
use atoll_plan::{Closed, Egress};
use aya::maps::HashMap;

use super::{Table, Verdict};
use crate::decisions::map;
use crate::doors::{alias, ip, twins};
use crate::fabric::{Fabric, Node, Pod, network};
use crate::forge::{packet, summed_datagram, tcp};
use crate::interfaces::{neighbours, write};
use crate::outside::{FAR, World, only};
use crate::services::front;
use crate::talk::Voice;

const OWN: u32 = 100;

fn udp(from: Voice, port: u16, to: SocketAddr) -> Vec<u8> {
    packet(from, to.ip(), 17, &summed_datagram((from.ip, to.ip()), (port, to.port()), b"x"))
}

fn table(node: &Node, pod: &Pod) -> Table {
    Table::on(node, "from_pod", &pod.host_side.to_string())
}

pub(super) const SERVICES: &[DropReason] = &[NoBackend, NoEndpoint];

#[test]
fn a_service_without_backends_refuses_and_one_with_them_leads() {
    let fabric = Fabric::of(1);
    let pods = ["10.0.0.1", "10.0.0.2"].map(|ip| fabric.pod(0, network(OWN), ip));
    let [client, backend] = &pods;
    pods.iter().for_each(Pod::silence);
    let table = table(&fabric.nodes[0], client);
    for (voice, other) in [(client.v4(), backend.v4()), (client.v6(), backend.v6())] {
        fabric.serve(network(OWN), &[], None);
        let (at, refused) = (front(voice.ip), Verdict::Answer(Some(NoBackend)));
        let elsewhere = SocketAddr::new(at.ip(), 81);
        table.hold(
            &fabric.nodes[0],
            vec![
                ("to a service without a backend", udp(voice, 4000, at), refused),
                ("to it by TCP", packet(voice, at.ip(), 6, &tcp((4000, at.port()), 2)), refused),
                (
                    "to another port of its address",
                    udp(voice, 4000, elsewhere),
                    Verdict::Drop(NoEndpoint),
                ),
            ],
        );
        fabric.serve(network(OWN), &[backend], None);
        let target = SocketAddr::new(other.ip, crate::services::TARGET);
        let led = Verdict::Led(backend.mac.octets(), voice.ip, target);
        table.hold(&fabric.nodes[0], vec![("to one with a backend", udp(voice, 4001, at), led)]);
    }
    table.reasons_are(SERVICES);
}

/// Leaves the network of a node a single port towards the outside.
fn leave_one_port(node: &Node) {
    node.run(|state| {
        let egresses = map(state, "egresses");
        let mut egresses: HashMap<_, [u8; size_of::<EgressKey>()], [u8; size_of::<Entry>()]> =
            egresses.try_into().unwrap();
        let key = bytemuck::cast(EgressKey { network: OWN });
        let entry: Entry = bytemuck::pod_read_unaligned(&egresses.get(&key, 0).unwrap());
        let entry = Entry { ports: 1, ..entry };
        let entry = <[u8; size_of::<Entry>()]>::try_from(bytemuck::bytes_of(&entry)).unwrap();
        egresses.insert(key, entry, 0).unwrap();
    });
}

pub(super) const OUTSIDE: &[DropReason] = &[NatPortsSpent, NoEndpoint, OutsideClosed];

#[test]
fn what_leaves_for_the_outside_and_what_does_not() {
    let (_world, fabric) = World::with_nodes(1);
    let (node, pod) = (&fabric.nodes[0], fabric.pod(0, network(OWN), "10.0.0.5"));
    pod.silence();
    let table = table(node, &pod);
    let own: [IpAddr; 2] = [node.underlay.into(), ip("fd77::1")];
    let at = |ip| SocketAddr::new(ip, 5353);
    let voices = [pod.v4(), pod.v6()];
    for (voice, far) in voices.into_iter().zip(FAR) {
        let rows = vec![("without egress", udp(voice, 4000, at(far)), Verdict::Drop(NoEndpoint))];
        table.hold(node, rows);
    }
    {
        let mut plan = node.plan.lock().unwrap();
        plan.egress.insert(network(OWN), Egress::Node);
        plan.closed.extend(own.map(|ip| Closed { to: None, range: only(ip) }));
    }
    node.converge();
    for ((voice, far), own) in voices.into_iter().zip(FAR).zip(own) {
        table.hold(
            node,
            vec![
                ("with egress", udp(voice, 4000, at(far)), Verdict::Leaves(own, at(far))),
                ("to the node itself", udp(voice, 4000, at(own)), Verdict::Drop(OutsideClosed)),
            ],
        );
    }
    leave_one_port(node);
    for ((voice, far), own) in voices.into_iter().zip(FAR).zip(own) {
        let to = SocketAddr::new(far, 53);
        table.hold(
            node,
            vec![
                ("from the last port", udp(voice, 4001, to), Verdict::Leaves(own, to)),
                ("from one more", udp(voice, 4002, to), Verdict::Drop(NatPortsSpent)),
            ],
        );
    }
    table.reasons_are(OUTSIDE);
}

pub(super) const QUESTIONS: &[DropReason] = &[TooManyQuestions];

#[test]
fn a_question_passes_its_door_and_one_too_many_does_not() {
    let (fabric, pods) = twins();
    pods.iter().for_each(Pod::silence);
    let node = &fabric.nodes[0];
    for (family, resolver) in [ip("10.96.0.10"), ip("fd96::a")].into_iter().enumerate() {
        let asker = [pods[0].v4(), pods[0].v6()][family];
        let question = || udp(asker, 4000, SocketAddr::new(resolver, DNS_PORT));
        let behind = SocketAddr::new(Door::Cluster.listeners()[family], DOOR_PORT);
        let heard = Verdict::Led(NODE_MAC, alias(node, &pods[0], resolver), behind);
        // One question in an hour, so that however slow the machine is, the second comes too early.
        let table = Table::asking(node, &pods[0].host_side.to_string(), Duration::from_secs(3600));
        table.hold(
            node,
            vec![
                ("a question", question(), heard),
                ("another at once", question(), Verdict::Drop(TooManyQuestions)),
            ],
        );
        table.reasons_are(QUESTIONS);
    }
}

pub(super) const PLACES: &[DropReason] = &[ConnectionsExhausted, Ipv6NotServed];

#[test]
fn a_network_without_a_place_and_a_pod_without_a_family_send_nothing() {
    let fabric = Fabric::of(1);
    let pod = fabric.planned_pod(0, network(OWN), "10.0.0.1");
    let near = fabric.planned_pod(0, network(OWN), "10.0.0.2");
    let node = &fabric.nodes[0];
    let only_ipv4 = |plan: &mut atoll_plan::NodePlan| {
        plan.interfaces.get_mut(&pod.host_side).unwrap().guard.ips.retain(IpAddr::is_ipv4);
    };
    only_ipv4(&mut node.plan.lock().unwrap());
    node.converge();
    [&pod, &near].iter().for_each(|pod| pod.silence());
    let table = table(node, &pod);
    let to = |ip: IpAddr| SocketAddr::new(ip, 9);
    table.hold(
        node,
        vec![
            (
                "of the family that it has",
                udp(pod.v4(), 1, to(near.ip.into())),
                Verdict::To(near.mac.octets()),
            ),
            ("of the other", udp(pod.v6(), 1, to(near.ipv6.into())), Verdict::Drop(Ipv6NotServed)),
        ],
    );
    for (place, mut entry) in neighbours(node) {
        entry.interface.network = 200;
        write(node, place, entry);
    }
    let rows = vec![(
        "in a network that has no place",
        udp(pod.v4(), 2, to(near.ip.into())),
        Verdict::Drop(ConnectionsExhausted),
    )];
    table.hold(node, rows);
    table.reasons_are(PLACES);
}
