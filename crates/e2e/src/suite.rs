//! The promises, in order. Each is a sentence; the first that does not hold ends the run, because
//! those after it build on it.

use std::time::Instant;

use anyhow::Result;

use crate::scenarios::{agents, nodes, reach, users};
use crate::stage::Stage;

type Promise = (&'static str, fn(&Stage) -> Result<()>);

const PROMISES: [Promise; 12] = [
    ("a released Kubernetes is up, without a network", Stage::raise),
    ("nodes become ready once Atoll is installed", nodes::become_ready),
    (
        "the controller has no power over its node, the agent only what it needs",
        nodes::least_privilege,
    ),
    ("two tenants with one range of addresses get their pods running", reach::pods_run),
    ("pods of two tenants have the same address on the same node", reach::addresses_are_equal),
    (
        "pods reach all of their own tenant, are seen by their own address, and nobody else",
        reach::isolated,
    ),
    ("what was dropped is counted by network and reason", reach::drops_are_counted),
    ("exec runs in the pod and passes on input and exit code", users::exec),
    ("logs shows what the container wrote", users::logs),
    ("port-forward leads into the pod", users::port_forward),
    (
        "an agent's pod is deleted under traffic and no packet is lost",
        agents::deleted_under_traffic,
    ),
    ("deleted tenants leave no port and no claim behind", reach::nothing_is_left),
];

/// Whether every promise held.
pub(crate) fn run(stage: &Stage) -> bool {
    let began = Instant::now();
    let held = PROMISES.iter().all(|promise| holds(stage, promise));
    let verdict = if held { "every promise held" } else { "not every promise held" };
    println!("\n{verdict}, after {:.0} s", began.elapsed().as_secs_f32());
    held
}

fn holds(stage: &Stage, (sentence, check): &Promise) -> bool {
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
