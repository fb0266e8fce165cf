//! The promises, in order. Each is a sentence; the first that does not hold ends the run, because
//! those after it build on it.

use std::time::Instant;

use anyhow::Result;

use crate::scenarios::{agents, infra, nodes, power, reach, users};
use crate::stage::Stage;

/// What a promise needs in order to be tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Any cluster.
    Nothing,
    /// Nodes that the suite made itself, and may kill.
    OwnNodes,
}

use Needs::{Nothing, OwnNodes};

type Promise = (&'static str, Needs, fn(&Stage) -> Result<()>);

const PROMISES: [Promise; 16] = [
    ("a released Kubernetes is up, without a network", OwnNodes, Stage::raise),
    ("nodes become ready once Atoll is installed", Nothing, nodes::become_ready),
    ("the controller has no powers, the agent only what it needs", Nothing, nodes::least_privilege),
    ("two tenants with one range of addresses get their pods running", Nothing, reach::pods_run),
    ("two tenants have the same address on the same node", Nothing, reach::addresses_are_equal),
    (
        "pods reach their tenant, seen by their own address, and nobody else",
        Nothing,
        reach::isolated,
    ),
    ("what was dropped is counted by network and reason", Nothing, reach::drops_are_counted),
    ("exec runs in the pod and passes on input and exit code", Nothing, users::exec),
    ("logs shows what the container wrote", Nothing, users::logs),
    ("port-forward leads into the pod", Nothing, users::port_forward),
    ("pods reach the API, which knows them by their tokens", Nothing, infra::api_is_reached),
    (
        "probes and hooks meet their own pod, where two have one address on one node",
        Nothing,
        infra::probes_meet_their_own_pod,
    ),
    (
        "a probe that leads elsewhere is refused with a sentence",
        Nothing,
        infra::probes_elsewhere_are_refused,
    ),
    (
        "agents are deleted under traffic and no packet is lost",
        Nothing,
        agents::deleted_under_traffic,
    ),
    ("a node that lost power comes back with its pods", OwnNodes, power::node_comes_back),
    ("deleted tenants leave no port and no claim behind", Nothing, reach::nothing_is_left),
];

/// Whether every promise held that could be tried.
pub(crate) fn run(stage: &Stage) -> bool {
    let began = Instant::now();
    let held = PROMISES.iter().all(|promise| holds(stage, promise));
    let verdict = if held { "every promise that was tried held" } else { "a promise did not hold" };
    println!("\n{verdict}, after {:.0} s", began.elapsed().as_secs_f32());
    held
}

fn holds(stage: &Stage, (sentence, needs, check): &Promise) -> bool {
    if *needs == OwnNodes && stage.own_cluster().is_none() {
        println!("skip {sentence} (these nodes are not ours)");
        return true;
    }
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
