//! Probes of every kind and hooks, in pods of two tenants with one address on one node: they fail
//! and recover as users of Kubernetes expect, each for itself.

use anyhow::{Result, ensure};
use atoll_realnodes::wait_until;
use serde_json::{Value, json};

use crate::kubectl::{PATIENCE, Running, has_condition};
use crate::scenarios::infra::node_of;
use crate::stage::Stage;
use crate::tenants::TENANTS;

/// The kinds, each with the port that it asks.
const KINDS: [(&str, u16); 4] = [ON_THE_WIRE[0], ON_THE_WIRE[1], ON_THE_WIRE[2], ("exec", 9004)];
/// Those that the agent makes for the kubelet.
const ON_THE_WIRE: [(&str, u16); 3] = [("http", 9001), ("tcp", 9002), ("grpc", 9003)];
/// Where nobody ever answers.
const NOBODY: u16 = 9099;

/// Every kind of readiness probe: nobody is ready, then one tenant's pod is, and the other's never.
pub(crate) fn fail_and_recover(stage: &Stage) -> Result<()> {
    let node = node_of(stage, "acme", "web")?;
    for tenant in TENANTS {
        let containers = KINDS.map(|(kind, port)| waiting(kind, port));
        stage.kubectl.apply(&pod(tenant, "kinds", &node, &containers).to_string())?;
    }
    for tenant in TENANTS {
        stage.kubectl.wait_for(
            &format!("{tenant}/kinds to run"),
            &found(tenant, "kinds"),
            |pod| {
                statuses(pod).len() == KINDS.len()
                    && statuses(pod).iter().all(|it| it["started"] == true)
            },
        )?;
        await_ready(stage, tenant, &[])?;
    }
    let mut servers = Vec::new();
    for (kind, port) in KINDS {
        servers.push(serve(stage, "acme", kind, port)?);
    }
    await_ready(stage, "acme", &KINDS.map(|(kind, _)| kind))?;
    await_ready(stage, "globex", &[])?;
    servers.into_iter().try_for_each(Running::ended_by_its_input)?;
    await_ready(stage, "acme", &[])?;
    delete(stage, "kinds")
}

/// A liveness probe of any kind that fails has its container started again; a startup probe that
/// fails, too, and until then nobody asks whether it is alive. The other tenant's pod at the same
/// address answers, and is left alone.
pub(crate) fn end_what_is_not_well(stage: &Stage) -> Result<()> {
    let node = node_of(stage, "acme", "web")?;
    let dying = ON_THE_WIRE.map(|(kind, port)| checked(kind, port, NOBODY, 2));
    let well = ON_THE_WIRE.map(|(kind, port)| checked(kind, port, port, 30));
    let halted = [stuck()];
    for (tenant, name, containers) in [
        ("acme", "dying", dying.as_slice()),
        ("globex", "dying", well.as_slice()),
        ("acme", "stuck", halted.as_slice()),
    ] {
        stage.kubectl.apply(&pod(tenant, name, &node, containers).to_string())?;
    }
    let restarted = |it: &Value| it["restartCount"].as_u64() > Some(0);
    for (name, count) in [("dying", ON_THE_WIRE.len()), ("stuck", 1)] {
        let what = format!("every container of acme/{name} to be started again");
        stage.kubectl.wait_for(&what, &found("acme", name), |pod| {
            statuses(pod).len() == count && statuses(pod).iter().all(restarted)
        })?;
    }
    let stuck = stage.kubectl.run(&["events", "--namespace=acme", "--for=pod/stuck"])?;
    ensure!(stuck.contains("Startup probe failed"), "it was said: {stuck}");
    ensure!(!stuck.contains("Liveness probe failed"), "it was asked too early: {stuck}");
    let ready = |pod: &Value| has_condition(pod, "Ready");
    stage.kubectl.wait_for("globex/dying to be Ready", &found("globex", "dying"), ready)?;
    let twin = stage.kubectl.get(&found("globex", "dying"))?;
    ensure!(!statuses(&twin).iter().any(restarted), "its twin was not left alone");
    stage.kubectl.run(&["delete", "pod", "--namespace=acme", "stuck"])?;
    delete(stage, "dying")
}

/// A container that starts by a probe of this kind, and then lives while `alive` answers one.
fn checked(kind: &str, port: u16, alive: u16, patience: u16) -> Value {
    let mut container = server(kind, port);
    container["startupProbe"] = probe(kind, port, 100);
    container["livenessProbe"] = probe(kind, alive, patience);
    container
}

