//! Services that name what is not theirs, in two tenants with the same addresses and VIPs at the same
//! time: an address of somebody else's to be reached at, and endpoints that are no pods of the network.
//! Nobody gets what is for others, nobody is led where nothing of the tenant's is, and an event says so.

use std::net::{IpAddr, TcpListener};

use atoll_testkit::Namespace;
use serde_json::{Value, json};

use crate::asking::{Asker, await_unanswered};
use crate::documents::{nics, pod, yaml};
use crate::fixture::{Lab, await_condition};
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
        let node = Namespace::at(&lab.place(node));
        let listener = node.run(|| TcpListener::bind(("::", port)).unwrap());
        listener.set_nonblocking(true).unwrap();
        NodeProgram { listener, at: format!("{ip}/{port}") }
    }

    /// Whom it has heard since it was asked last.
    fn heard(&self) -> Vec<IpAddr> {
        let callers = std::iter::from_fn(|| self.listener.accept().ok());
        callers.map(|(_, peer)| peer.ip().to_canonical()).collect()
    }

    /// The outside reaches it, and nobody else did.
    fn is_reached_by_the_outside_alone(&self, lab: &Lab) {
        self.is_reached_alone_by(lab, WIRE);
    }

    /// The same where the outside is known to it as `who`.
    fn is_reached_alone_by(&self, lab: &Lab, who: &str) {
        let knock = format!("exec 3<>/dev/tcp/{}", self.at);
        lab.outside(&["timeout", "30", "bash", "-c", &knock]).good();
        let mut heard = vec![];
        await_condition(|| {
            heard.extend(self.heard());
            !heard.is_empty()
        })
        .expect("the outside reaches the program");
        assert_eq!(heard, [who.parse::<IpAddr>().unwrap()], "{}", self.at);
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

/// A slice of it that somebody wrote, of one family.
fn slice(tenant: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<_> = addresses.iter().map(|ip| json!({"addresses": [ip]})).collect();
    let family = if addresses.iter().any(|ip| ip.contains(':')) { "IPv6" } else { "IPv4" };
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
           "metadata": {"name": "hand-1", "namespace": tenant,
                        "labels": {"kubernetes.io/service-name": "hand"}},
           "addressType": family, "ports": [{"port": 8080}], "endpoints": endpoints})
}

/// Another tenant's pod at an address that the tenant's own network has no pod at, loopback, the metadata
/// address, the gateway, the client's own node and another.
fn strangers(tenant: &str) -> [&'static str; 6] {
    let foreign = if tenant == "acme" { "10.0.0.77" } else { "10.0.0.78" };
    [foreign, "127.0.0.1", "169.254.169.254", "169.254.1.1", NODES[0].1, NODES[1].1]
}

/// How a pod fails to reach the service.
fn failure(lab: &Lab, tenant: &str, ip: &str) -> Value {
    let to = at(ip, 80);
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
    TENANTS.iter().for_each(|it| assert_eq!(failure(lab, it, HAND), "refused", "{it}"));
    programs.iter().for_each(|program| program.is_reached_by_the_outside_alone(lab));
    stage.await_behind_of("acme", "web", "10.0.0.78:8080", &["hidden"]);
    stage.await_behind_of("globex", "web", "10.0.0.77:8080", &["hidden"]);
}

const HAND_V6: &str = "fd18::10";
/// The addresses of IPv6 of the nodes and of the outside on their wire.
const NODES_V6: [&str; 2] = ["2001:db8:30::11", "2001:db8:30::12"];
const WIRE_V6: &str = "2001:db8:30::1";

/// Gives the nodes and the outside addresses of IPv6 on the wire between them.
fn give_ipv6(lab: &Lab) {
    for ((node, _), ip) in NODES.into_iter().zip(NODES_V6) {
        let add = ["ip", "address", "add", &format!("{ip}/64"), "dev", "eth0", "nodad"];
        lab.node(node, &add).good();
    }
    let links = lab.outside(&["ip", "-o", "-4", "address", "show", "to", WIRE]).good();
    let bridge = links.split_whitespace().nth(1).unwrap().to_owned();
    let wire = format!("{WIRE_V6}/64");
    lab.outside(&["ip", "address", "add", &wire, "dev", &bridge, "nodad"]).good();
}

/// The link-local address of a node.
fn link_local(lab: &Lab, node: &str) -> String {
    let shown = lab.node(node, &["ip", "-o", "-6", "address", "show", "dev", "eth0"]).good();
    let mut all = shown.split_whitespace().filter_map(|word| word.strip_suffix("/64"));
    all.find(|ip| ip.starts_with("fe80:")).unwrap().to_owned()
}

