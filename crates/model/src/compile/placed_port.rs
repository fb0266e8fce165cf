//! A `Port` object, parsed once.

use std::collections::BTreeSet;
use std::net::{AddrParseError, IpAddr};

use atoll_api::{InterfaceType, Port};
use atoll_plan::Device;
use atoll_types::{Cidr, CidrError, MacAddr, MacError, NetAddr, NetworkId, NetworkIdError, PodRef};

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
    /// What the pod finds under that name.
    pub device: Device,
    /// The node, once there is one.
    pub node: Option<String>,
    /// The pod's other interfaces, which come with this one.
    pub others: BTreeSet<String>,
    /// The ranges that the pod reaches through it; all that no other interface leads to, if none.
    pub routes: BTreeSet<Cidr>,
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
    /// A route.
    #[error(transparent)]
    Route(#[from] CidrError),
}

impl PlacedPort {
    /// Its addresses as the datapath knows them.
    pub fn addresses(&self) -> impl Iterator<Item = NetAddr> + '_ {
        self.ips.iter().map(|ip| NetAddr::new(self.network, *ip))
    }

    /// Whether this is another interface of the pod whose first one `self` is.
    pub fn brings(&self, port: &PlacedPort) -> bool {
        let same_pod = self.pod == port.pod && self.pod_uid == port.pod_uid;
        same_pod && self.interface != port.interface && self.others.contains(&port.interface)
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
        // The first interface has the default routes, whatever else stands there.
        let routes = spec.routes.iter().filter(|_| !spec.primary).map(|route| route.parse());
        Ok(PlacedPort {
            network: spec.network_id.try_into()?,
            network_name: spec.network.clone(),
            ips: spec.ips.iter().map(parse_ip).collect::<Result<_, _>>()?,
            mac: spec.mac.parse()?,
            pod: PodRef::new(port.metadata.namespace.clone().unwrap_or_default(), &spec.pod),
            pod_uid: spec.pod_uid.clone(),
            interface: spec.interface.clone(),
            device: match spec.interface_type {
                InterfaceType::Veth => Device::Veth,
                InterfaceType::Tap => Device::Tap,
            },
            node: spec.node.clone(),
            others: spec.other_interfaces.iter().cloned().collect(),
            routes: routes.collect::<Result<_, _>>()?,
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
        bad.spec.routes = vec!["10.1.0.1/16".into()];
        assert!(matches!(PlacedPort::try_from(&bad), Err(PortError::Route(_))));
        let mut bad = port();
        bad.spec.mac = "ff:ff:ff:ff:ff:ff".into();
        assert!(matches!(PlacedPort::try_from(&bad), Err(PortError::Mac(_))));
    }
    #[test]
    fn the_first_interface_has_no_ranges_and_a_further_one_has_its_own() {
        let mut further = port();
        further.spec.routes = vec!["10.1.0.0/16".into()];
        let placed = PlacedPort::try_from(&further).unwrap();
        assert_eq!(placed.routes, ["10.1.0.0/16".parse().unwrap()].into());
        further.spec.primary = true;
        assert_eq!(PlacedPort::try_from(&further).unwrap().routes, BTreeSet::new());
    }

    #[test]
    fn a_port_brings_the_named_interfaces_of_its_own_pod_only() {
        let mut first = port();
        first.spec.other_interfaces = vec!["net1".into()];
        let first = PlacedPort::try_from(&first).unwrap();
        let further = PlacedPort { interface: "net1".into(), ..first.clone() };
        assert!(first.brings(&further));
        assert!(!first.brings(&first));
        let unnamed = PlacedPort { interface: "net2".into(), ..further.clone() };
        assert!(!first.brings(&unnamed));
        let of_another = PlacedPort { pod_uid: "later".into(), ..further };
        assert!(!first.brings(&of_another));
    }
}
