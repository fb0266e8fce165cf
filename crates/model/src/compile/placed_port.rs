//! A `Port` object, parsed once.

use std::net::{AddrParseError, IpAddr};

use atoll_api::Port;
use atoll_types::{MacAddr, MacError, NetAddr, NetworkId, NetworkIdError, PodRef};

/// A port as a node needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPort {
    /// The number of its network.
    pub network: NetworkId,
    /// The object name of its network.
    pub network_name: String,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// The pod.
    pub pod: PodRef,
    /// The pod's UID.
    pub pod_uid: String,
    /// The interface's name inside the pod.
    pub interface: String,
    /// The node, once there is one.
    pub node: Option<String>,
}

/// A port that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The network's number.
    #[error(transparent)]
    Network(#[from] NetworkIdError),
    /// An address.
    #[error("{0:?} is not an IP address")]
    Ip(String, #[source] AddrParseError),
    /// The Ethernet address.
    #[error(transparent)]
    Mac(#[from] MacError),
}

impl PlacedPort {
    /// Its addresses as the datapath knows them.
    pub fn addresses(&self) -> impl Iterator<Item = NetAddr> + '_ {
        self.ips.iter().map(|ip| NetAddr::new(self.network, *ip))
    }
}

impl TryFrom<&Port> for PlacedPort {
    type Error = PortError;

    fn try_from(port: &Port) -> Result<Self, Self::Error> {
        let spec = &port.spec;
        let parse_ip = |text: &String| {
            let parsed = text.parse().map_err(|error| PortError::Ip(text.clone(), error));
            parsed.map(|ip: IpAddr| ip.to_canonical())
        };
        Ok(PlacedPort {
            network: spec.network_id.try_into()?,
            network_name: spec.network.clone(),
            ips: spec.ips.iter().map(parse_ip).collect::<Result<_, _>>()?,
            mac: spec.mac.parse()?,
            pod: PodRef::new(port.metadata.namespace.clone().unwrap_or_default(), &spec.pod),
            pod_uid: spec.pod_uid.clone(),
            interface: spec.interface.clone(),
            node: spec.node.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use atoll_api::PortSpec;

    use super::*;

    fn port() -> Port {
        let spec = PortSpec {
            network: "acme.default".into(),
            network_id: 7,
            ips: vec!["10.0.0.5".into()],
            mac: "0a:04:0a:00:00:05".into(),
            pod: "web".into(),
            ..PortSpec::default()
        };
        let mut port = Port::new("web", spec);
        port.metadata.namespace = Some("acme".into());
        port
    }

    #[test]
    fn a_port_is_known_by_network_and_address() {
        let placed = PlacedPort::try_from(&port()).unwrap();
        let addresses: Vec<String> = placed.addresses().map(|addr| addr.to_string()).collect();
        assert_eq!(addresses, ["7/10.0.0.5"]);
        assert_eq!(placed.pod.to_string(), "acme/web");
    }

    #[test]
    fn an_ipv4_address_in_ipv6_clothes_is_the_ipv4_address() {
        let mut disguised = port();
        disguised.spec.ips = vec!["::ffff:10.0.0.5".into()];
        assert_eq!(PlacedPort::try_from(&disguised), PlacedPort::try_from(&port()));
    }

    #[test]
    fn what_cannot_be_parsed_is_named() {
        let mut bad = port();
        bad.spec.ips = vec!["10.0.0".into()];
        assert_eq!(
            PlacedPort::try_from(&bad).unwrap_err().to_string(),
            "\"10.0.0\" is not an IP address"
        );
        let mut bad = port();
        bad.spec.network_id = 0;
        assert!(matches!(PlacedPort::try_from(&bad), Err(PortError::Network(_))));
        let mut bad = port();
        bad.spec.mac = "ff:ff:ff:ff:ff:ff".into();
        assert!(matches!(PlacedPort::try_from(&bad), Err(PortError::Mac(_))));
    }
}
