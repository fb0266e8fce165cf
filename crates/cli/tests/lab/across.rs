//! A VIP over the VPCs of its tenant, each case in two tenants that are alike in everything: two networks
//! with the same ranges, in which the client has the address of somebody in the backends' network.

use std::collections::BTreeSet;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::documents::{pod, yaml};
use crate::fixture::{Lab, await_condition, await_some, kill_agent_and_await_the_next};

const TENANTS: [&str; 2] = ["acme", "globex"];

/// Of each family, the service's address in its tenant.
const VIPS: [&str; 2] = ["198.18.0.20", "fd18::20"];

/// The namespace of a tenant whose services and pods are in its network `back`.
fn store(tenant: &str) -> String {
    format!("{tenant}-store")
}

fn nics(last: u8) -> Value {
    let ips = json!([{"ips": [format!("10.0.0.{last}"), format!("fd00::{last}")]}]);
    json!({"atoll.dev/nics": ips.to_string()})
}

/// A pod behind the service, in the network of its namespace or in another.
fn shelf(tenant: &str, name: &str, node: &str, last: u8, network: Option<&str>) -> Value {
    let mut labels = json!({"app": "store"});
    if let Some(network) = network {
        labels["atoll.dev/network"] = json!(network);
    }
    pod(&format!("{}/{name}", store(tenant)), node, &labels, &nics(last))
}

/// A tenant with the client `web`, and in the network `back` the pods `near` and `far` behind the service
/// `store`, and `double`, which has the client's address.
fn tenant(name: &str) -> String {
    let ranges = json!(["10.0.0.0/16", "fd00::/64"]);
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let of_back = json!({"atoll.dev/tenant": name, "atoll.dev/network": "back"});
    yaml(&[
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
               "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ranges},
                        "serviceCIDRs": ["198.18.0.0/16", "fd18::/112"]}}),
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Network",
               "metadata": {"name": format!("{name}.back")},
               "spec": {"tenant": name, "type": "vpc", "cidrs": ranges}}),
        namespace(name, json!({"atoll.dev/tenant": name})),
        namespace(&store(name), of_back),
        json!({"apiVersion": "v1", "kind": "Service",
               "metadata": {"name": "store", "namespace": store(name),
                            "annotations": {"atoll.dev/vip": VIPS.join(",")}},
               "spec": {"selector": {"app": "store"}, "ipFamilyPolicy": "RequireDualStack",
                        "ports": [{"name": "tcp", "port": 80, "targetPort": 8080},
                                  {"name": "udp", "port": 80, "targetPort": 8080,
                                   "protocol": "UDP"}]}}),
        pod(&format!("{name}/web"), "node1", &json!({}), &nics(5)),
        pod(&format!("{}/double", store(name)), "node2", &json!({}), &nics(5)),
        shelf(name, "near", "node1", 6, None),
        shelf(name, "far", "node2", 7, None),
    ])
}

fn lab_with_both_tenants() -> Lab {
    let lab = Lab::up(2);
    TENANTS.iter().for_each(|name| drop(lab.apply(&tenant(name)).good()));
    lab.wait_for_pods();
    lab
}

fn at(ip: &str, port: u16) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// Who answers at `to`, and whom it saw asking; none where nobody does.
fn answer(lab: &Lab, from: &str, protocol: &str, to: &str) -> Option<(String, String)> {
    let said = lab.connect(from, protocol, to);
    let answer: Value = serde_json::from_str(&said.out).ok()?;
    let text = |field: &str| answer[field].as_str().map(ToOwned::to_owned);
    let peer: std::net::SocketAddr = text("peer")?.parse().ok()?;
    Some((text("pod")?, peer.ip().to_string()))
}

/// Waits until exactly these pods of the tenant are seen behind the service from a pod.
fn await_backends(lab: &Lab, tenant: &str, from: &str, to: &str, pods: &[&str]) {
    let wanted: BTreeSet<_> = pods.iter().map(|pod| format!("{}/{pod}", store(tenant))).collect();
    let mut last = BTreeSet::new();
    await_condition(|| {
        let answers = (0..12).filter_map(|_| answer(lab, from, "tcp", to));
        last = answers.map(|(pod, _)| pod).collect();
        last == wanted
    })
    .unwrap_or_else(|()| panic!("{from} {to}: {last:?} and never {wanted:?}"));
}

