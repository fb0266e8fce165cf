//! Who reaches whom.

use anyhow::{Context, Result, ensure};
use atoll_realnodes::wait_until;
use atoll_toolbox::{Outcome, Protocol, Report};
use serde_json::Value;

use crate::install::NAMESPACE;
use crate::kubectl::{PATIENCE, has_condition, items};
use crate::stage::Stage;
use crate::tenants::{self, Pod, TENANTS};

pub(crate) fn pods_run(stage: &Stage) -> Result<()> {
    let manifest = tenants::manifest(&stage.kubectl)?;
    stage.kubectl.apply(&manifest)?;
    for tenant in TENANTS {
        let what = format!("the pods of {tenant} to be Ready");
        stage.kubectl.wait_for(&what, &["pods", "--namespace", tenant], |pods| {
            !items(pods).is_empty() && items(pods).iter().all(is_well)
        })?;
    }
    Ok(())
}

/// It serves, or has done what it was made for.
fn is_well(pod: &Value) -> bool {
    has_condition(pod, "Ready") || pod["status"]["phase"] == "Succeeded"
}

pub(crate) fn addresses_are_equal(stage: &Stage) -> Result<()> {
    let pods = tenants::pods(&stage.kubectl)?;
    let twins = |same_node: bool| {
        pods.iter().any(|one| {
            pods.iter().any(|other| {
                let strangers = one.tenant != other.tenant && one.ip == other.ip;
                strangers && (one.node == other.node) == same_node
            })
        })
    };
    ensure!(twins(true), "no two tenants share an address on one node: {pods:?}");
    ensure!(twins(false), "no two tenants share an address on two nodes: {pods:?}");
    Ok(())
}

pub(crate) fn isolated(stage: &Stage) -> Result<()> {
    let pods = tenants::pods(&stage.kubectl)?;
    pods.iter().try_for_each(|pod| await_server(stage, pod))?;
    for client in &pods {
        for report in probe(stage, client, &pods)? {
            judge(client, &pods, &report)
                .with_context(|| format!("{} → {}", client.full_name(), report.target))?;
        }
    }
    Ok(())
}

/// A pod is Ready before its server listens.
fn await_server(stage: &Stage, pod: &Pod) -> Result<()> {
    let ask = ["atoll", "toolbox", "connect", "tcp", "127.0.0.1"];
    wait_until(&format!("{} to listen", pod.full_name()), PATIENCE, || {
        Ok(stage.kubectl.exec(&pod.tenant, &pod.name, &ask)?.status.success())
    })
}

/// Asks every address that anybody has, over every protocol, from inside `client`.
fn probe(stage: &Stage, client: &Pod, pods: &[Pod]) -> Result<Vec<Report>> {
    let mut targets: Vec<String> = pods
        .iter()
        .filter(|pod| pod.ip != client.ip)
        .flat_map(|pod| Protocol::ALL.map(|protocol| format!("{}/{}", protocol.name(), pod.ip)))
        .collect();
    targets.sort();
    targets.dedup();
    let mut command = vec!["atoll", "toolbox", "probe", "--timeout", "2s"];
    command.extend(targets.iter().map(String::as_str));
    let output = stage.kubectl.exec(&client.tenant, &client.name, &command)?;
    let reports: Vec<Report> = String::from_utf8(output.stdout)?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(reports.len() == targets.len(), "{} cannot probe: {complaint}", client.full_name());
    Ok(reports)
}

/// An address is the one of the client's own tenant, or it is nobody's.
fn judge(client: &Pod, pods: &[Pod], report: &Report) -> Result<()> {
    let address = report.target.address.ip();
    let meant = pods.iter().find(|pod| pod.tenant == client.tenant && pod.ip == address);
    match (meant, &report.outcome) {
        (None, Outcome::Failed(_)) => Ok(()),
        (None, answered) => anyhow::bail!("nobody of its tenant has it, but {answered:?}"),
        (Some(_), Outcome::Replied(_)) => Ok(()),
        (Some(meant), Outcome::Answered(answer)) => {
            ensure!(answer.pod == meant.full_name(), "answered by {}", answer.pod);
            ensure!(answer.peer.ip().to_canonical() == client.ip, "seen as {}", answer.peer);
            Ok(())
        }
        (Some(_), Outcome::Failed(failure)) => anyhow::bail!("{}", failure.message),
    }
}

