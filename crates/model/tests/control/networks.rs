//! Scenarios of networks and subnets.

use atoll_api::{self as api, NetworkPhase, SubnetPhase};
use atoll_model::intent::Kind;

use crate::cluster::Object;
use crate::controller::Scene;
use crate::pods::pod;
use crate::tenants::{key, namespace, tenant};

pub(crate) fn network(name: &str, vpc: Option<&str>, cidrs: &[&str]) -> Object {
    typed_network(name, "vpc", vpc, cidrs)
}

pub(crate) fn typed_network(name: &str, type_: &str, vpc: Option<&str>, cidrs: &[&str]) -> Object {
    let spec = api::NetworkSpec {
        tenant: name.split('.').next().unwrap().into(),
        type_: type_.into(),
        vpc_id: vpc.map(Into::into),
        cidrs: cidrs.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    Object::Network(api::Network::new(name, spec))
}

pub(crate) fn subnet(name: &str, network: &str, cidr: &str) -> Object {
    let spec = api::SubnetSpec { network: network.into(), cidr: cidr.into(), ..Default::default() };
    Object::Subnet(api::Subnet::new(name, spec))
}

/// Phase, id, reason and message of a network.
fn told(scene: &Scene, name: &str) -> (NetworkPhase, Option<u32>, String, String) {
    let status = scene.cluster.network(name).status.clone().unwrap();
    let ready = status.conditions.iter().find(|it| it.type_ == "Ready").unwrap().clone();
    (status.phase, status.id, ready.reason, ready.message)
}

fn acme() -> Scene {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &[])).create(namespace("shop", "acme"));
    scene
}

#[test]
fn every_range_of_a_network_gets_a_subnet() {
    let mut scene = acme();
    scene.create(network("acme.default", None, &["10.0.0.0/16", "10.2.0.0/16"]));
    let subnet = scene.cluster.subnet("acme.default.10-2-0-0-16").status.clone().unwrap();
    assert_eq!((subnet.phase, subnet.used, subnet.free), (SubnetPhase::Active, 0, 65_533));
    assert_eq!(scene.cluster.of_kind(Kind::Subnet).len(), 2);
}

#[test]
fn a_network_of_both_families_has_an_active_subnet_of_each_and_one_of_ipv6_gives_addresses() {
    let mut scene = acme();
    scene
        .create(network("acme.dual", None, &["10.0.0.0/16", "fd00::/64"]))
        .create(network("acme.six", None, &["fd00::/124"]))
        .create(pod("shop/six", Some("six"), None));
    let told = |name| {
        let status = scene.cluster.subnet(name).status.clone().unwrap();
        (status.phase, status.used, status.free)
    };
    assert_eq!(told("acme.dual.10-0-0-0-16"), (SubnetPhase::Active, 0, 65_533));
    assert_eq!(told("acme.dual.fd00-0-0-0-0-0-0-0-64"), (SubnetPhase::Active, 0, i64::MAX));
    assert_eq!(told("acme.six.fd00-0-0-0-0-0-0-0-124"), (SubnetPhase::Active, 1, 13));
    assert_eq!(scene.cluster.port("shop", "six.eth0").unwrap().spec.ips, ["fd00::2"]);
}

#[test]
fn networks_of_one_vpc_share_its_number_and_other_vpcs_have_their_own() {
    let mut scene = acme();
    scene
        .create(network("acme.default", None, &["10.0.0.0/16"]))
        .create(network("acme.joined", Some("default"), &["10.1.0.0/16"]))
        .create(network("acme.apart", None, &["10.0.0.0/16"]))
        .create(tenant("globex", &[]))
        .create(network("globex.default", None, &["10.0.0.0/16"]));
    let id = |name| told(&scene, name).1.unwrap();
    assert_eq!(id("acme.default"), id("acme.joined"));
    let ids = [id("acme.default"), id("acme.apart"), id("globex.default")];
    assert_eq!(ids, [1, 2, 3]);
}

#[test]
fn a_range_that_overlaps_another_of_the_same_vpc_is_refused_with_both_names() {
    let mut scene = acme();
    scene.create(network("acme.default", None, &["10.0.0.0/16"])).create(network(
        "acme.late",
        Some("default"),
        &["10.0.128.0/17"],
    ));
    let (phase, _, reason, message) = told(&scene, "acme.late");
    assert_eq!((phase, reason.as_str()), (NetworkPhase::Failed, "CidrOverlap"));
    assert_eq!(
        message,
        "spec.cidrs: 10.0.128.0/17 overlaps 10.0.0.0/16 of network acme.default, which is in the same \
         VPC; name another range, or another vpcID"
    );
    assert_eq!(scene.said_of(&key(Kind::Network, "acme.late")), [message.as_str()]);
    assert_eq!(told(&scene, "acme.default").0, NetworkPhase::Active);

    scene.delete(Kind::Network, "acme.default");
    assert_eq!(told(&scene, "acme.late").0, NetworkPhase::Active, "the way is free");
}

