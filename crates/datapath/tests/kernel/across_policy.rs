//! Policy between two networks of one tenant: each end is who it is in its own network, by the port that
//! the backend listens on, wherever both are.

use std::io::{Read, Write};
use std::sync::Mutex;

use atoll_datapath::DropReason;
use atoll_policy::{Compiler, Event, Labels};
use atoll_testkit::eventually;
use atoll_types::PodRef;
use serde_json::{Value, json};

use crate::across::Kin;
use crate::fabric::Fabric;
use crate::policy_threats::{facts, policy, tenant, without_policy};
use crate::services::{TARGET, converse, front, voice, voices};
use crate::talk::{BRIEF, LIMIT, connect, listen};

/// From the client, or to it, at the port that the backend listens on.
fn open(direction: &str, peer: &str, port: u16) -> Value {
    let peers = json!([{ "podSelector": { "matchLabels": { "app": peer } } }]);
    let ports = json!([{ "port": port }]);
    match direction {
        "Ingress" => {
            json!({ "policyTypes": ["Ingress"], "ingress": [{ "from": peers, "ports": ports }] })
        }
        _ => json!({ "policyTypes": ["Egress"], "egress": [{ "to": peers, "ports": ports }] }),
    }
}

struct Scene {
    fabric: Fabric,
    kin: Kin,
    compiler: Mutex<Compiler>,
}

impl Scene {
    fn new() -> Scene {
        let fabric = Fabric::of(2);
        let kin = Kin::new(&fabric, 100);
        fabric.converge();
        let scene = Scene { fabric, kin, compiler: Mutex::default() };
        let mut compiler = scene.compiler.lock().unwrap();
        compiler.apply(Event::Namespace(tenant(), "shop".into(), Some(Labels::new())));
        let Kin { client, near, far, .. } = &scene.kin;
        for (pod, name, app, network) in [
            (client, "client", "client", "front"),
            (near, "near", "server", "back"),
            (far, "far", "server", "back"),
        ] {
            let facts = facts(pod, app, network);
            compiler.apply(Event::Pod(tenant(), PodRef::new("shop", name), Some(facts)));
        }
        let tables = compiler.tables().clone();
        drop(compiler);
        for node in &scene.fabric.nodes {
            let tables = tables.clone();
            node.run(move |state| {
                state.datapath.as_mut().unwrap().replace_policy(&tables).unwrap();
            });
        }
        scene
    }

    /// Something happens, and both nodes get to know it. Only the client's network is said to have
    /// changed: what hangs on it follows.
    fn happens(&self, event: Event) {
        let changes = self.compiler.lock().unwrap().apply(event);
        let network = self.kin.client.network;
        for node in &self.fabric.nodes {
            let changes = changes.clone();
            node.run(move |state| {
                let datapath = state.datapath.as_mut().unwrap();
                datapath.change_policy(&changes).unwrap();
                datapath.decide_anew(&[network].into()).unwrap();
            });
        }
    }

    fn refused(&self, reason: DropReason) -> u64 {
        let networks = [self.kin.client.network, self.kin.near.network];
        let nodes = self.fabric.nodes.iter();
        nodes.flat_map(|node| networks.map(|it| node.dropped(Some(it), reason))).sum()
    }
}

#[test]
fn policy_sees_both_ends_across_networks_as_they_are() {
    let scene = Scene::new();
    for server in [&scene.kin.near, &scene.kin.far] {
        scene.fabric.lead_across(scene.kin.client.network, &[server]);
        for client in voices(&scene.kin.client) {
            let listener = listen(voice(client, server), TARGET);
            let passes = || converse(client, &listener, 1000);
            let is_refused = |reason| {
                let before = scene.refused(reason);
                connect(client, 0, front(client.ip), BRIEF).unwrap_err();
                eventually(&format!("it was {reason}"), || {
                    (scene.refused(reason) > before).then_some(())
                });
            };
            for (about, peer, direction, reason) in [
                ("server", "client", "Ingress", DropReason::PolicyDeniedIngress),
                ("client", "server", "Egress", DropReason::PolicyDeniedEgress),
            ] {
                scene.happens(policy(about, open(direction, peer, TARGET)));
                passes();
                scene.happens(policy(about, open(direction, "nobody", TARGET)));
                is_refused(reason);
                scene.happens(policy(about, open(direction, peer, TARGET + 1)));
                is_refused(reason);
                scene.happens(without_policy());
                passes();
            }
        }
    }
}

#[test]
fn a_connection_across_networks_ends_with_the_policy_that_allowed_it() {
    let scene = Scene::new();
    for server in [&scene.kin.near, &scene.kin.far] {
        scene.fabric.lead_across(scene.kin.client.network, &[server]);
        let client = scene.kin.client.v4();
        let listener = listen(server.v4(), TARGET);
        let mut ours = connect(client, 0, front(client.ip), LIMIT).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        theirs.set_read_timeout(Some(LIMIT)).unwrap();
        ours.write_all(b"word").unwrap();
        theirs.read_exact(&mut [0; 4]).unwrap();
        theirs.set_read_timeout(Some(BRIEF)).unwrap();
        scene.happens(policy("server", json!({ "policyTypes": ["Ingress"] })));
        ours.write_all(b"word").unwrap();
        theirs.read_exact(&mut [0; 4]).unwrap_err();
        ours.set_read_timeout(Some(BRIEF)).unwrap();
        theirs.write_all(b"word").unwrap();
        ours.read_exact(&mut [0; 4]).unwrap_err();
        scene.happens(without_policy());
        theirs.set_read_timeout(Some(LIMIT)).unwrap();
        theirs.read_exact(&mut [0; 4]).unwrap();
    }
}

/// Nothing that stands in a policy keeps a pod from itself, and one with the same address in another
/// network is not itself.
#[test]
fn a_pod_of_another_network_with_the_same_address_is_not_the_pod_itself() {
    let scene = Scene::new();
    let double = scene.kin.double();
    let facts = facts(double, "server", "back");
    scene.happens(Event::Pod(tenant(), PodRef::new("shop", "double"), Some(facts)));
    scene.fabric.lead_across(scene.kin.client.network, &[double]);
    for client in voices(&scene.kin.client) {
        let listener = listen(voice(client, double), TARGET);
        converse(client, &listener, 1000);
        scene.happens(policy("server", json!({ "policyTypes": ["Ingress"] })));
        let before = scene.refused(DropReason::PolicyDeniedIngress);
        connect(client, 0, front(client.ip), BRIEF).unwrap_err();
        eventually("it was refused", || {
            (scene.refused(DropReason::PolicyDeniedIngress) > before).then_some(())
        });
        scene.happens(without_policy());
    }
}
