//! Flat networks: ready with no other field, one shared range, isolated unless they are open.

use std::collections::BTreeSet;
use std::time::Duration;

use atoll_api::{self as api, NetworkIsolation, NetworkPhase};
use atoll_model::Settings;
use atoll_model::intent::{Kind, Template};
use atoll_types::Cidr;
use proptest::prelude::*;

use crate::cluster::{Cluster, Object};
use crate::controller::{Controller, Scene};
use crate::pods::pod;
use crate::tenants::{key, namespace, tenant};

pub(crate) fn flat(name: &str, isolation: Option<NetworkIsolation>) -> Object {
    let spec = api::NetworkSpec {
        tenant: name.split('.').next().unwrap().into(),
        type_: "flat".into(),
        isolation,
        ..api::NetworkSpec::default()
    };
    Object::Network(api::Network::new(name, spec))
}

fn scene(ranges: &[&str]) -> Scene {
    let flat = ranges.iter().map(|range| range.parse().unwrap()).collect();
    let settings = Settings { flat, ..Settings::default() };
    let mut cluster = Cluster::default();
    for name in ["acme", "globex"] {
        cluster.create(tenant(name, &[])).unwrap();
        cluster.create(namespace(name, name)).unwrap();
    }
    let mut controller =
        Controller::start_with(&cluster, &Template::None, settings, Duration::ZERO);
    controller.settle(&mut cluster);
    Scene { cluster, controller }
}

fn status(scene: &Scene, name: &str) -> api::NetworkStatus {
    scene.cluster.network(name).status.clone().unwrap()
}

fn reason(status: &api::NetworkStatus) -> (NetworkPhase, &str) {
    (status.phase, status.conditions[0].reason.as_str())
}

#[test]
fn a_flat_network_is_ready_with_no_other_field_and_no_two_have_the_same_addresses() {
    let mut scene = scene(&["100.64.0.0/10"]);
    scene
        .create(flat("acme.default", None))
        .create(flat("globex.default", None))
        .create(pod("acme/web", None, None))
        .create(pod("globex/web", None, None));
    let (ours, theirs) = (status(&scene, "acme.default"), status(&scene, "globex.default"));
    assert_eq!(
        (ours.phase, &ours.cidrs[..]),
        (NetworkPhase::Active, &["100.64.0.0/24".into()][..])
    );
    assert_eq!(theirs.cidrs, ["100.64.1.0/24"]);
    assert_ne!(ours.id, theirs.id, "isolated by number");
    assert_eq!(ours.isolation, Some(NetworkIsolation::Isolated));
    let ip = |namespace: &str| scene.cluster.port(namespace, "web.eth0").unwrap().spec.ips.clone();
    assert_eq!((ip("acme"), ip("globex")), (vec!["100.64.0.2".into()], vec!["100.64.1.2".into()]));
}

#[test]
fn open_flat_networks_share_one_number_and_isolated_ones_stay_apart() {
    let mut scene = scene(&["100.64.0.0/10"]);
    scene
        .create(flat("acme.open", Some(NetworkIsolation::Open)))
        .create(flat("globex.open", Some(NetworkIsolation::Open)))
        .create(flat("globex.closed", Some(NetworkIsolation::Isolated)));
    let of = |name| status(&scene, name);
    assert_eq!(of("acme.open").id, of("globex.open").id);
    assert_ne!(of("acme.open").id, of("globex.closed").id);
    assert_ne!(of("acme.open").cidrs, of("globex.open").cidrs);
    assert_eq!(of("acme.open").isolation, Some(NetworkIsolation::Open));
    scene.delete(Kind::Network, "acme.open").delete(Kind::Network, "globex.open");
    assert!(!scene.exists(Kind::Claim, "vpc.flat"), "the last one gives the number back");
}

#[test]
fn a_range_of_both_families_gives_a_block_of_each() {
    let mut scene = scene(&["100.64.0.0/10", "fd64::/48"]);
    scene.create(flat("acme.default", None));
    let status = status(&scene, "acme.default");
    assert_eq!(status.cidrs, ["100.64.0.0/24", "fd64::/64"]);
    assert!(scene.exists(Kind::Subnet, "acme.default.fd64-0-0-0-0-0-0-0-64"));
}

#[test]
fn a_full_flat_network_grows_by_another_block_and_nobody_waits_for_long() {
    let mut scene = scene(&["100.64.0.0/22"]);
    scene.create(flat("acme.default", None));
    for number in 0..300 {
        scene.cluster.create(pod(&format!("acme/web-{number}"), None, None)).unwrap();
    }
    scene.settle();
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(6));
    assert_eq!(scene.cluster.of_kind(Kind::Port).len(), 300);
    assert_eq!(status(&scene, "acme.default").cidrs, ["100.64.0.0/24", "100.64.1.0/24"]);
}

#[test]
fn without_a_free_block_a_flat_network_waits_and_says_what_to_do() {
    let mut scene = scene(&["100.64.0.0/24"]);
    scene.create(flat("acme.default", None)).create(flat("globex.default", None));
    assert_eq!(reason(&status(&scene, "acme.default")), (NetworkPhase::Active, "AsDeclared"));
    let waits = status(&scene, "globex.default");
    assert_eq!(reason(&waits), (NetworkPhase::Pending, "NoFreeBlock"));
    assert!(waits.conditions[0].message.contains("--flat-cidrs"));
    scene.delete(Kind::Network, "acme.default");
    scene.controller.wait(&mut scene.cluster, Duration::from_secs(31));
    assert_eq!(status(&scene, "globex.default").phase, NetworkPhase::Active);
}

