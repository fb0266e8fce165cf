//! Names, asked for by ordinary programs in pods.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use atoll_realnodes::wait_until;
use serde::Deserialize;

use crate::kubectl::PATIENCE;
use crate::stage::Stage;

/// A headless service in each tenant, whose pods have other addresses.
const SERVICES: &str = "apiVersion: v1
kind: Service
metadata: {name: twin, namespace: acme}
spec: {clusterIP: None, ports: [{port: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: twin, namespace: acme, labels: {kubernetes.io/service-name: twin}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.0.0.6]}]
---
apiVersion: v1
kind: Service
metadata: {name: twin, namespace: globex}
spec: {clusterIP: None, ports: [{port: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: twin, namespace: globex, labels: {kubernetes.io/service-name: twin}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.0.0.7]}]
";

#[derive(Deserialize)]
struct Resolved {
    addresses: Vec<IpAddr>,
}

/// The same name in two tenants, and the other tenant's by its whole name, which does not exist.
pub(crate) fn each_tenant_has_its_own(stage: &Stage) -> Result<()> {
    stage.kubectl.apply(SERVICES)?;
    for (tenant, other, address) in
        [("acme", "globex", [10, 0, 0, 6]), ("globex", "acme", [10, 0, 0, 7])]
    {
        wait_until(&format!("twin to be a name of {tenant}"), PATIENCE, || {
            Ok(resolve(stage, tenant, "twin")?
                .is_some_and(|found| found == [IpAddr::from(address)]))
        })?;
        let whole = format!("twin.{other}.svc.cluster.local");
        let found = resolve(stage, tenant, &whole)?;
        ensure!(found.is_none(), "{tenant} is told {whole}: {found:?}");
    }
    Ok(())
}

/// As the C library of a program in `web` finds it.
pub(crate) fn resolve(stage: &Stage, tenant: &str, name: &str) -> Result<Option<Vec<IpAddr>>> {
    let output = stage.kubectl.exec(tenant, "web", &["atoll", "toolbox", "resolve", name])?;
    if !output.status.success() {
        return Ok(None);
    }
    let resolved: Resolved = serde_json::from_slice(&output.stdout)?;
    Ok(Some(resolved.addresses))
}