#[test]
fn a_network_that_grows_into_another_keeps_what_it_had_and_the_other_is_not_hurt() {
    let mut scene = acme();
    scene.create(network("acme.default", None, &["10.0.0.0/16"])).create(network(
        "acme.second",
        Some("default"),
        &["10.1.0.0/16"],
    ));
    scene.cluster.change(&key(Kind::Network, "acme.default"), |object| {
        let Object::Network(network) = object else { unreachable!() };
        network.spec.cidrs.push("10.1.0.0/20".into());
    });
    scene.settle();
    let (phase, _, reason, _) = told(&scene, "acme.default");
    assert_eq!((phase, reason.as_str()), (NetworkPhase::Active, "CidrOverlap"));
    assert_eq!(told(&scene, "acme.second").2, "AsDeclared");
}

#[test]
fn what_cannot_be_served_waits_and_says_why() {
    let mut scene = acme();
    scene.create(typed_network("acme.sdn", "sdn", None, &[])).create(network(
        "nobody.default",
        None,
        &["10.0.0.0/16"],
    ));
    let short = |name| {
        let (phase, id, reason, _) = told(&scene, name);
        (phase, id, reason)
    };
    assert_eq!(short("acme.sdn"), (NetworkPhase::Pending, None, "NoProvider".into()));
    assert_eq!(short("nobody.default"), (NetworkPhase::Pending, None, "TenantNotFound".into()));
    scene.create(tenant("nobody", &[]));
    assert_eq!(told(&scene, "nobody.default").0, NetworkPhase::Active);
}

#[test]
fn a_network_with_a_malformed_range_fails_and_can_be_deleted() {
    let mut scene = acme();
    scene.create(network("acme.bad", None, &["10.0.0.0/99"]));
    let (phase, _, reason, message) = told(&scene, "acme.bad");
    assert_eq!((phase, reason.as_str()), (NetworkPhase::Failed, "CidrMalformed"));
    assert!(message.starts_with("spec.cidrs[0]: "), "{message}");
    scene.delete(Kind::Network, "acme.bad");
    assert!(!scene.exists(Kind::Network, "acme.bad"));
}

#[test]
fn a_network_in_use_waits_with_the_names_of_its_pods_and_then_leaves_nothing() {
    let mut scene = acme();
    scene
        .create(network("acme.default", None, &["10.0.0.0/16"]))
        .create(pod("shop/web", None, None))
        .delete(Kind::Network, "acme.default");
    let (phase, _, reason, message) = told(&scene, "acme.default");
    assert_eq!((phase, reason.as_str()), (NetworkPhase::Terminating, "InUse"));
    assert_eq!(message, "is used by pods shop/web");
    scene.delete(Kind::Pod, "shop/web");
    for kind in [Kind::Network, Kind::Subnet, Kind::Port, Kind::Claim] {
        assert_eq!(scene.cluster.of_kind(kind).len(), 0, "{kind:?}");
    }
}

/// Binds a pod to a node, and lets the agent there report.
fn run_on(scene: &mut Scene, pod: &str, node: &str, attached: bool) {
    scene.cluster.change(&key(Kind::Pod, &format!("shop/{pod}")), |object| {
        let Object::Pod(pod) = object else { unreachable!() };
        pod.spec.as_mut().unwrap().node_name = Some(node.to_owned());
    });
    scene.settle();
    let phase = if attached { api::PortPhase::Attached } else { api::PortPhase::Allocated };
    scene.cluster.change(&key(Kind::Port, &format!("shop/{pod}.eth0")), |object| {
        let Object::Port(port) = object else { unreachable!() };
        port.status = Some(api::PortStatus { phase, ..Default::default() });
    });
    scene.settle();
}

fn programmed(scene: &Scene, name: &str) -> (u32, u32, String) {
    let status = scene.cluster.network(name).status.clone().unwrap();
    let condition = status.conditions.iter().find(|it| it.type_ == "Programmed").unwrap();
    let nodes = status.nodes.unwrap();
    (nodes.ready, nodes.total, condition.status.clone())
}

