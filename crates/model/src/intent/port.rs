//! A port: who has which addresses.

use std::fmt;
use std::net::IpAddr;

use atoll_api::{self as api, ClaimHolder, Reason};
use atoll_types::{MacAddr, NetAddr, NetworkId, NetworkName};
use atoll_vpc::Holder;

use super::{Malformed, Meta, ObjectName, PortHolder, holder_of_port};

/// A port.
#[derive(Clone, Debug)]
pub struct Port {
    /// Metadata.
    pub meta: Meta,
    /// The pod that has it, if one does.
    pub bound: Option<Bound>,
    /// Whether it stays when its pod goes.
    pub persistent: bool,
    /// Whether a StatefulSet keeps it: then it goes with that, or when nobody used it for long.
    pub of_stateful_set: bool,
    /// Whether the pod has the interface.
    pub attached: bool,
    /// Its addresses.
    pub plan: Result<PortPlan, Malformed>,
}

/// The pod that has a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The pod.
    pub pod: ObjectName,
    /// The incarnation of the pod.
    pub pod_uid: String,
    /// The interface's name inside the pod.
    pub interface: String,
    /// Whether it is the pod's first.
    pub primary: bool,
    /// Whether the pod has others.
    pub has_siblings: bool,
    /// What the pod reaches through it, if it is not its first.
    pub routes: Vec<String>,
    /// The node that the pod was last known to be bound to.
    pub node: Option<String>,
}

/// A port's place in a network. One that was made beforehand may lack any of it but the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    /// The network.
    pub network: NetworkName,
    /// The network's number.
    pub network_id: Option<NetworkId>,
    /// The subnet.
    pub subnet: Option<String>,
    /// The addresses.
    pub ips: Vec<IpAddr>,
    /// The Ethernet address.
    pub mac: Option<MacAddr>,
}

impl From<&api::Port> for Port {
    fn from(port: &api::Port) -> Self {
        let meta = Meta::from(&port.metadata);
        let owners = port.metadata.owner_references.iter().flatten();
        let phase = port.status.as_ref().map(|status| status.phase);
        Port {
            bound: Bound::parse(&meta.name.namespace, &port.spec),
            persistent: port.spec.persistent,
            of_stateful_set: owners.clone().any(|owner| owner.kind == "StatefulSet"),
            attached: phase == Some(api::PortPhase::Attached),
            plan: PortPlan::parse(&port.spec),
            meta,
        }
    }
}

impl Bound {
    fn parse(namespace: &str, spec: &api::PortSpec) -> Option<Self> {
        (!spec.pod_uid.is_empty()).then(|| Bound {
            pod: ObjectName::inside(namespace, spec.pod.clone()),
            pod_uid: spec.pod_uid.clone(),
            interface: spec.interface.clone(),
            primary: spec.primary,
            has_siblings: !spec.primary || !spec.other_interfaces.is_empty(),
            routes: spec.routes.clone(),
            node: spec.node.clone(),
        })
    }
}

impl Port {
    /// Whether it outlives the pod that has it.
    pub fn is_kept(&self) -> bool {
        self.persistent || self.bound.is_none()
    }

    /// Whether its pod has other ports.
    pub fn has_siblings(&self) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.has_siblings)
    }

    /// Whether this incarnation of a pod has it.
    pub fn is_of(&self, pod_uid: &str) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.pod_uid == pod_uid)
    }

    /// The node that its pod was last known to be bound to.
    pub fn node(&self) -> Option<&str> {
        self.bound.as_ref()?.node.as_deref()
    }

    /// Who holds its addresses: a port that is kept exists before its claims, and its own UID
    /// makes them its. One that goes with its pod comes after them, and the pod's UID does.
    pub fn holder(&self) -> ClaimHolder {
        holder_of_port(&self.meta.name, self.incarnation())
    }

    fn incarnation(&self) -> &str {
        match &self.bound {
            Some(bound) if !self.persistent => &bound.pod_uid,
            Some(_) | None => &self.meta.uid,
        }
    }

    /// The same, as the layer of VPCs knows it.
    pub fn address_holder(&self) -> PortHolder {
        Holder { name: self.meta.name.clone(), incarnation: self.incarnation().into() }
    }

    /// Whether the port has this address.
    pub fn has(&self, address: NetAddr) -> bool {
        self.addresses().any(|own| own == address)
    }

    /// Its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = NetAddr> {
        let plan = self.plan.as_ref().ok();
        let numbered = plan.and_then(|plan| Some((plan.network_id?, &plan.ips)));
        numbered.into_iter().flat_map(|(id, ips)| ips.iter().map(move |ip| NetAddr::new(id, *ip)))
    }

    /// The network in which it has a place.
    pub fn network(&self) -> Option<&NetworkName> {
        let plan = self.plan.as_ref().ok();
        plan.filter(|plan| plan.network_id.is_some()).map(|plan| &plan.network)
    }
}

impl PortPlan {
    fn parse(spec: &api::PortSpec) -> Result<Self, Malformed> {
        let ip = |text: &String| {
            let parsed = text.parse::<IpAddr>().map(|ip| ip.to_canonical());
            parsed.map_err(|_| malformed("spec.ips", &format_args!("{text:?} is not an address")))
        };
        let id = (spec.network_id != 0).then(|| spec.network_id.try_into()).transpose();
        let mac = (!spec.mac.is_empty()).then(|| spec.mac.parse()).transpose();
        Ok(PortPlan {
            network: spec.network.parse().map_err(|error| malformed("spec.network", &error))?,
            network_id: id.map_err(|error| malformed("spec.networkID", &error))?,
            subnet: Some(spec.subnet.clone()).filter(|subnet| !subnet.is_empty()),
            ips: spec.ips.iter().map(ip).collect::<Result<_, _>>()?,
            mac: mac.map_err(|error| malformed("spec.mac", &error))?,
        })
    }
}

fn malformed(field: &str, error: &dyn fmt::Display) -> Malformed {
    Malformed::new(Reason::RequestMalformed, format!("{field}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(spec: api::PortSpec) -> Port {
        let mut object = api::Port::new("web.eth0", spec);
        object.metadata.namespace = Some("shop".into());
        object.metadata.uid = Some("port-uid".into());
        Port::from(&object)
    }

    #[test]
    fn a_port_that_makes_no_sense_still_names_its_pod() {
        let port = port(api::PortSpec {
            pod: "web".into(),
            pod_uid: "pod-uid".into(),
            ips: vec!["ten".into()],
            ..Default::default()
        });
        assert_eq!(port.bound.as_ref().unwrap().pod, ObjectName::inside("shop", "web"));
        assert!(port.plan.is_err());
        assert_eq!(port.addresses().count(), 0);
    }

    #[test]
    fn a_port_made_beforehand_needs_only_a_network() {
        let port = port(api::PortSpec { network: "acme.default".into(), ..Default::default() });
        assert!(port.bound.is_none() && port.is_kept());
        assert_eq!(port.plan.as_ref().unwrap().network_id, None);
    }

    #[test]
    fn claims_are_the_pods_unless_the_port_outlives_it() {
        let spec = api::PortSpec { pod_uid: "pod-uid".into(), ..Default::default() };
        let holder = |spec: api::PortSpec| port(spec).holder().uid.unwrap();
        assert_eq!(holder(spec.clone()), "pod-uid");
        assert_eq!(holder(api::PortSpec { persistent: true, ..spec }), "port-uid");
        assert_eq!(holder(api::PortSpec::default()), "port-uid");
    }
}
