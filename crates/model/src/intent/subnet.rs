//! A subnet: a range of a network, and what of it is kept back.

use std::sync::Arc;

use atoll_api::{self as api, Reason};
use atoll_types::{Cidr, NetworkName};
use atoll_vpc::Layout;

use super::{Malformed, Meta, subnet_name};

/// A subnet.
#[derive(Clone, Debug)]
pub struct Subnet {
    /// Metadata.
    pub meta: Meta,
    /// The incarnation of the network that made it, if a network did.
    pub made_by: Option<String>,
    /// What it shall be.
    pub plan: Result<SubnetPlan, Malformed>,
    /// The status as it stands.
    pub status: Option<api::SubnetStatus>,
}

/// What a subnet shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetPlan {
    /// The network it is part of.
    pub network: NetworkName,
    /// The range.
    pub cidr: Cidr,
    /// What of the range can be given.
    pub layout: Arc<Layout>,
    /// Whether the network made it for one of its ranges.
    pub automatic: bool,
}

impl From<&api::Subnet> for Subnet {
    fn from(subnet: &api::Subnet) -> Self {
        let meta = Meta::from(&subnet.metadata);
        let plan = SubnetPlan::parse(&meta.name.name, &subnet.spec);
        let owners = subnet.metadata.owner_references.iter().flatten();
        let made_by =
            owners.filter(|owner| owner.kind == "Network").map(|it| it.uid.clone()).next();
        Subnet { meta, made_by, plan, status: subnet.status.clone() }
    }
}

impl Subnet {
    /// The phase that its status tells.
    pub fn phase(&self) -> api::SubnetPhase {
        self.status.as_ref().map(|status| status.phase).unwrap_or_default()
    }

    /// Whether pods may get addresses from it.
    pub fn gives_addresses(&self) -> bool {
        self.phase() == api::SubnetPhase::Active && !self.meta.deleting
    }

    /// Whether pods may get addresses of this family from it.
    pub(crate) fn gives_family(&self, ipv4: bool) -> bool {
        self.gives_addresses() && self.plan.as_ref().is_ok_and(|plan| plan.cidr.is_ipv4() == ipv4)
    }

    /// Whether its status says that it has no address left.
    pub fn is_full(&self) -> bool {
        self.gives_addresses() && self.status.as_ref().is_some_and(|status| status.free == 0)
    }
}

impl SubnetPlan {
    fn parse(name: &str, spec: &api::SubnetSpec) -> Result<Self, Malformed> {
        let network: NetworkName = spec.network.parse().map_err(|error| {
            Malformed::new(Reason::RequestMalformed, format!("spec.network: {error}"))
        })?;
        let cidr: Cidr = spec.cidr.parse().map_err(|error| {
            Malformed::new(Reason::CidrMalformed, format!("spec.cidr: {error}"))
        })?;
        let layout = Layout::parse(cidr, spec.gateway.as_deref(), &spec.excluded, &spec.pools)
            .map_err(|error| Malformed::new(Reason::RequestMalformed, format!("spec.{error}")))?;
        let automatic = name == subnet_name(&network, &cidr);
        Ok(SubnetPlan { network, cidr, layout: Arc::new(layout), automatic })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(cidr: &str, gateway: Option<&str>) -> Result<SubnetPlan, Malformed> {
        let spec = api::SubnetSpec {
            network: "acme.default".into(),
            cidr: cidr.into(),
            gateway: gateway.map(str::to_owned),
            ..Default::default()
        };
        SubnetPlan::parse("acme.default.10-0-0-0-24", &spec)
    }

    #[test]
    fn a_gateway_that_cannot_be_is_named() {
        let message = parse("10.0.0.0/24", Some("10.0.1.1")).unwrap_err().message;
        assert_eq!(message, "spec.gateway: \"10.0.1.1\" lies outside 10.0.0.0/24");
        let message = parse("10.0.0.0/24", Some("gw")).unwrap_err().message;
        assert_eq!(message, "spec.gateway: \"gw\" is not an IP address");
    }

    #[test]
    fn the_networks_own_subnet_is_known_by_its_name() {
        assert!(parse("10.0.0.0/24", None).unwrap().automatic);
        assert!(!parse("10.0.1.0/24", None).unwrap().automatic);
    }
}
