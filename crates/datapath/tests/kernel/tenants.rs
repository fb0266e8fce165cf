//! One tenant with many networks beside another with one: what the other has does not hang on how many
//! networks the first brings, or on what it does in them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use atoll_datapath::DropReason;
use atoll_plan::{Egress, Endpoint, Place, Step};
use atoll_testkit::eventually;
use atoll_types::{MacAddr, NetAddr, NetworkId};

use crate::fabric::{Fabric, Node, Pod, State, network};
use crate::forge;
use crate::outside::{FAR, World};
use crate::talk::converse_tcp;

const UDP: u8 = 17;
/// The networks of the loud tenant: so many that all would have half of what they have, were they
/// tenants.
const LOUD: std::ops::Range<u32> = 200..215;
const QUIET: u32 = 100;
/// What each of two tenants may have, and each of sixteen.
const SHARE: usize = 16_384;
const SMALLER_SHARE: usize = 8192;

/// The loud tenant's networks together, and the quiet one's.
fn as_tenants() -> BTreeSet<BTreeSet<NetworkId>> {
    [LOUD.map(network).collect(), [network(QUIET)].into()].into()
}

/// The same networks, as if each were a tenant of its own.
fn as_strangers() -> BTreeSet<BTreeSet<NetworkId>> {
    LOUD.chain([QUIET]).map(|number| [network(number)].into()).collect()
}

/// A pod in each network of the loud tenant, which speaks to somebody on another node. Nobody is there,
/// and nothing waits for it.
fn loud_pods(fabric: &Fabric) -> Vec<Pod> {
    let pods = LOUD.map(|number| fabric.planned_pod(0, network(number), "10.0.0.1"));
    let pods: Vec<Pod> = pods.collect();
    let mut plan = fabric.nodes[0].plan.lock().unwrap();
    for pod in &pods {
        let there = NetAddr::new(pod.network, [10, 0, 0, 9].into());
        let place = Place::There([192, 168, 77, 99].into());
        plan.endpoints.insert(there, Endpoint { mac: MacAddr::GATEWAY, place });
    }
    drop(plan);
    let neighbour = "neigh replace 192.168.77.99 lladdr 02:00:00:00:00:63 dev uplink";
    fabric.nodes[0].namespace.ip(&format!("{neighbour} nud permanent"));
    pods
}

fn share_among(node: &Node, tenants: BTreeSet<BTreeSet<NetworkId>>) {
    node.plan.lock().unwrap().tenants = tenants;
    let steps = node.converge();
    assert!(steps.iter().any(|step| matches!(step, Step::ShareAmong(_))), "{steps:?}");
}

/// Datagrams of one pod, each of which opens a connection.
fn datagrams(pod: &Pod, to: IpAddr, count: u16) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(move |number| {
        forge::packet(pod.v4(), to, UDP, &forge::datagram((1024 + number, 9), b""))
    })
}

fn collect(node: &Node) {
    node.run(|state| state.datapath.as_mut().unwrap().collect().unwrap());
}

#[test]
fn a_tenant_that_floods_from_many_networks_leaves_another_all_that_it_had() {
    const MANY: u16 = 9000;
    let fabric = Fabric::of(1);
    let node = &fabric.nodes[0];
    let [quiet, friend] = ["10.0.0.1", "10.0.0.2"].map(|ip| fabric.pod(0, network(QUIET), ip));
    node.flood(&quiet, datagrams(&quiet, friend.ip.into(), MANY));
    let known = || node.connections(quiet.network).len();
    assert_eq!(known(), usize::from(MANY));

    let loud = loud_pods(&fabric);
    share_among(node, as_tenants());
    for pod in &loud {
        node.flood(pod, datagrams(pod, [10, 0, 0, 9].into(), 1200));
    }
    collect(node);
    let of_loud = node.connections(loud[0].network).len();
    assert!(of_loud <= SHARE / 16, "{of_loud} connections of one of its networks");
    converse_tcp(quiet.v4(), friend.v4(), 1000);
    assert!(known() > usize::from(MANY), "{} are left", known());
    assert_eq!(node.dropped(Some(quiet.network), DropReason::ConnectionsExhausted), 0);

    share_among(node, as_strangers());
    eventually("what is more than one of sixteen may have is gone", || {
        collect(node);
        (known() <= SMALLER_SHARE).then_some(())
    });
    assert_eq!(known(), SMALLER_SHARE, "and nothing else");
    converse_tcp(quiet.v4(), friend.v4(), 1000);
}

#[test]
fn whose_networks_are_outlives_the_agent() {
    let fabric = Fabric::of(1);
    let node = &fabric.nodes[0];
    let _pods = loud_pods(&fabric);
    share_among(node, as_tenants());
    node.run(State::open);
    let loud: BTreeSet<BTreeSet<NetworkId>> = [LOUD.map(network).collect()].into();
    assert_eq!(node.observe().tenants, loud, "the other has no pod here");
    node.converge();
    assert_eq!(node.observe().tenants, as_tenants());
    assert_eq!(node.converge(), []);
}

#[test]
fn a_tenant_that_leaves_from_many_networks_leaves_another_its_ports() {
    const MANY: u16 = 3000;
    let (world, fabric) = World::with_nodes(1);
    let node = &fabric.nodes[0];
    let loud = loud_pods(&fabric);
    let quiet = fabric.planned_pod(0, network(QUIET), "10.0.0.1");
    let egress = LOUD.chain([QUIET]).map(|number| (network(number), Egress::Node));
    node.plan.lock().unwrap().egress.extend(egress);
    share_among(node, as_tenants());
    let _server = world.udp(SocketAddr::new(FAR[0], 9));
    let spent = |pod: &Pod| node.dropped(Some(pod.network), DropReason::NatPortsSpent);

    let socket = loud[0].packets();
    eventually("one network of the loud tenant has spent its ports", || {
        datagrams(&loud[0], FAR[0], MANY).for_each(|frame| socket.send(&frame).unwrap());
        (spent(&loud[0]) > 0).then_some(())
    });
    node.flood(&quiet, datagrams(&quiet, FAR[0], MANY));
    assert_eq!(spent(&quiet), 0);

    share_among(node, as_strangers());
    let other = forge::datagram((1, 10), b"");
    let socket = quiet.packets();
    eventually("the quiet one spends what one of sixteen has", || {
        for number in 0..MANY {
            let mut datagram = other.clone();
            datagram[..2].copy_from_slice(&(1024 + number).to_be_bytes());
            socket.send(&forge::packet(quiet.v4(), FAR[0], UDP, &datagram)).unwrap();
        }
        (spent(&quiet) > 0).then_some(())
    });
}
