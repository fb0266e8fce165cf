//! Maps of another layout on the nodes of a lab: those of the version before are taken over while pods talk, any
//! others are refused by a sentence, and pods go on by what is there until the right program is back.

use std::fs;
use std::path::Path;

use atoll_abi::LAYOUT_VERSION;
use atoll_testkit::pinned::{self, FORMER_LAYOUT, layout};
use serde_json::json;

use crate::documents::{nics, pod, yaml};
use crate::exchanged::{Shelf, nothing_is_lost_or_leaks_while};
use crate::fixture::{Lab, await_condition, state_dir};
use crate::threats::{NODES, Stage};

/// Of the condition that says whether a node is ready.
const READY: &str = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
/// How the refusal begins and how it ends.
const REFUSAL: [&str; 2] = ["holds maps of another version of Atoll", "drain the node"];

struct Scene {
    shelf: Shelf,
    stage: Stage,
}

impl Scene {
    fn set() -> Scene {
        let shelf = Shelf::new();
        let stage = Stage::set_in(Lab::up_from(&shelf.program(), 3));
        Scene { shelf, stage }
    }

    /// Ends a node's agent, does this to the node's pins, and has the next agent start on them.
    fn changed_meanwhile(&self, node: &str, change: impl FnOnce(&Path)) {
        let lab = &self.stage.lab;
        self.shelf.clear();
        lab.signal_agent(node, "-TERM");
        await_condition(|| lab.agent(node).is_none()).expect("the agent ends");
        change(&lab.pins(node));
        self.shelf.put_the_first();
    }

    fn await_ready(&self, node: &str, ready: &str) {
        self.stage.lab.eventually(&["get", "node", node, "-o", READY], |said| said == ready);
    }

    /// What a node's agents have said.
    fn log(&self, node: &str) -> String {
        let log = state_dir(&self.stage.lab.name).join(format!("logs/agent-{node}.log"));
        fs::read_to_string(log).unwrap()
    }

    /// A node's agent refuses the layout of this number, names it, and takes nothing away.
    fn is_refused(&self, node: &str, version: u32) {
        let root = self.stage.lab.pins(node);
        let [own, other] = [LAYOUT_VERSION, version].map(|version| layout(&root, version));
        self.changed_meanwhile(node, |_| fs::rename(&own, &other).unwrap());
        let sentence = format!("{} {}", other.display(), REFUSAL[0]);
        await_condition(|| {
            let said = self.log(node);
            said.lines().any(|line| line.contains(&sentence) && line.contains(REFUSAL[1]))
        })
        .unwrap_or_else(|()| panic!("it says no {sentence:?}: {}", self.log(node)));
        self.await_ready(node, "False");
        assert!(!own.exists() && other.join("maps/connections").exists(), "as it was left");
    }

    /// The program comes that knows what is there.
    fn is_read_again(&self, node: &str, version: u32) {
        let root = self.stage.lab.pins(node);
        fs::rename(layout(&root, version), layout(&root, LAYOUT_VERSION)).unwrap();
        self.await_ready(node, "True");
    }
}

#[test]
fn the_maps_of_the_version_before_are_taken_over_on_three_nodes_under_load_and_nothing_is_lost() {
    let scene = Scene::set();
    nothing_is_lost_or_leaks_while(&scene.stage, || {
        for node in NODES {
            scene.changed_meanwhile(node, pinned::turn_back);
            let root = scene.stage.lab.pins(node);
            let is_taken_over = || {
                layout(&root, LAYOUT_VERSION).join("maps/turns").exists()
                    && !layout(&root, FORMER_LAYOUT).exists()
            };
            await_condition(is_taken_over).expect("the older layout is taken over");
            scene.await_ready(node, "True");
        }
    });
    scene.stage.lab.reach("acme/near", "tcp", "10.0.0.7:8080").good();
}

#[test]
fn maps_of_an_unknown_layout_are_refused_under_load_and_the_node_serves_again_when_they_are_read() {
    let scene = Scene::set();
    let lab = &scene.stage.lab;
    let late = pod("acme/late", "node1", &json!({}), &nics("default", 9));
    nothing_is_lost_or_leaks_while(&scene.stage, || {
        for version in [LAYOUT_VERSION + 1, FORMER_LAYOUT - 1] {
            scene.is_refused("node1", version);
            lab.reach("acme/near", "tcp", "10.0.0.7:8080").good();
            lab.connect("acme/near", "tcp", "10.0.0.8:8080").bad();
            lab.apply(&yaml(std::slice::from_ref(&late))).good();
            lab.connect("acme/far", "tcp", "10.0.0.9:8080").bad();
            scene.is_read_again("node1", version);
            lab.wait_for_pods();
            lab.reach("acme/far", "tcp", "10.0.0.9:8080").good();
            lab.kubectl(&["delete", "pod", "-n", "acme", "late", "--timeout=180s"]).good();
        }
    });
}
