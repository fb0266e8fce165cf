//! Scenarios of types of networks that are not built in: who registers for one is given its
//! networks, writes their status, and says when nothing of one is left.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_api::{self as api, NetworkPhase};
use atoll_model::Key;
use atoll_model::intent::{Kind, Template};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use proptest::prelude::*;

use crate::cluster::{Cluster, Message, Object};
use crate::controller::{Controller, KINDS, Scene};
use crate::networks::{network, typed_network};
use crate::pods::pod;
use crate::tenants::{key, namespace, tenant};

const PROVIDER: &str = "sdn.example/provider";

fn registration(type_: &str) -> Object {
    let spec = api::NetworkTypeSpec { provider: PROVIDER.into() };
    Object::Type(api::NetworkType::new(type_, spec))
}

fn foreign(name: &str) -> Object {
    typed_network(name, "sdn", None, &["10.0.0.0/16"])
}

fn acme() -> Scene {
    let mut scene = Scene::new();
    scene.create(tenant("acme", &[])).create(namespace("shop", "acme"));
    scene
}

/// Status, reason and message of one of a network's conditions.
fn said(cluster: &Cluster, name: &str, type_: &str) -> Option<(String, String, String)> {
    let conditions = cluster.network(name).status.clone()?.conditions;
    let found = conditions.into_iter().find(|it| it.type_ == type_)?;
    Some((found.status, found.reason, found.message))
}

/// The reason of a network's condition.
fn reason(scene: &Scene, name: &str, type_: &str) -> String {
    said(&scene.cluster, name, type_).unwrap().1
}

fn is_provided(cluster: &Cluster, name: &str) -> bool {
    said(cluster, name, "Provided").is_some_and(|(status, ..)| status == "True")
}

/// Writes a network's status as its provider does.
fn provide(cluster: &mut Cluster, name: &str, change: impl FnOnce(&mut api::NetworkStatus)) {
    cluster.change(&key(Kind::Network, name), |object| {
        let Object::Network(network) = object else { unreachable!() };
        change(network.status.get_or_insert_default());
    });
}

fn set_condition(status: &mut api::NetworkStatus, type_: &str, reason: &str) {
    let standing = status.conditions.iter().find(|it| it.type_ == "Ready").unwrap().clone();
    status.conditions.retain(|it| it.type_ != type_);
    let told = Condition { type_: type_.into(), status: "True".into(), ..standing };
    status.conditions.push(Condition { reason: reason.into(), message: "done".into(), ..told });
}

/// The provider serves a network.
fn serve(cluster: &mut Cluster, name: &str) {
    provide(cluster, name, |status| {
        status.phase = NetworkPhase::Active;
        status.cidrs = vec!["10.0.0.0/16".into()];
        set_condition(status, "Ready", "ServedBySdn");
    });
}

/// The provider says that nothing of a network is left.
fn release(cluster: &mut Cluster, name: &str) {
    provide(cluster, name, |status| set_condition(status, "Released", "Gone"));
}

#[test]
fn a_network_is_given_to_the_provider_that_registers_for_its_type_and_its_status_is_the_providers()
{
    let mut scene = acme();
    scene.create(foreign("acme.sdn"));
    assert_eq!(reason(&scene, "acme.sdn", "Ready"), "NoProvider");
    assert!(!is_provided(&scene.cluster, "acme.sdn"));
    scene.create(registration("other"));
    assert_eq!(reason(&scene, "acme.sdn", "Ready"), "NoProvider", "it is for another type");

    scene.create(registration("sdn"));
    let told = said(&scene.cluster, "acme.sdn", "Provided").unwrap();
    assert_eq!((told.0.as_str(), told.2), ("True", format!("provider {PROVIDER} serves it")));
    assert_eq!(reason(&scene, "acme.sdn", "Ready"), "InProgress");
    assert_eq!(
        scene.cluster.network("acme.sdn").status.clone().unwrap().phase,
        NetworkPhase::Pending
    );

    serve(&mut scene.cluster, "acme.sdn");
    let theirs = scene.cluster.network("acme.sdn").status.clone();
    scene.settle();
    scene.create(network("acme.default", None, &["10.0.0.0/16"]));
    assert_eq!(scene.cluster.network("acme.sdn").status, theirs, "nobody else writes it");
    let status = scene.cluster.network("acme.default").status.clone().unwrap();
    assert_eq!(status.phase, NetworkPhase::Active, "another routing domain has the same range");
}

