//! Scenarios of services that get addresses from their tenant's service ranges.

use std::time::Duration;

use atoll_api::{self as api, marks};
use atoll_model::intent::{Kind, Template};
use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Object};
use crate::controller::{Controller, Scene};
use crate::tenants::{key, namespace, tenant};

/// A service of type ClusterIP; with an annotation if `vip` is not empty.
pub(crate) fn service(name: &str, vip: &str) -> Object {
    let (namespace, name) = name.split_once('/').unwrap();
    let mut json = json!({"metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.10"}});
    if !vip.is_empty() {
        json["metadata"]["annotations"] = json!({marks::VIP: vip});
    }
    Object::Service(serde_json::from_value::<core::Service>(json).unwrap())
}

fn with(mut object: Object, spec: &Value) -> Object {
    let Object::Service(service) = &mut object else { unreachable!() };
    service.spec = Some(serde_json::from_value(spec.clone()).unwrap());
    object
}

/// What the service's annotation says.
pub(crate) fn vip(cluster: &Cluster, name: &str) -> Option<String> {
    let object = cluster.objects.get(&key(Kind::Service, name))?;
    object.meta().annotations.as_ref()?.get(marks::VIP).cloned()
}

fn claims(cluster: &Cluster) -> Vec<String> {
    let claims = cluster.of_kind(Kind::Claim).into_iter();
    let names = claims.filter_map(|claim| claim.meta().name.clone());
    names.filter(|name| name.starts_with("vip.")).collect()
}

/// Tenants acme and globex with a namespace each, without networks.
fn tenants() -> Scene {
    let mut scene = Scene::new();
    for name in ["acme", "globex"] {
        scene.create(tenant(name, &[])).create(namespace(name, name));
    }
    scene
}

fn change_tenant(scene: &mut Scene, change: impl Fn(&mut api::TenantSpec)) {
    scene.cluster.change(&key(Kind::Tenant, "acme"), |object| {
        let Object::Tenant(tenant) = object else { unreachable!() };
        change(&mut tenant.spec);
    });
    scene.settle();
}

fn said(scene: &Scene, name: &str) -> String {
    scene.said_of(&key(Kind::Service, name)).first().copied().unwrap_or_default().to_owned()
}

#[test]
fn two_tenants_services_have_the_same_vip_and_two_of_one_tenant_do_not() {
    let mut scene = tenants();
    scene.create(service("acme/web", "")).create(service("globex/web", ""));
    scene.create(service("acme/db", ""));
    let of = |name| vip(&scene.cluster, name).unwrap();
    assert_eq!(of("acme/web"), "198.18.0.2");
    assert_eq!(of("acme/web"), of("globex/web"));
    assert_eq!(of("acme/db"), "198.18.0.3");
    assert_eq!(claims(&scene.cluster).len(), 3);
    assert_eq!(scene.cluster.tenant("acme").status.clone().unwrap().vips, 2);
}

#[test]
fn a_tenant_with_ranges_of_both_families_gives_each_service_one_of_each() {
    let mut scene = tenants();
    change_tenant(&mut scene, |spec| {
        spec.service_cidrs = vec!["198.18.0.0/16".into(), "fd18::/64".into()];
    });
    scene.create(service("acme/web", "")).create(service("acme/db", "fd18::99"));
    assert_eq!(vip(&scene.cluster, "acme/web").unwrap(), "198.18.0.2,fd18::2");
    assert_eq!(vip(&scene.cluster, "acme/db").unwrap(), "fd18::99,198.18.0.3");
}

/// A service of these families.
fn of_families(name: &str, vip: &str, families: &[&str]) -> Object {
    let mut object = service(name, vip);
    let Object::Service(service) = &mut object else { unreachable!() };
    let families = families.iter().map(ToString::to_string).collect();
    service.spec.as_mut().unwrap().ip_families = Some(families);
    object
}

