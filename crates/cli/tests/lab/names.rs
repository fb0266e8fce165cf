//! What pods are answered by name: stock pods, with the resolv.conf that every pod has, in two
//! tenants with the same addresses and the same names.

use std::thread;

use serde_json::{Value, json};

use crate::fixture::{Lab, Said, await_condition, kill_agent_and_await_the_next};

const TENANTS: [&str; 2] = ["acme", "globex"];

/// A tenant with pod `web` on node1, service `shop`, and StatefulSet `db` of two with its headless
/// service.
pub(crate) fn tenant(name: &str, shop: &str) -> String {
    let documents = [
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
               "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16"]}}}),
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": name, "labels": {"atoll.dev/tenant": name}}}),
        service(name, "shop", &json!({"vip": shop, "selector": {"app": "db"}})),
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

/// A service, with the address in its network that `vip` asks for.
pub(crate) fn service(namespace: &str, name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["ports"] = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    let vip = spec.as_object_mut().and_then(|spec| spec.remove("vip")).unwrap_or_default();
    let annotations = if vip.is_null() { json!({}) } else { json!({"atoll.dev/vip": vip}) };
    let metadata = json!({"name": name, "namespace": namespace, "annotations": annotations});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
}

pub(crate) fn pod_spec(node: &Value) -> Value {
    json!({"nodeSelector": node, "terminationGracePeriodSeconds": 1,
           "containers": [{"name": "toolbox", "image": "none",
                           "command": ["atoll", "toolbox", "serve"]}]})
}

