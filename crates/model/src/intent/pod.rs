//! A pod: whether it needs an interface of ours, and what it asks for.

use std::net::IpAddr;

use atoll_api::{Reason, marks};
use atoll_types::{Label, MacAddr};
use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;

use super::namespace::mark;
use super::{Malformed, Meta};

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Metadata.
    pub meta: Meta,
    /// The node it is bound to.
    pub node: Option<String>,
    /// Whether it uses its node's network.
    pub host_network: bool,
    /// Whether all of its containers ended for good.
    pub finished: bool,
    /// The network it names.
    pub network: Option<String>,
    /// What it asks of its interfaces. Empty when it asks for nothing.
    pub nics: Result<Vec<Nic>, Malformed>,
}

/// What a pod asks of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nic {
    /// The subnet, by its object name or by what follows the network's name in it.
    pub subnet: Option<String>,
    /// Exactly this address.
    pub ip: Option<IpAddr>,
    /// Exactly this Ethernet address.
    pub mac: Option<MacAddr>,
    /// The interface's name inside the pod.
    pub name: Option<Label>,
}

impl Pod {
    /// Whether it is to have an interface of ours while it lives.
    pub fn needs_port(&self) -> bool {
        !self.host_network && !self.finished
    }
}

impl From<&core::Pod> for Pod {
    fn from(pod: &core::Pod) -> Self {
        let labels = pod.metadata.labels.as_ref();
        let asked = mark(pod.metadata.annotations.as_ref(), marks::NICS);
        let spec = pod.spec.as_ref();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        Pod {
            meta: Meta::from(&pod.metadata),
            node: spec.and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty()),
            host_network: spec.and_then(|spec| spec.host_network).unwrap_or(false),
            finished: matches!(phase, Some("Succeeded" | "Failed")),
            network: mark(labels, marks::NETWORK).or_else(|| mark(labels, marks::ARKTOS_NETWORK)),
            nics: asked.map_or_else(|| Ok(Vec::new()), |text| parse_nics(&text)),
        }
    }
}

/// The annotation as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenNic {
    subnet: Option<String>,
    ip: Option<String>,
    mac: Option<String>,
    name: Option<String>,
    port: Option<String>,
}

fn parse_nics(text: &str) -> Result<Vec<Nic>, Malformed> {
    let written: Vec<WrittenNic> = serde_json::from_str(text).map_err(|error| {
        let example = r#"[{"ip": "10.0.0.5"}]"#;
        malformed(format!("{} must be JSON like {example}: {error}", marks::NICS))
    })?;
    if written.is_empty() {
        return Err(malformed(format!("{}: the list is empty", marks::NICS)));
    }
    written.into_iter().enumerate().map(|(position, nic)| nic.parse(position)).collect()
}

impl WrittenNic {
    fn parse(self, position: usize) -> Result<Nic, Malformed> {
        let wrong = |field: &str, error: String| {
            malformed(format!("{}[{position}].{field}: {error}", marks::NICS))
        };
        let ip = |text: String| {
            let parsed = text.parse::<IpAddr>();
            parsed.map_err(|_| wrong("ip", format!("{text:?} is not an IP address")))
        };
        if self.port.is_some_and(|port| !port.is_empty()) {
            return Err(wrong("port", "ports made beforehand are not served".into()));
        }
        Ok(Nic {
            subnet: self.subnet.filter(|subnet| !subnet.is_empty()),
            ip: self.ip.filter(|ip| !ip.is_empty()).map(ip).transpose()?,
            mac: parsed(self.mac).map_err(|error| wrong("mac", error))?,
            name: interface_name(self.name).map_err(|error| wrong("name", error))?,
        })
    }
}

fn parsed<T: std::str::FromStr<Err: ToString>>(text: Option<String>) -> Result<Option<T>, String> {
    let given = text.filter(|text| !text.is_empty());
    given.map(|text| text.parse().map_err(|error: T::Err| error.to_string())).transpose()
}

/// Linux allows 15 characters; ports are named after their interface, so that it is a DNS label.
fn interface_name(text: Option<String>) -> Result<Option<Label>, String> {
    match parsed::<Label>(text)? {
        Some(name) if name.as_str().len() > 15 => {
            Err(format!("\"{name}\" is longer than 15 characters"))
        }
        Some(name) if name.as_str() == "lo" => Err("\"lo\" is every pod's loopback".into()),
        name => Ok(name),
    }
}

fn malformed(message: String) -> Malformed {
    Malformed::new(Reason::RequestMalformed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        parse_nics(text).unwrap_err().message
    }

    fn pod_with(json: &str) -> Pod {
        Pod::from(&serde_json::from_str::<core::Pod>(json).unwrap())
    }

    #[test]
    fn a_pod_asks_for_subnet_address_and_name() {
        let asked = r#"[{"subnet": "web", "ip": "10.0.0.5", "name": "eth0"}, {}]"#;
        let nics = parse_nics(asked).unwrap();
        assert_eq!(nics[0].subnet.as_deref(), Some("web"));
        assert_eq!(nics[0].ip, Some("10.0.0.5".parse().unwrap()));
        assert_eq!(nics[0].name, Some("eth0".parse().unwrap()));
        assert_eq!(nics[1], Nic::default());
    }

    #[test]
    fn what_is_wrong_with_an_annotation_is_said_with_its_place() {
        assert_eq!(
            message(r#"[{"ip": "10.0.0"}]"#),
            "atoll.dev/nics[0].ip: \"10.0.0\" is not an IP address"
        );
        assert!(message(r#"[{}, {"name": "eth_0"}]"#).starts_with("atoll.dev/nics[1].name: "));
        assert!(message(r#"[{"name": "a-very-long-name"}]"#).contains("longer than 15"));
        assert!(message(r#"[{"name": "lo"}]"#).contains("loopback"));
        assert!(message(r#"[{"mac": "ff:ff:ff:ff:ff:ff"}]"#).contains("unicast"));
        assert!(message(r#"[{"port": "mine"}]"#).contains("not served"));
        assert!(message("ten").starts_with("atoll.dev/nics must be JSON like"));
        assert!(message(r#"[{"adress": "10.0.0.5"}]"#).contains("adress"));
        assert_eq!(message("[]"), "atoll.dev/nics: the list is empty");
    }

    #[test]
    fn both_network_labels_are_honoured_and_ours_wins() {
        let arktos = r#"{"metadata":{"labels":{"arktos.futurewei.com/network":"old"}}}"#;
        assert_eq!(pod_with(arktos).network.as_deref(), Some("old"));
        let both = r#"{"metadata":{"labels":{
            "arktos.futurewei.com/network":"old","atoll.dev/network":"new"}}}"#;
        assert_eq!(pod_with(both).network.as_deref(), Some("new"));
    }

    #[test]
    fn pods_on_the_nodes_network_and_finished_pods_need_no_port() {
        assert!(pod_with(r#"{"metadata":{}}"#).needs_port());
        let host = r#"{"metadata":{},"spec":{"hostNetwork":true,"containers":[]}}"#;
        assert!(!pod_with(host).needs_port());
        for phase in ["Succeeded", "Failed"] {
            let done = format!(r#"{{"metadata":{{}},"status":{{"phase":"{phase}"}}}}"#);
            assert!(!pod_with(&done).needs_port(), "{phase}");
        }
    }
}
