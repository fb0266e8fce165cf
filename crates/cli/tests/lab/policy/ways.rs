//! Ways past policy that are easily left open: names, services, ports by name, second networks,
//! networks that are open to several tenants, and connections that are there already. What is closed
//! in one tenant stays open in its twin.

use serde_json::{Value, json};

use super::moments::{flow, steady_flow, tally};
use crate::documents::{pod, yaml};
use crate::fixture::{Lab, await_condition};
use crate::several_networks::{apply_pods_of_both_networks, lab_with_both_tenants};

const VIP: &str = "198.18.0.9";

fn policy(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "name": name, "namespace": namespace }, "spec": spec })
}

fn of_app(app: &str) -> Value {
    json!({ "matchLabels": { "app": app } })
}

/// Who answers a pod's question; nobody where none does in time.
fn answer(lab: &Lab, from: &str, by: &str, to: &str) -> Option<String> {
    let ask = ["atoll", "toolbox", "connect", by, to, "--timeout", "300ms"];
    let said: Value = serde_json::from_str(&lab.exec(from, &ask).out).ok()?;
    Some(said["pod"].as_str()?.to_owned())
}

fn becomes(lab: &Lab, (from, by, to): (&str, &str, &str), answered: bool) {
    await_condition(|| answer(lab, from, by, to).is_some() == answered)
        .unwrap_or_else(|()| panic!("{from} > {by} {to} never became {answered}"));
}

/// Whether the resolver says anything at all to a tenant's pod `web`.
fn is_told_names(lab: &Lab, tenant: &str, over: &str) -> bool {
    let dig = ["dig", "+tries=1", "+time=1", over, "nobody.cluster.local"];
    lab.exec(&format!("{tenant}/web"), &dig).ok
}

fn becomes_told(lab: &Lab, told: bool) {
    for over in ["+notcp", "+tcp"] {
        await_condition(|| is_told_names(lab, "acme", over) == told)
            .unwrap_or_else(|()| panic!("names {over} never became {told}"));
    }
}

#[test]
fn a_question_to_the_resolver_is_egress_like_any_other() {
    let lab = Lab::with_two_tenants();
    lab.kubectl(&["label", "pod", "-n", "acme", "web", "app=web"]).good();
    becomes_told(&lab, true);
    let egress = |rules: Value| {
        let spec =
            json!({ "podSelector": of_app("web"), "policyTypes": ["Egress"], "egress": rules });
        lab.apply(&policy("acme", "names", &spec).to_string()).good();
    };
    egress(json!([]));
    becomes_told(&lab, false);
    await_condition(|| is_told_names(&lab, "globex", "+notcp")).expect("the twin has no policy");
    let port_53 = json!([{ "port": 53, "protocol": "UDP" }, { "port": 53, "protocol": "TCP" }]);
    egress(json!([{ "ports": port_53 }]));
    becomes_told(&lab, true);
    assert_eq!(answer(&lab, "acme/web", "udp", "10.0.0.6:8080"), None, "it is no name");
    let file = lab.exec("acme/web", &["cat", "/etc/resolv.conf"]).good();
    let resolver = file.lines().find_map(|line| line.strip_prefix("nameserver ")).unwrap().trim();
    let around =
        |cidr: &str| json!([{ "to": [{ "ipBlock": { "cidr": cidr } }], "ports": port_53 }]);
    egress(around("192.0.2.0/24"));
    becomes_told(&lab, false);
    egress(around(&format!("{resolver}/32")));
    becomes_told(&lab, true);
    egress(json!([{ "to": [{ "namespaceSelector": {} }], "ports": port_53 }]));
    becomes_told(&lab, false);
}

/// A server on two ports, of which the one called `talk` has this number.
fn server(tenant: &str, name: &str, node: &str, last: u8, (app, talk): (&str, u16)) -> Value {
    let nics = json!({ "atoll.dev/nics": json!([{"ip": format!("10.0.0.{last}")}]).to_string() });
    let mut pod = pod(&format!("{tenant}/{name}"), node, &json!({ "app": app }), &nics);
    let container = &mut pod["spec"]["containers"][0];
    container["command"] = json!(["atoll", "toolbox", "serve", "--port", "8080,8081"]);
    container["ports"] = json!([{ "name": "talk", "containerPort": talk }]);
    pod
}

