//! Both families of addresses at once, in two tenants that have the same of each.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};
use atoll_realnodes::wait_until;
use atoll_toolbox::Answer;
use serde_json::{Value, json};

use crate::kubectl::{PATIENCE, has_condition, items};
use crate::scenarios::names;
use crate::stage::Stage;
use crate::tenants;

const TENANTS: [&str; 2] = ["east", "west"];
/// Where each tenant's `web` and `db` are, in either family.
const WEB: [&str; 2] = ["10.0.0.5", "fd00::5"];
const DB: [&str; 2] = ["10.0.0.6", "fd00::6"];
const PORT: u16 = 80;
/// Where both tenants' services get their own addresses from.
const SERVICE_RANGES: [&str; 2] = ["198.18.0.0/16", "fd00:96::/112"];

/// Whether services of the cluster have addresses of both families.
pub(crate) fn are_both(stage: &Stage) -> bool {
    let ranges = stage.kubectl.get(&["servicecidrs", "kubernetes"]);
    ranges.is_ok_and(|ranges| ranges["spec"]["cidrs"].as_array().is_some_and(|it| it.len() == 2))
}

/// A Service with an address of each family leads each tenant to its own pod by either, under a name
/// that has both, and shows it the client's own address. The other tenant's lead nowhere.
pub(crate) fn services_have_both(stage: &Stage) -> Result<()> {
    let nodes = tenants::nodes(&stage.kubectl)?;
    for tenant in TENANTS {
        stage.kubectl.apply(&manifest(tenant, &nodes).to_string())?;
    }
    for tenant in TENANTS {
        let what = format!("the pods of {tenant} to be Ready");
        stage.kubectl.wait_for(&what, &["pods", "--namespace", tenant], |pods| {
            items(pods).len() == 2 && items(pods).iter().all(|pod| has_condition(pod, "Ready"))
        })?;
        let web = stage.kubectl.get(&["pod", "--namespace", tenant, "web"])?;
        let told = &web["status"]["podIPs"];
        ensure!(*told == json!([{"ip": WEB[0]}, {"ip": WEB[1]}]), "web is told to be at {told}");
    }
    for (tenant, other) in [("east", "west"), ("west", "east")] {
        is_served(stage, tenant)?;
        for address in cluster_ips(stage, other)? {
            let answer = ask(stage, tenant, address)?;
            ensure!(answer.is_none(), "{tenant} reaches {other}'s {address}: {answer:?}");
        }
    }
    leave(stage)
}

/// By every address that the cluster gave the service, and every one of the tenant's own, to which
/// its name leads.
fn is_served(stage: &Stage, tenant: &str) -> Result<()> {
    let mut named = Vec::new();
    wait_until(&format!("store of {tenant} to have a name in both families"), PATIENCE, || {
        named = names::resolve(stage, tenant, "store")?.unwrap_or_default();
        Ok(named.iter().any(IpAddr::is_ipv4) && named.iter().any(IpAddr::is_ipv6))
    })?;
    for address in cluster_ips(stage, tenant)?.into_iter().chain(named) {
        let mut first = None;
        wait_until(&format!("{tenant} to be served at {address}"), PATIENCE, || {
            first = ask(stage, tenant, address)?;
            Ok(first.is_some())
        })?;
        let answer = first.context("nobody answered")?;
        ensure!(answer.pod == format!("{tenant}/db"), "{address} answered by {}", answer.pod);
        let client: IpAddr = WEB[usize::from(address.is_ipv6())].parse()?;
        let seen = answer.peer.ip().to_canonical();
        ensure!(seen == client, "{tenant}/web is seen as {seen} at {address}");
    }
    Ok(())
}

/// One of each family.
fn cluster_ips(stage: &Stage, tenant: &str) -> Result<Vec<IpAddr>> {
    let service = stage.kubectl.get(&["service", "store", "--namespace", tenant])?;
    let listed = service["spec"]["clusterIPs"].as_array().context("store has no addresses")?;
    let addresses: Vec<IpAddr> = listed.iter().filter_map(|ip| ip.as_str()?.parse().ok()).collect();
    ensure!(addresses.len() == 2, "store of {tenant} has {listed:?}");
    Ok(addresses)
}

fn ask(stage: &Stage, tenant: &str, address: IpAddr) -> Result<Option<Answer>> {
    let address = SocketAddr::new(address, PORT).to_string();
    let command = ["atoll", "toolbox", "connect", "tcp", &address, "--timeout", "1s"];
    let output = stage.kubectl.exec(tenant, "web", &command)?;
    match output.status.success() {
        true => Ok(Some(serde_json::from_slice(&output.stdout)?)),
        false => Ok(None),
    }
}

fn leave(stage: &Stage) -> Result<()> {
    let [one, other] = TENANTS;
    stage.kubectl.run(&["delete", "--wait=false", "namespaces", one, other])?;
    stage.kubectl.run(&["delete", "--wait=false", "tenants", one, other])?;
    stage.kubectl.wait_for("both tenants to be gone", &["tenants"], |found| {
        !items(found)
            .iter()
            .any(|it| TENANTS.iter().any(|tenant| it["metadata"]["name"] == *tenant))
    })
}

fn manifest(tenant: &str, nodes: &[String]) -> Value {
    let network = json!({"type": "vpc", "cidrs": ["10.0.0.0/16", "fd00::/64"]});
    let service = json!({"ipFamilyPolicy": "RequireDualStack", "selector": {"tier": "store"},
                         "ports": [{"port": PORT, "targetPort": 8080}]});
    let items = [
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant",
               "metadata": {"name": tenant},
               "spec": {"defaultNetwork": network, "serviceCIDRs": SERVICE_RANGES}}),
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": tenant, "labels": {"atoll.dev/tenant": tenant}}}),
        pod(tenant, ("web", "client"), WEB, &nodes[0]),
        pod(tenant, ("db", "store"), DB, &nodes[1]),
        json!({"apiVersion": "v1", "kind": "Service",
               "metadata": {"name": "store", "namespace": tenant}, "spec": service}),
    ];
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn pod(tenant: &str, (name, tier): (&str, &str), ips: [&str; 2], node: &str) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let container = json!({
        "name": "toolbox", "image": "atoll.dev/atoll:0.1.0",
        "command": ["atoll", "toolbox", "serve"],
        "env": [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")],
    });
    let nics = json!([{"ips": ips}]).to_string();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": tenant, "labels": {"tier": tier},
                     "annotations": {"atoll.dev/nics": nics}},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": node},
                 "terminationGracePeriodSeconds": 1, "containers": [container]},
    })
}