fn set_families(scene: &mut Scene, name: &str, families: &[&str]) {
    scene.cluster.change(&key(Kind::Service, name), |object| {
        let Object::Service(service) = object else { unreachable!() };
        let families = families.iter().map(ToString::to_string).collect();
        service.spec.as_mut().unwrap().ip_families = Some(families);
    });
    scene.settle();
}

#[test]
fn a_service_has_a_vip_of_its_own_families_alone() {
    let mut scene = tenants();
    change_tenant(&mut scene, |spec| {
        spec.service_cidrs = vec!["198.18.0.0/16".into(), "fd18::/64".into()];
    });
    scene.create(of_families("acme/four", "", &["IPv4"]));
    scene.create(of_families("acme/six", "", &["IPv6"]));
    scene.create(of_families("acme/both", "", &["IPv6", "IPv4"]));
    scene.create(of_families("globex/six", "", &["IPv6"]));
    assert_eq!(vip(&scene.cluster, "acme/four").unwrap(), "198.18.0.2");
    assert_eq!(vip(&scene.cluster, "acme/six").unwrap(), "fd18::2");
    assert_eq!(vip(&scene.cluster, "acme/both").unwrap(), "198.18.0.3,fd18::3");
    assert_eq!(vip(&scene.cluster, "globex/six"), None, "its tenant has no range of IPv6");
    assert_eq!(said(&scene, "globex/six"), "");
    assert_eq!(claims(&scene.cluster).len(), 4);
}

#[test]
fn a_vip_goes_with_its_family_and_another_comes_with_it() {
    let mut scene = tenants();
    change_tenant(&mut scene, |spec| {
        spec.service_cidrs = vec!["198.18.0.0/16".into(), "fd18::/64".into()];
    });
    scene.create(of_families("acme/web", "198.18.7.7,fd18::7", &["IPv4", "IPv6"]));
    assert_eq!(vip(&scene.cluster, "acme/web").unwrap(), "198.18.7.7,fd18::7");
    set_families(&mut scene, "acme/web", &["IPv4"]);
    assert_eq!(vip(&scene.cluster, "acme/web").unwrap(), "198.18.7.7");
    assert_eq!(said(&scene, "acme/web"), "", "nobody asked for anything wrong");
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(60));
    assert_eq!(claims(&scene.cluster), ["vip.acme.198.18.7.7"]);
    set_families(&mut scene, "acme/web", &["IPv4", "IPv6"]);
    let both = vip(&scene.cluster, "acme/web").unwrap();
    assert!(both.starts_with("198.18.7.7,fd18::"), "{both}");
}

#[test]
fn a_vip_of_a_family_that_the_service_does_not_have_is_refused_with_what_would_be_right() {
    let mut scene = tenants();
    change_tenant(&mut scene, |spec| {
        spec.service_cidrs = vec!["198.18.0.0/16".into(), "fd18::/64".into()];
    });
    scene.create(of_families("acme/web", "fd18::7", &["IPv4"]));
    assert_eq!(
        said(&scene, "acme/web"),
        "annotation atoll.dev/vip: fd18::7 is of IPv6, which the service does not have; name an \
         address of a family of spec.ipFamilies, or add IPv6 there"
    );
    assert_eq!(claims(&scene.cluster), Vec::<String>::new());
    set_families(&mut scene, "acme/web", &["IPv4", "IPv6"]);
    assert_eq!(vip(&scene.cluster, "acme/web").unwrap(), "fd18::7,198.18.0.2");
}

#[test]
fn headless_services_other_names_and_services_of_nobody_get_no_vip() {
    let mut scene = tenants();
    scene.create(with(service("acme/headless", ""), &json!({"clusterIP": "None"})));
    scene.create(with(service("acme/name", ""), &json!({"type": "ExternalName"})));
    scene.create(namespace("plain", "")).create(service("plain/web", ""));
    scene.create(service("plain/own", "10.9.9.9"));
    for name in ["acme/headless", "acme/name", "plain/web"] {
        assert_eq!(vip(&scene.cluster, name), None, "{name}");
    }
    assert_eq!(vip(&scene.cluster, "plain/own").unwrap(), "10.9.9.9", "left as it is");
    assert_eq!(claims(&scene.cluster), Vec::<String>::new());
}

