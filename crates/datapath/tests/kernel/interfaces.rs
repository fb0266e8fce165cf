//! Interfaces are known by their index: most where a packet finds them at once, some elsewhere.

use atoll_abi::{MAX_INTERFACES, NearInterface};
use atoll_datapath::DropReason;
use atoll_testkit::eventually;
use aya::maps::{Array, Map, MapData};
use bytemuck::Zeroable;

use crate::fabric::{Fabric, Node, State, network};
use crate::lifecycle::{is_as_planned, three_pods};
use crate::talk::{converse, udp};

type Near = Array<MapData, [u8; size_of::<NearInterface>()]>;

fn near(state: &State) -> Near {
    let pin = state.config.bpf_root.join("v5/maps/near_interfaces");
    Map::from_map_data(MapData::from_pin(pin).unwrap()).unwrap().try_into().unwrap()
}

/// Whoever has a place, with the place.
pub(crate) fn neighbours(node: &Node) -> Vec<(u32, NearInterface)> {
    node.run(|state| {
        let near = near(state);
        let at = |place| bytemuck::pod_read_unaligned(&near.get(&place, 0).unwrap());
        let all = (0..u32::from(MAX_INTERFACES)).map(|place| (place, at(place)));
        all.filter(|(_, entry): &(_, NearInterface)| entry.ifindex != 0).collect()
    })
}

pub(crate) fn write(node: &Node, place: u32, entry: NearInterface) {
    node.run(move |state| {
        near(state)
            .set(
                place,
                <[u8; size_of::<NearInterface>()]>::try_from(bytemuck::bytes_of(&entry)).unwrap(),
                0,
            )
            .unwrap();
    });
}

#[test]
fn an_interface_is_near_while_it_is_there_and_no_longer() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    let node = &fabric.nodes[0];
    let all = neighbours(node);
    assert_eq!(all.len(), 2);
    for (place, entry) in &all {
        assert_eq!(entry.ifindex % u32::from(MAX_INTERFACES), *place);
        assert_eq!(entry.interface.network, 100);
    }
    converse(&pods[0], &pods[1]);
    fabric.remove(&pods[1]);
    let left: Vec<_> = neighbours(node).into_iter().map(|(_, it)| it.interface.mac).collect();
    assert_eq!(left, [pods[0].mac.octets()]);
    converse(&pods[0], &pods[2]);
}

#[test]
fn an_interface_whose_place_another_has_is_found_all_the_same() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    let node = &fabric.nodes[0];
    for (place, entry) in neighbours(node) {
        let ifindex = entry.ifindex + u32::from(MAX_INTERFACES);
        let mut other = NearInterface { ifindex, ..entry };
        other.interface.network = 200;
        write(node, place, other);
    }
    converse(&pods[0], &pods[1]);
    converse(&pods[0], &pods[2]);
    assert_eq!(node.dropped(Some(network(200)), DropReason::NoEndpoint), 0);
}

#[test]
fn what_is_near_and_is_no_interface_is_gone_after_opening() {
    let fabric = Fabric::of(2);
    let pods = three_pods(&fabric);
    let node = &fabric.nodes[0];
    let before = neighbours(node);
    let (place, mut entry) = before[0];
    entry.interface.network = 200;
    write(node, place, entry);
    write(node, 4000, NearInterface { ifindex: 4000, ..NearInterface::zeroed() });
    udp(pods[0].v4(), 0).send_to(b"?", ("10.0.0.2", 9)).unwrap();
    let lost = || node.dropped(Some(network(200)), DropReason::ConnectionsExhausted);
    eventually("what is near was believed", || (lost() == 1).then_some(()));
    node.run(State::open);
    assert_eq!(neighbours(node), before);
    is_as_planned(node);
    converse(&pods[0], &pods[1]);
}