/// `near` and `far` behind the service `shop`, and their clients `web` and `other`.
fn shop(tenant: &str) -> String {
    let service =
        json!({ "selector": { "app": "shop" }, "ports": [{ "port": 80, "targetPort": "talk" }] });
    yaml(&[
        json!({ "apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": { "name": tenant },
                "spec": { "defaultNetwork": { "type": "vpc", "cidrs": ["10.0.0.0/16"] } } }),
        json!({ "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": tenant, "labels": { "atoll.dev/tenant": tenant } } }),
        json!({ "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": "shop", "namespace": tenant,
                              "annotations": { "atoll.dev/vip": VIP } }, "spec": service }),
        server(tenant, "web", "node1", 5, ("web", 8080)),
        server(tenant, "near", "node1", 6, ("shop", 8080)),
        server(tenant, "far", "node2", 7, ("shop", 8081)),
        server(tenant, "other", "node2", 8, ("other", 8080)),
    ])
}

fn shops() -> Lab {
    let lab = Lab::up(2);
    ["acme", "globex"].iter().for_each(|tenant| drop(lab.apply(&shop(tenant)).good()));
    lab.wait_for_pods();
    for client in ["acme/web", "acme/other", "acme/near", "globex/other"] {
        becomes(&lab, (client, "tcp", &format!("{VIP}:80")), true);
    }
    lab
}

/// All who answer at the service within some tries.
fn behind(lab: &Lab, client: &str) -> Vec<String> {
    let vip = format!("{VIP}:80");
    let mut pods: Vec<String> = (0..16).filter_map(|_| answer(lab, client, "tcp", &vip)).collect();
    pods.sort();
    pods.dedup();
    pods
}

#[test]
fn policy_sees_through_a_service_by_the_port_that_each_backend_gives_the_name() {
    let lab = shops();
    let from_web =
        json!([{ "from": [{ "podSelector": of_app("web") }], "ports": [{ "port": "talk" }] }]);
    let spec = json!({ "podSelector": of_app("shop"), "ingress": from_web });
    lab.apply(&policy("acme", "shop", &spec).to_string()).good();
    becomes(&lab, ("acme/other", "tcp", "10.0.0.6:8080"), false);
    becomes(&lab, ("acme/other", "tcp", "10.0.0.7:8081"), false);
    for (pod, open, closed) in [("10.0.0.6", 8080, 8081), ("10.0.0.7", 8081, 8080)] {
        becomes(&lab, ("acme/web", "tcp", &format!("{pod}:{open}")), true);
        assert_eq!(answer(&lab, "acme/web", "tcp", &format!("{pod}:{closed}")), None, "{pod}");
    }
    assert_eq!(behind(&lab, "acme/web"), ["acme/far", "acme/near"]);
    assert_eq!(behind(&lab, "acme/other"), [""; 0]);
    assert_eq!(behind(&lab, "acme/near"), ["acme/near"], "itself, and nobody else behind it");
    assert_eq!(behind(&lab, "globex/other"), ["globex/far", "globex/near"]);
}