pub(crate) fn lab_with_both_tenants() -> Lab {
    let lab = Lab::up(2);
    lab.apply(&tenant("acme", "198.18.1.1")).good();
    lab.apply(&tenant("globex", "198.18.1.2")).good();
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
pub(crate) fn answer(lab: &Lab, tenant: &str, question: &[&str]) -> Vec<String> {
    let said = dig(lab, tenant, &[&["+short"], question].concat()).good();
    let mut lines: Vec<String> = said.lines().map(ToOwned::to_owned).collect();
    lines.sort();
    lines
}

/// The answer's code, like `NXDOMAIN`.
pub(crate) fn code(lab: &Lab, tenant: &str, question: &[&str]) -> String {
    let said = dig(lab, tenant, &[&["+nosearch"], question].concat()).good();
    let code = said.split("status: ").nth(1).and_then(|rest| rest.split(',').next());
    code.unwrap_or_else(|| panic!("no status in {said}")).to_owned()
}

pub(crate) fn eventually(lab: &Lab, tenant: &str, question: &[&str], wanted: &[&str]) {
    let mut last = vec![];
    await_condition(|| {
        last = answer(lab, tenant, question);
        last == wanted
    })
    .unwrap_or_else(|()| panic!("{tenant} {question:?}: {last:?} and never {wanted:?}"));
}

pub(crate) fn pod_ip(lab: &Lab, pod: &str) -> String {
    let (namespace, name) = pod.split_once('/').unwrap();
    let ip = ["get", "pod", name, "-n", namespace, "-o", "jsonpath={.status.podIP}"];
    lab.kubectl(&ip).good()
}

#[test]
fn one_name_is_answered_to_each_tenant_with_its_own_and_names_of_others_do_not_exist() {
    let lab = lab_with_both_tenants();
    for (tenant, other, shop) in
        [("acme", "globex", "198.18.1.1"), ("globex", "acme", "198.18.1.2")]
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
    alone["metadata"] = json!({"name": "web", "namespace": "back", "labels": {"app": "alone"}});
    both["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "node2"});
    let labels = json!({"atoll.dev/tenant": "acme", "atoll.dev/network": "b"});
    let documents = [
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Network",
               "metadata": {"name": "acme.b"},
               "spec": {"tenant": "acme", "type": "vpc", "cidrs": ["10.1.0.0/16"]}}),
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": "back", "labels": labels}}),
        service("back", "shown", &json!({"vip": "198.18.1.8"})),
        service("back", "hidden", &json!({"clusterIP": "None", "selector": {"app": "alone"}})),
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
    let ask = |pod: &str, name: &str| {
        let dig = ["dig", "+nocookie", &format!("{name}.back.svc.cluster.local")];
        lab.exec(pod, &dig).good()
    };
    let own = pod_ip(&lab, "back/web");
    await_condition(|| ask("back/web", "hidden").contains(&own)).expect("its own network knows it");
    for pod in ["acme/both", "acme/web"] {
        assert!(ask(pod, "hidden").contains("status: NXDOMAIN"), "{pod}");
        await_condition(|| ask(pod, "shown").contains("198.18.1.8"))
            .expect("what has a VIP is known in all networks of its tenant");
    }
    assert!(ask("globex/web", "shown").contains("status: NXDOMAIN"), "and in no other");
    eventually(&lab, "acme", &["both"], &[&pod_ip(&lab, "acme/both")]);

    let said = lab.query("back/web", "hidden").good();
    assert!(said.contains("from network acme.b") && said.contains(&format!("A {own}")), "{said}");
    let said = lab.query("acme/both", "hidden.back");
    assert!(!said.ok && said.out.contains("from network acme.default"), "{said:?}");
    assert!(said.out.contains("no such name in this network"), "{said:?}");
    assert!(lab.query("acme/nobody", "hidden").bad().contains("no pod acme/nobody is attached"));
}

#[test]
fn what_changes_is_answered_anew_in_its_own_tenant_alone() {
    let lab = lab_with_both_tenants();
    let first = pod_ip(&lab, "acme/db-0");
    lab.kubectl(&["scale", "statefulset", "db", "-n", "acme", "--replicas=1"]).good();
    eventually(&lab, "acme", &["db"], &[&first]);
    assert_eq!(answer(&lab, "globex", &["db"]).len(), 2);

    let late = service("acme", "late", &json!({"vip": "198.18.1.9"}));
    assert_eq!(code(&lab, "acme", &["late.acme.svc.cluster.local"]), "NXDOMAIN");
    lab.apply(&late.to_string()).good();
    eventually(&lab, "acme", &["late"], &["198.18.1.9"]);
    assert_eq!(code(&lab, "globex", &["late.acme.svc.cluster.local"]), "NXDOMAIN");
    lab.kubectl(&["delete", "service", "late", "-n", "acme"]).good();
    eventually(&lab, "acme", &["late"], &[]);
    assert_eq!(answer(&lab, "acme", &["shop"]), ["198.18.1.1"]);
}

#[test]
fn an_agent_killed_and_restarted_leaves_no_question_unanswered() {
    let lab = lab_with_both_tenants();
    eventually(&lab, "acme", &["shop"], &["198.18.1.1"]);
    thread::scope(|scope| {
        let restarts = scope.spawn(|| {
            for _ in 0..3 {
                kill_agent_and_await_the_next(&lab, "node1");
                answer(&lab, "globex", &["+tries=12", "shop"]);
            }
        });
        let mut asked = 0;
        while !restarts.is_finished() || asked < 10 {
            let said = answer(&lab, "acme", &["+tries=12", "shop"]);
            // A line with a semicolon says that dig had to ask again.
            let answers: Vec<&String> = said.iter().filter(|line| !line.starts_with(';')).collect();
            assert_eq!(answers, ["198.18.1.1"], "question {asked}: {said:?}");
            asked += 1;
        }
        restarts.join().unwrap();
    });
    assert_eq!(answer(&lab, "globex", &["shop"]), ["198.18.1.2"]);
}

#[test]
fn a_network_is_answered_at_its_own_dns_address_and_asks_its_own_upstreams_or_nobody() {
    let lab = lab_with_both_tenants();
    let status = "jsonpath={.status.dnsServiceIP} {.status.dnsServiceIPs[*]} {.status.dnsMode}";
    let own = lab.kubectl(&["get", "networks.atoll.dev", "acme.default", "-o", status]).good();
    assert_eq!(own, "198.18.0.10 198.18.0.10 shared");
    for (tenant, shop) in [("acme", "198.18.1.1"), ("globex", "198.18.1.2")] {
        for over in ["+notcp", "+tcp"] {
            eventually(&lab, tenant, &["@198.18.0.10", over, "shop"], &[shop]);
        }
    }
    let silent = ["dig", "@198.18.0.11", "+time=1", "+tries=1", "shop.acme.svc.cluster.local"];
    assert!(!lab.exec("acme/web", &silent).ok, "the address beside it is nobody's");

    let ask_outside = |upstreams: Value, code_wanted: &str| {
        let patch = json!({"spec": {"dns": {"upstreams": upstreams}}}).to_string();
        let patch = ["patch", "networks.atoll.dev", "acme.default", "--type=merge", "-p", &patch];
        lab.kubectl(&patch).good();
        let mut last = String::new();
        await_condition(|| {
            last = code(&lab, "acme", &["example.com"]);
            last == code_wanted
        })
        .unwrap_or_else(|()| panic!("{patch:?}: {last} and never {code_wanted}"));
        assert_eq!(code(&lab, "globex", &["example.com"]), "REFUSED", "it asks nobody still");
    };
    ask_outside(json!(["192.0.2.53:9"]), "SERVFAIL");
    ask_outside(json!([]), "REFUSED");
    let wrong = json!({"spec": {"dns": {"upstreams": ["resolver"]}}}).to_string();
    let said =
        lab.kubectl(&["patch", "networks.atoll.dev", "acme.default", "--type=merge", "-p", &wrong]);
    assert!(said.bad().contains("each of upstreams must be an address"));
}

#[test]
fn a_dedicated_network_is_answered_by_its_own_pods_and_no_more_by_the_agent() {
    let lab = lab_with_both_tenants();
    let dedicated = json!({"spec": {"dns": {"mode": "dedicated"}}}).to_string();
    let change = |patch: &str| {
        let patch = ["patch", "networks.atoll.dev", "acme.default", "--type=merge", "-p", patch];
        lab.kubectl(&patch).good();
    };
    change(&dedicated);
    let pods = ["get", "pods", "-A", "-l", "atoll.dev/dns-of", "-o"];
    let ips = [&pods[..], &["jsonpath={.items[*].status.podIP}"]].concat();
    let ips = lab.eventually(&ips, |said| said.split_whitespace().count() == 2);
    for ip in ips.split_whitespace() {
        let at = format!("@{ip}");
        let ask = ["-p", "5353", &at, "+nocookie", "+time=1", "+tries=30"];
        eventually(&lab, "acme", &[&ask[..], &["shop"]].concat(), &["198.18.1.1"]);
        assert_eq!(
            code(&lab, "acme", &[&ask[..], &["shop.globex.svc.cluster.local"]].concat()),
            "NXDOMAIN"
        );
        assert_eq!(code(&lab, "acme", &[&ask[..], &["example.com"]].concat()), "REFUSED");
        assert!(
            !lab.exec("globex/web", &["dig", "-p", "5353", &at, "+time=1", "+tries=1", "shop"]).ok
        );
    }
    let node = ["dig", "@169.254.1.53", "+time=1", "+tries=1", "shop.acme.svc.cluster.local"];
    assert!(!lab.exec("acme/web", &node).ok, "the agent answers the DNS pods alone");
    eventually(&lab, "globex", &["shop"], &["198.18.1.2"]);
    for over in ["+notcp", "+tcp"] {
        eventually(&lab, "acme", &[over, "shop"], &["198.18.1.1"]);
        eventually(&lab, "acme", &[over, "@198.18.0.10", "shop"], &["198.18.1.1"]);
    }

    let first = ips.split_whitespace().next().unwrap();
    let late = service("acme", "late", &json!({"vip": "198.18.1.9"}));
    lab.apply(&late.to_string()).good();
    let ask = ["-p", "5353", &format!("@{first}"), "late"];
    eventually(&lab, "acme", &ask, &["198.18.1.9"]);

    change(&json!({"spec": {"dns": {"mode": "shared"}}}).to_string());
    let count = [&pods[..], &["jsonpath={.items[*].metadata.name}"]].concat();
    lab.eventually(&count, |said| said.trim().is_empty());
    eventually(&lab, "acme", &["shop"], &["198.18.1.1"]);
}

/// What the agent of a node has counted under this name and these labels.
pub(crate) fn counted(lab: &Lab, node: &str, series: &str) -> u64 {
    let page = lab.node(node, &["curl", "-s", "http://127.0.0.1:9965/metrics"]).good();
    let line = page.lines().find(|line| line.starts_with(series));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.unwrap_or_else(|| panic!("{series} is not in {page}"))
}

#[test]
fn a_flood_of_one_tenants_pod_leaves_999_of_1000_answers_to_another_tenant_on_its_node() {
    let lab = lab_with_both_tenants();
    eventually(&lab, "globex", &["shop"], &["198.18.1.2"]);
    let questions = "shop.globex.svc.cluster.local\n".repeat(1_000);
    let flood = ["atoll", "toolbox", "flow", "--udp", "10.96.0.10:53", "--rate", "50000"];
    let flood = [&flood[..], &["--seconds", "600"]].concat();
    let mut flood = lab.exec_command("acme/web", &flood).spawn().unwrap();
    let refused = "atoll_dns_refusals_total{network=\"acme.default\",why=\"pod_rate\"}";
    await_condition(|| counted(&lab, "node1", refused) > 10_000).expect("the flood is on");
    let before = counted(&lab, "node1", refused);
    let ask = ["dig", "+nocookie", "+short", "+time=1", "+tries=3", "-f", "-"];
    let answers = lab.exec_fed("globex/web", &ask, &questions).good();
    let after = counted(&lab, "node1", refused);
    flood.kill().unwrap();
    flood.wait().unwrap();
    let answered = answers.lines().filter(|line| *line == "198.18.1.2").count();
    assert!(answered >= 999, "{answered} of 1000 questions were answered");
    assert!(after > before, "and the flood went on meanwhile: {before}, {after}");
    let asked = counted(&lab, "node1", "atoll_dns_queries_total{network=\"globex.default\"}");
    assert!(asked >= 1_000, "{asked} questions were counted");
}

#[test]
fn a_tenants_own_dns_takes_over_in_its_network_alone_and_without_it_the_agent_answers_again() {
    let lab = lab_with_both_tenants();
    let dns = json!({"mode": "tenant", "service": {"namespace": "acme", "name": "own-dns"}});
    let patch = json!({"spec": {"dns": dns}}).to_string();
    lab.kubectl(&["patch", "networks.atoll.dev", "acme.default", "--type=merge", "-p", &patch])
        .good();
    let isolation = "jsonpath={.status.isolation.grade}";
    lab.eventually(&["get", "tenants.atoll.dev", "acme", "-o", isolation], |said| said == "Hard");
    eventually(&lab, "acme", &["shop"], &["198.18.1.1"]);

    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "own-dns", "namespace": "acme", "labels": {"app": "own-dns"}},
        "spec": pod_spec(&json!({"kubernetes.io/hostname": "node2"}))});
    pod["spec"]["containers"][0]["command"] =
        json!(["atoll", "toolbox", "serve", "--port", "5300"]);
    let ports = json!([{"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 5300}]);
    let own = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "own-dns", "namespace": "acme"},
        "spec": {"clusterIP": "10.96.1.50", "selector": {"app": "own-dns"}, "ports": ports}});
    lab.apply(&format!("---\n{pod}\n---\n{own}\n")).good();
    lab.wait_for_pods();
    for resolver in ["10.96.0.10:53", "198.18.0.10:53"] {
        let mut said = lab.connect("acme/web", "udp", resolver);
        await_condition(|| {
            said = lab.connect("acme/web", "udp", resolver);
            said.ok && said.out.contains("own-dns")
        })
        .unwrap_or_else(|()| panic!("{resolver}: {said:?}"));
    }
    let node = ["dig", "+short", "@169.254.1.53", "shop.acme.svc.cluster.local"];
    assert_eq!(
        lab.exec("acme/web", &node).good().trim(),
        "198.18.1.1",
        "whom the tenant's DNS asks"
    );
    eventually(&lab, "globex", &["shop"], &["198.18.1.2"]);

    lab.kubectl(&["delete", "pod", "own-dns", "-n", "acme"]).good();
    eventually(&lab, "acme", &["shop"], &["198.18.1.1"]);
}
