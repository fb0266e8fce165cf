//! Scenarios of addresses that the outside knows: load balancers, egress, and who answers for them.

use std::collections::BTreeSet;
use std::time::Duration;

use atoll_api as api;
use atoll_model::intent::{Kind, Template};
use atoll_model::outside::{Held, Purpose};
use k8s_openapi::api::core::v1 as core;
use serde_json::json;

use crate::cluster::{Cluster, Object};
use crate::controller::{Controller, Scene};
use crate::networks::network;
use crate::services::service;
use crate::tenants::{key, namespace, tenant};

/// A load balancer with more in its spec.
pub(crate) fn balancer(name: &str, more: &serde_json::Value) -> Object {
    let (namespace, name) = name.split_once('/').unwrap();
    let mut json = json!({"metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.10"}});
    json["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Object::Service(serde_json::from_value(json).unwrap())
}

pub(crate) fn pool(name: &str, cidrs: &[&str], tenants: Option<&[&str]>) -> Object {
    let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
    let spec = api::AddressPoolSpec { cidrs: owned(cidrs), tenants: tenants.map(owned) };
    Object::Pool(api::AddressPool::new(name, spec))
}

pub(crate) fn node(name: &str, ready: &str) -> Object {
    let json = json!({"metadata": {"name": name},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}});
    Object::Node(serde_json::from_value::<core::Node>(json).unwrap())
}

pub(crate) fn set_ready(scene: &mut Scene, name: &str, ready: &str) {
    let changed = node(name, ready);
    scene.cluster.change(&key(Kind::Node, name), |object| {
        let (Object::Node(standing), Object::Node(changed)) = (object, changed) else {
            unreachable!()
        };
        standing.status = changed.status;
    });
    scene.settle();
}

/// Tenants acme and globex with a namespace each, and nodes that are ready.
pub(crate) fn scene(nodes: &[&str]) -> Scene {
    let mut scene = Scene::new();
    for name in ["acme", "globex"] {
        scene.create(tenant(name, &[])).create(namespace(name, name));
    }
    for name in nodes {
        scene.create(node(name, "True"));
    }
    scene
}

/// What a service's status says of it.
pub(crate) fn ingress(cluster: &Cluster, name: &str) -> Vec<String> {
    let Object::Service(service) = &cluster.objects[&key(Kind::Service, name)] else {
        unreachable!()
    };
    let balancer = service.status.clone().and_then(|status| status.load_balancer);
    let ingress = balancer.and_then(|balancer| balancer.ingress).unwrap_or_default();
    ingress.into_iter().filter_map(|one| one.ip).collect()
}

pub(crate) fn held(cluster: &Cluster) -> Vec<Held> {
    let claims = cluster.of_kind(Kind::Claim).into_iter();
    let read = |object: &Object| match object {
        Object::Claim(claim) => Held::read(claim),
        other => panic!("{other:?} is no claim"),
    };
    claims.filter_map(read).collect()
}

pub(crate) fn outside_claims(cluster: &Cluster) -> Vec<String> {
    let claims = cluster.of_kind(Kind::Claim).into_iter();
    let names = claims.filter_map(|claim| claim.meta().name.clone());
    names.filter(|name| name.starts_with("outside.")).collect()
}

fn said(scene: &Scene, name: &str) -> String {
    scene.said_of(&key(Kind::Service, name)).first().copied().unwrap_or_default().to_owned()
}

#[test]
fn load_balancers_of_two_tenants_get_an_address_each_and_one_node_answers_for_each() {
    let mut scene = scene(&["node1", "node2"]);
    scene.create(pool("edge", &["192.0.2.0/30"], None));
    scene.create(balancer("acme/web", &json!({}))).create(balancer("globex/web", &json!({})));
    scene.create(service("acme/inside", ""));
    assert_eq!(ingress(&scene.cluster, "acme/web"), ["192.0.2.0"]);
    assert_eq!(ingress(&scene.cluster, "globex/web"), ["192.0.2.1"]);
    assert!(ingress(&scene.cluster, "acme/inside").is_empty());
    let all = held(&scene.cluster);
    assert_eq!(all.len(), 2);
    for held in all {
        assert!(["node1", "node2"].contains(&held.node.as_str()));
        let Purpose::LoadBalancer { service } = held.purpose else { panic!("{held:?}") };
        assert_eq!(service.network, format!("{}.default", service.namespace));
    }
    let Object::Pool(pool) = &scene.cluster.objects[&key(Kind::AddressPool, "edge")] else {
        unreachable!()
    };
    assert_eq!(pool.status.clone().unwrap().used, 2);
}

