//! That all of it is in force while calls are measured: a pod's names are answered, what its tenant's
//! policies allow passes, and what they do not allow does not.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::Runtime;
use super::contestant::Pod;
use crate::node::{AgentNode, CLUSTER_DNS, PlannedPod};
use crate::volley::{Answers, Volley};

const ALLOWED: u16 = 7000;
const DENIED: u16 = 7001;
const DNS: u16 = 53;
const WORD: u8 = b'y';
/// How long a resolver may be silent that has just begun.
const PATIENCE: Duration = Duration::from_secs(60);
/// A question for a name that nobody has: `x.svc.cluster.local`.
const QUESTION: &[u8] =
    b"\x07\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01x\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01";

/// Gives a tenant's pods a policy that denies everything but one port among them, and names.
pub(super) fn enforce(node: &AgentNode, tenant: &str) -> Result<()> {
    let policies = Api::<NetworkPolicy>::namespaced(node.client.clone(), tenant);
    let policy = serde_json::from_value(policy()).context("the policy is one")?;
    node.runtime().block_on(policies.create(&PostParams::default(), &policy))?;
    Ok(())
}

fn policy() -> Value {
    let every = json!([{"podSelector": {}}]);
    let port = |number: u16| json!([{"protocol": "UDP", "port": number}]);
    let spec = json!({
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": every, "ports": port(ALLOWED)}],
        "egress": [{"to": every}, {"ports": port(DNS)}],
    });
    json!({"metadata": {"name": "measured"}, "spec": spec})
}

/// Attaches two pods of one tenant, sees what they can and cannot, and takes them away.
pub(super) fn hold(runtime: &Runtime<'_>, [asker, server]: [&PlannedPod; 2]) -> Result<()> {
    let pods = [asker, server].map(Pod::new);
    pods.iter().try_for_each(|pod| runtime.add(pod).map(drop))?;
    let held = see(&pods, server);
    pods.iter().try_for_each(|pod| runtime.del(pod).map(drop))?;
    held
}

fn see([asker, server]: &[Pod; 2], planned: &PlannedPod) -> Result<()> {
    let _answers = [ALLOWED, DENIED]
        .map(|port| Answers::start(&server.namespace, port, |_| WORD))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    let volley = |port| Volley::start(&asker.namespace, SocketAddr::new(planned.ip.into(), port));
    let (allowed, denied) = (volley(ALLOWED), volley(DENIED));
    let passes = allowed.settles(Instant::now(), |it| it == Some(WORD));
    passes.context("what a policy allows does not pass")?;
    let stays = denied.settles(Instant::now(), |it| it.is_none());
    stays.context("what no policy allows passes")?;
    asker.namespace.run(ask_for_a_name)
}

fn ask_for_a_name() -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect((CLUSTER_DNS, DNS))?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let begun = Instant::now();
    // What cannot be sent yet is not answered either.
    while socket.send(QUESTION).and_then(|_| socket.recv(&mut [0; 512])).is_err() {
        ensure!(begun.elapsed() < PATIENCE, "the resolver at {CLUSTER_DNS} does not answer a pod");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_one_and_allows_one_port_and_names() {
        let policy: NetworkPolicy = serde_json::from_value(policy()).unwrap();
        let spec = policy.spec.unwrap();
        assert_eq!(spec.ingress.unwrap().len(), 1);
        assert_eq!(spec.egress.unwrap().len(), 2);
    }
}
