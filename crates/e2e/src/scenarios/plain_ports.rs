//! Node ports of Services of namespaces of no tenant, on nodes without kube-proxy: whoever comes to a port of
//! a node is led to a pod, on that node or on another.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use atoll_realnodes::wait_until;
use atoll_toolbox::{Answer, FailureKind, Outcome};

use super::plain::{HOST, NAMESPACE, address, probed};
use crate::kubectl::PATIENCE;
use crate::stage::Stage;
use crate::tenants;

/// Two pods of the first node, and one of the second, where also `HOST` is.
const ON_FIRST: [&str; 2] = ["one", "two"];
const ON_SECOND: &str = "three";
const PROTOCOLS: [&str; 2] = ["tcp", "udp"];

fn service(pod: &str, policy: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: port-{pod}, namespace: {NAMESPACE}}}
spec:
  type: NodePort
  externalTrafficPolicy: {policy}
  selector: {{pod: {pod}}}
  ports:
    - {{name: tcp, port: 80, targetPort: 8080}}
    - {{name: udp, port: 80, targetPort: 8080, protocol: UDP}}
"
    )
}

/// The node port that the API gave a service, by protocol.
fn node_port(stage: &Stage, pod: &str, protocol: &str) -> Result<u16> {
    let found =
        stage.kubectl.get(&["service", "--namespace", NAMESPACE, &format!("port-{pod}")])?;
    let ports = found["spec"]["ports"].as_array().context("it has no ports")?;
    let port = ports.iter().find(|port| port["name"] == protocol);
    let number = port.and_then(|port| port["nodePort"].as_u64());
    Ok(u16::try_from(number.with_context(|| format!("it has no node port by {protocol}"))?)?)
}

fn first_node(stage: &Stage) -> Result<IpAddr> {
    let names = tenants::nodes(&stage.kubectl)?;
    let node = stage.kubectl.get(&["node", &names[0]])?;
    let addresses = node["status"]["addresses"].as_array().context("it has no addresses")?;
    let own = addresses.iter().find(|address| address["type"] == "InternalIP");
    Ok(own.and_then(|own| own["address"].as_str()).context("it has no InternalIP")?.parse()?)
}

fn led(stage: &Stage, client: &str, protocol: &str, to: SocketAddr) -> Result<Outcome> {
    Ok(probed(stage, (NAMESPACE, client), &format!("{protocol}/{to}"))?.outcome)
}

/// A service is led a moment after its endpoints were written.
fn answered(stage: &Stage, client: &str, protocol: &str, to: SocketAddr) -> Result<Answer> {
    let mut heard = None;
    wait_until(&format!("{to} to answer {client} by {protocol}"), PATIENCE, || {
        heard = match led(stage, client, protocol, to)? {
            Outcome::Answered(answer) => Some(answer),
            _ => None,
        };
        Ok(heard.is_some())
    })?;
    heard.context("nobody answered")
}

/// Whoever asks at a pod's node port of this address hears that pod.
fn leads_to(stage: &Stage, client: &str, at: IpAddr, pod: &str) -> Result<()> {
    for protocol in PROTOCOLS {
        let to = SocketAddr::new(at, node_port(stage, pod, protocol)?);
        let answer = answered(stage, client, protocol, to)?;
        ensure!(answer.pod == format!("{NAMESPACE}/{pod}"), "answered by {}", answer.pod);
    }
    Ok(())
}

/// From a node to another one's port, whose pod is there or elsewhere; and from where the pod is.
pub(crate) fn node_ports_are_led(stage: &Stage) -> Result<()> {
    let (first, second) = (first_node(stage)?, address(stage, NAMESPACE, HOST)?);
    for pod in [ON_FIRST[1], ON_SECOND] {
        stage.kubectl.apply(&service(pod, "Cluster"))?;
        leads_to(stage, HOST, first, pod)?;
        leads_to(stage, HOST, second, pod)?;
        leads_to(stage, HOST, Ipv4Addr::LOCALHOST.into(), pod)?;
        leads_to(stage, ON_FIRST[0], first, pod)?;
        leads_to(stage, ON_FIRST[0], second, pod)?;
    }
    Ok(())
}

/// A service of which only pods of the node that a client comes to take connections: they see the client's
/// own address, and a node without one refuses.
pub(crate) fn node_ports_stay_on_their_node_where_they_say_so(stage: &Stage) -> Result<()> {
    let (first, second) = (first_node(stage)?, address(stage, NAMESPACE, HOST)?);
    let pod = ON_FIRST[1];
    stage.kubectl.apply(&service(pod, "Local"))?;
    let at = |node: IpAddr| anyhow::Ok(SocketAddr::new(node, node_port(stage, pod, "tcp")?));
    let answer = answered(stage, HOST, "tcp", at(first)?)?;
    ensure!(answer.peer.ip().to_canonical() == second, "the client is seen as {}", answer.peer);
    wait_until("the other node to refuse", PATIENCE, || {
        let outcome = led(stage, ON_FIRST[0], "tcp", at(second)?)?;
        Ok(matches!(outcome, Outcome::Failed(failure) if failure.error == FailureKind::Refused))
    })
}
