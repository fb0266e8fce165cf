//! Scenarios of tenants, and the manifests that all scenarios share.

use std::time::Duration;

use atoll_api::{self as api, NetworkPhase, TenantPhase};
use atoll_model::Key;
use atoll_model::intent::{Kind, ObjectName, Template};
use k8s_openapi::api::core::v1 as core;

use crate::cluster::Object;
use crate::controller::Scene;
use crate::networks::network;

pub(crate) fn key(kind: Kind, name: &str) -> Key {
    match name.split_once('/') {
        Some((namespace, name)) => Key::new(kind, ObjectName::inside(namespace, name)),
        None => Key::new(kind, ObjectName::cluster(name)),
    }
}

pub(crate) fn tenant(name: &str, cidrs: &[&str]) -> Object {
    let network = api::DefaultNetwork {
        type_: "vpc".into(),
        cidrs: cidrs.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    let default_network = (!cidrs.is_empty()).then_some(network);
    Object::Tenant(api::Tenant::new(
        name,
        api::TenantSpec { default_network, ..Default::default() },
    ))
}

pub(crate) fn namespace(name: &str, tenant: &str) -> Object {
    let json =
        serde_json::json!({"metadata": {"name": name, "labels": {"atoll.dev/tenant": tenant}}});
    Object::Namespace(serde_json::from_value::<core::Namespace>(json).unwrap())
}

impl Scene {
    pub(crate) fn create(&mut self, object: Object) -> &mut Self {
        self.cluster.create(object).unwrap();
        self.settle();
        self
    }

    pub(crate) fn delete(&mut self, kind: Kind, name: &str) -> &mut Self {
        self.cluster.delete(&key(kind, name));
        self.settle();
        self
    }

    pub(crate) fn exists(&self, kind: Kind, name: &str) -> bool {
        self.cluster.objects.contains_key(&key(kind, name))
    }
}

fn text(template: &str) -> Template {
    Template::Text(template.into())
}

fn message(conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition]) -> String {
    conditions.iter().find(|it| it.type_ == "Ready").unwrap().message.clone()
}

#[test]
fn a_tenant_gets_its_default_network_and_becomes_active() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"]));
    let network = scene.cluster.network("acme.default").status.clone().unwrap();
    assert_eq!((network.phase, network.id), (NetworkPhase::Active, Some(1)));
    let tenant = scene.cluster.tenant("acme").status.clone().unwrap();
    assert_eq!((tenant.phase, tenant.networks), (TenantPhase::Active, 1));
    assert!(tenant.default_network_created);
}

#[test]
fn a_default_network_that_its_tenant_deleted_is_not_made_again() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"])).delete(Kind::Network, "acme.default");
    assert!(!scene.exists(Kind::Network, "acme.default"));
    let status = scene.cluster.tenant("acme").status.clone().unwrap();
    assert_eq!((status.phase, status.networks), (TenantPhase::Active, 0));
}

#[test]
fn the_template_makes_the_default_network_of_a_tenant_that_says_nothing() {
    let template = "kind: Network\nspec: {type: vpc, tenant: mallory, cidrs: [10.9.0.0/16]}";
    let mut scene = Scene::with_template(&text(template));
    scene.create(tenant("acme", &[]));
    let network = scene.cluster.network("acme.default");
    assert_eq!((network.spec.tenant.as_str(), &network.spec.cidrs[0][..]), ("acme", "10.9.0.0/16"));
}

#[test]
fn without_a_template_a_tenant_has_no_default_network() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &[]));
    assert_eq!(scene.cluster.of_kind(Kind::Network).len(), 0);
    assert_eq!(scene.cluster.tenant("acme").status.clone().unwrap().phase, TenantPhase::Active);
}

#[test]
fn a_malformed_template_is_said_once_and_used_when_it_is_right() {
    let mut scene = Scene::with_template(&text("kind: Pod"));
    scene.create(tenant("acme", &[]));
    let status = scene.cluster.tenant("acme").status.clone().unwrap();
    assert_eq!(status.phase, TenantPhase::Pending);
    assert!(message(&status.conditions).contains("no Network manifest"));
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(60));
    assert_eq!(scene.said_of(&key(Kind::Tenant, "acme")).len(), 1);

    let right = text("kind: Network\nspec: {type: vpc, cidrs: [10.0.0.0/16]}");
    let touched = scene.controller.world.observe_template(right);
    assert_eq!(touched.len(), 1);
    scene.controller.look_at(touched);
    scene.settle();
    assert_eq!(scene.cluster.tenant("acme").status.clone().unwrap().phase, TenantPhase::Active);
}