#[test]
fn a_vip_leads_to_the_tenants_other_vpc_by_address_and_by_name_and_to_no_other_tenant() {
    let lab = lab_with_both_tenants();
    for tenant in TENANTS {
        let web = format!("{tenant}/web");
        for vip in VIPS {
            await_backends(&lab, tenant, &web, &at(vip, 80), &["near", "far"]);
            for protocol in ["tcp", "udp"] {
                let (pod, peer) = await_some(|| answer(&lab, &web, protocol, &at(vip, 80)));
                assert!(pod.starts_with(&store(tenant)), "{vip}: {pod}");
                assert_eq!(peer, vip, "the backend sees the service's address");
            }
            let inside = format!("{}/double", store(tenant));
            let (pod, peer) = await_some(|| answer(&lab, &inside, "tcp", &at(vip, 80)));
            assert!(pod.starts_with(&store(tenant)));
            assert!(["10.0.0.5", "fd00::5"].contains(&peer.as_str()), "its own address: {peer}");
        }
        for (family, kind) in ["A", "AAAA"].into_iter().enumerate() {
            let name = format!("store.{}.svc.cluster.local", store(tenant));
            let found = || lab.exec(&web, &["dig", "+short", &name, kind]).good();
            await_condition(|| found().trim() == VIPS[family]).expect("the name has the VIP");
        }
        let get = ["get", "service", "store", "-n", &store(tenant), "-o"];
        let core = lab.kubectl(&[&get[..], &["jsonpath={.spec.clusterIPs[*]}"]].concat()).good();
        assert_eq!(core.split(' ').count(), 2, "{core}");
        for ip in core.split(' ') {
            let inside = format!("{}/double", store(tenant));
            await_some(|| answer(&lab, &inside, "tcp", &at(ip, 80)));
            assert_eq!(answer(&lab, &web, "tcp", &at(ip, 80)), None, "{ip} is the network's own");
        }
        for ip in ["10.0.0.6", "fd00::6"] {
            assert_eq!(answer(&lab, &web, "tcp", &at(ip, 8080)), None, "nobody has {ip} here");
        }
    }
    let name = "store.globex-store.svc.cluster.local";
    let said = lab.exec("acme/web", &["dig", "+nocookie", name]).good();
    assert!(said.contains("status: NXDOMAIN"), "{said}");
}

#[test]
fn a_client_has_backends_of_its_own_vpc_first_and_connections_survive_the_agents() {
    let lab = lab_with_both_tenants();
    let to = at(VIPS[0], 80);
    for tenant in TENANTS {
        await_backends(&lab, tenant, &format!("{tenant}/web"), &to, &["near", "far"]);
    }
    let flow = ["atoll", "toolbox", "flow", "--tcp", &to, "--rate", "100", "--seconds", "6"];
    let flow = [&flow[..], &["--linger", "20s"]].concat();
    let flows = TENANTS.map(|tenant| {
        let mut command = lab.exec_command(&format!("{tenant}/web"), &flow);
        command.stdout(Stdio::piped()).spawn().unwrap()
    });
    for node in ["node1", "node2"] {
        kill_agent_and_await_the_next(&lab, node);
    }
    for tenant in TENANTS {
        lab.apply(&yaml(&[shelf(tenant, "own", "node2", 8, Some("default"))])).good();
    }
    lab.wait_for_pods();
    for tenant in TENANTS {
        let [web, inside] = [format!("{tenant}/web"), format!("{}/double", store(tenant))];
        await_backends(&lab, tenant, &web, &to, &["own"]);
        await_backends(&lab, tenant, &inside, &to, &["near", "far"]);
        let own = await_some(|| answer(&lab, &web, "tcp", &to));
        assert_eq!(own.1, "10.0.0.5", "in its own VPC it is seen as itself");
    }
    for flow in flows {
        let output = flow.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["lost"], 0, "{report}");
    }
    for tenant in TENANTS {
        lab.kubectl(&["delete", "pod", "own", "-n", &store(tenant)]).good();
    }
    for tenant in TENANTS {
        await_backends(&lab, tenant, &format!("{tenant}/web"), &to, &["near", "far"]);
    }
}
