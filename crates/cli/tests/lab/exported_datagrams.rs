//! Services that an administrator exports, by UDP as by TCP at the same port, in both families: reached by
//! the tenants that may, and by no other, from pods with one address; on whatever node somebody is behind
//! the service.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use crate::documents::{nics, pod, tenant, yaml};
use crate::fixture::{Lab, await_condition, kill_agent_and_await_the_next};

const TENANTS: [&str; 2] = ["acme", "globex"];

fn service(labels: &Value, annotations: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "clock", "namespace": "infra", "labels": labels,
                     "annotations": annotations},
        "spec": {"ipFamilyPolicy": "RequireDualStack", "selector": {"app": "clock"},
                 "ports": [{"name": "tcp", "port": 80, "targetPort": 8123},
                           {"name": "udp", "port": 80, "targetPort": 8123, "protocol": "UDP"}]}})
}

/// A program of a node that says who it is, by both protocols.
fn clock(name: &str, node: &str) -> Value {
    let mut clock = pod(&format!("infra/{name}"), node, &json!({"app": "clock"}), &json!({}));
    clock["spec"]["hostNetwork"] = json!(true);
    let command = json!(["atoll", "toolbox", "serve", "--port", "8123"]);
    clock["spec"]["containers"][0]["command"] = command;
    clock
}

/// Both tenants, the service, and where it is.
struct Stage {
    lab: Lab,
    places: [String; 2],
}

fn stage() -> Stage {
    let lab = Lab::up(3);
    for name in TENANTS {
        let web = pod(&format!("{name}/web"), "node1", &json!({}), &nics("default", 5));
        lab.apply(&(tenant(name) + &yaml(&[web]))).good();
    }
    let infra = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "infra"}});
    lab.apply(&yaml(&[infra, service(&json!({}), &json!({}))])).good();
    lab.apply(&yaml(&[clock("east", "node2"), clock("west", "node3")])).good();
    lab.wait_for_pods();
    let places = addresses(&lab).map(|ip| SocketAddr::new(ip, 80).to_string());
    Stage { lab, places }
}

fn addresses(lab: &Lab) -> [IpAddr; 2] {
    let path = "jsonpath={.spec.clusterIPs[*]}";
    let said = lab.kubectl(&["get", "service", "clock", "-n", "infra", "-o", path]).good();
    let all: Vec<IpAddr> = said.split_whitespace().map(|ip| ip.parse().unwrap()).collect();
    all.try_into().unwrap()
}

impl Stage {
    /// Who answers a tenant's pod at each place, by a protocol.
    fn answerers(&self, tenant: &str, protocol: &str) -> [Option<String>; 2] {
        self.places.each_ref().map(|to| {
            let said = self.lab.connect(&format!("{tenant}/web"), protocol, to);
            let answer: Value = serde_json::from_str(&said.out).ok()?;
            answer["pod"].as_str().map(ToOwned::to_owned)
        })
    }

    /// Waits until the tenants reach it, or do not, by both protocols at both places.
    fn await_reach(&self, wanted: [bool; 2]) {
        for protocol in ["udp", "tcp"] {
            let mut last = Default::default();
            await_condition(|| {
                last = TENANTS.map(|tenant| self.answerers(tenant, protocol));
                last.each_ref().map(|it| it.each_ref().map(Option::is_some))
                    == wanted.map(|it| [it; 2])
            })
            .unwrap_or_else(|()| panic!("{protocol}: {last:?} and never as {wanted:?}"));
        }
    }

    fn export(&self, labels: &Value, annotations: &Value) {
        self.lab.apply(&yaml(&[service(labels, annotations)])).good();
    }
}

#[test]
fn an_exported_service_is_reached_by_udp_too_by_the_tenants_that_may_and_by_nobody_else() {
    let stage = stage();
    let to_acme = json!({"atoll.dev/export-to": "acme"});
    stage.export(&json!({"atoll.dev/export": "listed"}), &to_acme);
    stage.await_reach([true, false]);
    stage.export(&json!({"atoll.dev/export": "all"}), &json!({}));
    stage.await_reach([true, true]);
    stage.lab.kubectl(&["delete", "pod", "east", "-n", "infra"]).good();
    let west = Some("infra/west".to_owned());
    await_condition(|| {
        TENANTS.iter().all(|it| stage.answerers(it, "udp") == [west.clone(), west.clone()])
    })
    .expect("the one that is left answers everybody");
    kill_agent_and_await_the_next(&stage.lab, "node1");
    stage.await_reach([true, true]);
    stage.lab.kubectl(&["label", "service", "clock", "-n", "infra", "atoll.dev/export-"]).good();
    stage.await_reach([false, false]);
}
