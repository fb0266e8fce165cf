//! Services of two tenants, with one address between them, and a policy that only one of them has.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};
use atoll_realnodes::wait_until;
use atoll_toolbox::Answer;
use serde_json::Value;

use crate::kubectl::PATIENCE;
use crate::scenarios::names;
use crate::stage::Stage;
use crate::tenants::TENANTS;

/// The backend in each tenant, and the label that makes it one.
const BACKEND: &str = "db";
const LABEL: &str = "tier=store";
/// Where `web` of each tenant is.
const CLIENT: [u8; 4] = [10, 0, 0, 5];
const BACKEND_ADDRESS: &str = "10.0.0.6";
/// What both tenants ask for.
pub(crate) const VIP: [u8; 4] = [198, 18, 0, 77];
pub(crate) const PORT: u16 = 80;

fn service(tenant: &str) -> String {
    let vip = IpAddr::from(VIP);
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: store, namespace: {tenant}, annotations: {{atoll.dev/vip: {vip}}}}}
spec: {{selector: {{tier: store}}, ports: [{{port: {PORT}, targetPort: 8080}}]}}
"
    )
}

/// Makes both backends what they are.
pub(crate) fn label_backends(stage: &Stage) -> Result<()> {
    TENANTS.iter().try_for_each(|tenant| {
        let label = ["label", "pod", "--overwrite", "--namespace", tenant, BACKEND, LABEL];
        stage.kubectl.run(&label).map(drop)
    })
}

/// The same address and the same name lead each tenant to a pod of its own. The core address does,
/// too, and nobody else's.
pub(crate) fn lead_to_ones_own(stage: &Stage) -> Result<()> {
    label_backends(stage)?;
    for tenant in TENANTS {
        stage.kubectl.apply(&service(tenant))?;
    }
    for (tenant, other) in [("acme", "globex"), ("globex", "acme")] {
        wait_until(&format!("store to be a name of {tenant}"), PATIENCE, || {
            Ok(names::resolve(stage, tenant, "store")? == Some(vec![VIP.into()]))
        })?;
        for address in [VIP.into(), cluster_ip(stage, tenant)?] {
            serves(stage, tenant, address)?;
        }
        let foreign = cluster_ip(stage, other)?;
        let answer = ask(stage, tenant, SocketAddr::new(foreign, PORT))?;
        ensure!(answer.is_none(), "{tenant} reaches {other}'s {foreign}: {answer:?}");
    }
    Ok(())
}

/// Acme's pod is closed, and opens again when the policy goes; globex's stays open all the while.
pub(crate) fn one_policy_is_anothers_nothing(stage: &Stage) -> Result<()> {
    stage.kubectl.apply(CLOSED)?;
    let straight: SocketAddr = format!("{BACKEND_ADDRESS}:8080").parse()?;
    let vip = SocketAddr::new(VIP.into(), PORT);
    wait_until("acme/db to be closed", PATIENCE, || {
        Ok(ask(stage, "acme", straight)?.is_none() && ask(stage, "acme", vip)?.is_none())
    })?;
    for address in [straight, vip] {
        let answer = first_answer(stage, "globex", address)?;
        ensure!(answer.pod == "globex/db", "{address} answered by {}", answer.pod);
    }
    stage.kubectl.delete(CLOSED)?;
    serves(stage, "acme", VIP.into()).context("acme/db is to be open again")
}

/// What of a policy is not enforced as written is an event of it, whatever node tells it first.
pub(crate) fn faults_of_policies_are_told(stage: &Stage) -> Result<()> {
    stage.kubectl.apply(ODD)?;
    let mut said = String::new();
    let told = wait_until("the policy's fault to be told", PATIENCE, || {
        said = stage.kubectl.run(&["events", "--namespace=default"])?;
        Ok(said.contains("NotEnforcedAsWritten") && said.contains("ClusterNetworkPolicy/odd"))
    });
    told.with_context(|| format!("there are {said}"))?;
    stage.kubectl.delete(ODD).map(drop)
}

/// An action that nobody knows, about pods that nobody has.
const ODD: &str = "apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: odd, labels: {atoll.dev/tenant: acme}}
spec:
  tier: Baseline
  priority: 9
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: nobodys}}}}
  ingress: [{action: Maybe, from: [{namespaces: {}}]}]
";

const CLOSED: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: acme}
spec: {podSelector: {matchLabels: {tier: store}}, policyTypes: [Ingress]}
";

/// Whoever answers there first must be the tenant's own backend.
fn serves(stage: &Stage, tenant: &str, address: IpAddr) -> Result<()> {
    let answer = first_answer(stage, tenant, SocketAddr::new(address, PORT))?;
    ensure!(answer.pod == format!("{tenant}/{BACKEND}"), "{address} answered by {}", answer.pod);
    let seen = answer.peer.ip().to_canonical();
    ensure!(seen == IpAddr::from(CLIENT), "{tenant}/web is seen as {seen}");
    Ok(())
}

/// Who is the first to answer `web` of this tenant there.
fn first_answer(stage: &Stage, tenant: &str, address: SocketAddr) -> Result<Answer> {
    let mut first = None;
    wait_until(&format!("{tenant} to be served at {address}"), PATIENCE, || {
        first = ask(stage, tenant, address)?;
        Ok(first.is_some())
    })?;
    first.context("nobody answered")
}

/// Who answers `web` of this tenant there, if anybody does.
fn ask(stage: &Stage, tenant: &str, address: SocketAddr) -> Result<Option<Answer>> {
    let address = address.to_string();
    let command = ["atoll", "toolbox", "connect", "tcp", &address, "--timeout", "1s"];
    let output = stage.kubectl.exec(tenant, "web", &command)?;
    match output.status.success() {
        true => Ok(Some(serde_json::from_slice(&output.stdout)?)),
        false => Ok(None),
    }
}

fn cluster_ip(stage: &Stage, tenant: &str) -> Result<IpAddr> {
    let service: Value = stage.kubectl.get(&["service", "store", "--namespace", tenant])?;
    let address = service["spec"]["clusterIP"].as_str().unwrap_or_default();
    address.parse().with_context(|| format!("store of {tenant} has no address"))
}
