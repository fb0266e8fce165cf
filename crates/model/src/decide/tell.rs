//! What a pod is told of its interfaces, once all of them are there: the annotation that the
//! Network Plumbing Working Group defines, and the device status of its resource claims.
//!
//! The rule: claims first. A pod that has its annotation has been told whole.

use std::net::IpAddr;

use k8s_openapi::api::resource::v1::NetworkDeviceData;
use serde_json::{Value, json};

use crate::action::{Action, Target};
use crate::intent::{Kind, Pod, Port};
use crate::world::World;

impl World {
    /// Tells the pod, unless an interface is missing or it knows already.
    pub(super) fn tell(&self, pod: &Pod) -> Vec<Action> {
        let Some(ports) = self.attached_ports(pod) else { return Vec::new() };
        let Some(interfaces) = ports.iter().map(|port| interface(port)).collect() else {
            return Vec::new();
        };
        let text = Value::Array(interfaces).to_string();
        if pod.network_status.as_ref() == Some(&text) {
            return Vec::new();
        }
        let target = Target::new(Kind::Pod, &pod.meta);
        let interfaces: Vec<_> = ports.iter().filter_map(|port| device(port)).collect();
        let claims = pod.resource_claims.iter().map(|claim| Action::TellClaim {
            pod: target.clone(),
            claim: claim.clone(),
            interfaces: interfaces.clone(),
        });
        claims.chain([Action::TellPod(target.clone(), text)]).collect()
    }

    /// The ports of a pod, if it has some and all are attached.
    fn attached_ports(&self, pod: &Pod) -> Option<Vec<&Port>> {
        let ports = pod.port_names().map(|name| self.ports.get(&name));
        let ports: Vec<&Port> = ports.collect::<Option<_>>()?;
        let there = |port: &&Port| port.attached && port.is_of(&pod.meta.uid);
        (!ports.is_empty() && ports.iter().all(there)).then_some(ports)
    }
}

fn interface(port: &Port) -> Option<Value> {
    let (bound, plan) = (port.bound.as_ref()?, port.plan.as_ref().ok()?);
    let ips: Vec<String> = plan.ips.iter().map(ToString::to_string).collect();
    Some(json!({
        "name": plan.network.to_string(),
        "interface": bound.interface,
        "ips": ips,
        "mac": plan.mac?.to_string(),
        "default": bound.primary,
        "dns": {},
    }))
}

/// The same for a device, whose addresses are written as the pod has them: each alone.
fn device(port: &Port) -> Option<NetworkDeviceData> {
    let (bound, plan) = (port.bound.as_ref()?, port.plan.as_ref().ok()?);
    let alone = |ip: &IpAddr| format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 });
    Some(NetworkDeviceData {
        interface_name: Some(bound.interface.clone()),
        ips: Some(plan.ips.iter().map(alone).collect()),
        hardware_address: plan.mac.map(|mac| mac.to_string()),
    })
}
