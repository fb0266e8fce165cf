//! Scenarios of a network's DNS: its address, who answers, and what that makes of its tenant.

use atoll_api::{self as api, DnsMode, IsolationGrade, NetworkPhase};
use atoll_model::intent::Kind;

use crate::cluster::Object;
use crate::controller::Scene;
use crate::networks::network;
use crate::services::{service, vip};
use crate::tenants::{key, namespace, tenant};

fn status(scene: &Scene, name: &str) -> api::NetworkStatus {
    scene.cluster.network(name).status.clone().unwrap()
}

fn grade(scene: &Scene) -> (IsolationGrade, String) {
    let isolation = scene.cluster.tenant("acme").status.clone().unwrap().isolation.unwrap();
    (isolation.grade, isolation.reason)
}

fn open(name: &str) -> Object {
    let spec = api::NetworkSpec {
        tenant: name.split('.').next().unwrap().into(),
        type_: "flat".into(),
        isolation: Some(api::NetworkIsolation::Open),
        ..Default::default()
    };
    Object::Network(api::Network::new(name, spec))
}

fn set_dns(scene: &mut Scene, name: &str, dns: api::NetworkDns) {
    scene.cluster.change(&key(Kind::Network, name), |object| {
        let Object::Network(network) = object else { unreachable!() };
        network.spec.dns = Some(dns);
    });
    scene.settle();
}

fn set_service_ranges(scene: &mut Scene, ranges: &[&str]) {
    scene.cluster.change(&key(Kind::Tenant, "acme"), |object| {
        let Object::Tenant(tenant) = object else { unreachable!() };
        tenant.spec.service_cidrs = ranges.iter().map(ToString::to_string).collect();
    });
    scene.settle();
}

fn dedicated() -> api::NetworkDns {
    api::NetworkDns { mode: DnsMode::Dedicated, ..Default::default() }
}

#[test]
fn a_networks_dns_address_is_that_of_its_tenants_services_and_follows_them() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"]));
    let dns = |scene: &Scene| {
        let status = status(scene, "acme.default");
        (status.dns_service_ip.unwrap(), status.dns_service_ips)
    };
    assert_eq!(dns(&scene), ("198.18.0.10".into(), vec!["198.18.0.10".into()]));
    set_service_ranges(&mut scene, &["10.96.0.0/16", "fd96::/108"]);
    assert_eq!(dns(&scene).1, ["10.96.0.10", "fd96::a"]);
    set_service_ranges(&mut scene, &["10.96.0.0/29"]);
    assert_eq!(
        status(&scene, "acme.default").dns_service_ip,
        None,
        "a range of eight has no tenth"
    );
}

#[test]
fn open_networks_have_one_dns_address_whoever_owns_them() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &[])).create(tenant("globex", &[]));
    set_service_ranges(&mut scene, &["10.96.0.0/16"]);
    scene.create(open("acme.open")).create(open("globex.open"));
    for name in ["acme.open", "globex.open"] {
        assert_eq!(status(&scene, name).dns_service_ip.unwrap(), "198.18.0.10");
    }
}

#[test]
fn a_tenant_whose_networks_all_have_dns_of_their_own_is_isolated_hard() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"]));
    let shared = "network acme.default has no DNS of its own: the agents of its nodes answer";
    assert_eq!(grade(&scene), (IsolationGrade::Soft, shared.into()));
    set_dns(&mut scene, "acme.default", dedicated());
    assert_eq!(status(&scene, "acme.default").dns_mode, DnsMode::Dedicated);
    assert_eq!(grade(&scene).0, IsolationGrade::Hard);
    scene.create(network("acme.second", None, &["10.0.0.0/16"]));
    assert_eq!(grade(&scene).0, IsolationGrade::Soft);
    let service = api::DnsService { namespace: "acme".into(), name: "dns".into() };
    let own =
        api::NetworkDns { mode: DnsMode::Tenant, service: Some(service), ..Default::default() };
    set_dns(&mut scene, "acme.second", own);
    let hard = "its networks are isolated and have DNS of their own";
    assert_eq!(grade(&scene), (IsolationGrade::Hard, hard.into()));
}

#[test]
fn a_network_that_shares_its_vpc_is_answered_by_the_agents_until_it_is_alone() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"]));
    set_dns(&mut scene, "acme.default", dedicated());
    scene.create(network("acme.second", Some("default"), &["10.1.0.0/16"]));
    assert_eq!(status(&scene, "acme.default").dns_mode, DnsMode::Shared);
    let shared = "network acme.default shares its VPC acme.default with other networks, so the \
                  agents of its nodes answer its names";
    assert_eq!(grade(&scene), (IsolationGrade::Soft, shared.into()));
    scene.delete(Kind::Network, "acme.second");
    assert_eq!(status(&scene, "acme.default").dns_mode, DnsMode::Dedicated);
}

#[test]
fn a_network_with_an_upstream_that_is_no_address_fails_and_says_which() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"]));
    let upstreams = Some(vec!["192.0.2.53".into(), "resolver".into()]);
    set_dns(&mut scene, "acme.default", api::NetworkDns { upstreams, ..Default::default() });
    let status = status(&scene, "acme.default");
    assert_eq!(status.phase, NetworkPhase::Failed);
    let ready = status.conditions.iter().find(|it| it.type_ == "Ready").unwrap();
    assert!(ready.message.starts_with("spec.dns.upstreams[1]: "), "{}", ready.message);
}

#[test]
fn a_network_with_an_upstream_that_is_a_node_itself_fails_and_one_outside_does_not() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"]));
    let phase_with = |scene: &mut Scene, upstream: &str| {
        let upstreams = Some(vec!["192.0.2.53".into(), upstream.into()]);
        set_dns(scene, "acme.default", api::NetworkDns { upstreams, ..Default::default() });
        let status = status(scene, "acme.default");
        let ready = status.conditions.iter().find(|it| it.type_ == "Ready").unwrap();
        (status.phase, ready.message.clone())
    };
    for closed in
        ["127.0.0.1:9", "169.254.169.254", "0.0.0.0", "[::1]:53", "::ffff:127.0.0.1", "fe80::1"]
    {
        let (phase, message) = phase_with(&mut scene, closed);
        assert_eq!(phase, NetworkPhase::Failed, "{closed}");
        assert!(message.starts_with("spec.dns.upstreams[1]: "), "{message}");
        assert!(message.contains("is never outside"), "{message}");
    }
    for open in ["10.9.0.53:5353", "2001:db8::53"] {
        let (phase, message) = phase_with(&mut scene, open);
        assert_ne!(phase, NetworkPhase::Failed, "{open}: {message}");
    }
}

#[test]
fn no_service_gets_the_address_that_is_kept_for_dns() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"])).create(namespace("shop", "acme"));
    for n in 0..20 {
        scene.create(service(&format!("shop/s{n}"), ""));
    }
    let vips: Vec<_> = (0..20).filter_map(|n| vip(&scene.cluster, &format!("shop/s{n}"))).collect();
    assert_eq!(vips.len(), 20);
    assert!(!vips.contains(&"198.18.0.10".to_owned()), "{vips:?}");
    scene.create(service("shop/bold", "198.18.0.10"));
    let claims = scene.cluster.of_kind(Kind::Claim).into_iter();
    let mut claims = claims.filter_map(|claim| claim.meta().name.clone());
    assert!(!claims.any(|claim| claim.ends_with("198-18-0-10")), "nor one that asks for it");
}
