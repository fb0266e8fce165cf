//! Agents that come and go while pods talk.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::install::{self, NAMESPACE};
use crate::kubectl::{Running, items};
use crate::stage::Stage;

/// What the flow says of itself.
#[derive(Debug, Deserialize)]
struct Tally {
    sent: u64,
    lost: u64,
    longest_gap_ms: u64,
}

/// Across nodes and on one node, while every agent is deleted and comes back.
pub(crate) fn deleted_under_traffic(stage: &Stage) -> Result<()> {
    let mut flows = [flow(stage, "10.0.0.6")?, flow(stage, "10.0.0.7")?];
    let before = agents(stage)?;
    let select = "--selector=app.kubernetes.io/component=agent";
    stage.kubectl.run(&["delete", "pods", "--namespace", NAMESPACE, select])?;
    install::await_parts(stage)?;
    let after = agents(stage)?;
    ensure!(before.iter().all(|uid| !after.contains(uid)), "agents were not replaced");
    went_on(&mut flows)
}

/// Ends the traffic. Not one packet was lost, and there were packets until now.
pub(crate) fn went_on(flows: &mut [Running]) -> Result<()> {
    for flow in &mut *flows {
        ensure!(!flow.has_ended()?, "the traffic ended too early: it proves nothing");
        flow.end_input();
    }
    flows.iter_mut().try_for_each(|flow| nothing_was_lost(&flow.line()?))
}

/// Datagrams from acme/web, until its input ends.
pub(crate) fn flow(stage: &Stage, server: &str) -> Result<Running> {
    flow_from(stage, ("acme", "web"), &["--udp", server, "--under-way", "64"])
}

/// The same in one connection.
pub(crate) fn stream(stage: &Stage, server: &str) -> Result<Running> {
    flow_from(stage, ("acme", "web"), &["--tcp", server])
}

/// Traffic from any pod, until its input ends, and for long enough to say something.
pub(crate) fn flow_from(
    stage: &Stage,
    (namespace, pod): (&str, &str),
    how: &[&str],
) -> Result<Running> {
    let inside = ["exec", "--stdin", "--namespace", namespace, pod, "--"];
    let flow = ["atoll", "toolbox", "flow", "--rate", "200", "--seconds", "20", "--until-eof"];
    stage.kubectl.start(&[&inside[..], &flow[..], how].concat())
}

/// Reads what a flow says at its end.
pub(crate) fn nothing_was_lost(line: &str) -> Result<()> {
    let tally: Tally = serde_json::from_str(line).context("the flow counted nothing")?;
    let Tally { sent, lost, longest_gap_ms } = tally;
    ensure!(
        sent > 1000 && lost == 0,
        "of {sent} packets {lost} were lost; the longest silence was {longest_gap_ms} ms"
    );
    Ok(())
}

fn agents(stage: &Stage) -> Result<Vec<String>> {
    let select = "--selector=app.kubernetes.io/component=agent";
    let pods = stage.kubectl.get(&["pods", "--namespace", NAMESPACE, select])?;
    let uid = |pod: &serde_json::Value| pod["metadata"]["uid"].as_str().map(str::to_owned);
    Ok(items(&pods).iter().filter_map(uid).collect())
}
