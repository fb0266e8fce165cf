//! What a pod is told of its interfaces, once all of them are there: the annotation that the
//! Network Plumbing Working Group defines.

use serde_json::{Value, json};

use crate::action::{Action, Target};
use crate::intent::{Kind, Pod, Port};
use crate::world::World;

impl World {
    /// Tells the pod, unless an interface is missing or it knows already.
    pub(super) fn tell(&self, pod: &Pod) -> Option<Action> {
        let ports = pod.port_names().map(|name| self.ports.get(&name));
        let ports: Vec<&Port> = ports.collect::<Option<_>>()?;
        let there = |port: &&Port| port.attached && port.is_of(&pod.meta.uid);
        if ports.is_empty() || !ports.iter().all(there) {
            return None;
        }
        let interfaces: Vec<Value> = ports.into_iter().map(interface).collect::<Option<_>>()?;
        let text = Value::Array(interfaces).to_string();
        let known = pod.network_status.as_ref() == Some(&text);
        (!known).then(|| Action::TellPod(Target::new(Kind::Pod, &pod.meta), text))
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
