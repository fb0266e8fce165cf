//! Services that name what is not theirs, in two tenants with the same addresses and VIPs at the same
//! time: an address of somebody else's to be reached at, and endpoints that are no pods of the network.
//! Nobody gets what is for others, nobody is led where nothing of the tenant's is, and an event says so.

use std::net::{IpAddr, TcpListener};

use atoll_testkit::Namespace;
use serde_json::{Value, json};

use crate::documents::{nics, pod, yaml};
use crate::fixture::{Lab, await_condition, state_dir};
use crate::outside::WIRE;
use crate::service_cases::{Stage, TENANTS, at};

const NODES: [(&str, &str); 2] = [("node1", "172.30.0.11"), ("node2", "172.30.0.12")];
const HAND: &str = "198.18.0.10";

/// A program of a node that listens at all of its addresses.
struct NodeProgram {
    listener: TcpListener,
    /// Where the outside finds it.
    at: String,
}

impl NodeProgram {
    fn start(lab: &Lab, (node, ip): (&str, &str), port: u16) -> NodeProgram {
        let node = Namespace::at(&state_dir(&lab.name).join("netns").join(node));
        let listener = node.run(|| TcpListener::bind(("0.0.0.0", port)).unwrap());
        listener.set_nonblocking(true).unwrap();
        NodeProgram { listener, at: format!("{ip}/{port}") }
    }

    /// Whom it has heard since it was asked last.
    fn heard(&self) -> Vec<IpAddr> {
        let callers = std::iter::from_fn(|| self.listener.accept().ok());
        callers.map(|(_, peer)| peer.ip()).collect()
    }

    /// The outside reaches it, and nobody else did.
    fn is_reached_by_the_outside_alone(&self, lab: &Lab) {
        let knock = format!("exec 3<>/dev/tcp/{}", self.at);
        lab.outside(&["timeout", "30", "bash", "-c", &knock]).good();
        let mut heard = vec![];
        await_condition(|| {
            heard.extend(self.heard());
            !heard.is_empty()
        })
        .expect("the outside reaches the program");
        assert_eq!(heard, [WIRE.parse::<IpAddr>().unwrap()], "{}", self.at);
    }
}

/// Waits for an event of a tenant's services that says this.
fn await_event(lab: &Lab, tenant: &str, sentence: &str) {
    let events = ["get", "events", "-n", tenant, "-o", "jsonpath={.items[*].message}"];
    lab.eventually(&events, |said| said.contains(sentence));
}

#[test]
fn an_address_of_somebody_elses_is_a_services_in_its_own_network_and_nobody_else_notices() {
    const A_PODS: &str = "10.0.0.7";
    let stage = Stage::new();
    let lab = &stage.0;
    let program = NodeProgram::start(lab, NODES[1], 80);
    let node = at(NODES[1].1, 80);
    let theirs = stage.field("globex", "{.spec.clusterIP}");
    let names = json!({"spec": {"externalIPs": [NODES[1].1, A_PODS, theirs]}});
    stage.patch_of("acme", &names);
    stage.await_behind_of("acme", "web", &node, &["near", "far"]);
    await_event(lab, "acme", &format!("address {A_PODS} is a pod's"));
    stage.await_nobody("acme", "web", &at(A_PODS, 80));
    stage.await_nobody("globex", "web", &node);
    stage.await_behind_of("globex", "web", &at(&theirs, 80), &["near", "far"]);
    program.is_reached_by_the_outside_alone(lab);
}

fn service(tenant: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
           "metadata": {"name": "hand", "namespace": tenant, "annotations": {"atoll.dev/vip": HAND}},
           "spec": {"ports": [{"port": 80}]}})
}

/// A slice of it that somebody wrote.
fn slice(tenant: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<_> = addresses.iter().map(|ip| json!({"addresses": [ip]})).collect();
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
           "metadata": {"name": "hand-1", "namespace": tenant,
                        "labels": {"kubernetes.io/service-name": "hand"}},
           "addressType": "IPv4", "ports": [{"port": 8080}], "endpoints": endpoints})
}

/// Another tenant's pod at an address that the tenant's own network has no pod at, loopback, the metadata
/// address, the gateway, the client's own node and another.
fn strangers(tenant: &str) -> [&'static str; 6] {
    let foreign = if tenant == "acme" { "10.0.0.77" } else { "10.0.0.78" };
    [foreign, "127.0.0.1", "169.254.169.254", "169.254.1.1", NODES[0].1, NODES[1].1]
}

/// How a pod fails to reach the service.
fn failure(lab: &Lab, tenant: &str) -> Value {
    let to = at(HAND, 80);
    let ask = ["atoll", "toolbox", "connect", "tcp", &to, "-o", "json"];
    let said = lab.exec(&format!("{tenant}/web"), &ask);
    assert!(!said.ok, "{tenant}: {}", said.out);
    serde_json::from_str::<Value>(&said.out).unwrap()["error"].take()
}

#[test]
fn a_slice_by_hand_leads_to_pods_of_the_network_and_an_event_names_everybody_else() {
    let stage = Stage::new();
    let lab = &stage.0;
    let hidden = [("acme", 78), ("globex", 77)].map(|(tenant, last)| {
        pod(&format!("{tenant}/hidden"), "node1", &json!({}), &nics("default", last))
    });
    lab.apply(&yaml(&hidden)).good();
    lab.wait_for_pods();
    stage.apply(service);
    stage.apply(|tenant| slice(tenant, &["10.0.0.6"]));
    stage.await_behind("web", HAND, 80, &["near"]);
    let programs = NODES.map(|node| NodeProgram::start(lab, node, 8080));
    stage.apply(|tenant| slice(tenant, &strangers(tenant)));
    for tenant in TENANTS {
        for stranger in strangers(tenant) {
            let sentence = format!("endpoint {stranger} is no pod of the service's network");
            await_event(lab, tenant, &sentence);
        }
    }
    stage.await_behind("web", HAND, 80, &[]);
    TENANTS.iter().for_each(|tenant| assert_eq!(failure(lab, tenant), "refused", "{tenant}"));
    programs.iter().for_each(|program| program.is_reached_by_the_outside_alone(lab));
    stage.await_behind_of("acme", "web", "10.0.0.78:8080", &["hidden"]);
    stage.await_behind_of("globex", "web", "10.0.0.77:8080", &["hidden"]);
}