#[test]
fn a_vip_that_was_asked_for_is_given_or_people_hear_what_would_be_right() {
    let mut scene = tenants();
    scene.create(service("acme/web", "198.18.7.7"));
    assert_eq!(claims(&scene.cluster), ["vip.acme.198.18.7.7"]);
    for (wish, told) in [
        (
            "198.18.7.7",
            "198.18.7.7 is in use by service acme/web; name another address of 198.18.0.0/16, or none",
        ),
        (
            "10.0.0.1",
            "10.0.0.1 is outside the service ranges of tenant acme; name an address of 198.18.0.0/16, or none",
        ),
        (
            "fd00::1",
            "fd00::1 is outside the service ranges of tenant acme; name an address of 198.18.0.0/16, or none",
        ),
        ("198.18.0.0", "198.18.0.0 is kept back; name another address of 198.18.0.0/16, or none"),
        (
            "web",
            "\"web\" is none; it is one IP address, or one of IPv4 and one of IPv6 with a comma between",
        ),
    ] {
        scene.create(service("acme/wish", wish));
        assert_eq!(said(&scene, "acme/wish"), format!("annotation atoll.dev/vip: {told}"));
        assert_eq!(claims(&scene.cluster).len(), 1, "{wish}");
        scene.delete(Kind::Service, "acme/wish");
    }
}

#[test]
fn a_service_that_waits_for_a_vip_gets_it_when_its_holder_goes() {
    let mut scene = tenants();
    scene.create(service("acme/web", "198.18.7.7")).create(service("acme/heir", "198.18.7.7"));
    scene.delete(Kind::Service, "acme/web");
    let claim = scene.cluster.of_kind(Kind::Claim)[0].clone();
    let Object::Claim(claim) = claim else { unreachable!() };
    assert_eq!(claim.spec.holder.name, "heir");
}

#[test]
fn a_vip_comes_back_with_its_service_and_rests_before_another_gets_it() {
    let mut scene = tenants();
    scene.create(service("acme/web", "")).delete(Kind::Service, "acme/web");
    assert_eq!(claims(&scene.cluster), Vec::<String>::new());
    scene.create(service("acme/next", ""));
    assert_eq!(vip(&scene.cluster, "acme/next").unwrap(), "198.18.0.3");
}

#[test]
fn a_service_that_becomes_a_name_loses_its_vip_and_one_that_moves_to_another_tenant_changes_it() {
    let mut scene = tenants();
    scene.create(service("acme/web", "")).create(service("acme/db", ""));
    let name = with(service("acme/web", ""), &json!({"type": "ExternalName"}));
    let Object::Service(name) = name else { unreachable!() };
    scene.cluster.change(&key(Kind::Service, "acme/web"), |object| {
        let Object::Service(service) = object else { unreachable!() };
        service.spec = name.spec;
    });
    scene.settle();
    assert_eq!(vip(&scene.cluster, "acme/web"), None);
    assert_eq!(claims(&scene.cluster), ["vip.acme.198.18.0.3"]);
    scene.cluster.change(&key(Kind::Namespace, "acme"), |object| {
        object.meta_mut().labels = Some([(marks::TENANT.to_owned(), "globex".to_owned())].into());
    });
    scene.settle();
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(31));
    assert_eq!(claims(&scene.cluster), ["vip.globex.198.18.0.3"]);
}

