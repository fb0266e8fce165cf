//! What can change in a port's spec, as values and as the patch that the API takes.

use atoll_api::{InterfaceType, PortSpec};
use serde_json::{Map, Value};

/// A change of a port's spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortChange {
    /// A port that was made beforehand gets its place in its network.
    Fill(Filling),
    /// A pod takes it.
    Bind(Binding),
    /// No pod has it any more.
    Release,
    /// The pod reaches these ranges through it.
    Route(Vec<String>),
    /// Its pod is on this node.
    Place(String),
}

/// A port's place in its network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filling {
    /// The network's number.
    pub network_id: u32,
    /// The subnet that the first address comes from.
    pub subnet: String,
    /// The addresses.
    pub ips: Vec<String>,
    /// The Ethernet address.
    pub mac: String,
}

/// A port's place in a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// The pod.
    pub pod: String,
    /// Its UID.
    pub pod_uid: String,
    /// The interface's name inside it.
    pub interface: String,
    /// What the pod finds there.
    pub interface_type: InterfaceType,
    /// The pod's node, once it has one.
    pub node: Option<String>,
    /// Whether it is the pod's first interface.
    pub primary: bool,
    /// On the first: the others.
    pub other_interfaces: Vec<String>,
    /// On the others: what is reached through them.
    pub routes: Vec<String>,
}

const FILLED: [&str; 5] = ["networkID", "subnet", "ips", "mac", "persistent"];
const BOUND: [&str; 8] =
    ["pod", "podUID", "interface", "interfaceType", "node", "primary", "otherInterfaces", "routes"];

impl Filling {
    fn write(&self, spec: &mut PortSpec) {
        let Filling { network_id, subnet, ips, mac } = self.clone();
        *spec = PortSpec { network_id, subnet, ips, mac, persistent: true, ..spec.clone() };
    }
}

impl Binding {
    pub(crate) fn write(&self, spec: &mut PortSpec) {
        let Binding {
            pod,
            pod_uid,
            interface,
            interface_type,
            node,
            primary,
            other_interfaces,
            routes,
        } = self.clone();
        *spec = PortSpec {
            pod,
            pod_uid,
            interface,
            interface_type,
            node,
            primary,
            other_interfaces,
            routes,
            ..spec.clone()
        };
    }
}

impl PortChange {
    /// Makes the change.
    pub fn apply(&self, spec: &mut PortSpec) {
        match self {
            PortChange::Fill(filling) => filling.write(spec),
            PortChange::Bind(binding) => binding.write(spec),
            PortChange::Release => Binding::default().write(spec),
            PortChange::Route(routes) => spec.routes.clone_from(routes),
            PortChange::Place(node) => spec.node = Some(node.clone()),
        }
    }

    /// The change as a JSON merge patch of the spec: what is to go is null.
    pub fn patch(&self) -> Value {
        let mut spec = PortSpec::default();
        self.apply(&mut spec);
        let mut written = serde_json::to_value(spec).unwrap_or_default();
        let fields = self.fields().iter();
        let patch = fields.map(|field| ((*field).to_owned(), written[*field].take()));
        Value::Object(patch.collect::<Map<_, _>>())
    }

    fn fields(&self) -> &'static [&'static str] {
        match self {
            PortChange::Fill(_) => &FILLED,
            PortChange::Bind(_) | PortChange::Release => &BOUND,
            PortChange::Route(_) => &["routes"],
            PortChange::Place(_) => &["node"],
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn full() -> PortSpec {
        let mut spec = PortSpec { network: "acme.default".into(), ..PortSpec::default() };
        filling().write(&mut spec);
        binding().write(&mut spec);
        spec
    }

    fn filling() -> Filling {
        let ips = vec!["10.0.0.5".into()];
        Filling { network_id: 7, subnet: "s".into(), ips, mac: "0a:04:0a:00:00:05".into() }
    }

    fn binding() -> Binding {
        Binding {
            pod: "web".into(),
            pod_uid: "u".into(),
            interface: "eth0".into(),
            interface_type: InterfaceType::Tap,
            node: Some("node1".into()),
            primary: true,
            other_interfaces: vec!["net1".into()],
            routes: vec!["10.1.0.0/16".into()],
        }
    }

    /// As the API merges a patch.
    fn merged(spec: &PortSpec, patch: &Value) -> PortSpec {
        let mut value = serde_json::to_value(spec).unwrap();
        for (field, change) in patch.as_object().unwrap() {
            match change {
                Value::Null => value.as_object_mut().unwrap().remove(field),
                change => value.as_object_mut().unwrap().insert(field.clone(), change.clone()),
            };
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_patch_and_the_change_do_the_same_to_any_port() {
        let changes = [
            PortChange::Fill(filling()),
            PortChange::Bind(binding()),
            PortChange::Bind(Binding { pod: "db".into(), ..Binding::default() }),
            PortChange::Release,
            PortChange::Place("node2".into()),
            PortChange::Route(vec!["10.2.0.0/16".into()]),
            PortChange::Route(Vec::new()),
        ];
        for change in changes {
            for spec in [full(), PortSpec { network: "acme.b".into(), ..PortSpec::default() }] {
                let mut changed = spec.clone();
                change.apply(&mut changed);
                assert_eq!(merged(&spec, &change.patch()), changed, "{change:?}");
            }
        }
    }

    #[test]
    fn a_released_port_keeps_its_addresses_and_nothing_of_its_pod() {
        let mut spec = full();
        PortChange::Release.apply(&mut spec);
        let left = json!({"network": "acme.default", "networkID": 7, "subnet": "s",
            "ips": ["10.0.0.5"], "mac": "0a:04:0a:00:00:05", "persistent": true});
        assert_eq!(serde_json::to_value(spec).unwrap(), left);
    }
}
