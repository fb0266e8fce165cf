//! What pods are answered by name: stock pods, with the resolv.conf that every pod has, in two
//! tenants with the same addresses and the same names.

use std::thread;

use serde_json::{Value, json};

use crate::fixture::{Lab, Said, atoll, await_condition, kill_agent_and_await_the_next};

const TENANTS: [&str; 2] = ["acme", "globex"];

/// A tenant with pod `web` on node1, service `shop`, and StatefulSet `db` of two with its headless
/// service.
fn tenant(name: &str, shop: &str) -> String {
    let documents = [
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
               "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16"]}}}),
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": name, "labels": {"atoll.dev/tenant": name}}}),
        service(name, "shop", &json!({"clusterIP": shop, "selector": {"app": "db"}})),
        service(name, "db", &json!({"clusterIP": "None", "selector": {"app": "db"}})),
        json!({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": "web", "namespace": name,
                            "annotations": {"atoll.dev/nics": "[{\"ip\":\"10.0.0.5\"}]"}},
               "spec": pod_spec(&json!({"kubernetes.io/hostname": "node1"}))}),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
               "metadata": {"name": "db", "namespace": name},
               "spec": {"serviceName": "db", "replicas": 2,
                        "selector": {"matchLabels": {"app": "db"}},
                        "template": {"metadata": {"labels": {"app": "db"}},
                                     "spec": pod_spec(&json!({}))}}}),
    ];
    documents.iter().map(|document| format!("---\n{document}\n")).collect()
}

fn service(namespace: &str, name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["ports"] = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    json!({"apiVersion": "v1", "kind": "Service",
           "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

fn pod_spec(node: &Value) -> Value {
    json!({"nodeSelector": node, "terminationGracePeriodSeconds": 1,
           "containers": [{"name": "toolbox", "image": "none",
                           "command": ["atoll", "toolbox", "serve"]}]})
}

fn lab_with_both_tenants() -> Lab {
    let lab = Lab::up(2);
    lab.apply(&tenant("acme", "10.96.1.1")).good();
    lab.apply(&tenant("globex", "10.96.1.2")).good();
    for name in TENANTS {
        let ready = "jsonpath={.status.readyReplicas}";
        lab.eventually(&["get", "statefulset", "db", "-n", name, "-o", ready], |said| said == "2");
    }
    lab.wait_for_pods();
    lab
}

/// Asks from inside a tenant's pod `web`, by the resolver and the search list that it was given.
fn dig(lab: &Lab, tenant: &str, question: &[&str]) -> Said {
    let dig = [&["dig", "+search", "+nocookie"], question].concat();
    lab.exec(&format!("{tenant}/web"), &dig)
}

/// The answer alone, line by line.
fn answer(lab: &Lab, tenant: &str, question: &[&str]) -> Vec<String> {
    let said = dig(lab, tenant, &[&["+short"], question].concat()).good();
    let mut lines: Vec<String> = said.lines().map(ToOwned::to_owned).collect();
    lines.sort();
    lines
}

/// The answer's code, like `NXDOMAIN`.
fn code(lab: &Lab, tenant: &str, question: &[&str]) -> String {
    let said = dig(lab, tenant, &[&["+nosearch"], question].concat()).good();
    let code = said.split("status: ").nth(1).and_then(|rest| rest.split(',').next());
    code.unwrap_or_else(|| panic!("no status in {said}")).to_owned()
}

fn eventually(lab: &Lab, tenant: &str, question: &[&str], wanted: &[&str]) {
    let mut last = vec![];
    await_condition(|| {
        last = answer(lab, tenant, question);
        last == wanted
    })
    .unwrap_or_else(|()| panic!("{tenant} {question:?}: {last:?} and never {wanted:?}"));
}

fn pod_ip(lab: &Lab, pod: &str) -> String {
    let (namespace, name) = pod.split_once('/').unwrap();
    let ip = ["get", "pod", name, "-n", namespace, "-o", "jsonpath={.status.podIP}"];
    lab.kubectl(&ip).good()
}

#[test]
fn one_name_is_answered_to_each_tenant_with_its_own_and_names_of_others_do_not_exist() {
    let lab = lab_with_both_tenants();
    for (tenant, other, shop) in [("acme", "globex", "10.96.1.1"), ("globex", "acme", "10.96.1.2")]
    {
        for over in ["+notcp", "+tcp"] {
            eventually(&lab, tenant, &[over, "shop"], &[shop]);
            let own = format!("shop.{tenant}.svc.cluster.local");
            assert_eq!(code(&lab, tenant, &[over, &own]), "NOERROR");
            let foreign = format!("shop.{other}.svc.cluster.local");
            assert_eq!(code(&lab, tenant, &[over, &foreign]), "NXDOMAIN");
            assert_eq!(code(&lab, tenant, &[over, "example.com"]), "REFUSED");
        }
        let libc = |name: &str| lab.exec(&format!("{tenant}/web"), &["getent", "ahostsv4", name]);
        assert!(libc("shop").good().starts_with(shop), "what every program of the pod asks");
        libc(&format!("shop.{other}")).bad();
        let pod = |namespace: &str| format!("10-0-0-5.{namespace}.pod.cluster.local");
        assert_eq!(answer(&lab, tenant, &[&pod(tenant)]), ["10.0.0.5"]);
        assert_eq!(code(&lab, tenant, &[&pod(other)]), "NXDOMAIN");
    }
}

#[test]
fn pods_of_a_stateful_set_have_names_and_their_addresses_point_back_in_each_tenant() {
    let lab = lab_with_both_tenants();
    for tenant in TENANTS {
        let ips = ["db-0", "db-1"].map(|pod| pod_ip(&lab, &format!("{tenant}/{pod}")));
        let mut sorted = ips.each_ref().map(String::as_str);
        sorted.sort_unstable();
        eventually(&lab, tenant, &["db"], &sorted);
        for (pod, ip) in ["db-0", "db-1"].iter().zip(&ips) {
            assert_eq!(answer(&lab, tenant, &[&format!("{pod}.db")]), [ip.as_str()]);
            let whole = format!("{pod}.db.{tenant}.svc.cluster.local.");
            assert_eq!(answer(&lab, tenant, &["-x", ip]), [whole.as_str()]);
        }
        let port = answer(&lab, tenant, &["srv", "_http._tcp.db"]);
        assert_eq!(port.len(), 2, "{port:?}");
        assert!(port.iter().all(|line| line.contains(" 8080 db-")), "{port:?}");
        let nobody = format!("db-9.db.{tenant}.svc.cluster.local");
        assert_eq!(code(&lab, tenant, &[&nobody]), "NXDOMAIN");
    }
}

/// Network `b` of acme with namespace `back`, and a pod of namespace `acme` that is in both.
fn second_network() -> String {
    let app = json!({"app": "both"});
    let mut both = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "both", "namespace": "acme", "labels": app,
                     "annotations": {"atoll.dev/extra-networks": "b"}},
        "spec": pod_spec(&json!({}))});
    let mut alone = both.clone();
    alone["metadata"] = json!({"name": "web", "namespace": "back"});
    both["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "node2"});
    let labels = json!({"atoll.dev/tenant": "acme", "atoll.dev/network": "b"});
    let documents = [
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Network",
               "metadata": {"name": "acme.b"},
               "spec": {"tenant": "acme", "type": "vpc", "cidrs": ["10.1.0.0/16"]}}),
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": "back", "labels": labels}}),
        service("back", "hidden", &json!({"clusterIP": "10.96.1.8"})),
        service("acme", "both", &json!({"clusterIP": "None", "selector": app})),
        both,
        alone,
    ];
    documents.iter().map(|document| format!("---\n{document}\n")).collect()
}

