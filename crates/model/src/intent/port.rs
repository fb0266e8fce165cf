//! A port: who has which addresses.

use std::fmt;
use std::net::IpAddr;

use atoll_api::{self as api, Reason};
use atoll_types::{NetAddr, NetworkId, NetworkName};

use super::{Malformed, Meta, ObjectName};

/// A port.
#[derive(Clone, Debug)]
pub struct Port {
    /// Metadata.
    pub meta: Meta,
    /// The pod.
    pub pod: ObjectName,
    /// The incarnation of the pod.
    pub pod_uid: String,
    /// The node that the pod was last known to be bound to.
    pub node: Option<String>,
    /// Whether the pod has the interface.
    pub attached: bool,
    /// Its addresses.
    pub plan: Result<PortPlan, Malformed>,
}

/// A port's place in a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    /// The network.
    pub network: NetworkName,
    /// The network's number.
    pub network_id: NetworkId,
    /// The addresses.
    pub ips: Vec<IpAddr>,
}

impl From<&api::Port> for Port {
    fn from(port: &api::Port) -> Self {
        let meta = Meta::from(&port.metadata);
        let phase = port.status.as_ref().map(|status| status.phase);
        Port {
            pod: ObjectName::inside(meta.name.namespace.clone(), port.spec.pod.clone()),
            pod_uid: port.spec.pod_uid.clone(),
            node: port.spec.node.clone(),
            attached: phase == Some(api::PortPhase::Attached),
            plan: PortPlan::parse(&port.spec),
            meta,
        }
    }
}

impl Port {
    /// Whether the port has this address.
    pub fn has(&self, address: NetAddr) -> bool {
        self.plan
            .as_ref()
            .is_ok_and(|plan| plan.network_id == address.network && plan.ips.contains(&address.ip))
    }

    /// Its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = NetAddr> {
        let plan = self.plan.as_ref().ok();
        plan.into_iter()
            .flat_map(|plan| plan.ips.iter().map(|ip| NetAddr::new(plan.network_id, *ip)))
    }

    /// The network, where the port can be understood.
    pub fn network(&self) -> Option<&NetworkName> {
        self.plan.as_ref().ok().map(|plan| &plan.network)
    }
}

impl PortPlan {
    fn parse(spec: &api::PortSpec) -> Result<Self, Malformed> {
        let ip = |text: &String| {
            text.parse()
                .map_err(|_| malformed("spec.ips", &format_args!("{text:?} is not an address")))
        };
        Ok(PortPlan {
            network: spec.network.parse().map_err(|error| malformed("spec.network", &error))?,
            network_id: spec
                .network_id
                .try_into()
                .map_err(|error| malformed("spec.networkID", &error))?,
            ips: spec.ips.iter().map(ip).collect::<Result<_, _>>()?,
        })
    }
}

fn malformed(field: &str, error: &dyn fmt::Display) -> Malformed {
    Malformed::new(Reason::RequestMalformed, format!("{field}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_makes_no_sense_still_names_its_pod() {
        let spec =
            api::PortSpec { pod: "web".into(), ips: vec!["ten".into()], ..Default::default() };
        let mut object = api::Port::new("web.eth0", spec);
        object.metadata.namespace = Some("shop".into());
        let port = Port::from(&object);
        assert_eq!(port.pod, ObjectName::inside("shop", "web"));
        assert!(port.plan.is_err());
        assert_eq!(port.addresses().count(), 0);
    }
}