#[test]
fn a_network_waits_for_its_tenant_and_its_quota_before_a_provider_has_it() {
    let mut scene = acme();
    scene.create(registration("sdn")).create(foreign("nobody.sdn"));
    assert_eq!(reason(&scene, "nobody.sdn", "Provided"), "TenantNotFound");
    scene.create(tenant("nobody", &[]));
    assert!(is_provided(&scene.cluster, "nobody.sdn"));

    let limit = |scene: &mut Scene, networks| {
        scene.cluster.change(&key(Kind::Tenant, "acme"), |object| {
            let Object::Tenant(tenant) = object else { unreachable!() };
            let quota = api::TenantQuota { networks: Some(networks), ..Default::default() };
            tenant.spec.quota = Some(quota);
        });
        scene.settle();
    };
    limit(&mut scene, 1);
    scene.create(foreign("acme.first")).create(foreign("acme.second"));
    assert!(is_provided(&scene.cluster, "acme.first"));
    assert_eq!(reason(&scene, "acme.second", "Provided"), "QuotaExceeded");
    limit(&mut scene, 0);
    assert!(is_provided(&scene.cluster, "acme.first"), "it was there before");
    limit(&mut scene, 2);
    assert!(is_provided(&scene.cluster, "acme.second"));
}

#[test]
fn a_network_goes_when_its_provider_has_let_go_of_it() {
    let mut scene = acme();
    scene.create(registration("sdn")).create(foreign("acme.sdn"));
    serve(&mut scene.cluster, "acme.sdn");
    scene.delete(Kind::Network, "acme.sdn");
    let told = said(&scene.cluster, "acme.sdn", "Ready").unwrap().2;
    assert_eq!(
        told,
        format!(
            "waits for provider {PROVIDER} to say by condition Released that nothing of it is left"
        )
    );
    let phase = scene.cluster.network("acme.sdn").status.clone().unwrap().phase;
    assert_eq!(phase, NetworkPhase::Terminating);
    release(&mut scene.cluster, "acme.sdn");
    scene.settle();
    assert!(!scene.exists(Kind::Network, "acme.sdn"));

    scene.create(typed_network("acme.unserved", "unserved", None, &[]));
    scene.delete(Kind::Network, "acme.unserved");
    assert!(!scene.exists(Kind::Network, "acme.unserved"), "nobody made anything for it");
}

#[test]
fn a_type_is_not_given_up_while_its_provider_has_networks_and_gets_no_more_meanwhile() {
    let mut scene = acme();
    scene.create(registration("sdn")).create(foreign("acme.sdn"));
    let status = |scene: &Scene| match &scene.cluster.objects[&key(Kind::NetworkType, "sdn")] {
        Object::Type(type_) => type_.status.clone().unwrap(),
        other => panic!("{other:?} is no type"),
    };
    assert_eq!((status(&scene).networks, &status(&scene).conditions[0].status[..]), (1, "True"));
    scene.delete(Kind::NetworkType, "sdn");
    let waiting = &status(&scene).conditions[0];
    assert_eq!(waiting.message, "waits for its networks to be deleted: acme.sdn");
    scene.create(foreign("acme.late"));
    assert_eq!(reason(&scene, "acme.late", "Provided"), "NoProvider");
    assert!(is_provided(&scene.cluster, "acme.sdn"));

    scene.delete(Kind::Network, "acme.sdn");
    assert!(scene.exists(Kind::NetworkType, "sdn"), "its provider has it still");
    release(&mut scene.cluster, "acme.sdn");
    scene.settle();
    assert!(!scene.exists(Kind::Network, "acme.sdn") && !scene.exists(Kind::NetworkType, "sdn"));
    scene.create(registration("sdn"));
    assert!(is_provided(&scene.cluster, "acme.late"), "who registers next has it");
}

#[test]
fn a_number_that_a_provider_writes_is_nobodys_and_its_pods_get_no_address_of_ours() {
    let mut scene = acme();
    scene.create(network("acme.default", None, &["10.0.0.0/16"])).create(registration("sdn"));
    scene.create(typed_network("acme.sdn", "sdn", Some("default"), &["10.0.0.0/16"]));
    let id = scene.cluster.network("acme.default").status.clone().unwrap().id;
    serve(&mut scene.cluster, "acme.sdn");
    provide(&mut scene.cluster, "acme.sdn", |status| status.id = id);
    let subnet = api::SubnetSpec {
        network: "acme.sdn".into(),
        cidr: "10.0.0.0/24".into(),
        ..Default::default()
    };
    scene.create(Object::Subnet(api::Subnet::new("sdn", subnet)));
    scene.create(pod("shop/theirs", Some("sdn"), None)).create(pod("shop/ours", None, None));
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(10));
    assert!(scene.cluster.port("shop", "theirs.eth0").is_none());
    assert_eq!(
        scene.said_of(&key(Kind::Pod, "shop/theirs")),
        ["network acme.sdn is of type sdn: its provider gives its addresses, and Atoll none"]
    );
    assert!(scene.cluster.port("shop", "ours.eth0").is_some());
    let told = scene.cluster.subnet("sdn").status.clone().unwrap();
    assert_eq!((told.used, told.free), (0, 0));
    assert!(told.conditions[0].message.contains("its provider gives its addresses"));
    let isolation = scene.cluster.tenant("acme").status.clone().unwrap().isolation.unwrap();
    assert!(isolation.reason.contains("acme.sdn is of type sdn"), "{}", isolation.reason);
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    Register,
    GiveUp,
    Make(u8),
    Delete(u8),
    Serve(u8),
    Release(u8),
    Read(u8, usize),
    Work(u8, usize),
    Kill(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..2_u8;
    prop_oneof![
        2 => Just(Step::Register),
        1 => Just(Step::GiveUp),
        3 => (0..3_u8).prop_map(Step::Make),
        2 => (0..3_u8).prop_map(Step::Delete),
        3 => (0..3_u8).prop_map(Step::Serve),
        3 => (0..3_u8).prop_map(Step::Release),
        12 => (who.clone(), 0..KINDS.len()).prop_map(|(who, kind)| Step::Read(who, kind)),
        18 => (who.clone(), any::<usize>()).prop_map(|(who, nth)| Step::Work(who, nth)),
        1 => who.prop_map(Step::Kill),
    ]
}

