//! The decisions of `from_overlay` about packets that are for nobody of their network: a service leads
//! them into another one, or they leave by this node.

use std::net::{IpAddr, SocketAddr};

use atoll_datapath::DropReason::{self, NoEndpoint, OverlaySpoof, OverlayStranger};
use atoll_plan::{Closed, Egress, Exit, Exits, NodePlan};

use super::{ANOTHER_NODE, Packet, Table, Tunnel, Verdict};
use crate::egress_address::face;
use crate::fabric::{Fabric, Node, network};
use crate::forge::{packet, summed_datagram};
use crate::outside::{FAR, World};
use crate::services::{PORT, TARGET, vip, voice, voices};
use crate::talk::Voice;

/// From a pod, right in its checksum.
fn said(from: Voice, to: SocketAddr) -> Vec<u8> {
    packet(from, to.ip(), 17, &summed_datagram((from.ip, to.ip()), (4000, to.port()), b"x"))
}

/// As the other node sends what is of this network.
fn tunnel(to: &Node, network: u32) -> Tunnel {
    Tunnel { from: ANOTHER_NODE, to: to.tunnel, network }
}

pub(super) const ACROSS: &[DropReason] = &[NoEndpoint, OverlaySpoof, OverlayStranger];

#[test]
fn whom_a_service_leads_into_another_network() {
    let fabric = Fabric::of(1);
    let node = &fabric.nodes[0];
    let client = fabric.pod_there(ANOTHER_NODE, network(100), "10.0.0.1");
    let _alike = fabric.pod_there(ANOTHER_NODE, network(200), "10.0.0.1");
    let [backend, double] = ["10.0.0.3", "10.0.0.1"].map(|ip| fabric.pod(0, network(101), ip));
    fabric.lead_across(network(100), &[&backend]);
    [&backend, &double].iter().for_each(|pod| pod.silence());
    let table = Table::on(node, "from_overlay", "atoll-vx");
    let known = tunnel(node, 100);
    for client in voices(&client) {
        let (front, drop) = (SocketAddr::new(vip(client.ip), PORT), Verdict::Drop);
        let at = SocketAddr::new(voice(client, &backend).ip, TARGET);
        let led = Verdict::Led(backend.mac.octets(), front.ip(), at);
        let elsewhere = SocketAddr::new(front.ip(), PORT + 1);
        let as_service = Voice { pod: client.pod, ip: front.ip() };
        let by = |from, to, tunnel| Packet::from(said(from, to)).by(tunnel);
        let to_front = |tunnel| by(client, front, tunnel);
        let own = Tunnel { from: node.tunnel, ..known };
        table.hold(
            node,
            vec![
                ("to a service whose backend is here", to_front(known), led),
                ("the same once more", to_front(known), led),
                ("to another port of its address", by(client, elsewhere, known), drop(NoEndpoint)),
                ("where the service is not", to_front(tunnel(node, 200)), drop(NoEndpoint)),
                ("from this very node", to_front(own), drop(OverlayStranger)),
                ("as a pod of this node", to_front(tunnel(node, 101)), drop(OverlaySpoof)),
                ("an answer that nobody asked for", by(as_service, at, known), drop(OverlaySpoof)),
            ],
        );
    }
    table.reasons_are(ACROSS);
}

pub(super) const LEAVING: &[DropReason] = &[NoEndpoint, OverlaySpoof];

/// The node answers for the addresses by which all pods of the network leave.
fn leave_here(plan: &mut NodePlan) {
    let [v4, v6] = FAR.map(|far| Some(Exit::Here(face(100, far))));
    plan.egress.insert(network(100), Egress::Addresses(Exits { v4, v6 }));
    plan.held.extend(FAR.map(|far| (face(100, far), network(100))));
    let own = ["10.0.0.0/8", "fd00::/64"].map(|range| range.parse().unwrap());
    plan.closed.extend(own.map(|range| Closed { to: Some(network(100)), range }));
}

#[test]
fn who_of_other_nodes_leaves_by_this_one() {
    let (_world, fabric) = World::with_nodes(1);
    let node = &fabric.nodes[0];
    leave_here(&mut node.plan.lock().unwrap());
    let pod = fabric.pod_there(ANOTHER_NODE, network(100), "10.0.0.5");
    let third: IpAddr = [192, 168, 77, 3].into();
    let _other = fabric.pod_there(third, network(100), "10.0.0.6");
    let table = Table::on(node, "from_overlay", "atoll-vx");
    for (sender, far) in voices(&pod).into_iter().zip(FAR) {
        let (known, out) = (tunnel(node, 100), SocketAddr::new(far, 5353));
        let inside = if far.is_ipv4() { "10.9.0.1:1" } else { "[fd00::99]:1" }.parse().unwrap();
        let by = |to, tunnel| Packet::from(said(sender, to)).by(tunnel);
        let (drop, unknown) = (Verdict::Drop, tunnel(node, 4711));
        table.hold(
            node,
            vec![
                ("to the outside", by(out, known), Verdict::Leaves(face(100, far), out)),
                ("by another node", by(out, Tunnel { from: third, ..known }), drop(OverlaySpoof)),
                ("to nobody of the network's own range", by(inside, known), drop(NoEndpoint)),
                ("in a network that is not known", by(out, unknown), drop(OverlaySpoof)),
            ],
        );
    }
    table.reasons_are(LEAVING);
}