#[test]
fn a_network_tells_how_many_of_its_nodes_have_taken_it() {
    let mut scene = acme();
    scene.create(network("acme.default", None, &["10.0.0.0/16"]));
    assert_eq!(programmed(&scene, "acme.default"), (0, 0, "True".into()), "nothing to take");
    for name in ["shop/a", "shop/b"] {
        scene.create(pod(name, None, None));
    }
    run_on(&mut scene, "a", "node1", true);
    run_on(&mut scene, "b", "node2", false);
    assert_eq!(programmed(&scene, "acme.default"), (1, 2, "False".into()));
    assert_eq!(told(&scene, "acme.default").0, NetworkPhase::Active, "what runs goes on");
    run_on(&mut scene, "b", "node2", true);
    assert_eq!(programmed(&scene, "acme.default"), (2, 2, "True".into()));
    scene.delete(Kind::Pod, "shop/a").delete(Kind::Pod, "shop/b");
    assert_eq!(programmed(&scene, "acme.default"), (0, 0, "True".into()));
}

#[test]
fn a_network_does_not_become_active_before_its_nodes_have_taken_it() {
    let mut scene = acme();
    scene.create(network("acme.default", None, &["10.0.0.0/16"])).create(pod("shop/a", None, None));
    run_on(&mut scene, "a", "node1", false);
    scene.cluster.change(&key(Kind::Network, "acme.default"), |object| {
        let Object::Network(network) = object else { unreachable!() };
        network.status.as_mut().unwrap().phase = NetworkPhase::Failed;
    });
    scene.settle();
    let (phase, _, _, message) = told(&scene, "acme.default");
    assert_eq!(phase, NetworkPhase::Pending);
    assert_eq!(message, "waits for nodes to attach its pods: node1");
    run_on(&mut scene, "a", "node1", true);
    assert_eq!(told(&scene, "acme.default").0, NetworkPhase::Active);
}

#[test]
fn a_vpc_keeps_its_number_until_its_last_network_goes() {
    let mut scene = acme();
    scene
        .create(network("acme.default", None, &["10.0.0.0/16"]))
        .create(network("acme.joined", Some("default"), &["10.1.0.0/16"]))
        .delete(Kind::Network, "acme.default");
    assert!(scene.exists(Kind::Claim, "network-id.1"));
    assert_eq!(told(&scene, "acme.joined").1, Some(1));
    scene.delete(Kind::Network, "acme.joined");
    assert_eq!(scene.cluster.of_kind(Kind::Claim).len(), 0);
}

/// As a controller leaves it that was slow to claim what its VPC had given up meanwhile.
#[test]
fn a_vpc_that_was_promised_the_number_of_another_gets_one_of_its_own() {
    let mut scene = acme();
    scene.create(network("acme.default", None, &["10.0.0.0/16"]));
    let claims = scene.cluster.of_kind(Kind::Claim);
    let right = claims.iter().find(|it| it.key().name.name.starts_with("vpc.")).unwrap();
    let Object::Claim(right) = (*right).clone() else { unreachable!() };
    let name = right.metadata.name.unwrap().replace("default", "late");
    scene.create(Object::Claim(api::Claim::new(&name, right.spec)));
    scene.create(network("acme.late", None, &["10.0.0.0/16"]));
    assert_eq!(told(&scene, "acme.default").1, Some(1));
    assert_eq!(told(&scene, "acme.late").0, NetworkPhase::Active);
    assert_eq!(told(&scene, "acme.late").1, Some(2));
    scene.create(pod("shop/web", Some("default"), None));
    let subnet = scene.cluster.subnet("acme.default.10-0-0-0-16").status.clone().unwrap();
    assert_eq!(subnet.used, 1, "the number is known to be the one's that kept it");
}

#[test]
fn a_subnet_outside_its_network_or_twice_is_refused() {
    let mut scene = acme();
    scene
        .create(network("acme.default", None, &["10.0.0.0/16"]))
        .create(subnet("out", "acme.default", "10.1.0.0/24"))
        .create(subnet("twin", "acme.default", "10.0.0.0/16"))
        .create(subnet("lost", "acme.nowhere", "10.0.0.0/24"))
        .create(subnet("good", "acme.default", "10.0.7.0/24"));
    let told = |name| {
        let status = scene.cluster.subnet(name).status.clone().unwrap();
        (status.phase, status.conditions[0].reason.clone())
    };
    assert_eq!(told("out"), (SubnetPhase::Failed, "CidrOutside".into()));
    assert_eq!(told("twin"), (SubnetPhase::Failed, "CidrOverlap".into()));
    assert_eq!(told("lost"), (SubnetPhase::Pending, "NetworkNotFound".into()));
    assert_eq!(told("good"), (SubnetPhase::Active, "AsDeclared".into()));
}