#[test]
fn an_address_moves_when_its_node_is_not_ready_and_only_that_one() {
    let mut scene = scene(&["node1", "node2", "node3"]);
    scene.create(pool("edge", &["192.0.2.0/28"], None));
    for number in 0..8 {
        scene.create(balancer(&format!("acme/web{number}"), &json!({})));
    }
    let places = |scene: &Scene| -> BTreeSet<_> {
        held(&scene.cluster).into_iter().map(|held| (held.address, held.node)).collect()
    };
    let before = places(&scene);
    assert!(before.iter().any(|(_, node)| node == "node2"), "{before:?}");
    set_ready(&mut scene, "node2", "Unknown");
    let without = places(&scene);
    assert_eq!(without.len(), before.len());
    assert!(without.iter().all(|(_, node)| node != "node2"), "{without:?}");
    let stayed = before.iter().filter(|(_, node)| node != "node2");
    assert!(stayed.into_iter().all(|place| without.contains(place)));
    set_ready(&mut scene, "node2", "True");
    assert_eq!(places(&scene), before);
}

#[test]
fn without_a_node_that_is_ready_nobody_answers_until_there_is_one() {
    let mut scene = scene(&[]);
    scene.create(pool("edge", &["192.0.2.0/30"], None)).create(balancer("acme/web", &json!({})));
    assert!(held(&scene.cluster).is_empty());
    scene.create(node("node1", "True"));
    assert_eq!(held(&scene.cluster)[0].node, "node1");
    scene.delete(Kind::Node, "node1");
    assert!(held(&scene.cluster).is_empty());
}

#[test]
fn an_address_that_was_asked_for_is_given_or_people_hear_what_would_be_right() {
    let mut scene = scene(&["node1"]);
    scene.create(pool("edge", &["192.0.2.0/28"], None));
    scene.create(balancer("acme/web", &json!({"loadBalancerIP": "192.0.2.7"})));
    assert_eq!(ingress(&scene.cluster, "acme/web"), ["192.0.2.7"]);
    scene.create(balancer("globex/web", &json!({"loadBalancerIP": "192.0.2.7"})));
    assert!(said(&scene, "globex/web").starts_with("192.0.2.7 is in use by "));
    scene.create(balancer("globex/far", &json!({"loadBalancerIP": "198.51.100.1"})));
    assert_eq!(
        said(&scene, "globex/far"),
        "spec.loadBalancerIP: 198.51.100.1 is in no pool of tenant globex; name an address of \
         192.0.2.0/28, or none"
    );
    scene.delete(Kind::Service, "acme/web");
    assert_eq!(ingress(&scene.cluster, "globex/web"), ["192.0.2.7"], "its holder is gone");
}

#[test]
fn an_address_comes_back_with_its_service_with_its_type_and_with_its_tenant() {
    let mut scene = scene(&["node1"]);
    scene.create(pool("edge", &["192.0.2.0/28"], None));
    for name in ["acme/gone", "acme/plain", "globex/web"] {
        scene.create(balancer(name, &json!({})));
    }
    assert_eq!(outside_claims(&scene.cluster).len(), 3);
    scene.delete(Kind::Service, "acme/gone");
    scene.cluster.change(&key(Kind::Service, "acme/plain"), |object| {
        let Object::Service(service) = object else { unreachable!() };
        service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
    });
    scene.settle();
    assert_eq!(outside_claims(&scene.cluster), ["outside.192.0.2.2"]);
    assert!(ingress(&scene.cluster, "acme/plain").is_empty());
    scene.cluster.change(&key(Kind::Namespace, "globex"), |object| {
        object.meta_mut().labels = None;
    });
    scene.settle();
    assert!(outside_claims(&scene.cluster).is_empty());
    assert!(ingress(&scene.cluster, "globex/web").is_empty());
}

#[test]
fn a_load_balancer_of_another_class_and_one_of_no_tenant_are_left_alone() {
    let mut scene = scene(&["node1"]);
    scene.create(pool("edge", &["192.0.2.0/28"], None));
    let theirs = json!({"loadBalancerClass": "example.org/cloud"});
    scene.create(balancer("acme/theirs", &theirs)).create(balancer("default/web", &json!({})));
    for name in ["acme/theirs", "default/web"] {
        assert!(ingress(&scene.cluster, name).is_empty());
        assert_eq!(said(&scene, name), "");
    }
    let ours = json!({"loadBalancerClass": "atoll.dev/pool"});
    scene.create(balancer("acme/ours", &ours));
    assert_eq!(ingress(&scene.cluster, "acme/ours"), ["192.0.2.0"]);
}