#[test]
fn no_more_vips_than_the_quota_allows_and_the_tenant_and_the_service_say_so() {
    let mut scene = tenants();
    change_tenant(&mut scene, |spec| {
        spec.quota = Some(api::TenantQuota { vips: Some(1), ..Default::default() });
    });
    scene.create(service("acme/web", "")).create(service("acme/db", ""));
    scene.create(service("acme/wish", "198.18.7.7"));
    assert_eq!(claims(&scene.cluster).len(), 1);
    for name in ["acme/db", "acme/wish"] {
        assert_eq!(said(&scene, name), "tenant acme may have 1 VIPs and has 1");
    }
    let room = |scene: &Scene| {
        let status = scene.cluster.tenant("acme").status.clone().unwrap();
        let found = status.conditions.into_iter().find(|it| it.type_ == "HasRoom").unwrap();
        (found.status, found.message)
    };
    assert_eq!(room(&scene), ("False".into(), "has 1 of 1 VIPs".into()));
    change_tenant(&mut scene, |spec| spec.quota.as_mut().unwrap().vips = Some(4));
    assert_eq!(claims(&scene.cluster).len(), 3);
    assert_eq!(room(&scene).0, "True");
}

#[test]
fn vips_that_were_there_before_the_ranges_changed_stay() {
    let mut scene = tenants();
    scene.create(service("acme/web", ""));
    change_tenant(&mut scene, |spec| spec.service_cidrs = vec!["10.96.0.0/16".into()]);
    scene.create(service("acme/db", ""));
    assert_eq!(vip(&scene.cluster, "acme/web").unwrap(), "198.18.0.2");
    assert_eq!(vip(&scene.cluster, "acme/db").unwrap(), "10.96.0.2");
}

#[test]
fn an_annotation_that_somebody_took_away_comes_back_and_a_claim_that_somebody_deleted_too() {
    let mut scene = tenants();
    scene.create(service("acme/web", ""));
    scene.cluster.change(&key(Kind::Service, "acme/web"), |object| {
        object.meta_mut().annotations = None;
    });
    scene.settle();
    assert_eq!(vip(&scene.cluster, "acme/web").unwrap(), "198.18.0.2");
    scene.delete(Kind::Claim, "vip.acme.198.18.0.2");
    assert_eq!(claims(&scene.cluster), ["vip.acme.198.18.0.2"]);
}

#[test]
fn a_service_that_asks_for_another_vip_changes_and_the_former_is_given_back() {
    let mut scene = tenants();
    scene.create(service("acme/web", ""));
    scene.cluster.change(&key(Kind::Service, "acme/web"), |object| {
        object
            .meta_mut()
            .annotations
            .get_or_insert_default()
            .insert(marks::VIP.into(), "198.18.0.9".into());
    });
    scene.settle();
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(31));
    assert_eq!(claims(&scene.cluster), ["vip.acme.198.18.0.9"]);
}

#[test]
fn a_vip_claimed_by_a_controller_that_died_is_the_services_with_the_next_one() {
    let mut scene = tenants();
    scene.cluster.create(service("acme/web", "")).unwrap();
    for step in 0..3 {
        scene.controller = Controller::start(&scene.cluster, &Template::None, Duration::ZERO);
        for _ in 0..step {
            scene.controller.work_on_nth(&mut scene.cluster, 0);
        }
    }
    scene.controller = Controller::start(&scene.cluster, &Template::None, Duration::ZERO);
    scene.settle();
    assert_eq!(claims(&scene.cluster), ["vip.acme.198.18.0.2"]);
    assert_eq!(vip(&scene.cluster, "acme/web").unwrap(), "198.18.0.2");
}

#[test]
fn a_range_without_a_free_address_is_said_until_one_is_free() {
    let mut scene = tenants();
    change_tenant(&mut scene, |spec| spec.service_cidrs = vec!["10.96.0.0/30".into()]);
    scene.create(service("acme/web", "")).create(service("acme/db", ""));
    assert!(said(&scene, "acme/db").starts_with("tenant acme has no free address for services"));
    scene.delete(Kind::Service, "acme/web");
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(40));
    assert_eq!(vip(&scene.cluster, "acme/db").unwrap(), "10.96.0.2");
}
