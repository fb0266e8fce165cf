//! Scenarios of ports that outlive pods: made beforehand, or kept for the next pod of a name.

use std::time::Duration;

use atoll_api::{Port, PortSpec};
use atoll_model::intent::Kind;
use serde_json::json;

use crate::cluster::Object;
use crate::controller::{Controller, Scene};
use crate::interfaces::{asking, attach, told};
use crate::networks::network;
use crate::pods::pod;
use crate::tenants::{key, namespace, tenant};

pub(crate) fn made_beforehand(name: &str, spec: PortSpec) -> Object {
    let (namespace, name) = name.split_once('/').unwrap();
    let mut port = Port::new(name, spec);
    port.metadata.namespace = Some(namespace.into());
    Object::Port(port)
}

fn in_network(network: &str) -> PortSpec {
    PortSpec { network: network.into(), ..PortSpec::default() }
}

fn acme() -> Scene {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"])).create(namespace("shop", "acme"));
    scene
}

fn spec(scene: &Scene, port: &str) -> Option<PortSpec> {
    scene.cluster.port("shop", port).map(|port| port.spec.clone())
}

fn taking(name: &str, port: &str) -> Object {
    asking(name, &json!({"atoll.dev/nics": format!(r#"[{{"port": "{port}"}}]"#)}))
}

/// A pod of a StatefulSet.
pub(crate) fn stateful(name: &str) -> Object {
    let mut object = pod(name, None, None);
    object.meta_mut().owner_references = serde_json::from_value(json!([{"apiVersion": "apps/v1",
        "kind": "StatefulSet", "name": "db", "uid": "set", "controller": true}]))
    .unwrap();
    object
}

fn said(scene: &mut Scene, kind: Kind, name: &str) -> String {
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(6));
    scene.said_of(&key(kind, name)).first().copied().unwrap_or_default().to_owned()
}

#[test]
fn a_port_made_beforehand_is_filled_in_taken_and_stays() {
    let mut scene = acme();
    scene.create(made_beforehand("shop/mine", in_network("acme.default")));
    let filled = spec(&scene, "mine").unwrap();
    assert_eq!((filled.network_id, &filled.ips[0][..], filled.persistent), (1, "10.0.0.2", true));
    assert_eq!(
        (filled.mac.as_str(), filled.subnet.as_str()),
        ("0a:04:0a:00:00:02", "acme.default.10-0-0-0-16")
    );
    assert!(scene.exists(Kind::Claim, "address.1.10.0.0.2"));

    scene.create(taking("shop/web", "mine"));
    let taken = spec(&scene, "mine").unwrap();
    assert_eq!(
        (taken.pod.as_str(), taken.interface.as_str(), taken.primary),
        ("web", "eth0", true)
    );
    assert_eq!(scene.cluster.of_kind(Kind::Port).len(), 1, "it is the pod's only port");

    scene.delete(Kind::Pod, "shop/web");
    assert_eq!(spec(&scene, "mine").unwrap(), filled);
    scene.create(taking("shop/other", "mine"));
    assert_eq!(spec(&scene, "mine").unwrap().pod, "other");
}

#[test]
fn the_next_pod_is_told_its_interfaces_only_once_its_own_node_has_made_them() {
    let mut scene = acme();
    scene.create(made_beforehand("shop/mine", in_network("acme.default")));
    scene.create(taking("shop/web", "mine"));
    attach(&mut scene, "shop/mine");
    assert!(told(&scene, "shop/web").is_some());
    scene.delete(Kind::Pod, "shop/web").create(taking("shop/next", "mine"));
    assert_eq!(spec(&scene, "mine").unwrap().pod, "next");
    assert_eq!(told(&scene, "shop/next"), None);
    attach(&mut scene, "shop/mine");
    assert!(told(&scene, "shop/next").is_some());
}

#[test]
fn a_port_made_beforehand_has_the_address_and_mac_it_asks_for_or_says_why_not() {
    let mut scene = acme();
    let wish = PortSpec {
        ips: vec!["10.0.0.9".into()],
        mac: "02:00:00:00:00:09".into(),
        ..in_network("acme.default")
    };
    scene.create(made_beforehand("shop/mine", wish.clone()));
    assert_eq!(spec(&scene, "mine").unwrap().mac, "02:00:00:00:00:09");
    scene.create(made_beforehand("shop/twin", wish));
    assert_eq!(
        said(&mut scene, Kind::Port, "shop/twin"),
        "address 10.0.0.9 of network acme.default is in use by port shop/mine"
    );
    scene.delete(Kind::Port, "shop/mine");
    assert_eq!(spec(&scene, "twin").unwrap().network_id, 1, "it gets it once it is free");
}

#[test]
fn a_port_made_beforehand_waits_for_its_network_and_gets_into_none_of_another_tenant() {
    let mut scene = acme();
    scene.create(tenant("globex", &["10.7.0.0/16"]));
    scene.create(made_beforehand("shop/early", in_network("acme.later")));
    scene.create(made_beforehand("shop/thief", in_network("globex.default")));
    assert!(
        said(&mut scene, Kind::Port, "shop/thief")
            .contains("globex.default is no network of namespace shop")
    );
    assert_eq!(spec(&scene, "thief").unwrap().network_id, 0);
    assert!(said(&mut scene, Kind::Port, "shop/early").contains("acme.later does not exist"));
    scene.create(network("acme.later", None, &["10.3.0.0/16"]));
    assert_eq!(spec(&scene, "early").unwrap().ips, ["10.3.0.2"]);
    let forged = PortSpec {
        network_id: 2,
        ips: vec!["10.7.0.9".into()],
        persistent: true,
        ..in_network("globex.default")
    };
    scene.create(made_beforehand("shop/forged", forged));
    assert_eq!(spec(&scene, "forged"), None);
    assert!(!scene.exists(Kind::Claim, "address.2.10.7.0.9"));
}

#[test]
fn a_pod_waits_for_the_port_it_names_and_for_the_pod_that_has_it() {
    let mut scene = acme();
    scene.create(taking("shop/web", "mine"));
    assert_eq!(
        said(&mut scene, Kind::Pod, "shop/web"),
        "port shop/mine does not exist; the pod starts once it does"
    );
    scene.create(made_beforehand("shop/mine", in_network("acme.default")));
    assert_eq!(spec(&scene, "mine").unwrap().pod, "web");
    scene.create(taking("shop/next", "mine"));
    assert_eq!(said(&mut scene, Kind::Pod, "shop/next"), "port shop/mine is used by pod shop/web");
    scene.delete(Kind::Pod, "shop/web");
    assert_eq!(spec(&scene, "mine").unwrap().pod, "next");
}

#[test]
fn a_port_in_another_network_than_the_pod_names_is_not_taken() {
    let mut scene = acme();
    scene.create(network("acme.b", None, &["10.1.0.0/16"]));
    scene.create(made_beforehand("shop/mine", in_network("acme.b")));
    scene.create(pod("shop/web", Some("default"), Some(r#"[{"port": "mine"}]"#)));
    assert_eq!(
        said(&mut scene, Kind::Pod, "shop/web"),
        "port shop/mine is in network acme.b, not in acme.default"
    );
    scene.create(taking("shop/any", "mine"));
    assert_eq!(spec(&scene, "mine").unwrap().pod, "any");
}

#[test]
fn a_deleted_port_stays_under_its_pod_and_then_gives_its_address_back() {
    let mut scene = acme();
    scene.create(made_beforehand("shop/mine", in_network("acme.default")));
    scene.create(taking("shop/web", "mine")).delete(Kind::Port, "shop/mine");
    assert!(spec(&scene, "mine").is_some());
    scene.delete(Kind::Pod, "shop/web");
    assert_eq!(spec(&scene, "mine"), None);
    assert!(!scene.exists(Kind::Claim, "address.1.10.0.0.2"));
}

#[test]
fn a_stateful_sets_pod_has_its_address_again() {
    let mut scene = acme();
    scene.create(stateful("shop/db-0")).create(pod("shop/web", None, None));
    let first = spec(&scene, "db-0.eth0").unwrap();
    assert_eq!((first.ips[0].as_str(), first.pod.as_str()), ("10.0.0.2", "db-0"));
    let owner = &scene.cluster.port("shop", "db-0.eth0").unwrap().metadata.owner_references;
    assert_eq!(owner.as_ref().unwrap()[0].kind, "StatefulSet");
    scene.delete(Kind::Pod, "shop/db-0").delete(Kind::Pod, "shop/web");
    assert_eq!(spec(&scene, "web.eth0"), None, "others do not keep theirs");
    assert_eq!(spec(&scene, "db-0.eth0").unwrap().pod, "");
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(3600));
    scene.create(stateful("shop/db-0"));
    let second = spec(&scene, "db-0.eth0").unwrap();
    assert_eq!(second.ips, first.ips);
    assert_ne!(second.pod_uid, first.pod_uid);
}

#[test]
fn an_address_that_no_pod_of_a_stateful_set_comes_for_is_given_back() {
    let mut scene = acme();
    scene.create(stateful("shop/db-0")).delete(Kind::Pod, "shop/db-0");
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(23 * 3600));
    assert!(spec(&scene, "db-0.eth0").is_some());
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(2 * 3600));
    assert_eq!(spec(&scene, "db-0.eth0"), None);
    assert!(!scene.exists(Kind::Claim, "address.1.10.0.0.2"));
}

#[test]
fn a_port_of_a_living_pod_is_kept_however_long_it_lives() {
    let mut scene = acme();
    scene
        .create(stateful("shop/db-0"))
        .delete(Kind::Pod, "shop/db-0")
        .create(stateful("shop/db-0"));
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(48 * 3600));
    assert_eq!(spec(&scene, "db-0.eth0").unwrap().pod, "db-0");
}

#[test]
fn a_stateful_set_whose_pods_move_to_another_network_gets_addresses_there() {
    let mut scene = acme();
    scene.create(network("acme.b", None, &["10.1.0.0/16"])).create(stateful("shop/db-0"));
    scene.delete(Kind::Pod, "shop/db-0");
    let mut moved = stateful("shop/db-0");
    moved.meta_mut().labels = Some([("atoll.dev/network".into(), "b".into())].into());
    scene.create(moved);
    assert_eq!(spec(&scene, "db-0.eth0").unwrap().ips, ["10.1.0.2"]);
    assert!(!scene.exists(Kind::Claim, "address.1.10.0.0.2"));
}

#[test]
fn a_pod_that_says_so_keeps_its_addresses_for_the_next_of_its_name() {
    let mut scene = acme();
    let vm = || {
        asking("shop/vm", &json!({"atoll.dev/persistent": "true", "atoll.dev/nics": "[{}, {}]"}))
    };
    scene.create(vm());
    let before = [spec(&scene, "vm.eth0").unwrap().ips, spec(&scene, "vm.net1").unwrap().ips];
    scene.delete(Kind::Pod, "shop/vm");
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(48 * 3600));
    scene.create(vm());
    let after = [spec(&scene, "vm.eth0").unwrap().ips, spec(&scene, "vm.net1").unwrap().ips];
    assert_eq!(before, after);
    assert_eq!(spec(&scene, "vm.eth0").unwrap().other_interfaces, ["net1"]);
}

#[test]
fn ports_that_outlive_pods_count_against_the_quota() {
    let mut scene = Scene::new();
    let Object::Tenant(mut acme) = tenant("acme", &["10.0.0.0/16"]) else { unreachable!() };
    acme.spec.quota = serde_json::from_value(json!({"ports": 1})).unwrap();
    scene.create(Object::Tenant(acme)).create(namespace("shop", "acme"));
    scene.create(made_beforehand("shop/one", in_network("acme.default")));
    scene.create(made_beforehand("shop/two", in_network("acme.default")));
    assert!(said(&mut scene, Kind::Port, "shop/two").contains("may have 1 ports and has 1"));
    scene.delete(Kind::Port, "shop/one");
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(6));
    assert_eq!(spec(&scene, "two").unwrap().network_id, 1);
}

