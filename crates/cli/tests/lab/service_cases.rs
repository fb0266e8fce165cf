//! What users of Kubernetes' own services rely on, one case after the other, each in two tenants with the
//! same addresses and VIPs at the same time. The cases are those of docs/services.md.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::asking::{Asker, await_answered_by, await_unanswered};
use crate::documents::{pod, yaml};
use crate::fixture::{Lab, await_condition, await_some};

pub(crate) const TENANTS: [&str; 2] = ["acme", "globex"];
/// The nodes, by their addresses.
pub(crate) const NODES: [&str; 2] = ["172.30.0.11", "172.30.0.12"];
pub(crate) const VIPS: [&str; 2] = ["198.18.0.9", "fd18::9"];

fn nics(last: u8) -> Value {
    let ips = json!([{"ips": [format!("10.0.0.{last}"), format!("fd00::{last}")]}]);
    json!({"atoll.dev/nics": ips.to_string()})
}

/// A server behind the service, which listens on two ports.
pub(crate) fn server(tenant: &str, name: &str, node: &str, last: u8) -> Value {
    let mut pod = pod(&format!("{tenant}/{name}"), node, &json!({"app": "shop"}), &nics(last));
    let container = &mut pod["spec"]["containers"][0];
    container["command"] = json!(["atoll", "toolbox", "serve", "--port", "8080,9090", "--sctp"]);
    container["ports"] = json!([{"name": "talk", "containerPort": 8080}]);
    pod
}

/// One that is never ready.
fn unready(tenant: &str) -> Value {
    let mut pod = server(tenant, "unready", "node2", 8);
    pod["metadata"]["labels"] = json!({"app": "late"});
    let never = json!({"exec": {"command": ["false"]}, "periodSeconds": 1});
    pod["spec"]["containers"][0]["readinessProbe"] = never;
    pod
}

/// The service `shop`, with more in its spec.
fn shop(tenant: &str, more: &Value) -> Value {
    let mut spec = json!({
        "selector": {"app": "shop"}, "ipFamilyPolicy": "RequireDualStack",
        "ports": [{"name": "http", "port": 80, "targetPort": "talk"},
                  {"name": "dns", "port": 53, "targetPort": 8080, "protocol": "UDP"},
                  {"name": "signal", "port": 82, "targetPort": 8080, "protocol": "SCTP"}],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Service",
           "metadata": {"name": "shop", "namespace": tenant,
                        "annotations": {"atoll.dev/vip": VIPS.join(",")}},
           "spec": spec})
}

fn tenant(name: &str) -> String {
    yaml(&[
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
               "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16", "fd00::/64"]},
                        "serviceCIDRs": ["198.18.0.0/16", "fd18::/112"]}}),
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": name, "labels": {"atoll.dev/tenant": name}}}),
        shop(name, &json!({})),
        pod(&format!("{name}/web"), "node1", &json!({}), &nics(5)),
        server(name, "near", "node1", 6),
        server(name, "far", "node2", 7),
    ])
}

/// A lab in which both tenants' services are served to both of their pods.
pub(crate) struct Stage(pub(crate) Lab);

impl Stage {
    pub(crate) fn new() -> Stage {
        let lab = Lab::up(2);
        TENANTS.iter().for_each(|name| drop(lab.apply(&tenant(name)).good()));
        lab.wait_for_pods();
        let stage = Stage(lab);
        VIPS.iter().for_each(|vip| stage.await_behind("web", vip, 80, &["near", "far"]));
        stage
    }

    /// Applies the same to both tenants.
    pub(crate) fn apply(&self, document: impl Fn(&str) -> Value) {
        for tenant in TENANTS {
            self.0.apply(&yaml(&[document(tenant)])).good();
        }
    }

    /// Has both services be so.
    pub(crate) fn change(&self, more: &Value) {
        self.apply(|tenant| shop(tenant, more));
    }

    pub(crate) fn patch(&self, patch: &Value) {
        TENANTS.iter().for_each(|tenant| self.patch_of(tenant, patch));
    }

    /// Changes the service of one tenant.
    pub(crate) fn patch_of(&self, tenant: &str, patch: &Value) {
        let patch = patch.to_string();
        let args = ["patch", "service", "shop", "-n", tenant, "--type=merge", "-p", &patch];
        self.0.kubectl(&args).good();
    }

    /// Who answers a pod there, by name, and whom it saw.
    pub(crate) fn answer(
        &self,
        tenant: &str,
        from: &str,
        protocol: &str,
        to: &str,
    ) -> Option<(String, String)> {
        let said = self.0.connect(&format!("{tenant}/{from}"), protocol, to);
        let answer: Value = serde_json::from_str(&said.out).ok()?;
        let pod = answer["pod"].as_str()?.strip_prefix(&format!("{tenant}/"))?.to_owned();
        let peer: SocketAddr = answer["peer"].as_str()?.parse().ok()?;
        Some((pod, peer.ip().to_string()))
    }