fn keep_back(scene: &mut Scene, name: &str, excluded: &[&str], pools: &[&str]) {
    let texts = |ranges: &[&str]| ranges.iter().map(ToString::to_string).collect();
    scene.cluster.change(&key(Kind::Subnet, name), |object| {
        let Object::Subnet(subnet) = object else { unreachable!() };
        (subnet.spec.excluded, subnet.spec.pools) = (texts(excluded), texts(pools));
    });
    scene.settle();
}

fn ip_of(scene: &Scene, pod: &str) -> Option<String> {
    Some(scene.cluster.port("shop", &format!("{pod}.eth0"))?.spec.ips[0].clone())
}

#[test]
fn excluded_addresses_are_given_to_nobody_and_pools_are_all_there_is() {
    let mut scene = acme();
    scene.create(network("acme.default", None, &["10.0.0.0/28"]));
    let subnet = "acme.default.10-0-0-0-28";
    keep_back(&mut scene, subnet, &["10.0.0.2-10.0.0.4"], &[]);
    scene.create(pod("shop/a", None, None));
    assert_eq!(ip_of(&scene, "a").as_deref(), Some("10.0.0.5"));
    scene.create(pod("shop/asks", None, Some(r#"[{"ip": "10.0.0.3"}]"#)));
    assert_eq!(ip_of(&scene, "asks"), None);
    keep_back(&mut scene, subnet, &[], &["10.0.0.9-10.0.0.10"]);
    scene.create(pod("shop/b", None, None));
    assert_eq!(ip_of(&scene, "b").as_deref(), Some("10.0.0.9"));
    assert_eq!(scene.cluster.subnet(subnet).status.clone().unwrap().free, 1);
}

#[test]
fn a_freed_address_rests_also_when_its_subnet_is_changed_meanwhile() {
    let mut scene = acme();
    scene.create(network("acme.default", None, &["10.0.0.0/29"])).create(pod("shop/a", None, None));
    scene.delete(Kind::Pod, "shop/a");
    keep_back(&mut scene, "acme.default.10-0-0-0-29", &["10.0.0.4-10.0.0.6"], &[]);
    scene.create(pod("shop/b", None, None)).create(pod("shop/c", None, None));
    assert_eq!(ip_of(&scene, "b").as_deref(), Some("10.0.0.3"));
    assert_eq!(ip_of(&scene, "c"), None, "10.0.0.2 rests");
    scene.controller.wait(&mut scene.cluster, std::time::Duration::from_secs(31));
    assert_eq!(ip_of(&scene, "c").as_deref(), Some("10.0.0.2"));
}

#[test]
fn a_full_subnet_says_so_until_an_address_is_free() {
    let mut scene = acme();
    scene.create(network("acme.default", None, &["10.0.0.0/30"])).create(pod("shop/a", None, None));
    let told = |scene: &Scene| {
        let status = scene.cluster.subnet("acme.default.10-0-0-0-30").status.clone().unwrap();
        let ready = status.conditions[0].clone();
        (status.phase, status.used, status.free, ready.reason, ready.message)
    };
    let (phase, used, free, reason, message) = told(&scene);
    assert_eq!((phase, used, free), (SubnetPhase::Active, 1, 0));
    assert_eq!(reason, "SubnetExhausted");
    assert!(message.contains("10.0.0.0/30") && message.contains("acme.default"), "{message}");
    scene.delete(Kind::Pod, "shop/a");
    assert_eq!(told(&scene).3, "AsDeclared");
}

#[test]
fn a_subnet_in_use_waits_with_the_names_of_its_ports() {
    let mut scene = acme();
    scene
        .create(network("acme.default", None, &["10.0.0.0/16"]))
        .create(subnet("web", "acme.default", "10.0.7.0/24"))
        .create(pod("shop/web", None, Some(r#"[{"subnet": "web"}]"#)))
        .delete(Kind::Subnet, "web");
    let status = scene.cluster.subnet("web").status.clone().unwrap();
    assert_eq!((status.phase, status.used), (SubnetPhase::Terminating, 1));
    let message = &status.conditions[0].message;
    assert_eq!(message, "its addresses are used by ports shop/web.eth0 (10.0.7.2)");
    scene.delete(Kind::Pod, "shop/web");
    assert!(!scene.exists(Kind::Subnet, "web"));
}
