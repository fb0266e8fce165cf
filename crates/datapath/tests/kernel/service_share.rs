//! What one tenant's services take of the kernel's maps leaves room for those of another.

use atoll_model::compile::{EndpointGroup, Followed, PlacedPort, ServiceBook, ServiceFront};
use atoll_plan::Device;
use atoll_types::{NetworkId, PodRef};
use serde_json::{Value, json};

use crate::fabric::{Fabric, Node, Pod};
use crate::services::{TARGET, converse_tcp, two_tenants, voice, voices};
use crate::talk::listen;

/// A port of a pod in its tenant's network.
fn port(name: &str, pod: &Pod) -> PlacedPort {
    PlacedPort {
        network: pod.network,
        network_name: name.to_owned(),
        ips: vec![pod.ip.into()],
        mac: pod.mac,
        pod: PodRef::new("shop", "web-0"),
        pod_uid: "uid".into(),
        interface: "eth0".into(),
        device: Device::Veth,
        node: Some("node1".into()),
        others: [].into(),
        routes: [].into(),
    }
}

fn followed(id: NetworkId) -> Followed {
    Followed { id, is_here: true, is_guest: false, is_shared: false }
}

/// Tells of a service with so many ports, and of a pod behind it.
fn want(book: &mut ServiceBook, network: &str, pod: &Pod, ports: usize) {
    let key = ("shop".to_owned(), "web".to_owned());
    let of = |number: fn(usize) -> usize| -> Vec<Value> {
        (1..=ports).map(|it| json!({"name": format!("p{it}"), "port": number(it)})).collect()
    };
    let spec = json!({"clusterIPs": ["10.96.0.9"], "ports": of(|it| it)});
    let service =
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap();
    let slice = json!({
        "metadata": {"namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.9"], "targetRef": {"kind": "Pod", "name": "web-0"}}],
        "ports": of(|_| TARGET.into()),
    });
    let group = EndpointGroup::read(&serde_json::from_value(slice).unwrap());
    book.put_port(network, &("shop".to_owned(), "web-0".to_owned()), Some(&port(network, pod)));
    book.put_slice(network, &("shop".to_owned(), "web-1".to_owned()), group);
    book.put_service(network, &key, Some(ServiceFront::read(&service).unwrap()));
}

/// Decides what has room, and programs it. Every step succeeds.
fn program(book: &mut ServiceBook, node: &Node) {
    let there = node.observe().services;
    book.look(&there);
    book.settle(|_| true, |key| there.contains_key(key));
    node.plan.lock().unwrap().services.clone_from(book.served());
    node.converge();
    assert!(node.observe().services == *book.served());
}

#[test]
fn a_tenant_with_more_services_than_fit_leaves_new_ones_of_another_working() {
    let fabric = Fabric::of(1);
    let [acme, globex] = two_tenants(&fabric);
    let node = &fabric.nodes[0];
    let room = node.run(|state| state.datapath.as_ref().unwrap().service_room());
    let mut book = ServiceBook::new("node1").within(Some(room));
    let networks = [("acme.default", &acme), ("globex.default", &globex)];
    book.follow(&networks.map(|(name, it)| (name.to_owned(), followed(it.network()))).into());
    want(&mut book, "acme.default", &acme.near, room.services / 2 + 1000);
    program(&mut book, node);
    assert_eq!((book.served().len(), book.held()), (room.services / 2, 1));
    want(&mut book, "globex.default", &globex.near, 100);
    program(&mut book, node);
    assert_eq!((book.served().len(), book.held()), (room.services / 2 + 100, 1));
    fabric.serve(globex.network(), &[&globex.near], None);
    let client = voices(&globex.client)[0];
    converse_tcp(client, &listen(voice(client, &globex.near), TARGET), 1000);
}
