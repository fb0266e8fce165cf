//! Scenarios of pods with several interfaces and with addresses of both families.

use std::time::Duration;

use atoll_api::{NetworkIsolation, PortPhase, PortSpec, PortStatus};
use atoll_model::intent::Kind;
use serde_json::{Value, json};

use crate::cluster::Object;
use crate::controller::Scene;
use crate::flat::flat;
use crate::networks::network;
use crate::pods::pod;
use crate::tenants::{key, namespace, tenant};

/// A pod with annotations.
pub(crate) fn asking(name: &str, annotations: &Value) -> Object {
    let mut object = pod(name, None, None);
    let Object::Pod(pod) = &mut object else { unreachable!() };
    pod.metadata.annotations = serde_json::from_value(annotations.clone()).unwrap();
    object
}

fn beside(name: &str, networks: &str) -> Object {
    asking(name, &json!({"atoll.dev/extra-networks": networks}))
}

/// Tenant acme with a default network and network `b`, in VPCs of their own.
fn acme() -> Scene {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"])).create(namespace("shop", "acme"));
    scene.create(network("acme.b", None, &["10.1.0.0/16"]));
    scene
}

/// A scene of a tenant with these ranges.
fn of_both_families(cidrs: &[&str]) -> Scene {
    let mut scene = Scene::new();
    scene.create(tenant("acme", cidrs)).create(namespace("shop", "acme"));
    scene
}

fn spec<'a>(scene: &'a Scene, port: &str) -> &'a PortSpec {
    &scene.cluster.port("shop", port).unwrap_or_else(|| panic!("no port {port}")).spec
}

fn ports(scene: &Scene) -> usize {
    scene.cluster.of_kind(Kind::Port).len()
}

/// What people were last told about a pod.
fn said(scene: &mut Scene, pod: &str) -> String {
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(6));
    scene.said_of(&key(Kind::Pod, pod)).first().copied().unwrap_or_default().to_owned()
}

pub(crate) fn attach(scene: &mut Scene, port: &str) {
    scene.cluster.change(&key(Kind::Port, port), |object| {
        let Object::Port(port) = object else { unreachable!() };
        port.status = Some(PortStatus { phase: PortPhase::Attached, host_interface: None });
    });
    scene.settle();
}

pub(crate) fn told(scene: &Scene, pod: &str) -> Option<Value> {
    let pod = &scene.cluster.objects[&key(Kind::Pod, pod)];
    let text = pod.meta().annotations.as_ref()?.get("k8s.v1.cni.cncf.io/network-status")?;
    Some(serde_json::from_str(text).unwrap())
}

#[test]
fn an_extra_network_gives_one_more_interface_with_the_routes_of_its_vpc() {
    let mut scene = acme();
    scene.create(network("acme.b2", Some("b"), &["10.2.0.0/16"])).create(beside("shop/web", "b"));
    let first = spec(&scene, "web.eth0");
    assert_eq!((first.network.as_str(), first.primary), ("acme.default", true));
    assert_eq!((&first.other_interfaces[..], first.routes.len()), (&["net1".into()][..], 0));
    let other = spec(&scene, "web.net1");
    assert_eq!((other.network.as_str(), other.primary), ("acme.b", false));
    assert_eq!((other.interface.as_str(), &other.ips[0][..]), ("net1", "10.1.0.2"));
    assert_eq!(other.routes, ["10.1.0.0/16", "10.2.0.0/16"]);
    assert!(other.other_interfaces.is_empty());
}

#[test]
fn the_first_interfaces_port_comes_last() {
    let mut scene = acme();
    scene.create(beside("shop/web", "b@data"));
    let made =
        |port: &str| scene.cluster.port("shop", port).unwrap().metadata.creation_timestamp.clone();
    assert!(made("web.eth0").unwrap().0 > made("web.data").unwrap().0);
}