#[test]
fn a_status_that_somebody_else_writes_is_put_right_and_holds_nothing() {
    let mut scene = scene(&["node1"]);
    scene.create(pool("edge", &["192.0.2.0/28"], None));
    scene.create(balancer("acme/web", &json!({}))).create(balancer("globex/web", &json!({})));
    scene.cluster.change(&key(Kind::Service, "globex/web"), |object| {
        let Object::Service(service) = object else { unreachable!() };
        let stolen = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.0"}]}});
        service.status = serde_json::from_value(stolen).unwrap();
    });
    let owner = |scene: &Scene| {
        let all = held(&scene.cluster).into_iter();
        all.map(|held| (held.address.to_string(), held.purpose)).collect::<Vec<_>>()
    };
    let before = owner(&scene);
    scene.settle();
    assert_eq!(owner(&scene), before, "claims alone say who has what");
    assert_eq!(ingress(&scene.cluster, "globex/web"), ["192.0.2.1"]);
}

#[test]
fn a_pool_that_names_tenants_serves_them_alone_and_before_others() {
    let mut scene = scene(&["node1"]);
    scene.create(pool("all", &["192.0.2.0/30"], None));
    scene.create(pool("own", &["203.0.113.0/30"], Some(&["acme"])));
    scene.create(balancer("acme/web", &json!({}))).create(balancer("globex/web", &json!({})));
    assert_eq!(ingress(&scene.cluster, "acme/web"), ["203.0.113.0"]);
    assert_eq!(ingress(&scene.cluster, "globex/web"), ["192.0.2.0"]);
    scene.create(balancer("globex/more", &json!({"loadBalancerIP": "203.0.113.1"})));
    assert!(said(&scene, "globex/more").contains("203.0.113.1 is in no pool of tenant globex"));
}

#[test]
fn both_families_are_given_where_pools_have_them() {
    let mut scene = scene(&["node1"]);
    let both = json!({"ipFamilies": ["IPv4", "IPv6"]});
    scene.create(balancer("acme/web", &both));
    assert_eq!(
        said(&scene, "acme/web"),
        "no AddressPool gives addresses of IPv4 or IPv6 to tenant acme; an administrator can make one"
    );
    scene.create(pool("four", &["192.0.2.0/30"], None));
    assert_eq!(ingress(&scene.cluster, "acme/web"), ["192.0.2.0"]);
    scene.create(pool("six", &["2001:db8::/126"], None));
    assert_eq!(ingress(&scene.cluster, "acme/web"), ["192.0.2.0", "2001:db8::"]);
}

#[test]
fn an_exhausted_pool_is_said_of_the_service_and_of_the_pool_until_there_is_room() {
    let mut scene = scene(&["node1"]);
    scene.create(pool("edge", &["192.0.2.8/32"], None));
    scene.create(balancer("acme/web", &json!({}))).create(balancer("globex/web", &json!({})));
    let room = |scene: &Scene| {
        let Object::Pool(pool) = &scene.cluster.objects[&key(Kind::AddressPool, "edge")] else {
            unreachable!()
        };
        pool.status.as_ref().unwrap().conditions[0].clone()
    };
    assert!(said(&scene, "globex/web").starts_with("tenant globex has no free address"));
    assert_eq!(
        (room(&scene).status, room(&scene).reason),
        ("False".into(), "PoolExhausted".into())
    );
    scene.delete(Kind::Service, "acme/web");
    assert_eq!(room(&scene).status, "True");
    assert!(ingress(&scene.cluster, "globex/web").is_empty(), "a freed address rests");
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(40));
    assert_eq!(ingress(&scene.cluster, "globex/web"), ["192.0.2.8"]);
}

#[test]
fn no_more_addresses_of_the_outside_than_the_quota_allows() {
    let mut scene = scene(&["node1"]);
    scene.cluster.change(&key(Kind::Tenant, "acme"), |object| {
        let Object::Tenant(tenant) = object else { unreachable!() };
        let quota = api::TenantQuota { outside_addresses: Some(1), ..Default::default() };
        tenant.spec.quota = Some(quota);
    });
    scene.create(pool("edge", &["192.0.2.0/28"], None));
    scene.create(balancer("acme/web", &json!({}))).create(balancer("acme/db", &json!({})));
    scene.create(balancer("globex/web", &json!({})));
    assert_eq!(outside_claims(&scene.cluster).len(), 2);
    assert_eq!(
        said(&scene, "acme/db"),
        "tenant acme may have 1 addresses of the outside and has 1"
    );
    let conditions = scene.cluster.tenant("acme").status.clone().unwrap().conditions;
    let room = conditions.iter().find(|it| it.type_ == "HasRoom").unwrap();
    assert_eq!(room.message, "has 1 of 1 addresses of the outside");
}

