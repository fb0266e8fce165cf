//! Services of namespaces of no tenant, on nodes without kube-proxy: plain pods are led as Kubernetes
//! promises to every pod, and nodes too.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use atoll_realnodes::wait_until;
use atoll_toolbox::{Answer, FailureKind, Outcome};

use super::plain::{HOST, NAMESPACE, address, probed};
use crate::kubectl::PATIENCE;
use crate::stage::Stage;

const CLIENT: &str = "one";
/// Beside the client, on another node, and the client itself.
const BACKENDS: [&str; 3] = ["two", "three", CLIENT];
/// A service that no pod is behind.
const NOBODY: &str = "nobody";
/// A tenant, a pod of it that asks, and one that is behind its service.
const TENANT: (&str, &str, &str) = ("acme", "web", "db");
const OF_TENANT: &str = "to-db";

fn service(namespace: &str, pod: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: to-{pod}, namespace: {namespace}}}
spec:
  selector: {{pod: {pod}}}
  ports:
    - {{name: tcp, port: 80, targetPort: 8080}}
    - {{name: udp, port: 80, targetPort: 8080, protocol: UDP}}
"
    )
}

fn cluster_ip(stage: &Stage, namespace: &str, service: &str) -> Result<IpAddr> {
    let found = stage.kubectl.get(&["service", "--namespace", namespace, service])?;
    let ip = found["spec"]["clusterIP"].as_str().with_context(|| format!("{service} has none"))?;
    Ok(ip.parse()?)
}

/// Who answers a pod at a service's address.
fn led(stage: &Stage, client: &str, protocol: &str, service: IpAddr) -> Result<Outcome> {
    Ok(probed(stage, (NAMESPACE, client), &format!("{protocol}/{service}:80"))?.outcome)
}

/// One service for each backend, all of them by TCP and UDP; the backend sees its client's own address,
/// and where it is the client itself, the service's. One that nobody is behind refuses.
pub(crate) fn are_led(stage: &Stage) -> Result<()> {
    for pod in BACKENDS.iter().chain([&NOBODY]) {
        stage.kubectl.apply(&service(NAMESPACE, pod))?;
    }
    let own = address(stage, NAMESPACE, CLIENT)?;
    for pod in BACKENDS {
        let ip = cluster_ip(stage, NAMESPACE, &format!("to-{pod}"))?;
        let seen = if pod == CLIENT { ip } else { own };
        for protocol in ["tcp", "udp"] {
            let answer = eventually_answered(stage, CLIENT, protocol, ip)?;
            ensure!(answer.pod == format!("{NAMESPACE}/{pod}"), "answered by {}", answer.pod);
            ensure!(answer.peer.ip() == seen, "{pod} sees {} by {protocol}", answer.peer);
        }
    }
    refuses(stage, CLIENT, cluster_ip(stage, NAMESPACE, &format!("to-{NOBODY}"))?)
}

/// By a pod that uses its node's network: to a pod of that node, and to one of another.
pub(crate) fn nodes_are_led(stage: &Stage) -> Result<()> {
    for pod in ["three", "two"] {
        let ip = cluster_ip(stage, NAMESPACE, &format!("to-{pod}"))?;
        for protocol in ["tcp", "udp"] {
            let answer = eventually_answered(stage, HOST, protocol, ip)?;
            ensure!(answer.pod == format!("{NAMESPACE}/{pod}"), "answered by {}", answer.pod);
        }
    }
    refuses(stage, HOST, cluster_ip(stage, NAMESPACE, &format!("to-{NOBODY}"))?)
}

/// A service is led a moment after its endpoints were written.
fn eventually_answered(
    stage: &Stage,
    client: &str,
    protocol: &str,
    service: IpAddr,
) -> Result<Answer> {
    let mut heard = None;
    wait_until(&format!("{service} to answer {client} by {protocol}"), PATIENCE, || {
        heard = match led(stage, client, protocol, service)? {
            Outcome::Answered(answer) => Some(answer),
            _ => None,
        };
        Ok(heard.is_some())
    })?;
    heard.context("nobody answered")
}

fn refuses(stage: &Stage, client: &str, service: IpAddr) -> Result<()> {
    wait_until(&format!("{service} to refuse {client}"), PATIENCE, || {
        let outcome = led(stage, client, "tcp", service)?;
        ensure!(!matches!(outcome, Outcome::Answered(_)), "somebody answers: {outcome:?}");
        Ok(matches!(outcome, Outcome::Failed(failure) if failure.error == FailureKind::Refused))
    })
}

/// By the address in its environment, which is the cluster's for its API, and with its own token.
pub(crate) fn the_api_is_reached(stage: &Stage) -> Result<()> {
    for pod in ["one", "three"] {
        let answer = stage.kubectl.exec(NAMESPACE, pod, &["atoll", "who", "10.0.0.5"])?;
        let said = String::from_utf8_lossy(&answer.stderr);
        let known = format!("system:serviceaccount:{NAMESPACE}:default");
        ensure!(said.contains(&known), "the API answered {NAMESPACE}/{pod}: {said}");
    }
    Ok(())
}

/// A tenant's pod is not led to a plain pod's service, nor a plain pod to a tenant's, each beside one
/// who is.
pub(crate) fn tenants_have_their_own(stage: &Stage) -> Result<()> {
    let (tenant, asks, serves) = TENANT;
    let label = format!("pod={serves}");
    stage.kubectl.run(&["label", "pod", "--overwrite", "--namespace", tenant, serves, &label])?;
    stage.kubectl.apply(&service(tenant, serves))?;
    let theirs = format!("tcp/{}:80", cluster_ip(stage, tenant, OF_TENANT)?);
    let ours = format!("tcp/{}:80", cluster_ip(stage, NAMESPACE, "to-two")?);
    let reaches = |client: (&str, &str), target: &str| {
        let outcome = probed(stage, client, target)?.outcome;
        anyhow::Ok(matches!(outcome, Outcome::Answered(_)))
    };
    let (plain, of_tenant) = ((NAMESPACE, CLIENT), (tenant, asks));
    wait_until("the tenant's service to lead its own", PATIENCE, || reaches(of_tenant, &theirs))?;
    ensure!(!reaches(plain, &theirs)?, "a plain pod is led to a tenant's");
    ensure!(reaches(plain, &ours)?, "a plain pod is not led to another");
    ensure!(!reaches(of_tenant, &ours)?, "a tenant's pod is led to a plain one");
    stage.kubectl.run(&["delete", "service", "--namespace", tenant, OF_TENANT]).map(drop)
}
