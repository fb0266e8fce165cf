//! Scenarios of load balancers whose connections stay on the node that they come in by
//! (`externalTrafficPolicy: Local`): a node that has a pod of the service answers for the address.

use atoll_model::intent::Kind;
use serde_json::{Value, json};

use crate::balancers::{balancer, held, node, pool, scene, set_ready};
use crate::cluster::{Cluster, Object};
use crate::controller::Scene;
use crate::tenants::key;

const NODES: [&str; 3] = ["node1", "node2", "node3"];
const FOUR: &str = "192.0.2.";
const SIX: &str = "2001:db8:";

/// One endpoint of a node: `ready`, `ending`, or `down`.
type Endpoint<'a> = (&'a str, &'a str);

fn endpoint((node, is): &Endpoint<'_>) -> Value {
    let (ready, ending) = (*is == "ready", *is == "ending");
    json!({"addresses": ["10.0.0.9"], "nodeName": node,
        "conditions": {"ready": ready, "serving": ready || ending, "terminating": ending}})
}

pub(crate) fn slice(name: &str, family: &str, endpoints: &[Endpoint<'_>]) -> Object {
    let (namespace, service) = name.split_once('/').unwrap();
    let object = json!({
        "metadata": {"name": format!("{service}-{family}").to_lowercase(), "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service}},
        "addressType": family,
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    });
    Object::Slice(serde_json::from_value(object).unwrap())
}

/// Who is behind a service, by IPv4.
fn behind(scene: &mut Scene, name: &str, endpoints: &[Endpoint<'_>]) {
    put_slice(&mut scene.cluster, slice(name, "IPv4", endpoints));
    scene.settle();
}

/// Makes a slice, or gives the one that is there these endpoints.
pub(crate) fn put_slice(cluster: &mut Cluster, slice: Object) {
    if !cluster.objects.contains_key(&slice.key()) {
        drop(cluster.create(slice));
        return;
    }
    cluster.change(&slice.key(), |object| {
        let (Object::Slice(standing), Object::Slice(changed)) = (object, &slice) else {
            unreachable!()
        };
        standing.endpoints = changed.endpoints.clone();
    });
}

/// The node that answers for the address of a service that starts so.
fn answers_at(scene: &Scene, name: &str, start: &str) -> String {
    let claims = held(&scene.cluster).into_iter();
    let mut own = claims.filter(|held| {
        let atoll_model::outside::Purpose::LoadBalancer { service } = &held.purpose else {
            return false;
        };
        format!("{}/{}", service.namespace, service.name) == name
            && held.address.to_string().starts_with(start)
    });
    own.next().unwrap_or_else(|| panic!("nobody answers for {name}")).node
}

fn answers(scene: &Scene, name: &str) -> String {
    answers_at(scene, name, FOUR)
}

/// The two nodes that do not answer for the service of acme.
fn others(scene: &Scene) -> [&'static str; 2] {
    let holder = answers(scene, "acme/web");
    let others: Vec<&str> = NODES.into_iter().filter(|node| *node != holder).collect();
    others.try_into().unwrap()
}

/// A load balancer of each tenant whose connections stay on their node.
fn local_scene() -> Scene {
    let mut scene = scene(&NODES);
    scene.create(pool("edge", &["192.0.2.0/28", "2001:db8::/120"], None));
    for name in ["acme/web", "globex/web"] {
        scene.create(balancer(name, &json!({"externalTrafficPolicy": "Local"})));
    }
    scene
}

fn set_policy(scene: &mut Scene, name: &str, policy: &str) {
    scene.cluster.change(&key(Kind::Service, name), |object| {
        let Object::Service(service) = object else { unreachable!() };
        service.spec.as_mut().unwrap().external_traffic_policy = Some(policy.into());
    });
    scene.settle();
}

#[test]
fn a_node_that_has_a_ready_pod_answers_for_a_load_balancer_that_stays_on_its_node() {
    let mut scene = local_scene();
    let globex = answers(&scene, "globex/web");
    for node in NODES {
        behind(&mut scene, "acme/web", &[(node, "ready")]);
        assert_eq!(answers(&scene, "acme/web"), node);
        assert_eq!(answers(&scene, "globex/web"), globex, "the other tenant's pods are elsewhere");
    }
}

#[test]
fn an_address_stays_while_its_node_has_a_ready_pod_whoever_comes_and_goes() {
    let mut scene = local_scene();
    let [second, third] = others(&scene);
    behind(&mut scene, "acme/web", &[(second, "ready")]);
    for endpoints in [
        vec![(second, "ready"), (third, "ready")],
        NODES.map(|node| (node, "ready")).to_vec(),
        vec![(second, "ready"), (second, "ending"), (third, "down")],
        vec![(third, "ready"), (second, "ready")],
    ] {
        behind(&mut scene, "acme/web", &endpoints);
        assert_eq!(answers(&scene, "acme/web"), second, "{endpoints:?}");
    }
    behind(&mut scene, "acme/web", &[(third, "ready"), (second, "down")]);
    assert_eq!(answers(&scene, "acme/web"), third, "its pod is not ready any more");
}

#[test]
fn one_that_ends_keeps_the_address_only_until_another_is_ready() {
    let mut scene = local_scene();
    let [second, third] = others(&scene);
    behind(&mut scene, "acme/web", &[(second, "ready")]);
    behind(&mut scene, "acme/web", &[(second, "ending"), (third, "down")]);
    assert_eq!(answers(&scene, "acme/web"), second);
    behind(&mut scene, "acme/web", &[(second, "ending"), (third, "ready")]);
    assert_eq!(answers(&scene, "acme/web"), third);
}

#[test]
fn where_nobody_is_behind_the_service_the_address_stays_where_it_is() {
    let mut scene = local_scene();
    let [second, third] = others(&scene);
    behind(&mut scene, "acme/web", &[(second, "ready")]);
    behind(&mut scene, "acme/web", &[]);
    assert_eq!(answers(&scene, "acme/web"), second);
    scene.delete(Kind::EndpointSlice, "acme/web-ipv4");
    assert_eq!(answers(&scene, "acme/web"), second);
    set_ready(&mut scene, second, "Unknown");
    assert_ne!(answers(&scene, "acme/web"), second, "a node that is not ready answers for nothing");
    behind(&mut scene, "acme/web", &[(third, "ready"), (second, "ready")]);
    assert_eq!(answers(&scene, "acme/web"), third);
}

#[test]
fn a_node_that_fails_loses_the_address_to_one_with_a_pod_and_does_not_take_it_back() {
    let mut scene = local_scene();
    let [second, third] = others(&scene);
    behind(&mut scene, "acme/web", &[(second, "ready"), (third, "ready")]);
    let first = answers(&scene, "acme/web");
    let next = if first == second { third } else { second };
    set_ready(&mut scene, &first, "Unknown");
    assert_eq!(answers(&scene, "acme/web"), next);
    set_ready(&mut scene, &first, "True");
    assert_eq!(answers(&scene, "acme/web"), next, "connections there go on");
}

#[test]
fn where_pods_are_does_not_matter_to_a_load_balancer_whose_connections_go_anywhere() {
    let mut scene = local_scene();
    let by_lot = answers(&scene, "acme/web");
    let [second, _] = others(&scene);
    behind(&mut scene, "acme/web", &[(second, "ready")]);
    assert_eq!(answers(&scene, "acme/web"), second);
    set_policy(&mut scene, "acme/web", "Cluster");
    assert_eq!(answers(&scene, "acme/web"), by_lot);
    set_policy(&mut scene, "acme/web", "Local");
    assert_eq!(answers(&scene, "acme/web"), second);
}

#[test]
fn addresses_of_both_families_follow_the_pods_of_their_own() {
    let mut scene = local_scene();
    let both = json!({"externalTrafficPolicy": "Local", "ipFamilies": ["IPv4", "IPv6"]});
    scene.create(balancer("acme/both", &both));
    scene.create(slice("acme/both", "IPv4", &[("node1", "ready")]));
    scene.create(slice("acme/both", "IPv6", &[("node2", "ready")]));
    assert_eq!(answers_at(&scene, "acme/both", FOUR), "node1");
    assert_eq!(answers_at(&scene, "acme/both", SIX), "node2");
}

#[test]
fn a_node_that_is_kept_out_or_unknown_answers_for_nothing_whatever_slices_say() {
    let mut scene = local_scene();
    let before = answers(&scene, "acme/web");
    behind(&mut scene, "acme/web", &[("node9", "ready")]);
    assert_eq!(answers(&scene, "acme/web"), before);
    scene.create(node("node9", "True"));
    assert_eq!(answers(&scene, "acme/web"), "node9", "it is there now");
}