#[test]
fn a_tenant_that_is_active_stays_so_while_the_template_is_malformed_and_says_what_is_wrong() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &[]));
    let touched = scene.controller.world.observe_template(text("kind: Pod"));
    scene.controller.look_at(touched);
    scene.settle();
    let status = scene.cluster.tenant("acme").status.clone().unwrap();
    assert_eq!(status.phase, TenantPhase::Active);
    assert!(message(&status.conditions).contains("no Network manifest"));
}

#[test]
fn a_default_network_that_cannot_be_is_said_and_not_made() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/99"]));
    let status = scene.cluster.tenant("acme").status.clone().unwrap();
    let said = message(&status.conditions);
    assert!(said.starts_with("spec.defaultNetwork gives a network that cannot be: "), "{said}");
    assert_eq!(scene.said_of(&key(Kind::Tenant, "acme")), [said.as_str()]);
    assert_eq!(scene.cluster.of_kind(Kind::Network).len(), 0);
}

fn limit(scene: &mut Scene, networks: Option<u32>, ports: Option<u32>) {
    scene.cluster.change(&key(Kind::Tenant, "acme"), |object| {
        let Object::Tenant(tenant) = object else { unreachable!() };
        tenant.spec.quota = Some(api::TenantQuota { networks, ports, ..Default::default() });
    });
    scene.settle();
}

#[test]
fn a_network_too_many_waits_until_another_goes_or_the_limit_is_raised() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"]));
    limit(&mut scene, Some(1), None);
    for name in ["acme.second", "acme.third"] {
        scene.create(network(name, None, &["10.0.0.0/16"]));
    }
    let told = |scene: &Scene, name| {
        let status = scene.cluster.network(name).status.clone().unwrap();
        (status.phase, message(&status.conditions))
    };
    let text = "tenant acme may have 1 networks and has: acme.default".to_owned();
    assert_eq!(told(&scene, "acme.second"), (NetworkPhase::Pending, text));
    assert_eq!(told(&scene, "acme.default").0, NetworkPhase::Active, "it was there before");
    scene.delete(Kind::Network, "acme.default");
    assert_eq!(told(&scene, "acme.second").0, NetworkPhase::Active);
    assert_eq!(told(&scene, "acme.third").0, NetworkPhase::Pending);
    limit(&mut scene, Some(2), None);
    assert_eq!(told(&scene, "acme.third").0, NetworkPhase::Active);
}

#[test]
fn a_pod_too_many_hears_it_and_gets_its_port_when_there_is_room() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"])).create(namespace("shop", "acme"));
    limit(&mut scene, None, Some(2));
    for name in ["shop/a", "shop/b", "shop/c"] {
        scene.cluster.create(crate::pods::pod(name, None, None)).unwrap();
    }
    scene.settle();
    assert_eq!(scene.cluster.of_kind(Kind::Port).len(), 2);
    let said = scene.said_of(&key(Kind::Pod, "shop/c"));
    assert_eq!(said, ["tenant acme may have 2 ports and has 2"]);
    scene.delete(Kind::Pod, "shop/a");
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(6));
    assert!(scene.exists(Kind::Port, "shop/c.eth0"));
    scene.create(crate::pods::pod("shop/d", None, None));
    limit(&mut scene, None, None);
    assert!(scene.exists(Kind::Port, "shop/d.eth0"));
}

#[test]
fn a_tenant_goes_only_when_nothing_is_inside_and_says_what_is() {
    let mut scene = Scene::new();
    scene
        .create(tenant("acme", &["10.0.0.0/16"]))
        .create(namespace("shop", "acme"))
        .create(network("acme.second", None, &["10.1.0.0/16"]))
        .delete(Kind::Tenant, "acme");
    let waiting = |scene: &Scene| {
        let status = scene.cluster.tenant("acme").status.clone().unwrap();
        assert_eq!(status.phase, TenantPhase::Terminating);
        message(&status.conditions)
    };
    let both =
        "waits for its namespaces to be deleted: shop; for its networks to be deleted: acme.second";
    assert_eq!(waiting(&scene), both);
    scene.delete(Kind::Namespace, "shop");
    assert_eq!(waiting(&scene), "waits for its networks to be deleted: acme.second");
    scene.delete(Kind::Network, "acme.second");
    assert!(scene.cluster.objects.is_empty(), "{:?}", scene.cluster.objects.keys());
}

