//! Services in the kernel's maps: what was put in is seen, and nothing is left of what is gone.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use atoll_abi::{Backends, LAYOUT_VERSION, Slots};
use atoll_plan::{Backend, Service, ServiceKey, Side};
use atoll_types::{NetAddr, NetworkId, Protocol};
use aya::maps::{HashMap, Map, MapData};

use crate::fabric::{Fabric, State, network};

fn key(network: NetworkId, ip: &str, protocol: Protocol, port: u16) -> ServiceKey {
    ServiceKey {
        network,
        ip: ip.parse().unwrap(),
        protocol,
        port: port.try_into().unwrap(),
        side: Side::Clients,
    }
}

/// A service of `network` with this many backends, in either family.
fn service(network: NetworkId, v4: bool, backends: u16) -> Service {
    let backend = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let ip = match v4 {
            true => IpAddr::from([10, 0, high, low]),
            false => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, number]),
        };
        Backend { addr: NetAddr::new(network, ip), port: 8080.try_into().unwrap() }
    };
    let backends = (0..backends).map(backend).collect::<BTreeSet<_>>();
    Service { backends, ..Service::default() }
}

/// How many pages of slots and of backends there are.
fn pages_in(state: &State) -> [usize; 2] {
    let maps = state.config.bpf_root.join(format!("v{LAYOUT_VERSION}/maps"));
    let open = |name: &str| Map::from_map_data(MapData::from_pin(maps.join(name)).unwrap());
    let slots: HashMap<_, [u8; 8], [u8; size_of::<Slots>()]> =
        open("service_slots").unwrap().try_into().unwrap();
    let backends: HashMap<_, [u8; 8], [u8; size_of::<Backends>()]> =
        open("service_backends").unwrap().try_into().unwrap();
    [slots.keys().count(), backends.keys().count()]
}

#[test]
fn services_are_seen_as_they_were_put_in_and_survive_the_agent() {
    let fabric = Fabric::of(1);
    let node = &fabric.nodes[0];
    let (acme, globex) = (network(100), network(200));
    let sizes = [0, 1, 3, 16, 17, 300];
    for (number, size) in (1..).zip(sizes) {
        for tenant in [acme, globex] {
            let mut plan = node.plan.lock().unwrap();
            let front = key(tenant, "10.96.0.9", Protocol::Tcp, number);
            plan.services.insert(front, service(tenant, true, size));
            let front = key(tenant, "fd96::9", Protocol::Sctp, number);
            let affinity = Some(Duration::from_secs(number.into()));
            plan.services.insert(front, Service { affinity, ..service(tenant, false, size) });
        }
    }
    assert_eq!(node.converge().len(), 4 * sizes.len());
    assert_eq!(node.observe(), node.planned());
    node.run(State::open);
    assert_eq!(node.observe(), node.planned(), "an agent that starts again finds them");
    assert_eq!(node.converge(), []);
}

#[test]
fn a_service_follows_its_backends_up_and_down_and_leaves_nothing() {
    let fabric = Fabric::of(1);
    let node = &fabric.nodes[0];
    let acme = network(100);
    let front = key(acme, "10.96.0.9", Protocol::Udp, 53);
    let beside = key(acme, "10.96.0.8", Protocol::Udp, 53);
    node.plan.lock().unwrap().services.insert(beside, service(acme, true, 2));
    for size in [40, 3, 100, 0, 1] {
        node.plan.lock().unwrap().services.insert(front, service(acme, true, size));
        node.converge();
        assert_eq!(node.observe(), node.planned(), "{size}");
    }
    node.plan.lock().unwrap().services.clear();
    node.converge();
    assert_eq!(node.observe(), node.planned());
    assert_eq!(node.run(|state| pages_in(state)), [0, 0]);
}

#[test]
fn a_service_with_more_backends_than_there_is_room_for_says_so() {
    let fabric = Fabric::of(1);
    let node = &fabric.nodes[0];
    let acme = network(100);
    let front = key(acme, "10.96.0.9", Protocol::Tcp, 80);
    let step = atoll_plan::Step::PutService(front, service(acme, true, 16385));
    let error = node.run(move |state| state.apply(&step).unwrap_err());
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "a service may have 16384 backends, not 16385");
}