#[test]
fn a_second_interface_in_the_same_network_has_its_own_address_and_hides_nothing() {
    let mut scene = acme();
    scene.create(asking("shop/web", &json!({"atoll.dev/nics": r#"[{}, {"ip": "10.0.0.9"}]"#})));
    assert_eq!(spec(&scene, "web.eth0").ips, ["10.0.0.2"]);
    assert_eq!(spec(&scene, "web.net1").ips, ["10.0.0.9"]);
    assert!(spec(&scene, "web.net1").routes.is_empty(), "the default route leads there");
    assert!(scene.said_of(&key(Kind::Pod, "shop/web")).is_empty());
}

#[test]
fn ranges_that_overlap_stay_with_the_earlier_interface_and_people_hear_it() {
    let mut scene = acme();
    scene.create(network("acme.c", None, &["10.0.0.0/20", "10.9.0.0/16"]));
    scene.create(beside("shop/web", "c"));
    assert_eq!(spec(&scene, "web.net1").routes, ["10.9.0.0/16"]);
    let message = said(&mut scene, "shop/web");
    assert!(message.starts_with("10.0.0.0/20 of network acme.c overlaps 10.0.0.0/16"), "{message}");
}

#[test]
fn a_pod_waits_for_every_one_of_its_networks_and_holds_nothing_meanwhile() {
    let mut scene = acme();
    scene.create(beside("shop/web", "b,later"));
    assert_eq!(
        said(&mut scene, "shop/web"),
        "network acme.later does not exist; the pod starts once it does"
    );
    assert_eq!(ports(&scene), 0);
    assert!(!scene.exists(Kind::Claim, "address.1.10.0.0.2"));
    scene.create(network("acme.later", None, &["10.3.0.0/16"]));
    assert_eq!(ports(&scene), 3);
}

#[test]
fn an_extra_network_of_another_tenant_is_refused_by_name() {
    let mut scene = acme();
    scene.create(tenant("globex", &["10.7.0.0/16"]));
    scene.create(beside("shop/web", "globex.default"));
    assert!(said(&mut scene, "shop/web").contains("\"globex.default\" is not a name"));
    assert_eq!(ports(&scene), 0);
}

#[test]
fn an_interface_that_cannot_have_its_address_keeps_the_others_from_being_made() {
    let mut scene = acme();
    scene.create(pod("shop/first", Some("b"), Some(r#"[{"ip": "10.1.0.5"}]"#)));
    let wish = r#"[{"network": "b", "ip": "10.1.0.5"}]"#;
    scene.create(beside("shop/web", wish));
    assert_eq!(
        said(&mut scene, "shop/web"),
        "address 10.1.0.5 of network acme.b is in use by port shop/first.eth0"
    );
    assert_eq!(ports(&scene), 1);
    scene.create(pod("shop/next", None, None));
    let used = scene.cluster.subnet("acme.default.10-0-0-0-16").status.clone().unwrap().used;
    assert_eq!(used, 1, "what was proposed to the one that waits is free again");
    scene.delete(Kind::Pod, "shop/first");
    assert_eq!(spec(&scene, "web.net1").ips, ["10.1.0.5"]);
}

#[test]
fn all_ports_learn_the_node_and_all_go_with_the_pod() {
    let mut scene = acme();
    scene.create(beside("shop/web", "b,b"));
    scene.cluster.change(&key(Kind::Pod, "shop/web"), |object| {
        let Object::Pod(pod) = object else { unreachable!() };
        pod.spec.as_mut().unwrap().node_name = Some("node1".into());
    });
    scene.settle();
    for port in ["web.eth0", "web.net1", "web.net2"] {
        assert_eq!(spec(&scene, port).node.as_deref(), Some("node1"), "{port}");
    }
    scene.delete(Kind::Pod, "shop/web");
    assert_eq!(ports(&scene), 0);
    assert!(
        scene
            .cluster
            .of_kind(Kind::Claim)
            .iter()
            .all(|claim| { !claim.meta().name.as_ref().unwrap().starts_with("address.") })
    );
}

#[test]
fn a_further_port_that_somebody_deleted_is_made_again() {
    let mut scene = acme();
    scene.create(beside("shop/web", "b")).delete(Kind::Port, "shop/web.net1");
    assert_eq!(spec(&scene, "web.net1").network, "acme.b");
}

#[test]
fn a_pod_gets_an_address_of_each_family_that_its_network_has() {
    let mut scene = of_both_families(&["10.0.0.0/16", "fd00:1::/64"]);
    scene.create(pod("shop/web", None, None));
    assert_eq!(spec(&scene, "web.eth0").ips, ["10.0.0.2", "fd00:1::2"]);
    assert_eq!(spec(&scene, "web.eth0").mac, "0a:04:0a:00:00:02");
    for claim in ["address.1.10.0.0.2", "address.1.fd00-1-0-0-0-0-0-2"] {
        assert!(scene.exists(Kind::Claim, claim), "{claim}");
    }
    scene.create(network("acme.six", None, &["fd00:6::/64"])).create(pod(
        "shop/db",
        Some("six"),
        None,
    ));
    assert_eq!(spec(&scene, "db.eth0").ips, ["fd00:6::2"]);
}

#[test]
fn a_pod_may_ask_for_an_address_of_one_family_or_of_both() {
    let mut scene = of_both_families(&["fd00:1::/64", "10.0.0.0/16"]);
    scene.create(pod("shop/one", None, Some(r#"[{"ip": "10.0.0.9"}]"#)));
    assert_eq!(spec(&scene, "one.eth0").ips, ["fd00:1::2", "10.0.0.9"]);
    scene.create(pod("shop/two", None, Some(r#"[{"ips": ["10.0.0.8", "fd00:1::8"]}]"#)));
    assert_eq!(spec(&scene, "two.eth0").ips, ["fd00:1::8", "10.0.0.8"]);
    scene.create(pod("shop/three", None, Some(r#"[{"ips": ["10.0.0.7", "fd00:1::8"]}]"#)));
    let message = said(&mut scene, "shop/three");
    assert!(
        message.starts_with("address fd00:1::8 of network acme.default is in use"),
        "{message}"
    );
    assert!(!scene.exists(Kind::Claim, "address.1.10.0.0.7"), "all claims or none");
}

#[test]
fn an_address_of_a_family_that_the_network_has_not_is_outside() {
    let mut scene = acme();
    scene.create(pod("shop/web", None, Some(r#"[{"ip": "fd00::5"}]"#)));
    let message = said(&mut scene, "shop/web");
    assert_eq!(
        message,
        "address fd00::5 is outside the ranges of network acme.default: 10.0.0.0/16"
    );
}

#[test]
fn a_named_subnet_serves_its_family_and_the_network_the_other() {
    let mut scene = of_both_families(&["10.0.0.0/16", "fd00:1::/64"]);
    let spec_ = atoll_api::SubnetSpec {
        network: "acme.default".into(),
        cidr: "10.0.9.0/24".into(),
        gateway: None,
        ..Default::default()
    };
    scene.create(Object::Subnet(atoll_api::Subnet::new("acme.default.web", spec_)));
    scene.create(pod("shop/web", None, Some(r#"[{"subnet": "web"}]"#)));
    let found = spec(&scene, "web.eth0");
    assert_eq!(
        (&found.ips[..], found.subnet.as_str()),
        (&["10.0.9.2".into(), "fd00:1::2".into()][..], "acme.default.web")
    );
}

#[test]
fn a_pod_is_told_its_interfaces_once_all_are_there_and_again_when_they_change() {
    let mut scene = acme();
    scene.create(beside("shop/web", "b"));
    attach(&mut scene, "shop/web.eth0");
    assert_eq!(told(&scene, "shop/web"), None);
    attach(&mut scene, "shop/web.net1");
    let expected = json!([
        {"name": "acme.default", "interface": "eth0", "ips": ["10.0.0.2"],
         "mac": "0a:04:0a:00:00:02", "default": true, "dns": {}},
        {"name": "acme.b", "interface": "net1", "ips": ["10.1.0.2"],
         "mac": "0a:04:0a:01:00:02", "default": false, "dns": {}},
    ]);
    assert_eq!(told(&scene, "shop/web"), Some(expected));
    scene.delete(Kind::Port, "shop/web.net1");
    attach(&mut scene, "shop/web.net1");
    assert_eq!(told(&scene, "shop/web").unwrap()[1]["ips"], json!(["10.1.0.3"]));
}

fn routes(scene: &Scene, port: &str) -> Vec<String> {
    spec(scene, port).routes.clone()
}

fn set_ranges(scene: &mut Scene, network: &str, ranges: &[&str]) {
    scene.cluster.change(&key(Kind::Network, network), |object| {
        let Object::Network(network) = object else { unreachable!() };
        network.spec.cidrs = ranges.iter().map(ToString::to_string).collect();
    });
    scene.settle();
}

#[test]
fn the_routes_of_a_running_pod_follow_the_ranges_of_its_networks() {
    let mut scene = acme();
    scene.create(beside("shop/web", "b"));
    scene.create(beside("shop/db", "b"));
    assert_eq!(routes(&scene, "web.net1"), ["10.1.0.0/16"]);
    set_ranges(&mut scene, "acme.b", &["10.1.0.0/16", "10.2.0.0/16"]);
    for port in ["web.net1", "db.net1"] {
        assert_eq!(routes(&scene, port), ["10.1.0.0/16", "10.2.0.0/16"]);
    }
    assert_eq!(routes(&scene, "web.eth0"), Vec::<String>::new());
    scene.create(network("acme.c", Some("b"), &["10.3.0.0/16"]));
    assert_eq!(routes(&scene, "web.net1").len(), 3, "a further network of the same VPC");
}

#[test]
fn a_range_that_the_first_network_grows_by_is_the_first_ones_from_then_on() {
    let mut scene = acme();
    set_ranges(&mut scene, "acme.b", &["10.1.0.0/16", "10.2.0.0/16"]);
    scene.create(beside("shop/web", "b"));
    set_ranges(&mut scene, "acme.default", &["10.0.0.0/16", "10.2.0.0/16"]);
    assert_eq!(routes(&scene, "web.net1"), ["10.1.0.0/16"]);
}

#[test]
fn an_extra_network_that_is_flat_has_the_routes_of_its_blocks() {
    let mut scene = acme();
    scene.create(flat("acme.f", None)).create(flat("acme.o", Some(NetworkIsolation::Open)));
    scene.create(beside("shop/web", "f")).create(beside("shop/db", "o"));
    let block = scene.cluster.of_kind(Kind::Subnet).into_iter().find_map(|object| match object {
        Object::Subnet(subnet) if subnet.spec.network == "acme.f" => Some(subnet.spec.cidr.clone()),
        _ => None,
    });
    assert_eq!(routes(&scene, "web.net1"), [block.unwrap()]);
    assert_eq!(routes(&scene, "db.net1"), ["100.64.0.0/10"], "any of the open ones");
}
