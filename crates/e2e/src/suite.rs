//! The promises, in order. Each is a sentence; the first that does not hold ends the run, because
//! those after it build on it.

use std::time::Instant;

use anyhow::Result;

use crate::scenarios::{agents, nodes, power, reach, users};
use crate::stage::Stage;

type Check = fn(&Stage) -> Result<()>;

const PROMISES: [(&str, Check); 13] = [
    ("a released Kubernetes is up, without a network", Stage::raise),
    ("nodes become ready once Atoll is installed", nodes::become_ready),
    ("the controller has no powers, and the agent only those it needs", nodes::least_privilege),
    ("two tenants with one range of addresses get their pods running", reach::pods_run),
    ("pods of two tenants have the same address on the same node", reach::addresses_are_equal),
    ("pods reach their own tenant, seen by their own address, and nobody else", reach::isolated),
    ("what was dropped is counted by network and reason", reach::drops_are_counted),
    ("exec runs in the pod and passes on input and exit code", users::exec),
    ("logs shows what the container wrote", users::logs),
    ("port-forward leads into the pod", users::port_forward),
    ("agents are deleted under traffic and no packet is lost", agents::deleted_under_traffic),
    ("a node that lost power comes back with its pods and their addresses", power_cut),
    ("deleted tenants leave no port and no claim behind", reach::nothing_is_left),
];

fn power_cut(stage: &Stage) -> Result<()> {
    match stage.own_cluster() {
        Some(cluster) => power::node_comes_back(stage, cluster),
        None => {
            println!("     (left out: these nodes are not ours to kill)");
            Ok(())
        }
    }
}

/// Whether every promise held.
pub(crate) fn run(stage: &Stage) -> bool {
    let began = Instant::now();
    let held = PROMISES.iter().all(|(sentence, check)| holds(stage, sentence, *check));
    let verdict = if held { "every promise held" } else { "not every promise held" };
    println!("\n{verdict}, after {:.0} s", began.elapsed().as_secs_f32());
    held
}

fn holds(stage: &Stage, sentence: &str, check: Check) -> bool {
    println!("     … {sentence}");
    let began = Instant::now();
    let outcome = check(stage);
    let took = began.elapsed().as_secs_f32();
    match &outcome {
        Ok(()) => println!("ok   {sentence} ({took:.1} s)"),
        Err(error) => println!("FAIL {sentence} ({took:.1} s)\n     {error:#}"),
    }
    outcome.is_ok()
}
