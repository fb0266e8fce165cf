//! Services of the cluster's own that pods of tenants may call: its API, and those that an
//! administrator exports by the label `atoll.dev/export`.
//!
//! The rule of this file: what cannot be read is exported to nobody, with a sentence that says why.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use atoll_api::marks;
use atoll_types::Protocol;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// A service by namespace and name.
pub type ServiceName = (String, String);

/// A service of the cluster's own that pods of tenants may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Who may call it.
    pub to: Audience,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its ports of TCP and UDP.
    pub ports: Vec<ExportPort>,
}

/// The tenants that may call a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All of them.
    All,
    /// These.
    Listed(BTreeSet<String>),
}

impl Audience {
    /// Whether this tenant is among them.
    pub fn has(&self, tenant: &str) -> bool {
        match self {
            Audience::All => true,
            Audience::Listed(tenants) => tenants.contains(tenant),
        }
    }
}

/// A port of an exported service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportPort {
    /// Its name, by which slices know it; empty where the service has but one.
    pub name: String,
    /// Whether it is of UDP; else it is of TCP.
    pub datagrams: bool,
    /// Its number.
    pub port: u16,
}

/// Why a service is exported to nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The label says something else.
    #[error("label atoll.dev/export is {0:?}; it must be \"all\" or \"listed\"")]
    Label(String),
    /// Nobody is listed.
    #[error(
        "label atoll.dev/export is \"listed\", and annotation atoll.dev/export-to names no tenant; \
         it must be like \"acme,globex\""
    )]
    NobodyListed,
    /// It has no address that a pod could call.
    #[error("spec.clusterIP: the service has no address of its own; only one that has is exported")]
    NoAddress,
    /// It has no port that a pod could call.
    #[error("spec.ports: the service has no port of TCP or UDP; only these are exported")]
    NoPort,
}

impl Export {
    /// The cluster's API: everybody may call it.
    pub fn api(service: &Service) -> Result<Export, ExportError> {
        Export::to(service, Audience::All)
    }

    /// A service that bears the label `atoll.dev/export`.
    pub fn labelled(service: &Service) -> Result<Export, ExportError> {
        let label = service.metadata.labels.iter().flatten().find(|it| it.0 == marks::EXPORT);
        match label.map(|(_, value)| value.as_str()) {
            Some("all") => Export::to(service, Audience::All),
            Some("listed") => Export::to(service, Audience::Listed(listed(service)?)),
            other => Err(ExportError::Label(other.unwrap_or_default().to_owned())),
        }
    }

    fn to(service: &Service, to: Audience) -> Result<Export, ExportError> {
        let addresses = addresses(service);
        let ports = ports(service);
        match (addresses.is_empty(), ports.is_empty()) {
            (true, _) => Err(ExportError::NoAddress),
            (_, true) => Err(ExportError::NoPort),
            _ => Ok(Export { to, addresses, ports }),
        }
    }
}

fn listed(service: &Service) -> Result<BTreeSet<String>, ExportError> {
    let annotations = service.metadata.annotations.iter().flatten();
    let text = annotations.filter(|it| it.0 == marks::EXPORT_TO).map(|(_, value)| value.as_str());
    let tenants = text.flat_map(|text| text.split(',')).map(str::trim).filter(|it| !it.is_empty());
    let tenants: BTreeSet<_> = tenants.map(ToOwned::to_owned).collect();
    if tenants.is_empty() { Err(ExportError::NobodyListed) } else { Ok(tenants) }
}

fn addresses(service: &Service) -> Vec<IpAddr> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let all = spec.cluster_ips.iter().flatten();
    let texts: Vec<&String> =
        if all.clone().next().is_some() { all.collect() } else { spec.cluster_ip.iter().collect() };
    texts.into_iter().filter_map(|text| text.parse().ok()).collect()
}

fn ports(service: &Service) -> Vec<ExportPort> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let read = |port: &k8s_openapi::api::core::v1::ServicePort| {
        let name = port.name.clone().unwrap_or_default();
        let datagrams = datagrams(port.protocol.as_deref())?;
        Some(ExportPort { name, datagrams, port: u16::try_from(port.port).ok()? })
    };
    ports.filter_map(read).collect()
}

/// Whether a port is of UDP or of TCP; none where it is of neither.
fn datagrams(protocol: Option<&str>) -> Option<bool> {
    match Protocol::parse(protocol)? {
        Protocol::Tcp => Some(false),
        Protocol::Udp => Some(true),
        Protocol::Sctp => None,
    }
}

/// Who stands behind a service, as one EndpointSlice tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSlice {
    /// Ports by name, and whether each is of UDP.
    ports: Vec<((String, bool), u16)>,
    /// Addresses of those that are ready.
    ready: Vec<IpAddr>,
}

