//! A controller is killed after each single step; the next one goes on, and the end is the same.

use std::collections::BTreeSet;
use std::time::Duration;

use atoll_api::PortSpec;
use atoll_model::intent::{Kind, Template};
use serde_json::json;

use crate::cluster::{Cluster, Object};
use crate::controller::{Controller, KINDS};
use crate::interfaces::asking;
use crate::kept::{made_beforehand, stateful};
use crate::networks::{network, typed_network};
use crate::pods::pod;
use crate::services::service;
use crate::tenants::{key, namespace, tenant};

/// Something of everything that people make.
fn wishes() -> Vec<Object> {
    let door = PortSpec { network: "acme.default".into(), ..PortSpec::default() };
    let wide = json!({"atoll.dev/nics": "[{}, {}]", "atoll.dev/extra-networks": "b"});
    vec![
        tenant("acme", &["10.0.0.0/29", "fd00::/124"]),
        namespace("shop", "acme"),
        network("acme.b", None, &["10.0.0.0/24"]),
        network("acme.joined", Some("b"), &["10.0.1.0/24"]),
        typed_network("acme.flat", "flat", None, &[]),
        made_beforehand("shop/door", door),
        pod("shop/plain", None, None),
        pod("shop/fixed", Some("b"), Some(r#"[{"ip": "10.0.0.9"}]"#)),
        pod("shop/takes", None, Some(r#"[{"port": "door"}]"#)),
        asking("shop/wide", &wide),
        stateful("shop/db-0"),
        service("shop/web", ""),
    ]
}

fn start(cluster: &Cluster) -> Controller {
    Controller::start(cluster, &Template::None, Duration::ZERO)
}

/// Does so many steps, reading everything before each; says whether there were fewer to do.
fn work(cluster: &mut Cluster, steps: usize) -> bool {
    let mut controller = start(cluster);
    for _ in 0..steps {
        for kind in KINDS {
            while controller.read_next(cluster, kind) {}
        }
        if controller.is_idle() {
            return true;
        }
        controller.work_on_nth(cluster, 0);
    }
    false
}

/// Lets another controller finish, and time pass for what waits; gives all that is there.
fn finish(cluster: &mut Cluster) -> BTreeSet<String> {
    let mut next = start(cluster);
    next.settle(cluster);
    next.wait(cluster, Duration::from_secs(60));
    next.wait(cluster, Duration::from_secs(60));
    cluster.objects.values().map(|object| named(cluster, object)).collect()
}

/// An object by its name, and what is claimed of a number by the VPC that has the number: which one
/// that is, is a matter of who asked first.
fn named(cluster: &Cluster, object: &Object) -> String {
    let name = &object.key().name.name;
    let vpc_of = |id: &str| {
        let claim = key(Kind::Claim, &format!("network-id.{id}"));
        let Object::Claim(claim) = &cluster.objects[&claim] else { unreachable!() };
        claim.spec.holder.name.clone()
    };
    if let Some(id) = name.strip_prefix("network-id.") {
        return format!("number of {}", vpc_of(id));
    }
    match name.strip_prefix("address.").and_then(|address| address.split_once('.')) {
        Some((id, ip)) => format!("{ip} of {}", vpc_of(id)),
        None => object.key().to_string(),
    }
}

/// Kills a controller after each number of steps, until it has nothing left to do.
fn after_each_step(begin: impl Fn() -> Cluster, check: impl Fn(usize, BTreeSet<String>)) -> usize {
    for steps in 0.. {
        let mut cluster = begin();
        let done = work(&mut cluster, steps);
        check(steps, finish(&mut cluster));
        if done {
            return steps;
        }
    }
    unreachable!()
}

fn wished() -> Cluster {
    let mut cluster = Cluster::default();
    wishes().into_iter().for_each(|object| drop(cluster.create(object).unwrap()));
    cluster
}

#[test]
fn whenever_a_controller_is_killed_the_next_one_makes_what_it_would_have_made() {
    let whole = finish(&mut wished());
    let ports = whole.iter().filter(|name| name.starts_with("Port ")).count();
    assert_eq!(ports, 7, "each interface has its port: {whole:?}");
    let steps = after_each_step(wished, |steps, end| assert_eq!(end, whole, "after {steps} steps"));
    assert!(steps > 60, "it had something to do: {steps} steps");
}

#[test]
fn whenever_a_controller_is_killed_the_next_one_leaves_nothing_of_what_was_deleted() {
    let standing = || {
        let mut cluster = wished();
        finish(&mut cluster);
        let made = wishes().into_iter().map(|object| object.key());
        made.chain([key(Kind::Port, "shop/db-0.eth0")]).for_each(|it| cluster.delete(&it));
        cluster
    };
    let steps = after_each_step(standing, |steps, end| {
        assert!(end.is_empty(), "after {steps} steps {end:?} is left");
    });
    assert!(steps > 30, "it had something to do: {steps} steps");
}
