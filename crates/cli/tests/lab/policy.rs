//! Network policy with real packets: two tenants with equal labels and addresses on three nodes, and
//! a prober in every pod that asks all pods of its tenant at once.

mod moments;
mod stage;
mod ways;

use std::time::Instant;

use atoll_oracle::Scene;
use atoll_oracle::cases::netpol_cases;
use serde_json::json;

pub(crate) use moments::{steady_flow, tally};
use stage::Stage;

#[test]
fn the_cases_of_kubernetes_hold_with_real_packets_in_two_tenants_at_once() {
    let mut stage = Stage::up();
    let begun = Instant::now();
    let mut scenes = 0;
    for case in netpol_cases() {
        for (position, scene) in case.scenes.iter().enumerate() {
            stage.set(scene);
            stage.hold(&format!("{}, scene {position}", case.name));
            scenes += 1;
        }
    }
    println!("{scenes} tables of both tenants in {:.1} s", begun.elapsed().as_secs_f64());
    print_times_to_effect(&mut stage);
}

/// How long after the API has taken a policy its effect is seen by packets on another node.
fn print_times_to_effect(stage: &mut Stage) {
    let open = Scene::nine_pods();
    let spec = json!({ "podSelector": {}, "policyTypes": ["Ingress"] });
    let closed = open.clone().policy("x", "closed", spec);
    let mut times = Vec::new();
    for round in 0..20 {
        let scene = if round % 2 == 0 { &closed } else { &open };
        stage.set(scene);
        times.push(stage.time_to_effect("globex", ("y", "a"), ("x", "b"), round % 2 == 1));
    }
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    println!("policy to effect by packets: median {:?}, p99 {:?}", at(0.5), at(0.99));
}
