//! What a tenant's pod needs of its cluster: the API, and a kubelet that can tell whether it is well.

use std::process::Output;

use anyhow::{Context, Result, ensure};
use atoll_realnodes::wait_until;
use serde_json::{Value, json};

use crate::kubectl::{PATIENCE, has_condition};
use crate::stage::Stage;
use crate::tenants::TENANTS;

/// The API by its name, with what every pod has in its files.
const BY_NAME: &str = "apiVersion: v1
kind: Config
current-context: api
contexts: [{name: api, context: {cluster: api, user: pod}}]
clusters:
  - name: api
    cluster:
      server: https://kubernetes.default
      certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
users:
  - name: pod
    user: {tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}
";

/// By its address and by its name, the API knows a pod by its token and says what this pod may not
/// do.
pub(crate) fn api_is_reached(stage: &Stage) -> Result<()> {
    for tenant in TENANTS {
        let who = ["atoll", "who", "10.0.0.5"];
        knows(tenant, &stage.kubectl.exec(tenant, "web", &who)?)?;
        let by_name = [&who[..], &["--kubeconfig", "/dev/stdin"]].concat();
        let output = stage.kubectl.exec_fed((tenant, "web"), &by_name, BY_NAME)?;
        knows(tenant, &output).context("by the name kubernetes.default")?;
    }
    Ok(())
}

fn knows(tenant: &str, answer: &Output) -> Result<()> {
    let said = String::from_utf8_lossy(&answer.stderr);
    let known = format!("system:serviceaccount:{tenant}:default");
    ensure!(said.contains(&known), "the API answered {tenant}/web: {said}");
    Ok(())
}

/// A pod of this tenant, at an address that a pod of the other has on the same node, too.
fn probed_pod(tenant: &str, node: &str, probes: Value) -> Value {
    let mut container = probes;
    container["name"] = json!("toolbox");
    container["image"] = json!("atoll.dev/atoll:0.1.0");
    container["command"] = json!(["atoll", "toolbox", "serve"]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "probed", "namespace": tenant,
                     "annotations": {"atoll.dev/nics": "[{\"ip\":\"10.0.0.40\"}]"}},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container]},
    })
}

fn get(port: u16) -> Value {
    json!({"httpGet": {"port": port, "path": "/healthz"}, "periodSeconds": 1})
}

const SIDECAR_PORT: u16 = 8090;

/// Whom a hook calls: it answers before the container of the hook starts, which itself may not yet.
fn sidecar() -> Value {
    json!({
        "name": "sidecar", "image": "atoll.dev/atoll:0.1.0", "restartPolicy": "Always",
        "command": ["atoll", "toolbox", "serve", "--port", SIDECAR_PORT.to_string()],
        "startupProbe": {"tcpSocket": {"port": SIDECAR_PORT}, "periodSeconds": 1,
                         "failureThreshold": 60},
    })
}

/// Acme's pod answers at the port that is probed, globex's at another: one is ready and lives, the
/// other is not and is started again, until it answers there, too.
pub(crate) fn probes_meet_their_own_pod(stage: &Stage) -> Result<()> {
    let node = node_of(stage, "acme", "web")?;
    let startup = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 60});
    let well = json!({"startupProbe": startup, "readinessProbe": get(8080),
                      "livenessProbe": get(8080),
                      "lifecycle": {"postStart": {"httpGet": {"port": SIDECAR_PORT}}}});
    let ill = json!({"startupProbe": startup, "readinessProbe": get(8081)});
    let mut with_hook = probed_pod("acme", &node, well);
    with_hook["spec"]["initContainers"] = json!([sidecar()]);
    apply(stage, &with_hook)?;
    apply(stage, &probed_pod("globex", &node, ill))?;
    let pod = |tenant| ["pod", "probed", "--namespace", tenant];
    stage
        .kubectl
        .wait_for("acme/probed to be Ready", &pod("acme"), |pod| has_condition(pod, "Ready"))?;
    stage.kubectl.wait_for("globex/probed to have started", &pod("globex"), |pod| {
        pod["status"]["containerStatuses"][0]["started"] == true
    })?;
    wait_until("the kubelet to say why globex/probed is not ready", PATIENCE, || {
        let events = stage.kubectl.run(&["events", "--namespace", "globex", "--for=pod/probed"])?;
        Ok(events.contains("Readiness probe failed") && !events.contains("Liveness probe failed"))
    })?;
    ensure!(!has_condition(&stage.kubectl.get(&pod("globex"))?, "Ready"), "globex/probed is Ready");
    recovers(stage)?;
    let restarts =
        &stage.kubectl.get(&pod("acme"))?["status"]["containerStatuses"][0]["restartCount"];
    ensure!(*restarts == 0, "acme/probed was started again {restarts} times");
    TENANTS.iter().try_for_each(|tenant| {
        let delete = ["delete", "pod", "probed", "--namespace", tenant];
        stage.kubectl.run(&delete).map(drop)
    })
}

/// Once the pod answers where it is asked, it is ready; when it does no longer, it is not.
fn recovers(stage: &Stage) -> Result<()> {
    let serve = ["exec", "--namespace", "globex", "probed", "--", "atoll", "toolbox", "serve"];
    let server = stage.kubectl.start(&[&serve[..], &["--port", "8081"]].concat())?;
    let pod = ["pod", "probed", "--namespace", "globex"];
    let ready = |pod: &Value| has_condition(pod, "Ready");
    stage.kubectl.wait_for("globex/probed to recover", &pod, ready)?;
    drop(server);
    Ok(())
}

/// A probe that would make the node call somebody else.
pub(crate) fn probes_elsewhere_are_refused(stage: &Stage) -> Result<()> {
    let node = node_of(stage, "acme", "web")?;
    let elsewhere = json!({"readinessProbe": {"httpGet": {"host": "10.0.0.6", "port": 8080}}});
    let refused = apply(stage, &probed_pod("acme", &node, elsewhere));
    let said = refused.err().context("the pod was admitted")?.to_string();
    let sentence = "spec.containers[0].readinessProbe.httpGet.host is \"10.0.0.6\"";
    ensure!(said.contains(sentence), "it was refused with {said}");
    Ok(())
}

fn apply(stage: &Stage, object: &Value) -> Result<String> {
    stage.kubectl.apply(&object.to_string())
}

pub(crate) fn node_of(stage: &Stage, tenant: &str, pod: &str) -> Result<String> {
    let found = stage.kubectl.get(&["pod", pod, "--namespace", tenant])?;
    found["spec"]["nodeName"].as_str().map(str::to_owned).context("the pod is on no node")
}