/// A container whose start nobody ever sees, though it would be found alive.
fn stuck() -> Value {
    let mut container = server("stuck", 8080);
    container["startupProbe"] = probe("grpc", NOBODY, 3);
    container["livenessProbe"] = probe("http", 8080, 2);
    container
}

/// A hook that nobody answers has failed, and its pod says so; one that is answered has not.
pub(crate) fn hooks_are_called(stage: &Stage) -> Result<()> {
    let node = node_of(stage, "acme", "web")?;
    for (tenant, port) in [("acme", NOBODY), ("globex", 8080)] {
        let mut container = server("hooked", 8080);
        container["readinessProbe"] = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1});
        container["lifecycle"] = json!({"preStop": {"httpGet": {"port": port}}});
        stage.kubectl.apply(&pod(tenant, "hooked", &node, &[container]).to_string())?;
    }
    for tenant in TENANTS {
        let ready = |pod: &Value| has_condition(pod, "Ready");
        let what = format!("{tenant}/hooked to be Ready");
        stage.kubectl.wait_for(&what, &found(tenant, "hooked"), ready)?;
    }
    delete(stage, "hooked")?;
    let said = |tenant: &str| {
        let events = ["events", "--namespace", tenant, "--for=pod/hooked"];
        Ok::<_, anyhow::Error>(stage.kubectl.run(&events)?.contains("FailedPreStopHook"))
    };
    wait_until("the failed hook to be told", PATIENCE, || said("acme"))?;
    ensure!(!said("globex")?, "a hook that was answered has failed");
    Ok(())
}

/// A container that is ready once somebody serves at this port.
fn waiting(kind: &str, port: u16) -> Value {
    let mut container = json!({
        "name": kind, "image": "atoll.dev/atoll:0.1.0",
        "command": ["atoll", "toolbox", "serve", "--port", (port + 100).to_string()],
    });
    container["readinessProbe"] = probe(kind, port, 3);
    container
}

/// A probe of this kind that has failed after so many failures in a row.
fn probe(kind: &str, port: u16, patience: u16) -> Value {
    let text = format!("127.0.0.1:{port}");
    let mut probe = match kind {
        "http" => json!({"httpGet": {"port": port, "path": "/healthz"}}),
        "tcp" => json!({"tcpSocket": {"port": port}}),
        "grpc" => json!({"grpc": {"port": port}}),
        _ => json!({"exec": {"command": ["atoll", "toolbox", "connect", "tcp", text]}}),
    };
    probe["periodSeconds"] = json!(1);
    probe["timeoutSeconds"] = json!(5);
    probe["failureThreshold"] = json!(patience);
    probe
}

fn server(name: &str, port: u16) -> Value {
    json!({"name": name, "image": "atoll.dev/atoll:0.1.0",
           "command": ["atoll", "toolbox", "serve", "--port", port.to_string()]})
}

/// At an address that the other tenant has on this node, too, except what only acme has.
fn pod(tenant: &str, name: &str, node: &str, containers: &[Value]) -> Value {
    let ip = if name == "stuck" { "10.0.0.43" } else { "10.0.0.42" };
    let nics = json!([{"ip": ip}]).to_string();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": tenant, "annotations": {"atoll.dev/nics": nics}},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": containers},
    })
}

fn found<'a>(tenant: &'a str, name: &'a str) -> [&'a str; 4] {
    ["pod", "--namespace", tenant, name]
}

fn statuses(pod: &Value) -> &[Value] {
    pod["status"]["containerStatuses"].as_array().map_or(&[], Vec::as_slice)
}

/// Waits until exactly these containers of the pod are ready.
fn await_ready(stage: &Stage, tenant: &str, wanted: &[&str]) -> Result<()> {
    let what = format!("exactly {wanted:?} of {tenant}/kinds to be ready");
    stage.kubectl.wait_for(&what, &found(tenant, "kinds"), |pod| {
        let all = statuses(pod);
        all.len() == KINDS.len()
            && all.iter().all(|it| {
                let name = it["name"].as_str().unwrap_or_default();
                (it["ready"] == true) == wanted.contains(&name)
            })
    })
}

/// Serves in a container until its input ends.
fn serve(stage: &Stage, tenant: &str, container: &str, port: u16) -> Result<Running> {
    let inside = ["exec", "--stdin", "--namespace", tenant, "kinds", "--container", container];
    let serve = ["--", "atoll", "toolbox", "serve", "--until-eof", "--port", &port.to_string()];
    stage.kubectl.start(&[&inside[..], &serve[..]].concat())
}

fn delete(stage: &Stage, name: &str) -> Result<()> {
    TENANTS.iter().try_for_each(|tenant| {
        stage.kubectl.run(&["delete", "pod", "--namespace", tenant, name]).map(drop)
    })
}