#[test]
fn a_pod_in_two_networks_asks_the_view_of_its_first_and_is_found_there_at_its_address_there() {
    let lab = lab_with_both_tenants();
    lab.apply(&second_network()).good();
    lab.wait_for_pods();
    let ask = |pod: &str| {
        let dig = ["dig", "+nocookie", "hidden.back.svc.cluster.local"];
        lab.exec(pod, &dig).good()
    };
    await_condition(|| ask("back/web").contains("10.96.1.8")).expect("its own network knows it");
    for pod in ["acme/both", "acme/web"] {
        assert!(ask(pod).contains("status: NXDOMAIN"), "{pod}");
    }
    eventually(&lab, "acme", &["both"], &[&pod_ip(&lab, "acme/both")]);

    let query =
        |pod: &str, name: &str| atoll(&["dns", "query", "--lab", &lab.name, "--as", pod, name]);
    let said = query("back/web", "hidden").good();
    assert!(said.contains("from network acme.b") && said.contains("A 10.96.1.8"), "{said}");
    let said = query("acme/both", "hidden.back");
    assert!(!said.ok && said.out.contains("from network acme.default"), "{said:?}");
    assert!(said.out.contains("no such name in this network"), "{said:?}");
    assert!(query("acme/nobody", "hidden").bad().contains("no pod acme/nobody is attached"));
}

#[test]
fn what_changes_is_answered_anew_in_its_own_tenant_alone() {
    let lab = lab_with_both_tenants();
    let first = pod_ip(&lab, "acme/db-0");
    lab.kubectl(&["scale", "statefulset", "db", "-n", "acme", "--replicas=1"]).good();
    eventually(&lab, "acme", &["db"], &[&first]);
    assert_eq!(answer(&lab, "globex", &["db"]).len(), 2);

    let late = service("acme", "late", &json!({"clusterIP": "10.96.1.9"}));
    assert_eq!(code(&lab, "acme", &["late.acme.svc.cluster.local"]), "NXDOMAIN");
    lab.apply(&late.to_string()).good();
    eventually(&lab, "acme", &["late"], &["10.96.1.9"]);
    assert_eq!(code(&lab, "globex", &["late.acme.svc.cluster.local"]), "NXDOMAIN");
    lab.kubectl(&["delete", "service", "late", "-n", "acme"]).good();
    eventually(&lab, "acme", &["late"], &[]);
    assert_eq!(answer(&lab, "acme", &["shop"]), ["10.96.1.1"]);
}

#[test]
fn an_agent_killed_and_restarted_leaves_no_question_unanswered() {
    let lab = lab_with_both_tenants();
    eventually(&lab, "acme", &["shop"], &["10.96.1.1"]);
    thread::scope(|scope| {
        let restarts = scope.spawn(|| {
            for _ in 0..3 {
                kill_agent_and_await_the_next(&lab, "node1");
            }
        });
        let mut asked = 0;
        while !restarts.is_finished() || asked < 10 {
            let said = answer(&lab, "acme", &["shop"]);
            // A line with a semicolon says that dig had to ask again.
            let answers: Vec<&String> = said.iter().filter(|line| !line.starts_with(';')).collect();
            assert_eq!(answers, ["10.96.1.1"], "question {asked}: {said:?}");
            asked += 1;
        }
        restarts.join().unwrap();
    });
    assert_eq!(answer(&lab, "globex", &["shop"]), ["10.96.1.2"]);
}