fn start(cluster: &Cluster) -> Controller {
    Controller::start(cluster, &Template::None, Duration::ZERO)
}

fn name(number: u8) -> String {
    format!("acme.sdn-{number}")
}

/// A provider that keeps to the rules acts on what was given to it alone.
fn take(step: &Step, cluster: &mut Cluster, controllers: &mut [Controller; 2]) {
    let deletes = |cluster: &Cluster, number| {
        let found = cluster.objects.get(&key(Kind::Network, &name(number)));
        found.map(|object| object.meta().deletion_timestamp.is_some())
    };
    match step {
        Step::Register => drop(cluster.create(registration("sdn"))),
        Step::GiveUp => cluster.delete(&key(Kind::NetworkType, "sdn")),
        Step::Make(number) => drop(cluster.create(foreign(&name(*number)))),
        Step::Delete(number) => cluster.delete(&key(Kind::Network, &name(*number))),
        Step::Serve(number) => {
            if deletes(cluster, *number) == Some(false) && is_provided(cluster, &name(*number)) {
                serve(cluster, &name(*number));
            }
        }
        Step::Release(number) => {
            if deletes(cluster, *number) == Some(true) && is_provided(cluster, &name(*number)) {
                release(cluster, &name(*number));
            }
        }
        Step::Read(who, kind) => {
            controllers[usize::from(*who)].read_next(cluster, KINDS[*kind]);
        }
        Step::Work(who, nth) => controllers[usize::from(*who)].work_on_nth(cluster, *nth),
        Step::Kill(who) => controllers[usize::from(*who)] = start(cluster),
    }
}

/// While there is a provider, a network that it was given goes only after it said so.
fn check(log: &[Message]) {
    let mut last: BTreeMap<Key, Object> = BTreeMap::new();
    for message in log {
        match message {
            Message::There(object) => drop(last.insert(object.key(), (**object).clone())),
            Message::Gone(gone, _) => {
                let Some(Object::Network(network)) = last.remove(gone) else { continue };
                let conditions = network.status.unwrap_or_default().conditions;
                let holds = |type_: &str| {
                    conditions.iter().any(|it| it.type_ == type_ && it.status == "True")
                };
                let is_waited_for = last.contains_key(&key(Kind::NetworkType, "sdn"))
                    && holds("Provided")
                    && !holds("Released");
                assert!(!is_waited_for, "{gone} went too early");
            }
        }
    }
}

fn come_to_rest(cluster: &mut Cluster, controllers: &mut [Controller; 2]) {
    for _ in 0..4 {
        for controller in controllers.iter_mut() {
            controller.wait(cluster, Duration::from_secs(10));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_network_is_lost_by_its_provider_and_none_is_left(
        steps in prop::collection::vec(step(), 0..150)
    ) {
        let mut cluster = acme().cluster;
        let mut controllers = [start(&cluster), start(&cluster)];
        for step in &steps {
            take(step, &mut cluster, &mut controllers);
        }
        come_to_rest(&mut cluster, &mut controllers);
        let registered = cluster.objects.get(&key(Kind::NetworkType, "sdn"));
        let serves = registered.is_some_and(|it| it.meta().deletion_timestamp.is_none());
        for number in 0..3 {
            if cluster.objects.contains_key(&key(Kind::Network, &name(number))) {
                prop_assert!(is_provided(&cluster, &name(number)) || !serves);
            }
        }
        for number in 0..3 {
            cluster.delete(&key(Kind::Network, &name(number)));
            take(&Step::Release(number), &mut cluster, &mut controllers);
        }
        let others = [(Kind::Tenant, "acme"), (Kind::Namespace, "shop"), (Kind::NetworkType, "sdn")];
        others.iter().for_each(|(kind, name)| cluster.delete(&key(*kind, name)));
        come_to_rest(&mut cluster, &mut controllers);
        check(&cluster.log);
        let left: Vec<_> = cluster.objects.keys().collect();
        prop_assert!(left.is_empty(), "{:?} is left", left);
    }
}