#[test]
fn a_tenant_tells_what_it_uses_and_where_its_services_get_addresses() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"])).create(namespace("shop", "acme"));
    for name in ["shop/a", "shop/b"] {
        scene.create(crate::pods::pod(name, None, None));
    }
    let status = |scene: &Scene| scene.cluster.tenant("acme").status.clone().unwrap();
    assert_eq!((status(&scene).networks, status(&scene).ports), (1, 2));
    assert_eq!(status(&scene).service_cidrs, ["198.18.0.0/16"], "the default is told");
    scene.delete(Kind::Pod, "shop/a");
    assert_eq!(status(&scene).ports, 1);
    scene.cluster.change(&key(Kind::Tenant, "acme"), |object| {
        let Object::Tenant(tenant) = object else { unreachable!() };
        tenant.spec.service_cidrs = vec!["10.96.0.0/16".into()];
    });
    scene.settle();
    assert_eq!(status(&scene).service_cidrs, ["10.96.0.0/16"]);
}

#[test]
fn a_network_that_would_hide_its_tenants_services_fails_and_names_both() {
    let mut scene = Scene::new();
    scene
        .create(tenant("acme", &[]))
        .create(network("acme.over", None, &["198.18.0.0/15"]))
        .create(network("acme.beside", None, &["198.19.0.0/16"]));
    let told = |name| scene.cluster.network(name).status.clone().unwrap();
    let over = told("acme.over");
    assert_eq!(over.phase, NetworkPhase::Failed);
    let text = "spec.cidrs: 198.18.0.0/15 overlaps 198.18.0.0/16, from which services of tenant \
                acme get addresses; name another range";
    assert_eq!(message(&over.conditions), text);
    assert_eq!(told("acme.beside").phase, NetworkPhase::Active);
}

#[test]
fn a_tenant_with_an_open_network_says_so_in_its_isolation() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &[]));
    let reason = |scene: &Scene| {
        let status = scene.cluster.tenant("acme").status.clone().unwrap();
        status.isolation.unwrap().reason
    };
    assert_eq!(reason(&scene), "the tenant has no network");
    let spec = api::NetworkSpec {
        tenant: "acme".into(),
        type_: "flat".into(),
        isolation: Some(api::NetworkIsolation::Open),
        ..Default::default()
    };
    scene.create(Object::Network(api::Network::new("acme.open", spec)));
    assert_eq!(reason(&scene), "network acme.open is open: pods of other tenants reach it");
}

/// The objects that a tenant's role names, by resource.
fn named_in_role(scene: &Scene, resource: &str) -> Vec<String> {
    let role = key(Kind::ClusterRole, "atoll.tenant.acme");
    let Object::Role(role) = &scene.cluster.objects[&role] else { unreachable!() };
    let rules = role.rules.iter().flatten();
    let about = rules.filter(|rule| rule.resources.iter().flatten().any(|it| it == resource));
    about.filter_map(|rule| rule.resource_names.clone()).flatten().collect()
}

#[test]
fn a_tenants_role_names_what_is_its_own_and_goes_with_it() {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &["10.0.0.0/16"])).create(tenant("globex", &["10.0.0.0/16"]));
    assert_eq!(named_in_role(&scene, "tenants"), ["acme"]);
    scene.create(network("acme.b", None, &["10.1.0.0/16"]));
    assert_eq!(named_in_role(&scene, "networks"), ["acme.b", "acme.default"]);
    let subnets = ["acme.b.10-1-0-0-16", "acme.default.10-0-0-0-16"];
    assert_eq!(named_in_role(&scene, "subnets"), subnets);
    scene.delete(Kind::Network, "acme.b");
    assert_eq!(named_in_role(&scene, "networks"), ["acme.default"]);
    scene.cluster.change(&key(Kind::ClusterRole, "atoll.tenant.acme"), |object| {
        let Object::Role(role) = object else { unreachable!() };
        role.rules = None;
    });
    scene.settle();
    assert_eq!(named_in_role(&scene, "networks"), ["acme.default"], "it is put right");
    scene.delete(Kind::ClusterRole, "atoll.tenant.acme");
    assert!(scene.exists(Kind::ClusterRole, "atoll.tenant.acme"), "and made again");
    scene.delete(Kind::Tenant, "acme");
    assert!(!scene.exists(Kind::ClusterRole, "atoll.tenant.acme"));
    assert!(scene.exists(Kind::ClusterRole, "atoll.tenant.globex"));
}
