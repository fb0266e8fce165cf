//! Clients outside who have the address of a pod, at the load balancers of two tenants at once: each is
//! led to its own, where it is seen as the gateway, by policy too.

use serde_json::{Value, json};

use crate::balancers::{await_answer_as, with_two_edges};
use crate::documents::yaml;
use crate::fixture::{Lab, await_condition};
use crate::outside::{WIRE, entered};

/// As whom pods see such clients.
const GATEWAY: &str = "169.254.1.1";
/// An address that a pod of each tenant has.
const A_PODS: &str = "10.0.0.5";
/// Where load balancers are.
const EDGES: &str = "172.30.0.200/30";

/// Has the outside speak to load balancers from the address of a pod.
fn speak_as_a_pod(lab: &Lab) {
    let own = format!("{A_PODS}/32");
    lab.outside(&["ip", "link", "set", "lo", "up"]).good();
    lab.outside(&["ip", "address", "add", &own, "dev", "lo"]).good();
    let shown = lab.outside(&["ip", "-o", "address", "show", "to", WIRE]).good();
    let wire = shown.split_whitespace().nth(1).unwrap();
    lab.outside(&["ip", "route", "add", EDGES, "dev", wire, "src", A_PODS]).good();
    for node in ["node1", "node2", "node3"] {
        lab.node(node, &["ip", "route", "add", &own, "via", WIRE]).good();
    }
}

fn speak_as_oneself(lab: &Lab) {
    lab.outside(&["ip", "route", "delete", EDGES]).good();
}

/// Lets in nobody but clients of this range, in both tenants.
fn let_in(lab: &Lab, range: &str) {
    let policy = |tenant: &str| -> Value {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
               "metadata": {"name": "clients", "namespace": tenant},
               "spec": {"podSelector": {}, "policyTypes": ["Ingress"],
                        "ingress": [{"from": [{"ipBlock": {"cidr": range}}]}]}})
    };
    lab.apply(&yaml(&["acme", "globex"].map(policy))).good();
}

#[test]
fn who_has_the_address_of_a_pod_outside_is_the_gateway_to_pods_and_to_policy_in_two_tenants() {
    let (lab, edges) = with_two_edges();
    let await_seen_as = |who: &str| {
        for (tenant, ip) in &edges {
            await_answer_as(&lab, ip, tenant, who);
        }
    };
    let await_refused = || {
        for (tenant, ip) in &edges {
            let network = format!("{tenant}.default");
            let denied = || lab.drops(Some(&network), "policy-denied-ingress");
            await_condition(|| {
                let before = denied();
                entered(&lab, ip, 80).is_none() && denied() > before
            })
            .expect("the policy of each tenant holds");
        }
    };
    speak_as_a_pod(&lab);
    await_seen_as(GATEWAY);
    let_in(&lab, "10.0.0.0/16");
    await_refused();
    let_in(&lab, &format!("{GATEWAY}/32"));
    await_seen_as(GATEWAY);
    speak_as_oneself(&lab);
    await_refused();
    let_in(&lab, &format!("{WIRE}/32"));
    await_seen_as(WIRE);
}
