//! Random histories of addresses of the outside: load balancers and networks of two tenants, one of
//! them with a quota, pods that come and go on nodes that fail, and two controllers that are killed.

use std::collections::BTreeSet;
use std::time::Duration;

use atoll_api as api;
use atoll_model::intent::{Kind, Template};
use atoll_model::outside::Purpose;
use proptest::prelude::*;
use serde_json::json;

use crate::balancers::{balancer, held, ingress, node, outside_claims, pool};
use crate::cluster::{Cluster, Object};
use crate::controller::{Controller, KINDS};
use crate::local_balancers::{put_slice, slice};
use crate::networks::network;
use crate::tenants::{key, namespace, tenant};

const TENANTS: [&str; 2] = ["acme", "globex"];
const NODES: [&str; 2] = ["node0", "node1"];
/// How many addresses acme may have.
const QUOTA: usize = 2;
/// The pool has eight.
const POOL: &str = "192.0.2.0/29";

#[derive(Clone, Debug)]
enum Step {
    Make(usize, u8),
    MakeAsking(usize, u8, u8),
    Delete(usize, u8),
    Leave(usize, u8),
    Stay(usize),
    Fail(u8, bool),
    Behind(usize, u8, [bool; 2]),
    Read(usize, usize),
    Work(usize, usize),
    Kill(usize),
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (who, number) = (0..2_usize, 0..4_u8);
    prop_oneof![
        4 => (who.clone(), number.clone()).prop_map(|(who, it)| Step::Make(who, it)),
        2 => (who.clone(), number.clone(), 0..10_u8)
            .prop_map(|(who, it, ip)| Step::MakeAsking(who, it, ip)),
        3 => (who.clone(), number.clone()).prop_map(|(who, it)| Step::Delete(who, it)),
        3 => (who.clone(), number, any::<[bool; 2]>())
            .prop_map(|(who, it, on)| Step::Behind(who, it, on)),
        2 => (who.clone(), 0..8_u8).prop_map(|(who, ip)| Step::Leave(who, ip)),
        1 => who.clone().prop_map(Step::Stay),
        1 => (0..2_u8, any::<bool>()).prop_map(|(node, ready)| Step::Fail(node, ready)),
        12 => (who.clone(), 0..KINDS.len()).prop_map(|(who, kind)| Step::Read(who, kind)),
        24 => (who.clone(), any::<usize>()).prop_map(|(who, nth)| Step::Work(who, nth)),
        1 => who.prop_map(Step::Kill),
        1 => (1..40_u8).prop_map(Step::Wait),
    ]
}

/// Every other service wants its connections to stay on their node.
fn is_local(number: u8) -> bool {
    number.is_multiple_of(2)
}

fn start(cluster: &Cluster, now: Duration) -> Controller {
    Controller::start(cluster, &Template::None, now)
}

fn world() -> Cluster {
    let mut cluster = Cluster::default();
    let mut make = |object: Object| drop(cluster.create(object).unwrap());
    for name in TENANTS {
        let mut object = tenant(name, &[]);
        if let (Object::Tenant(tenant), "acme") = (&mut object, name) {
            let limit = u32::try_from(QUOTA).ok();
            tenant.spec.quota =
                Some(api::TenantQuota { outside_addresses: limit, ..Default::default() });
        }
        make(object);
        make(namespace(name, name));
        make(network(&format!("{name}.out"), None, &["10.0.0.0/16"]));
    }
    make(pool("edge", &[POOL], None));
    NODES.into_iter().for_each(|name| make(node(name, "True")));
    cluster
}

fn set_egress(cluster: &mut Cluster, tenant: &str, addresses: &[String]) {
    let name = key(Kind::Network, &format!("{tenant}.out"));
    cluster.change(&name, |object| {
        let Object::Network(network) = object else { unreachable!() };
        let mode = match addresses {
            [] => api::EgressMode::None,
            _ => api::EgressMode::Address,
        };
        network.spec.egress = Some(api::NetworkEgress { mode, addresses: addresses.to_vec() });
    });
}

fn take(step: &Step, cluster: &mut Cluster, controllers: &mut [Controller; 2]) {
    let name = |who: usize, number: u8| format!("{}/lb-{number}", TENANTS[who]);
    match step {
        Step::Make(who, number) => {
            let policy = if is_local(*number) { "Local" } else { "Cluster" };
            let policy = json!({"externalTrafficPolicy": policy});
            cluster.create(balancer(&name(*who, *number), &policy)).ok();
        }
        Step::MakeAsking(who, number, ip) => {
            let asks = json!({"loadBalancerIP": format!("192.0.2.{ip}")});
            cluster.create(balancer(&name(*who, *number), &asks)).ok();
        }
        Step::Delete(who, number) => cluster.delete(&key(Kind::Service, &name(*who, *number))),
        Step::Leave(who, ip) => set_egress(cluster, TENANTS[*who], &[format!("192.0.2.{ip}")]),
        Step::Stay(who) => set_egress(cluster, TENANTS[*who], &[]),
        Step::Fail(number, ready) => {
            let changed = node(&format!("node{number}"), if *ready { "True" } else { "False" });
            cluster.change(&changed.key(), |object| {
                let (Object::Node(standing), Object::Node(changed)) = (object, &changed) else {
                    unreachable!()
                };
                standing.status = changed.status.clone();
            });
        }
        Step::Behind(who, number, on) => {
            let there = NODES.into_iter().zip(on).filter(|(_, has)| **has);
            let there: Vec<_> = there.map(|(node, _)| (node, "ready")).collect();
            put_slice(cluster, slice(&name(*who, *number), "IPv4", &there));
        }
        Step::Read(who, kind) => {
            controllers[*who].read_next(cluster, KINDS[*kind]);
        }
        Step::Work(who, nth) => controllers[*who].work_on_nth(cluster, *nth),
        Step::Kill(who) => controllers[*who] = start(cluster, controllers[*who].now),
        Step::Wait(seconds) => {
            let time = Duration::from_secs((*seconds).into());
            controllers.iter_mut().for_each(|it| it.now += time);
        }
    }
}

