//! Services from `kubectl apply` to a connection, each case in two tenants with the same pod
//! addresses and the same VIPs at the same time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::asking::{Asker, await_answered_by, await_one, await_refused, found};
use crate::fixture::{Lab, await_condition, await_some, kill_agent_and_await_the_next};

const TENANTS: [&str; 2] = ["acme", "globex"];
const VIP: &str = "198.18.0.9";

/// The address that the cluster gives a tenant's service.
fn cluster_ip(tenant: &str) -> &'static str {
    if tenant == "acme" { "10.96.2.1" } else { "10.96.2.2" }
}

fn yaml(documents: &[Value]) -> String {
    documents.iter().map(|document| format!("---\n{document}\n")).collect()
}

/// A server on a node, at an address that the other tenant has, too.
fn pod(tenant: &str, name: &str, node: &str, last: u8, app: &str) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let nics = json!([{"ip": format!("10.0.0.{last}")}]).to_string();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": tenant, "labels": {"app": app},
                     "annotations": {"atoll.dev/nics": nics}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "toolbox", "image": "none", "command": ["atoll", "toolbox", "serve"],
                "ports": [{"name": "talk", "containerPort": 8080},
                          {"name": "talk-udp", "containerPort": 8080, "protocol": "UDP"}],
                "env": [field("POD_NAME", "metadata.name"),
                        field("POD_NAMESPACE", "metadata.namespace"),
                        field("NODE_NAME", "spec.nodeName")],
            }],
        },
    })
}

/// The service `shop`, with more in its spec.
fn shop(tenant: &str, more: &Value) -> Value {
    let mut spec = json!({
        "clusterIP": cluster_ip(tenant), "selector": {"app": "shop"},
        "ports": [{"name": "http", "port": 80, "targetPort": "talk"},
                  {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "talk-udp"},
                  {"name": "alt", "port": 8000, "targetPort": 8080}],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Service",
           "metadata": {"name": "shop", "namespace": tenant,
                        "annotations": {"atoll.dev/vip": VIP}},
           "spec": spec})
}

/// A tenant with client `web` and the pods `near` and `far` behind `shop`.
fn tenant(name: &str) -> String {
    yaml(&[
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
               "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16"]}}}),
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": name, "labels": {"atoll.dev/tenant": name}}}),
        shop(name, &json!({})),
        pod(name, "web", "node1", 5, "web"),
        pod(name, "near", "node1", 6, "shop"),
        pod(name, "far", "node2", 7, "shop"),
    ])
}

fn lab_with_both_tenants() -> Lab {
    let lab = Lab::up(2);
    TENANTS.iter().for_each(|name| drop(lab.apply(&tenant(name)).good()));
    lab.wait_for_pods();
    TENANTS.iter().for_each(|name| await_backends(&lab, name, &["near", "far"]));
    lab
}

/// Who answers at `to`, and whom it saw asking; none where nobody does.
fn answer(lab: &Lab, tenant: &str, protocol: &str, to: &str) -> Option<(String, String)> {
    let said = lab.connect(&format!("{tenant}/web"), protocol, to);
    let answer: Value = serde_json::from_str(&said.out).ok()?;
    let text = |field: &str| answer[field].as_str().map(ToOwned::to_owned);
    Some((text("pod")?, text("peer")?.rsplit_once(':')?.0.to_owned()))
}

fn names(tenant: &str, pods: &[&str]) -> BTreeSet<String> {
    pods.iter().map(|pod| format!("{tenant}/{pod}")).collect()
}

/// Waits until exactly these pods are seen behind the service, by everybody who asks.
fn await_backends(lab: &Lab, tenant: &str, pods: &[&str]) {
    let (web, to) = (format!("{tenant}/web"), format!("{VIP}:80"));
    match pods {
        [] => await_refused(lab, Asker::Pod(&web), ("tcp", &to)),
        _ => await_answered_by(lab, Asker::Pod(&web), ("tcp", &to), &names(tenant, pods)),
    }
}

/// Waits until one pod answers all who ask at the VIP, and says which.
fn await_one_backend(lab: &Lab, tenant: &str) -> String {
    await_one(lab, Asker::Pod(&format!("{tenant}/web")), ("tcp", &format!("{VIP}:80")))
}

/// How a try that must fail failed, like `refused` or `timeout`.
fn failure(lab: &Lab, tenant: &str, protocol: &str, to: &str) -> String {
    let ask = ["atoll", "toolbox", "connect", protocol, to, "-o", "json"];
    let said = lab.exec(&format!("{tenant}/web"), &ask);
    assert!(!said.ok, "{tenant} {to}: {}", said.out);
    let failure: Value = serde_json::from_str(&said.out).unwrap();
    failure["error"].as_str().unwrap_or_else(|| panic!("{failure}")).to_owned()
}

#[test]
fn equal_vips_of_two_tenants_lead_each_to_its_own_pods_on_every_node() {
    let lab = lab_with_both_tenants();
    for (tenant, other) in [("acme", "globex"), ("globex", "acme")] {
        for ip in [VIP, cluster_ip(tenant)] {
            for (protocol, port) in [("tcp", 80), ("udp", 53), ("tcp", 8000)] {
                let to = format!("{ip}:{port}");
                let (pod, peer) = await_some(|| answer(&lab, tenant, protocol, &to));
                assert!(names(tenant, &["near", "far"]).contains(&pod), "{to}: {pod}");
                assert_eq!(peer, "10.0.0.5", "the client's own address");
            }
            assert_eq!(answer(&lab, tenant, "tcp", &format!("{ip}:81")), None);
        }
        let foreign = format!("{}:80", cluster_ip(other));
        assert_eq!(answer(&lab, tenant, "tcp", &foreign), None, "not of this network");
    }
    for node in ["node1", "node2"] {
        assert_eq!(lab.rules(node), "", "{node}");
    }
}