#[test]
fn a_controller_that_was_killed_between_claim_and_filling_goes_on_with_the_same_address() {
    let mut scene = acme();
    scene.cluster.create(made_beforehand("shop/mine", in_network("acme.default"))).unwrap();
    while !scene.exists(Kind::Claim, "address.1.10.0.0.2") {
        while scene.controller.read_next(&scene.cluster, Kind::Port) {}
        scene.controller.work_on_nth(&mut scene.cluster, 0);
    }
    assert_eq!(spec(&scene, "mine").unwrap().network_id, 0);
    let template = atoll_model::intent::Template::None;
    scene.controller = Controller::start(&scene.cluster, &template, scene.controller.now);
    scene.settle();
    assert_eq!(spec(&scene, "mine").unwrap().ips, ["10.0.0.2"]);
}

#[test]
fn a_network_is_not_deleted_while_a_port_without_a_pod_has_an_address_of_it() {
    let mut scene = acme();
    scene.create(made_beforehand("shop/mine", in_network("acme.default")));
    scene.delete(Kind::Network, "acme.default");
    let conditions = &scene.cluster.network("acme.default").status.as_ref().unwrap().conditions;
    assert!(conditions[0].message.contains("port shop/mine"), "{}", conditions[0].message);
    scene.delete(Kind::Port, "shop/mine");
    assert!(!scene.exists(Kind::Network, "acme.default"));
}
