//! What a tenant's pod reaches of its cluster: the API by its name and address, services that an
//! administrator exports, and nothing else of any node.

use serde_json::{Value, json};

use crate::fixture::{Lab, Said, await_condition, kill_agent_and_await_the_next};

const TENANTS: [&str; 2] = ["acme", "globex"];

/// A tenant with pod `web` on node1, which has the same address in every tenant.
fn tenant(name: &str) -> String {
    let documents = [
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
               "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16"]}}}),
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": name, "labels": {"atoll.dev/tenant": name}}}),
        json!({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": "web", "namespace": name,
                            "annotations": {"atoll.dev/nics": "[{\"ip\":\"10.0.0.5\"}]"}},
               "spec": {"nodeSelector": {"kubernetes.io/hostname": "node1"},
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{"name": "toolbox", "image": "none",
                                        "command": ["atoll", "toolbox", "serve"]}]}}),
    ];
    documents.iter().map(|document| format!("---\n{document}\n")).collect()
}

fn lab_with_both_tenants() -> Lab {
    let lab = Lab::up(2);
    TENANTS.iter().for_each(|name| drop(lab.apply(&tenant(name)).good()));
    lab.wait_for_pods();
    lab
}

/// The administrator's kubeconfig, for the API as pods know it.
fn kubeconfig(lab: &Lab, server: &str) -> String {
    let view = ["config", "view", "--raw", "--flatten", "-o", "json"];
    let mut config = lab.kubectl(&view).json();
    config["clusters"][0]["cluster"]["server"] = json!(server);
    config.to_string()
}

/// kubectl in a pod, which is handed its kubeconfig, where pods of either place can keep one.
const KUBECTL: &str = r#"file=/dev/shm/kubeconfig-$$; (umask 077; cat > $file)
"$0" --kubeconfig=$file --request-timeout=30s "$@"; code=$?; rm $file; exit $code"#;

fn kubectl_inside(lab: &Lab, tenant: &str, server: &str, args: &[&str]) -> Said {
    let kubectl = lab.kubectl_in_pods();
    let command = [&["sh", "-c", KUBECTL, kubectl.as_str()], args].concat();
    lab.exec_fed(&format!("{tenant}/web"), &command, &kubeconfig(lab, server))
}

#[test]
fn the_api_is_reached_by_name_and_address_from_pods_with_one_address() {
    let lab = lab_with_both_tenants();
    let names = ["get", "pods", "-n", "acme", "-o", "name"];
    for tenant in TENANTS {
        for server in ["https://kubernetes.default.svc", "https://10.96.0.1"] {
            let said = kubectl_inside(&lab, tenant, server, &names).good();
            assert_eq!(said.trim(), "pod/web", "{tenant} {server}");
        }
        let said =
            lab.exec(&format!("{tenant}/web"), &["sh", "-c", "echo $KUBERNETES_SERVICE_HOST"]);
        assert_eq!(said.good().trim(), "10.96.0.1");
    }
    kill_agent_and_await_the_next(&lab, "node1");
    await_condition(|| kubectl_inside(&lab, "globex", "https://kubernetes.default", &names).ok)
        .expect("the next agent passes calls on");
}

/// A service of namespace `infra` with this label, which leads to port 8080 of a process on node2.
fn exported(labels: &Value, annotations: &Value) -> String {
    let documents = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "infra"}}),
        json!({"apiVersion": "v1", "kind": "Service",
               "metadata": {"name": "registry", "namespace": "infra", "labels": labels,
                            "annotations": annotations},
               "spec": {"clusterIP": "10.96.7.7", "selector": {"app": "registry"},
                        "ports": [{"name": "tcp", "port": 80, "targetPort": 8080}]}}),
        json!({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": "registry", "namespace": "infra",
                            "labels": {"app": "registry"}},
               "spec": {"hostNetwork": true, "nodeSelector": {"kubernetes.io/hostname": "node2"},
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{"name": "toolbox", "image": "none",
                                        "command": ["atoll", "toolbox", "serve"]}]}}),
    ];
    documents.iter().map(|document| format!("---\n{document}\n")).collect()
}

fn reaches_registry(lab: &Lab, tenant: &str) -> bool {
    let said = lab.connect(&format!("{tenant}/web"), "tcp", "10.96.7.7:80");
    said.ok && said.out.contains("infra/registry")
}

fn resolves_registry(lab: &Lab, tenant: &str) -> bool {
    let dig = ["dig", "+short", "registry.infra.svc.cluster.local"];
    lab.exec(&format!("{tenant}/web"), &dig).good().trim() == "10.96.7.7"
}

fn await_reach(lab: &Lab, wanted: [bool; 2]) {
    await_condition(|| TENANTS.map(|tenant| reaches_registry(lab, tenant)) == wanted)
        .unwrap_or_else(|()| panic!("the registry is never reached as {wanted:?}"));
    assert_eq!(TENANTS.map(|tenant| resolves_registry(lab, tenant)), wanted);
}

#[test]
fn a_service_is_reached_by_the_tenants_it_is_exported_to_and_by_nobody_else() {
    let lab = lab_with_both_tenants();
    lab.apply(&exported(&json!({}), &json!({}))).good();
    lab.wait_for_pods();
    let listed = json!({"atoll.dev/export": "listed"});
    lab.apply(&exported(&listed, &json!({"atoll.dev/export-to": "acme"}))).good();
    await_reach(&lab, [true, false]);
    lab.apply(&exported(&json!({"atoll.dev/export": "all"}), &json!({}))).good();
    await_reach(&lab, [true, true]);
    lab.kubectl(&["label", "service", "registry", "-n", "infra", "atoll.dev/export-"]).good();
    await_reach(&lab, [false, false]);
}
