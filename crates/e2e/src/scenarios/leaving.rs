//! Uninstalling: refused while somebody would be hurt, and then without a trace.

use anyhow::{Context, Result, ensure};
use atoll_realnodes::wait_until;
use serde_json::Value;

use crate::install::{self, NAMESPACE};
use crate::kubectl::{PATIENCE, has_condition, items};
use crate::looks::Looks;
use crate::stage::{Stage, in_tree};

pub(crate) fn refused_while_tenants_have_pods(stage: &Stage) -> Result<()> {
    let refused = stage.atoll(&["uninstall"]);
    let said = refused.err().context("it was not refused")?.to_string();
    ensure!(said.contains("acme/web") && said.contains("--force"), "it said {said}");
    install::await_parts(stage)
}

/// The kinds of objects of the whole cluster that an installation has.
const CLUSTER_KINDS: [&str; 7] = [
    "namespaces",
    "clusterroles",
    "clusterrolebindings",
    "crds",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];

/// Without `--purge`, a tenant stays in the API; with it, nothing does, and nodes of our own are as they
/// were before the first installation, whatever was tried in between.
pub(crate) fn nothing_stays(stage: &Stage) -> Result<()> {
    stage.kubectl.apply(TENANT)?;
    wait_until("the tenant to have its role", PATIENCE, || {
        Ok(stage.kubectl.run(&["get", "clusterrole", "atoll.tenant.left"]).is_ok())
    })?;
    stage.kubectl.wait_for("DNS pods to run", &DNS_PODS, |pods| {
        !items(pods).is_empty() && items(pods).iter().all(|pod| has_condition(pod, "Ready"))
    })?;
    stage.atoll(&["uninstall"])?;
    ensure!(items(&stage.kubectl.get(&DNS_PODS)?).is_empty(), "DNS pods stay without a network");
    ensure!(items(&stage.kubectl.get(&["tenants"])?).len() == 1, "the tenant went, too");
    stage.atoll(&["uninstall", "--purge"])?;
    nothing_is_in_the_api(stage)?;
    match stage.first_looks() {
        Some((cluster, before)) => before.are_back(cluster),
        None => Ok(()),
    }
}

/// No object of an installation is there.
pub(crate) fn nothing_is_in_the_api(stage: &Stage) -> Result<()> {
    for kind in CLUSTER_KINDS {
        let listed = stage.kubectl.run(&["get", kind, "-o", "name"])?;
        ensure!(!listed.contains("atoll"), "of {kind} there are still {listed}");
    }
    let found = stage.kubectl.run(&["get", "namespace", NAMESPACE]);
    ensure!(found.is_err(), "namespace {NAMESPACE} is still there");
    Ok(())
}

const TENANT: &str = "apiVersion: atoll.dev/v1alpha1
kind: Tenant
metadata: {name: left}
spec: {defaultNetwork: {type: flat}}
---
apiVersion: atoll.dev/v1alpha1
kind: Network
metadata: {name: left.named}
spec: {tenant: left, type: vpc, cidrs: [10.10.0.0/16], dns: {mode: dedicated}}
";
/// Those that controllers make.
const DNS_PODS: [&str; 3] = ["pods", "--all-namespaces", "--selector=atoll.dev/dns-of"];

/// The same installed and removed once more, with a look at each node before and after, on a
/// cluster that has policies of somebody else.
pub(crate) fn nodes_are_as_before(stage: &Stage) -> Result<()> {
    let cluster = stage.own_cluster().context("these nodes are not ours to look at")?;
    let before = Looks::at(cluster)?;
    let theirs = bring_others_policies(stage)?;
    let said = install::apply(stage)?;
    ensure!(said.contains(&format!("{POLICIES} is not Atoll's: left as it is")), "it said {said}");
    ensure!(before.are_fewer_than(&Looks::at(cluster)?), "Atoll is not seen on nodes");
    stage.atoll(&["uninstall", "--purge"])?;
    before.are_back(cluster)?;
    what_others_brought_stays(stage, &theirs)
}

/// The definition that a cluster may have of somebody else.
const POLICIES: &str = "clusternetworkpolicies.policy.networking.k8s.io";
const POLICY: &str = "apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: theirs}
spec: {tier: Admin, priority: 7, subject: {namespaces: {}}}
";

/// The definition without our mark, and a policy; gives the definition as the API has it.
fn bring_others_policies(stage: &Stage) -> Result<Value> {
    let ours = std::fs::read_to_string(in_tree(&format!("deploy/crds/{POLICIES}.yaml")))?;
    let theirs = ours.replace("app.kubernetes.io/part-of: atoll", "example.com/owner: somebody");
    ensure!(ours != theirs, "our definition has no mark");
    stage.kubectl.apply(&theirs)?;
    stage.kubectl.run(&[
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd",
        POLICIES,
    ])?;
    wait_until("the policy to be taken", PATIENCE, || stage.kubectl.apply(POLICY).map(|_| true))?;
    Ok(stage.kubectl.get(&["crd", POLICIES])?["spec"].clone())
}

fn what_others_brought_stays(stage: &Stage, theirs: &Value) -> Result<()> {
    let after = stage.kubectl.get(&["crd", POLICIES])?;
    ensure!(after["spec"] == *theirs, "the definition of others was changed to {after}");
    stage.kubectl.run(&["get", POLICIES, "theirs"]).context("the policy of others is gone")?;
    stage.kubectl.run(&["delete", "crd", POLICIES]).map(drop)
}