/// How many datagrams a pod has received.
fn datagrams(lab: &Lab, pod: &str) -> u64 {
    let counters = lab.exec(pod, &["cat", "/proc/net/snmp"]).good();
    let values = counters.lines().filter(|line| line.starts_with("Udp:")).nth(1).unwrap();
    values.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_connection_that_is_there_ends_with_the_policy_that_allowed_it() {
    let lab = shops();
    let spec = |rules: Value| json!({ "podSelector": of_app("shop"), "policyTypes": ["Ingress"], "ingress": rules });
    let from_web = json!([{ "from": [{ "podSelector": of_app("web") }] }]);
    lab.apply(&yaml(&[
        policy("acme", "closed", &spec(json!([]))),
        policy("acme", "web", &spec(from_web)),
    ]))
    .good();
    becomes(&lab, ("acme/other", "udp", "10.0.0.6:8080"), false);
    becomes(&lab, ("acme/web", "udp", "10.0.0.6:8080"), true);
    becomes(&lab, ("globex/web", "udp", "10.0.0.6:8080"), true);
    let flows = [
        flow(&lab, "acme/web", "10.0.0.6:8080"),
        steady_flow(&lab, "globex/web", "10.0.0.6:8080", 500),
    ];
    for server in ["acme/near", "globex/near"] {
        let before = datagrams(&lab, server);
        await_condition(|| datagrams(&lab, server) > before + 50).expect("the flow is under way");
    }
    let dropped = || lab.drops(Some("acme.default"), "policy-denied-ingress");
    let before = dropped();
    lab.kubectl(&["delete", "networkpolicy", "-n", "acme", "web"]).good();
    await_condition(|| dropped() > before).expect("the connection ends");
    let [ended, other] = flows.map(tally);
    let count = |tally: &Value, what: &str| tally[what].as_u64().unwrap();
    assert!(count(&ended, "received") > 0, "{ended}");
    assert!(count(&ended, "received") < count(&ended, "sent"), "{ended}");
    assert_eq!(count(&other, "lost"), 0, "{other}");
}

#[test]
fn a_policy_that_is_aimed_at_one_network_closes_the_interfaces_there_alone() {
    let lab = lab_with_both_tenants();
    apply_pods_of_both_networks(&lab);
    let ways = [("front", "10.0.0.5:8080", "default"), ("back", "10.1.0.5:8080", "b")];
    for aimed in ["b", "default"] {
        let spec = json!({ "podSelector": {}, "policyTypes": ["Ingress"] });
        let mut closed = policy("acme", "closed", &spec);
        closed["metadata"]["annotations"] =
            json!({ "atoll.dev/policy-networks": json!([aimed]).to_string() });
        lab.apply(&closed.to_string()).good();
        for (client, to, network) in ways {
            becomes(&lab, (&format!("acme/{client}"), "tcp", to), network != aimed);
            becomes(&lab, (&format!("globex/{client}"), "tcp", to), true);
        }
    }
}

/// A tenant with a pod on one node, in a network that is open to others.
fn open_tenant(name: &str, node: &str) -> String {
    yaml(&[
        json!({ "apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": { "name": name },
                "spec": { "defaultNetwork": { "type": "flat", "isolation": "open" } } }),
        json!({ "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": name, "labels": { "atoll.dev/tenant": name } } }),
        pod(&format!("{name}/web"), node, &json!({ "app": "web" }), &json!({})),
    ])
}

#[test]
fn in_an_open_network_a_pod_of_a_tenant_that_is_not_on_the_node_is_known_by_its_address() {
    let lab = Lab::up(2);
    lab.apply(&open_tenant("acme", "node1")).good();
    lab.apply(&open_tenant("globex", "node2")).good();
    lab.wait_for_pods();
    let ip = |tenant: &str| {
        let get = ["get", "pod", "-n", tenant, "web", "-o", "jsonpath={.status.podIP}"];
        lab.kubectl(&get).good()
    };
    let (server, client) = (format!("{}:8080", ip("acme")), ip("globex"));
    becomes(&lab, ("globex/web", "udp", &server), true);
    let from = |peer: Value| {
        let spec = json!({ "podSelector": {}, "ingress": [{ "from": [peer] }] });
        lab.apply(&policy("acme", "guests", &spec).to_string()).good();
    };
    from(json!({ "podSelector": {} }));
    becomes(&lab, ("globex/web", "udp", &server), false);
    from(json!({ "ipBlock": { "cidr": format!("{client}/32") } }));
    becomes(&lab, ("globex/web", "udp", &server), true);
    from(json!({ "ipBlock": { "cidr": "192.0.2.0/24" } }));
    becomes(&lab, ("globex/web", "udp", &server), false);
    assert_eq!(lab.drops(None, "policy-unknown"), 0, "it is known, and refused by a rule");
    assert!(lab.drops(None, "policy-denied-ingress") > 0);
}