    /// Waits until exactly these pods of the same tenant answer over TCP, in both tenants.
    pub(crate) fn await_behind(&self, from: &str, ip: &str, port: u16, pods: &[&str]) {
        TENANTS.iter().for_each(|tenant| self.await_behind_of(tenant, from, &at(ip, port), pods));
    }

    /// Waits until exactly these pods answer a pod of their own tenant there over TCP, whenever it asks.
    pub(crate) fn await_behind_of(&self, tenant: &str, from: &str, to: &str, pods: &[&str]) {
        if pods.is_empty() {
            return self.await_nobody(tenant, from, to);
        }
        let asker = format!("{tenant}/{from}");
        await_answered_by(&self.0, Asker::Pod(&asker), ("tcp", to), &names(tenant, pods));
    }

    /// Waits until exactly these pods of a tenant answer somebody outside there, whenever it asks.
    pub(crate) fn await_entered(&self, tenant: &str, at: (&str, &str), pods: &[&str]) {
        await_answered_by(&self.0, Asker::Outside, at, &names(tenant, pods));
    }

    /// Waits until nobody answers a pod there, however often it asks.
    pub(crate) fn await_nobody(&self, tenant: &str, from: &str, to: &str) {
        await_unanswered(&self.0, Asker::Pod(&format!("{tenant}/{from}")), ("tcp", to));
    }

    /// The VIPs that a tenant's service says it has.
    fn vips(&self, tenant: &str) -> Vec<String> {
        let told = self.field(tenant, r"{.metadata.annotations.atoll\.dev/vip}");
        told.split(',').map(ToOwned::to_owned).collect()
    }

    /// What a field of both services says, which must be the same kind of thing in both.
    pub(crate) fn field(&self, tenant: &str, path: &str) -> String {
        let path = format!("jsonpath={path}");
        self.0.kubectl(&["get", "service", "shop", "-n", tenant, "-o", &path]).good()
    }

    /// What `dig` answers a tenant's pod for the service.
    pub(crate) fn named(&self, tenant: &str, kind: &str) -> String {
        let name = format!("shop.{tenant}.svc.cluster.local");
        let said = self.0.exec(&format!("{tenant}/web"), &["dig", "+short", &name, kind]).good();
        said.trim().to_owned()
    }
}

fn names(tenant: &str, pods: &[&str]) -> BTreeSet<String> {
    pods.iter().map(|pod| format!("{tenant}/{pod}")).collect()
}

pub(crate) fn at(ip: &str, port: u16) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

#[test]
fn a_dual_stack_service_has_both_families_at_every_address_and_name_and_may_change_its_mind() {
    let stage = Stage::new();
    for tenant in TENANTS {
        assert_eq!(stage.field(tenant, "{.spec.ipFamilies[*]}"), "IPv4 IPv6");
        let core = stage.field(tenant, "{.spec.clusterIPs[*]}");
        assert_eq!(core.split(' ').count(), 2, "{core}");
        for ip in core.split(' ').chain(VIPS) {
            for (protocol, port) in [("tcp", 80), ("udp", 53)] {
                let to = at(ip, port);
                let (pod, peer) = await_some(|| stage.answer(tenant, "web", protocol, &to));
                assert!(["near", "far"].contains(&pod.as_str()));
                let own = if ip.contains(':') { "fd00::5" } else { "10.0.0.5" };
                assert_eq!(peer, own, "{ip}");
            }
        }
        let web = format!("{tenant}/web");
        stage.0.reach(&web, "sctp", &at(VIPS[0], 82)).good();
        assert!(!stage.0.connect(&web, "sctp", &at(VIPS[0], 80)).ok, "SCTP has a port of its own");
        for (kind, vip) in ["A", "AAAA"].into_iter().zip(VIPS) {
            await_condition(|| stage.named(tenant, kind) == vip).expect("the name has both");
        }
    }
    stage.patch(&json!({"spec": {"ipFamilyPolicy": "SingleStack"}}));
    stage.await_behind("web", VIPS[1], 80, &[]);
    stage.await_behind("web", VIPS[0], 80, &["near", "far"]);
    for tenant in TENANTS {
        assert_eq!(stage.field(tenant, "{.spec.clusterIPs[*]}").split(' ').count(), 1);
        await_condition(|| stage.vips(tenant) == [VIPS[0]]).expect("its VIP of IPv6 is taken back");
        await_condition(|| stage.named(tenant, "AAAA").is_empty()).expect("and has no name");
        assert_eq!(stage.named(tenant, "A"), VIPS[0]);
    }
    stage.patch(&json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}}));
    for tenant in TENANTS {
        await_condition(|| stage.vips(tenant).len() == 2).expect("it has one of each again");
        let six = stage.vips(tenant).swap_remove(1);
        stage.await_behind_of(tenant, "web", &at(&six, 80), &["near", "far"]);
        await_condition(|| stage.named(tenant, "AAAA") == six).expect("and its name has both");
    }
}