#[test]
fn a_service_follows_its_pods_and_refuses_at_once_when_none_is_left() {
    let lab = lab_with_both_tenants();
    for tenant in TENANTS {
        lab.kubectl(&["label", "pod", "near", "-n", tenant, "app=other", "--overwrite"]).good();
    }
    TENANTS.iter().for_each(|tenant| await_backends(&lab, tenant, &["far"]));
    for tenant in TENANTS {
        lab.kubectl(&["delete", "pod", "far", "-n", tenant]).good();
    }
    for tenant in TENANTS {
        await_backends(&lab, tenant, &[]);
        for (protocol, port) in [("tcp", 80), ("udp", 53)] {
            for ip in [VIP, cluster_ip(tenant)] {
                let to = format!("{ip}:{port}");
                assert_eq!(failure(&lab, tenant, protocol, &to), "refused", "{to}");
            }
        }
    }
    for tenant in TENANTS {
        lab.kubectl(&["label", "pod", "near", "-n", tenant, "app=shop", "--overwrite"]).good();
        await_backends(&lab, tenant, &["near"]);
    }
}

#[test]
fn a_service_keeps_its_clients_together_or_on_their_node_where_it_says_so() {
    let lab = lab_with_both_tenants();
    for tenant in TENANTS {
        lab.apply(&yaml(&[shop(tenant, &json!({"sessionAffinity": "ClientIP"}))])).good();
    }
    for tenant in TENANTS {
        await_one_backend(&lab, tenant);
        let local = json!({"internalTrafficPolicy": "Local", "sessionAffinity": "None"});
        lab.apply(&yaml(&[shop(tenant, &local)])).good();
        await_backends(&lab, tenant, &["near"]);
    }
}

/// How long a client is kept together in the test of it, and how long a client then waits.
const TOGETHER: u64 = 4;
const PAUSE: Duration = Duration::from_millis(4500);

/// Who answers both tenants, one call each, at the same time.
fn both_answered(lab: &Lab) -> [Option<String>; 2] {
    let to = format!("{VIP}:80");
    TENANTS.map(|tenant| answer(lab, tenant, "tcp", &to).map(|(pod, _)| pod))
}

/// Whoever asks again before the time is over meets whom it met.
fn stays_within_its_time(lab: &Lab, tenant: &str) {
    let (web, to) = (format!("{tenant}/web"), format!("{VIP}:80"));
    await_condition(|| {
        let begun = Instant::now();
        let (first, _) = await_some(|| answer(lab, tenant, "tcp", &to));
        let again = found(lab, Asker::Pod(&web), ("tcp", &to), "5s");
        let is_in_time = begun.elapsed() < Duration::from_secs(TOGETHER);
        let is_kept = again.iter().all(|it| it.as_ref() == Ok(&first));
        assert!(is_kept || !is_in_time, "{tenant}: {first} and then {again:?}");
        is_in_time
    })
    .unwrap_or_else(|()| panic!("{tenant}: nobody was quick enough to be kept"));
}

/// Time passes for both at once, and what has passed is the one thing that cannot be awaited.
#[test]
fn affinity_lasts_for_its_time_after_the_last_connection_and_then_another_may_answer() {
    let lab = lab_with_both_tenants();
    let with = |seconds: u64| {
        let kept = json!({"sessionAffinity": "ClientIP",
                          "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}});
        TENANTS.iter().for_each(|it| drop(lab.apply(&yaml(&[shop(it, &kept)])).good()));
    };
    with(600);
    TENANTS.iter().for_each(|tenant| drop(await_one_backend(&lab, tenant)));
    with(TOGETHER);
    TENANTS.iter().for_each(|tenant| stays_within_its_time(&lab, tenant));
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    await_condition(|| {
        for (seen, pod) in seen.iter_mut().zip(both_answered(&lab)) {
            seen.extend(pod);
        }
        let is_over = seen.iter().all(|seen| seen.len() == 2);
        if !is_over {
            std::thread::sleep(PAUSE);
        }
        is_over
    })
    .unwrap_or_else(|()| panic!("they were kept for good: {seen:?}"));
    for (tenant, seen) in TENANTS.into_iter().zip(seen) {
        assert_eq!(seen, names(tenant, &["near", "far"]));
    }
}

#[test]
fn connections_through_a_service_survive_the_agent_and_new_ones_are_led_on() {
    let lab = lab_with_both_tenants();
    let flow =
        ["atoll", "toolbox", "flow", "--tcp", "198.18.0.9:80", "--rate", "100", "--seconds", "6"];
    let flow = [&flow[..], &["--linger", "20s"]].concat();
    let flows = TENANTS.map(|tenant| {
        let mut command = lab.exec_command(&format!("{tenant}/web"), &flow);
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    });
    kill_agent_and_await_the_next(&lab, "node1");
    for tenant in TENANTS {
        await_backends(&lab, tenant, &["near", "far"]);
    }
    for flow in flows {
        let output = flow.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["lost"], 0, "{report}");
    }
}