pub(crate) fn drops_are_counted(stage: &Stage) -> Result<()> {
    let agents = stage.kubectl.get(&[
        "pods",
        "--namespace",
        NAMESPACE,
        "--selector=app.kubernetes.io/component=agent",
    ])?;
    let mut reasons = Vec::new();
    for agent in items(&agents) {
        let name = agent["metadata"]["name"].as_str().unwrap_or_default();
        let text = stage.kubectl.exec_well(NAMESPACE, name, &["atoll", "drops", "-o", "json"])?;
        let nodes: Value = serde_json::from_str(&text)?;
        let drops = nodes[0]["drops"].as_array().cloned().unwrap_or_default();
        let told = |drop: &Value| format!("{} {}", drop["network"], drop["reason"]);
        reasons.extend(drops.iter().map(told));
    }
    for tenant in TENANTS {
        let wanted = format!("\"{tenant}.default\" \"no-endpoint\"");
        ensure!(reasons.contains(&wanted), "{wanted} is not among {reasons:?}");
    }
    Ok(())
}

/// Everything that exists because of a tenant, with the namespaces last.
const OF_TENANTS: [&[&str]; 6] = [
    &["ports", "--all-namespaces"],
    &["claims"],
    &["subnets"],
    &["networks"],
    &["tenants"],
    &["namespaces", "--selector=atoll.dev/tenant"],
];

pub(crate) fn nothing_is_left(stage: &Stage) -> Result<()> {
    for kind in OF_TENANTS {
        ensure!(
            !items(&stage.kubectl.get(kind)?).is_empty(),
            "there were no {kind:?} to begin with"
        );
    }
    let namespaces = ["delete", "--wait=false", "namespaces", "--selector=atoll.dev/tenant"];
    stage.kubectl.run(&namespaces)?;
    stage.kubectl.run(&["delete", "--wait=false", "tenants", "--all"])?;
    OF_TENANTS.iter().try_for_each(|kind| {
        let what = format!("{} to be gone", kind[0]);
        stage.kubectl.wait_for(&what, kind, |found| items(found).is_empty())
    })
}

#[cfg(test)]
mod tests {
    use atoll_toolbox::{Answer, Failure, FailureKind};

    use super::*;

    fn pod(tenant: &str, name: &str, last: u8) -> Pod {
        let ip = [10, 0, 0, last].into();
        Pod { tenant: tenant.into(), name: name.into(), ip, node: "node1".into() }
    }

    fn pods() -> Vec<Pod> {
        vec![
            pod("acme", "web", 5),
            pod("acme", "db", 6),
            pod("globex", "db", 6),
            pod("globex", "solo", 22),
        ]
    }

    fn answered(by: &str, seen: u8) -> Outcome {
        Outcome::Answered(Answer {
            pod: by.into(),
            ip: [10, 0, 0, 6].into(),
            node: "node2".into(),
            peer: ([10, 0, 0, seen], 40000).into(),
            echo: None,
        })
    }

    fn failed() -> Outcome {
        Outcome::Failed(Failure { error: FailureKind::Timeout, message: "no answer".into() })
    }

    fn verdict(target: &str, outcome: Outcome) -> Result<()> {
        let report = Report { target: target.parse().unwrap(), outcome, rtt_ms: 1.0 };
        judge(&pods()[0], &pods(), &report)
    }

    #[test]
    fn the_pod_of_ones_own_tenant_must_answer_and_see_ones_own_address() {
        assert!(verdict("tcp/10.0.0.6", answered("acme/db", 5)).is_ok());
        assert!(verdict("tcp/10.0.0.6", answered("globex/db", 5)).is_err());
        assert!(verdict("tcp/10.0.0.6", answered("acme/db", 9)).is_err());
        assert!(verdict("tcp/10.0.0.6", failed()).is_err());
    }

    #[test]
    fn an_address_that_only_others_have_must_stay_silent() {
        assert!(verdict("tcp/10.0.0.22", failed()).is_ok());
        assert!(verdict("tcp/10.0.0.22", answered("globex/solo", 5)).is_err());
        assert!(verdict("icmp/10.0.0.22", Outcome::Replied([10, 0, 0, 22].into())).is_err());
    }
}