#[test]
fn a_service_changes_its_type_its_port_and_whom_it_leads_to_under_the_same_address() {
    let stage = Stage::new();
    let port = json!([{"name": "http", "port": 81, "targetPort": 9090}]);
    stage.change(&json!({"ports": port}));
    stage.await_behind("web", VIPS[0], 81, &["near", "far"]);
    stage.await_behind("web", VIPS[0], 80, &[]);
    stage.patch(&json!({"spec": {"type": "NodePort"}}));
    let entrances = TENANTS.map(|tenant| {
        let node_port = stage.field(tenant, "{.spec.ports[0].nodePort}");
        assert!(node_port.parse::<u16>().is_ok_and(|port| port >= 30_000), "{node_port}");
        NODES.map(|node| format!("{node}:{node_port}"))
    });
    stage.await_behind("web", VIPS[0], 81, &["near", "far"]);
    for (tenant, entrances) in TENANTS.iter().zip(&entrances) {
        entrances.iter().for_each(|to| stage.await_entered(tenant, ("tcp", to), &["near", "far"]));
    }
    stage.patch(&json!({"spec": {"type": "ClusterIP"}}));
    for (tenant, entrances) in TENANTS.iter().zip(&entrances) {
        assert_eq!(stage.field(tenant, "{.spec.ports[*].nodePort}"), "");
        entrances.iter().for_each(|to| await_unanswered(&stage.0, Asker::Outside, ("tcp", to)));
    }
    stage.await_behind("web", VIPS[0], 81, &["near", "far"]);
    stage.change(&json!({}));
    stage.await_behind("web", VIPS[0], 80, &["near", "far"]);

    stage.apply(unready);
    stage.patch(&json!({"spec": {"selector": {"app": "late"}}}));
    stage.await_behind("web", VIPS[0], 80, &[]);
    stage.patch(&json!({"spec": {"publishNotReadyAddresses": true}}));
    stage.await_behind("web", VIPS[0], 80, &["unready"]);
    stage.patch(&json!({"spec": {"publishNotReadyAddresses": false}}));
    stage.await_behind("web", VIPS[0], 80, &[]);
}

#[test]
fn a_pod_reaches_itself_by_its_service_and_udp_goes_on_while_backends_are_exchanged() {
    let stage = Stage::new();
    for tenant in TENANTS {
        let mut met = BTreeSet::new();
        await_condition(|| {
            met.extend(stage.answer(tenant, "near", "tcp", &at(VIPS[0], 80)));
            met.contains(&("near".to_owned(), VIPS[0].to_owned()))
        })
        .unwrap_or_else(|()| panic!("{tenant}: {met:?}"));
    }
    for tenant in TENANTS {
        for pod in ["near", "far"] {
            stage
                .0
                .kubectl(&["label", "pod", pod, "-n", tenant, "app=other", "--overwrite"])
                .good();
        }
    }
    stage.await_behind("web", VIPS[0], 80, &[]);
    let ask = |tenant: &str| {
        let to = at(VIPS[0], 53);
        let ask = ["atoll", "toolbox", "connect", "udp", &to, "--source-port", "5353"];
        stage.0.exec(&format!("{tenant}/web"), &ask)
    };
    TENANTS.iter().for_each(|tenant| assert!(!ask(tenant).ok, "nobody is there yet"));
    for (pod, last) in [("near", "far"), ("far", "near")] {
        for tenant in TENANTS {
            stage.0.kubectl(&["label", "pod", pod, "-n", tenant, "app=shop", "--overwrite"]).good();
            stage
                .0
                .kubectl(&["label", "pod", last, "-n", tenant, "app=other", "--overwrite"])
                .good();
        }
        for tenant in TENANTS {
            let found = format!("{tenant}/{pod}");
            await_condition(|| ask(tenant).out.contains(&found))
                .unwrap_or_else(|()| panic!("{found} is never led to from the same port"));
        }
    }
}

#[test]
fn an_external_address_leads_to_ones_own_pods_in_ones_own_network_and_nowhere_else() {
    const EXTERNAL: &str = "203.0.113.9:80";
    let stage = Stage::new();
    let named = |addresses: Value| json!({"spec": {"externalIPs": addresses}});
    TENANTS.iter().for_each(|tenant| stage.await_nobody(tenant, "web", EXTERNAL));
    stage.patch_of("acme", &named(json!(["203.0.113.9"])));
    stage.await_behind_of("acme", "web", EXTERNAL, &["near", "far"]);
    stage.await_nobody("globex", "web", EXTERNAL);
    stage.patch_of("globex", &named(json!(["203.0.113.9"])));
    stage.await_behind("web", "203.0.113.9", 80, &["near", "far"]);
    stage.patch_of("acme", &named(Value::Null));
    stage.await_nobody("acme", "web", EXTERNAL);
    stage.await_behind_of("globex", "web", EXTERNAL, &["near", "far"]);
}
