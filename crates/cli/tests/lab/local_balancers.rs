//! Load balancers whose connections stay on the node that they come in by: the node that answers for the
//! address is one that has a pod of the service, and another when the pod is elsewhere. In two tenants
//! with the same addresses at the same time, over TCP and SCTP.

use serde_json::{Value, json};

use crate::asking::outside;
use crate::documents::{nics, pod, tenant, yaml};
use crate::fixture::{Lab, Said, await_condition};
use crate::outside::{WIRE, entered};

const TENANTS: [&str; 2] = ["acme", "globex"];

/// A server on a node, behind the service or not.
fn server(tenant: &str, name: &str, node: &str, last: u8, app: &str) -> Value {
    let labels = json!({"app": app});
    let mut pod = pod(&format!("{tenant}/{name}"), node, &labels, &nics("default", last));
    let command = json!(["atoll", "toolbox", "serve", "--port", "8080", "--sctp"]);
    pod["spec"]["containers"][0]["command"] = command;
    pod
}

fn documents(name: &str) -> String {
    let edge = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "edge", "namespace": name},
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local",
                 "selector": {"app": "edge"},
                 "ports": [{"name": "web", "port": 80, "targetPort": 8080},
                           {"name": "signal", "port": 81, "targetPort": 8080,
                            "protocol": "SCTP"}]}});
    let servers =
        [server(name, "near", "node1", 5, "edge"), server(name, "far", "node2", 6, "other")];
    tenant(name) + &yaml(&servers) + &yaml(&[edge])
}

/// Both tenants, and the addresses of their load balancers.
fn stage() -> (Lab, [String; 2]) {
    let lab = Lab::up(3);
    let pool = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "AddressPool",
        "metadata": {"name": "edge"}, "spec": {"cidrs": ["172.30.0.200/30"]}});
    lab.apply(&pool.to_string()).good();
    TENANTS.iter().for_each(|name| drop(lab.apply(&documents(name)).good()));
    lab.wait_for_pods();
    let addresses = TENANTS.map(|tenant| lab.outside_address(tenant));
    (lab, addresses)
}

/// Puts a pod of both tenants behind the service, or takes it out.
fn label(lab: &Lab, pod: &str, app: &str) {
    for tenant in TENANTS {
        let app = format!("app={app}");
        lab.kubectl(&["label", "pod", pod, "-n", tenant, &app, "--overwrite"]).good();
    }
}

/// The first word of an association with an address, by somebody outside.
fn associate(lab: &Lab, ip: &str) -> Said {
    outside(lab, &["connect", "sctp", &format!("{ip}:81"), "--timeout", "1s"])
}

/// Waits until this node answers for both addresses, and this pod of each tenant behind its own, by TCP
/// and by SCTP.
fn await_served_by(lab: &Lab, addresses: &[String; 2], node: &str, pod: &str) {
    for (tenant, ip) in TENANTS.iter().zip(addresses) {
        lab.holder(ip, |holder| holder == node);
        let wanted = Some((format!("{tenant}/{pod}"), WIRE.to_owned()));
        let mut last = None;
        await_condition(|| {
            last = entered(lab, ip, 80);
            last == wanted
        })
        .unwrap_or_else(|()| panic!("{ip} of {tenant} answers {last:?} and never {wanted:?}"));
        await_condition(|| associate(lab, ip).ok).unwrap_or_else(|()| panic!("{ip} by SCTP"));
    }
}

/// Waits until the slices of both services name these nodes.
fn await_endpoints_on(lab: &Lab, nodes: &[&str]) {
    for tenant in TENANTS {
        let label = "-l=kubernetes.io/service-name=edge";
        let path = "jsonpath={.items[*].endpoints[*].nodeName}";
        lab.eventually(&["get", "endpointslices", "-n", tenant, label, "-o", path], |said| {
            let mut found: Vec<&str> = said.split_whitespace().collect();
            found.sort_unstable();
            found == nodes
        });
    }
}

#[test]
fn a_load_balancer_that_stays_on_its_node_is_held_where_its_pods_are_and_moves_with_them() {
    let (lab, addresses) = stage();
    await_served_by(&lab, &addresses, "node1", "near");
    label(&lab, "far", "edge");
    await_endpoints_on(&lab, &["node1", "node2"]);
    await_served_by(&lab, &addresses, "node1", "near");
    label(&lab, "near", "other");
    await_served_by(&lab, &addresses, "node2", "far");
    label(&lab, "far", "other");
    for ip in &addresses {
        await_condition(|| {
            let knock = format!("exec 3<>/dev/tcp/{ip}/80");
            lab.outside(&["timeout", "5", "bash", "-c", &knock]).err.contains("refused")
        })
        .expect("where nobody is left, it says so at once");
        assert_eq!(lab.holder(ip, |_| true), "node2", "and stays where it is");
    }
    label(&lab, "near", "edge");
    await_served_by(&lab, &addresses, "node1", "near");
}