#[test]
fn a_slice_by_hand_of_ipv6_leads_to_no_loopback_no_link_and_no_node_and_an_event_names_each() {
    let stage = Stage::new();
    let lab = &stage.0;
    give_ipv6(lab);
    let links = NODES.map(|(node, _)| link_local(lab, node));
    stage.apply(|tenant| {
        let mut service = service(tenant);
        service["metadata"]["annotations"]["atoll.dev/vip"] = HAND_V6.into();
        service["spec"]["ipFamilies"] = json!(["IPv6"]);
        service
    });
    stage.apply(|tenant| slice(tenant, &["fd00::6"]));
    stage.await_behind("web", HAND_V6, 80, &["near"]);
    let mut programs: Vec<_> = NODES.map(|node| NodeProgram::start(lab, node, 8080)).into();
    for (program, ip) in programs.iter_mut().zip(NODES_V6) {
        program.at = format!("{ip}/8080");
    }
    let strangers = ["::1", "fe80::1", &links[0], &links[1], NODES_V6[0], NODES_V6[1], "ff02::1"];
    stage.apply(|tenant| slice(tenant, &strangers));
    for tenant in TENANTS {
        for stranger in strangers {
            let sentence = format!("endpoint {stranger} is no pod of the service's network");
            await_event(lab, tenant, &sentence);
        }
    }
    stage.await_behind("web", HAND_V6, 80, &[]);
    TENANTS.iter().for_each(|it| assert_eq!(failure(lab, it, HAND_V6), "refused", "{it}"));
    programs.iter().for_each(|program| program.is_reached_alone_by(lab, WIRE_V6));
}

/// Says in the status of a tenant's service that the outside knows it at these addresses.
fn steal(lab: &Lab, tenant: &str, addresses: &[&str]) {
    let ingress: Vec<_> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    let patch = json!({"status": {"loadBalancer": {"ingress": ingress}}}).to_string();
    let status = ["--subresource=status", "--type=merge", "-p", &patch];
    lab.kubectl(&[&["patch", "service", "shop", "-n", tenant], &status[..]].concat()).good();
}

/// Nothing of ours is in the tables of the node's own firewalls.
fn leaves_firewalls_alone(lab: &Lab) {
    for (node, _) in NODES {
        assert_eq!(lab.rules(node), "", "{node}");
    }
}

#[test]
fn a_stolen_status_of_a_load_balancer_leads_nobody_and_firewalls_are_left_alone_all_the_while() {
    const LAST: [&str; 2] = ["172.30.0.202", "172.30.0.203"];
    let stage = Stage::new();
    let lab = &stage.0;
    let pool = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "AddressPool",
        "metadata": {"name": "edge"}, "spec": {"cidrs": ["172.30.0.200/30"]}});
    lab.apply(&pool.to_string()).good();
    for (thief, owner) in [("acme", "globex"), ("globex", "acme")] {
        let balanced = json!({"spec": {"type": "LoadBalancer"}});
        stage.patch_of(owner, &balanced);
        let path = "jsonpath={.status.loadBalancer.ingress[0].ip}";
        let get = ["get", "service", "shop", "-n", owner, "-o", path];
        let ip = lab.eventually(&get, |said| said.starts_with("172.30.0."));
        stage.await_entered(owner, ("tcp", &at(&ip, 80)), &["near", "far"]);
        let free = LAST.into_iter().find(|free| *free != ip).unwrap();
        let others = json!({"type": "LoadBalancer", "loadBalancerClass": "example.org/other"});
        stage.patch_of(thief, &json!({ "spec": others }));
        steal(lab, thief, &[&ip, free, NODES[0].1]);
        let number = stage.field(thief, "{.spec.ports[0].nodePort}").parse().unwrap();
        stage.await_entered(thief, ("tcp", &at(NODES[0].1, number)), &["near", "far"]);

        stage.await_entered(owner, ("tcp", &at(&ip, 80)), &["near", "far"]);
        stage.await_behind_of(owner, "web", &at(&ip, 80), &["near", "far"]);
        for stolen in [&ip, free, NODES[0].1] {
            stage.await_nobody(thief, "web", &at(stolen, 80));
        }
        await_unanswered(lab, Asker::Outside, ("tcp", &at(free, 80)));
        await_unanswered(lab, Asker::Outside, ("tcp", &at(NODES[0].1, 80)));

        let egress = json!({"spec": {"egress": {"mode": "node"}}}).to_string();
        let network = format!("{owner}.default");
        lab.kubectl(&["patch", "network", &network, "--type=merge", "-p", &egress]).good();
        lab.reach(&format!("{owner}/web"), "icmp", WIRE).good();
        leaves_firewalls_alone(lab);
        stage.patch(&json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}}));
    }
}