impl TargetSlice {
    /// Reads a slice.
    pub fn read(slice: &EndpointSlice) -> TargetSlice {
        let ports = slice.ports.iter().flatten();
        let numbered = ports.filter_map(|port| {
            let name = port.name.clone().unwrap_or_default();
            let datagrams = datagrams(port.protocol.as_deref())?;
            Some(((name, datagrams), u16::try_from(port.port?).ok()?))
        });
        let endpoints = slice.endpoints.iter();
        let ready = endpoints.filter(|endpoint| {
            endpoint.conditions.as_ref().and_then(|it| it.ready).unwrap_or(true)
        });
        let addresses = ready.flat_map(|endpoint| endpoint.addresses.iter());
        let addresses = addresses.filter_map(|text| text.parse().ok()).filter(is_elsewhere);
        TargetSlice { ports: numbered.collect(), ready: addresses.collect() }
    }

    /// Where calls of this port may be led.
    pub fn targets<'a>(&'a self, port: &'a ExportPort) -> impl Iterator<Item = SocketAddr> + 'a {
        let is_same =
            |(name, datagrams): &(String, bool)| *name == port.name && *datagrams == port.datagrams;
        let same = self.ports.iter().filter(move |(of, _)| is_same(of));
        same.flat_map(|(_, number)| self.ready.iter().map(|ip| SocketAddr::new(*ip, *number)))
    }
}

/// Whether an address cannot mean the very node that looks at it, or its link.
pub(crate) fn is_elsewhere(ip: &IpAddr) -> bool {
    let is_near = match ip {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
    };
    !is_near && !ip.is_unspecified() && !ip.is_multicast()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(label: &str, to: Option<&str>, spec: &Value) -> Service {
        let annotations = to.map(|to| json!({"atoll.dev/export-to": to}));
        serde_json::from_value(json!({
            "metadata": {"name": "registry", "namespace": "infra",
                         "labels": {"atoll.dev/export": label}, "annotations": annotations},
            "spec": spec,
        }))
        .unwrap()
    }

    fn https() -> ExportPort {
        ExportPort { name: "https".into(), datagrams: false, port: 443 }
    }

    fn quic() -> ExportPort {
        ExportPort { name: "quic".into(), datagrams: true, port: 443 }
    }

    fn spec() -> Value {
        json!({"clusterIPs": ["10.96.0.7", "fd96::7"], "ports": [
            {"name": "https", "port": 443}, {"name": "quic", "port": 443, "protocol": "UDP"},
            {"name": "signal", "port": 443, "protocol": "SCTP"}]})
    }

    #[test]
    fn a_service_is_exported_to_all_or_to_the_tenants_that_are_listed() {
        let all = Export::labelled(&service("all", None, &spec())).unwrap();
        assert!(all.to.has("acme") && all.to.has("globex"));
        assert_eq!(all.addresses.len(), 2);
        assert_eq!(all.ports, [https(), quic()], "and not what is of neither TCP nor UDP");
        let listed = Export::labelled(&service("listed", Some("acme, initech"), &spec())).unwrap();
        assert!(listed.to.has("acme") && listed.to.has("initech") && !listed.to.has("globex"));
    }

    #[test]
    fn what_cannot_be_read_is_exported_to_nobody_and_says_why() {
        let headless = json!({"clusterIP": "None", "ports": [{"port": 80}]});
        let sctp = json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80, "protocol": "SCTP"}]});
        let cases = [
            (service("", None, &spec()), "it must be \"all\" or \"listed\""),
            (service("acme", None, &spec()), "label atoll.dev/export is \"acme\""),
            (service("listed", None, &spec()), "annotation atoll.dev/export-to names no tenant"),
            (service("listed", Some(" , "), &spec()), "names no tenant"),
            (service("all", None, &headless), "spec.clusterIP"),
            (service("all", None, &sctp), "spec.ports"),
        ];
        for (service, expected) in cases {
            let said = Export::labelled(&service).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
    }

    fn slice(endpoints: &Value) -> TargetSlice {
        let slice = json!({
            "metadata": {"name": "registry-1"}, "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"name": "https", "port": 6443}, {"name": "metrics", "port": 9},
                      {"name": "https", "port": 7, "protocol": "UDP"},
                      {"name": "quic", "port": 6444, "protocol": "UDP"}]});
        TargetSlice::read(&serde_json::from_value(slice).unwrap())
    }

    #[test]
    fn calls_go_to_ready_endpoints_at_the_port_of_the_same_name_and_protocol() {
        let endpoints = slice(&json!([
            {"addresses": ["192.0.2.1"]},
            {"addresses": ["192.0.2.2"], "conditions": {"ready": false}},
            {"addresses": ["192.0.2.3"], "conditions": {"ready": true}},
        ]));
        let targets = |port: &ExportPort| -> Vec<_> {
            endpoints.targets(port).map(|it| it.to_string()).collect()
        };
        assert_eq!(targets(&https()), ["192.0.2.1:6443", "192.0.2.3:6443"]);
        assert_eq!(targets(&quic()), ["192.0.2.1:6444", "192.0.2.3:6444"]);
    }

    #[test]
    fn no_call_goes_to_the_node_that_leads_it() {
        let near = ["127.0.0.1", "169.254.1.2", "0.0.0.0", "224.0.0.1", "255.255.255.255"];
        let near: Vec<_> = near.iter().map(|ip| json!({"addresses": [ip]})).collect();
        for port in [https(), quic()] {
            assert_eq!(slice(&json!(near)).targets(&port).count(), 0);
        }
    }
}