#[test]
fn a_flat_network_with_ranges_of_its_own_fails() {
    let mut scene = scene(&["100.64.0.0/10"]);
    let Object::Network(mut network) = flat("acme.default", None) else { unreachable!() };
    network.spec.cidrs = vec!["10.0.0.0/16".into()];
    scene.create(Object::Network(network));
    let status = status(&scene, "acme.default");
    assert_eq!(reason(&status), (NetworkPhase::Failed, "CidrMalformed"));
    assert!(status.conditions[0].message.starts_with("spec.cidrs: "));
}

#[test]
fn a_deleted_flat_network_leaves_nothing() {
    let mut scene = scene(&["100.64.0.0/10"]);
    scene.create(flat("acme.default", None)).create(pod("acme/web", None, None));
    scene.delete(Kind::Network, "acme.default");
    assert!(scene.exists(Kind::Claim, "block.100-64-0-0-24"), "a pod is inside");
    scene.delete(Kind::Pod, "acme/web");
    for kind in [Kind::Network, Kind::Subnet, Kind::Port, Kind::Claim] {
        assert_eq!(scene.cluster.of_kind(kind).len(), 0, "{kind:?}");
    }
}

/// One step of a history of two controllers at work.
#[derive(Clone, Debug)]
enum Step {
    Make(u8, bool),
    Delete(u8),
    Read(u8, usize),
    Work(u8, usize),
    Kill(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..2_u8;
    prop_oneof![
        3 => (0..5_u8, any::<bool>()).prop_map(|(number, open)| Step::Make(number, open)),
        2 => (0..5_u8).prop_map(Step::Delete),
        12 => (who.clone(), 0..7_usize).prop_map(|(who, kind)| Step::Read(who, kind)),
        24 => (who.clone(), any::<usize>()).prop_map(|(who, nth)| Step::Work(who, nth)),
        1 => who.prop_map(Step::Kill),
    ]
}

fn controller(cluster: &Cluster, now: Duration) -> Controller {
    let flat = vec!["100.64.0.0/21".parse().unwrap()];
    let settings = Settings { rest: Duration::ZERO, flat, ..Settings::default() };
    Controller::start_with(cluster, &Template::None, settings, now)
}

fn take(step: &Step, cluster: &mut Cluster, controllers: &mut [Controller]) {
    match step {
        Step::Make(number, open) => {
            let isolation = open.then_some(NetworkIsolation::Open);
            cluster.create(flat(&format!("acme.flat-{number}"), isolation)).ok();
        }
        Step::Delete(number) => {
            cluster.delete(&key(Kind::Network, &format!("acme.flat-{number}")));
        }
        Step::Read(who, kind) => {
            let kind = crate::controller::KINDS[*kind];
            controllers[usize::from(*who)].read_next(cluster, kind);
        }
        Step::Work(who, nth) => controllers[usize::from(*who)].work_on_nth(cluster, *nth),
        Step::Kill(who) => {
            let now = controllers[usize::from(*who)].now;
            controllers[usize::from(*who)] = controller(cluster, now);
        }
    }
}

/// Ranges of the subnets that living flat networks have: no two may meet. A subnet that a slow
/// controller made for a network that is gone gives no address, and goes.
fn check_ranges(cluster: &Cluster) {
    let mut seen = BTreeSet::<Cidr>::new();
    for object in cluster.of_kind(Kind::Subnet) {
        let Object::Subnet(subnet) = object else { unreachable!() };
        let owner = &subnet.metadata.owner_references.as_ref().unwrap()[0];
        let network = cluster.objects.get(&key(Kind::Network, &owner.name)).map(Object::meta);
        let lives = network.is_some_and(|network| {
            network.uid.as_deref() == Some(&owner.uid) && network.deletion_timestamp.is_none()
        });
        if !lives {
            continue;
        }
        let range = subnet.spec.cidr.parse().unwrap();
        assert!(seen.iter().all(|other| !other.overlaps(&range)), "{range} is there twice");
        seen.insert(range);
    }
}

fn come_to_rest(cluster: &mut Cluster, controllers: &mut [Controller]) {
    for _ in 0..8 {
        for controller in &mut *controllers {
            controller.wait(cluster, Duration::from_secs(10));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn no_block_is_given_twice_and_none_is_forgotten(
        steps in prop::collection::vec(step(), 0..300)
    ) {
        let mut cluster = Cluster::default();
        cluster.create(tenant("acme", &[])).unwrap();
        let mut controllers = [0, 1].map(|_| controller(&cluster, Duration::ZERO));
        for step in &steps {
            take(step, &mut cluster, &mut controllers);
            check_ranges(&cluster);
        }
        come_to_rest(&mut cluster, &mut controllers);
        check_ranges(&cluster);
        for object in cluster.of_kind(Kind::Network) {
            let Object::Network(network) = object else { unreachable!() };
            let status = network.status.as_ref().unwrap();
            prop_assert_eq!(status.phase, NetworkPhase::Active);
            prop_assert!(!status.cidrs.is_empty());
        }
        let networks: Vec<_> = cluster.of_kind(Kind::Network).iter().map(|it| it.key()).collect();
        networks.iter().for_each(|network| cluster.delete(network));
        come_to_rest(&mut cluster, &mut controllers);
        let left: Vec<Kind> = cluster.objects.keys().map(|key| key.kind).collect();
        prop_assert_eq!(left, [Kind::Tenant, Kind::ClusterRole]);
    }
}
