//! Atoll brought and taken away without a program of its own: by helm and its chart, and by kubectl and
//! the manifests as they are. As docs/install.md says.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use atoll_realnodes::wait_until;

use crate::install::{self, NAMESPACE};
use crate::kubectl::{PATIENCE, has_condition, items};
use crate::looks::Looks;
use crate::scenarios::{leaving, reach};
use crate::stage::{Stage, in_tree};

const RELEASE: &str = "atoll";

/// What both ways have in common: everything runs, tenants are served and apart, and nothing stays.
fn comes_and_goes(
    stage: &Stage,
    bring: fn(&Stage) -> Result<()>,
    take_away: fn(&Stage) -> Result<()>,
) -> Result<()> {
    let before = stage.own_cluster().map(Looks::at).transpose()?;
    bring(stage)?;
    install::await_parts(stage)?;
    stage.kubectl.wait_for("nodes to be Ready", &["nodes"], |nodes| {
        items(nodes).iter().all(|node| has_condition(node, "Ready"))
    })?;
    wait_until("tenants to be admitted", PATIENCE, || Ok(reach::pods_run(stage).is_ok()))?;
    reach::isolated(stage)?;
    reach::nothing_is_left(stage)?;
    clear_nodes(stage)?;
    take_away(stage)?;
    leaving::nothing_is_in_the_api(stage)?;
    match stage.own_cluster().zip(before) {
        Some((cluster, before)) => before.are_back(cluster),
        None => Ok(()),
    }
}

/// A release of the chart comes and goes.
pub(crate) fn by_helm(stage: &Stage) -> Result<()> {
    comes_and_goes(stage, bring_chart, take_chart_away)
}

fn bring_chart(stage: &Stage) -> Result<()> {
    let chart = in_tree("deploy/chart").display().to_string();
    let settings = stage.api_server().into_iter().flat_map(|(host, port)| {
        let (host, port) = (format!("apiServer.host={host}"), format!("apiServer.port={port}"));
        ["--set".to_owned(), host, "--set".to_owned(), port]
    });
    let install = ["install", RELEASE, &chart, "--wait", "--timeout=5m"].map(str::to_owned);
    helm(stage, &install.into_iter().chain(settings).collect::<Vec<_>>())
}

/// helm leaves the definitions.
fn take_chart_away(stage: &Stage) -> Result<()> {
    helm(stage, &["uninstall", RELEASE, "--wait", "--timeout=5m"].map(str::to_owned))?;
    delete(stage, "-f", "deploy/crds")
}

fn helm(stage: &Stage, arguments: &[String]) -> Result<()> {
    let program = stage.helm().context("give --helm")?;
    let mut helm = Command::new(program);
    helm.args(arguments).env("KUBECONFIG", stage.kubectl.kubeconfig());
    let output = helm.output().with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm {}: {}", arguments.join(" "), said.trim());
    Ok(())
}

/// The manifests come and go.
pub(crate) fn by_manifests(stage: &Stage) -> Result<()> {
    comes_and_goes(stage, apply_manifests, |stage| delete(stage, "-k", "deploy"))
}

/// Where the API is, agents are told before they start.
fn apply_manifests(stage: &Stage) -> Result<()> {
    let file = |path: &str| in_tree(path).display().to_string();
    stage.kubectl.run(&["apply", "-f", &file("deploy/namespace.yaml")])?;
    if let Some((host, port)) = stage.api_server() {
        let host = format!("--from-literal=KUBERNETES_SERVICE_HOST={host}");
        let port = format!("--from-literal=KUBERNETES_SERVICE_PORT={port}");
        let name = ["create", "configmap", "atoll-api-server", "--namespace", NAMESPACE];
        stage.kubectl.run(&[&name[..], &[&host, &port]].concat())?;
    }
    stage.kubectl.run(&["apply", "-k", &file("deploy")]).map(drop)
}

/// Atoll is taken off the nodes, as whoever has not its program does it.
fn clear_nodes(stage: &Stage) -> Result<()> {
    let remover = in_tree("deploy/remover.yaml").display().to_string();
    let kubectl = |arguments: &[&str]| stage.kubectl.run(arguments);
    kubectl(&["delete", "daemonset", "--namespace", NAMESPACE, "atoll-agent"])?;
    kubectl(&["apply", "-f", &remover])?;
    let cleared = ["rollout", "status", "--timeout=240s", "daemonset/atoll-remover"];
    kubectl(&[&cleared[..], &["--namespace", NAMESPACE]].concat())?;
    kubectl(&["delete", "-f", &remover]).map(drop)
}

/// Some of it may have gone with the rest.
fn delete(stage: &Stage, how: &str, path: &str) -> Result<()> {
    let path = in_tree(path).display().to_string();
    stage.kubectl.run(&["delete", "--ignore-not-found", how, &path]).map(drop)
}