/// What services say that they have, with their names.
fn told(cluster: &Cluster) -> Vec<(String, String)> {
    let services = cluster.of_kind(Kind::Service).into_iter().map(|it| it.key().name.to_string());
    services
        .flat_map(|name| ingress(cluster, &name).into_iter().map(move |ip| (name.clone(), ip)))
        .collect()
}

/// No two services are told one address.
fn check(cluster: &Cluster) {
    let all = told(cluster);
    let distinct: BTreeSet<&String> = all.iter().map(|(_, ip)| ip).collect();
    assert_eq!(distinct.len(), all.len(), "{all:?}");
}

fn come_to_rest(cluster: &mut Cluster, controllers: &mut [Controller; 2]) {
    for _ in 0..8 {
        for controller in controllers.iter_mut() {
            controller.wait(cluster, Duration::from_secs(10));
        }
    }
}

/// What is claimed is told, or spoken from by a network, and is counted.
fn check_at_rest(cluster: &Cluster) {
    let claimed: BTreeSet<String> = outside_claims(cluster)
        .iter()
        .map(|name| name.trim_start_matches("outside.").to_owned())
        .collect();
    let told = told(cluster);
    let mut wanted: BTreeSet<String> = told.iter().map(|(_, ip)| ip.clone()).collect();
    assert!(wanted.is_subset(&claimed), "{wanted:?} of {claimed:?}");
    for name in TENANTS {
        let egress = cluster.network(&format!("{name}.out")).spec.egress.clone();
        wanted.extend(egress.into_iter().flat_map(|egress| egress.addresses));
    }
    assert!(claimed.is_subset(&wanted), "{claimed:?} of {wanted:?}");
    let of_acme = cluster.of_kind(Kind::Claim).into_iter().filter(|object| {
        let Object::Claim(claim) = object else { unreachable!() };
        let holder = &claim.spec.holder;
        let name = claim.metadata.name.as_deref().unwrap();
        let is_acmes = holder.namespace.as_deref() == Some("acme") || holder.name == "acme.out";
        name.starts_with("outside.") && is_acmes
    });
    let has = of_acme.count();
    let conditions = cluster.tenant("acme").status.clone().unwrap().conditions;
    let room = conditions.iter().find(|it| it.type_ == "HasRoom").unwrap();
    let full = format!("has {has} of {QUOTA} addresses of the outside");
    let told = if has < QUOTA { "the quota leaves room for more" } else { &full };
    assert_eq!(room.message, told);
}

/// Whether a node is ready.
fn is_able(cluster: &Cluster, name: &str) -> bool {
    let Object::Node(node) = &cluster.objects[&key(Kind::Node, name)] else { unreachable!() };
    let conditions = node.status.clone().and_then(|status| status.conditions);
    conditions.into_iter().flatten().all(|it| it.status == "True")
}

/// A ready node answers for each address while there is one; where connections stay on their node,
/// one that has a pod, while there is one.
fn check_holders(cluster: &Cluster) {
    let able: BTreeSet<&str> = NODES.into_iter().filter(|node| is_able(cluster, node)).collect();
    let held = held(cluster);
    assert_eq!(held.len(), if able.is_empty() { 0 } else { outside_claims(cluster).len() });
    for held in held {
        assert!(able.contains(held.node.as_str()), "{held:?} of {able:?}");
        let Purpose::LoadBalancer { service } = &held.purpose else { continue };
        let name = format!("{}/{}", service.namespace, service.name);
        let Object::Service(found) = &cluster.objects[&key(Kind::Service, &name)] else {
            unreachable!()
        };
        let policy = found.spec.as_ref().and_then(|spec| spec.external_traffic_policy.as_deref());
        let slice = cluster.objects.get(&key(Kind::EndpointSlice, &format!("{name}-ipv4")));
        let Some(Object::Slice(slice)) = slice.filter(|_| policy == Some("Local")) else {
            continue;
        };
        let nodes = slice.endpoints.iter().filter_map(|it| it.node_name.as_deref());
        let near: BTreeSet<&str> = nodes.filter(|node| able.contains(node)).collect();
        assert!(near.is_empty() || near.contains(held.node.as_str()), "{held:?} of {near:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn no_address_of_the_outside_is_given_twice_or_forgotten_and_counts_are_true(
        steps in prop::collection::vec(step(), 0..250)
    ) {
        let mut cluster = world();
        let mut controllers = [0, 1].map(|_| start(&cluster, Duration::ZERO));
        for step in &steps {
            take(step, &mut cluster, &mut controllers);
            check(&cluster);
        }
        come_to_rest(&mut cluster, &mut controllers);
        check(&cluster);
        check_at_rest(&cluster);
        check_holders(&cluster);
        let services = cluster.of_kind(Kind::Service).into_iter().map(Object::key);
        let services: Vec<_> = services.collect();
        services.iter().for_each(|service| cluster.delete(service));
        TENANTS.iter().for_each(|name| set_egress(&mut cluster, name, &[]));
        come_to_rest(&mut cluster, &mut controllers);
        prop_assert_eq!(outside_claims(&cluster), Vec::<String>::new());
    }
}