#[test]
fn two_controllers_never_give_one_address_twice() {
    let mut cluster = scene(&["node1"]).cluster;
    cluster.create(pool("edge", &["192.0.2.0/30"], None)).unwrap();
    let start = |cluster: &Cluster| Controller::start(cluster, &Template::None, Duration::ZERO);
    let (mut one, mut other) = (start(&cluster), start(&cluster));
    for name in ["acme/a", "acme/b", "globex/c"] {
        cluster.create(balancer(name, &json!({}))).unwrap();
    }
    for _ in 0..200 {
        for controller in [&mut one, &mut other] {
            controller.read_next(&cluster, Kind::Service);
            controller.work_on_nth(&mut cluster, 1);
        }
    }
    one.settle(&mut cluster);
    other.settle(&mut cluster);
    one.wait(&mut cluster, Duration::from_secs(60));
    let given: Vec<_> =
        ["acme/a", "acme/b", "globex/c"].iter().flat_map(|name| ingress(&cluster, name)).collect();
    let distinct: BTreeSet<_> = given.iter().collect();
    assert_eq!((given.len(), distinct.len()), (3, 3), "{given:?}");
    assert_eq!(outside_claims(&cluster).len(), 3, "none is left over");
}

fn set_egress(scene: &mut Scene, name: &str, addresses: &[&str]) {
    scene.cluster.change(&key(Kind::Network, name), |object| {
        let Object::Network(network) = object else { unreachable!() };
        let addresses = addresses.iter().map(ToString::to_string).collect();
        network.spec.egress =
            Some(api::NetworkEgress { mode: api::EgressMode::Address, addresses });
    });
    scene.settle();
}

fn egress(scene: &Scene, name: &str) -> Option<(String, String)> {
    let conditions = scene.cluster.network(name).status.clone().unwrap().conditions;
    let found = conditions.into_iter().find(|it| it.type_ == "Egress")?;
    Some((found.status, found.message))
}

#[test]
fn a_network_holds_the_addresses_that_its_pods_leave_from_until_it_names_others_or_goes() {
    let mut scene = scene(&["node1"]);
    scene.create(pool("edge", &["192.0.2.0/28"], None));
    scene.create(network("acme.out", None, &["10.0.0.0/16"]));
    scene.create(network("globex.out", None, &["10.0.0.0/16"]));
    assert_eq!(egress(&scene, "acme.out"), None);
    set_egress(&mut scene, "acme.out", &["192.0.2.5"]);
    let all = held(&scene.cluster);
    assert_eq!(all[0].purpose, Purpose::Egress { network: "acme.out".into() });
    assert_eq!(all[0].node, "node1");
    assert_eq!(egress(&scene, "acme.out").unwrap().0, "True");
    set_egress(&mut scene, "globex.out", &["192.0.2.5"]);
    let (status, message) = egress(&scene, "globex.out").unwrap();
    assert_eq!(status, "False");
    assert!(message.contains("192.0.2.5 is in use by "), "{message}");
    set_egress(&mut scene, "acme.out", &["192.0.2.6"]);
    assert_eq!(egress(&scene, "globex.out").unwrap().0, "True", "it is free now");
    scene.delete(Kind::Network, "acme.out");
    assert_eq!(outside_claims(&scene.cluster), ["outside.192.0.2.5"]);
}

#[test]
fn a_network_leaves_by_no_address_that_no_pool_gives_to_its_tenant() {
    let mut scene = scene(&["node1"]);
    scene.create(pool("own", &["203.0.113.0/30"], Some(&["acme"])));
    scene.create(network("globex.out", None, &["10.0.0.0/16"]));
    set_egress(&mut scene, "globex.out", &["203.0.113.1"]);
    let (status, message) = egress(&scene, "globex.out").unwrap();
    assert_eq!(status, "False");
    assert!(message.contains("203.0.113.1 is in no pool of tenant globex"), "{message}");
    assert!(outside_claims(&scene.cluster).is_empty());
    let phase = scene.cluster.network("globex.out").status.clone().unwrap().phase;
    assert_eq!(phase, api::NetworkPhase::Active, "its pods reach each other all the same");
}
