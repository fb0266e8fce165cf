//! A subnet: a range of a network, and what of it is kept back.

use std::net::IpAddr;

use atoll_api::{self as api, Reason};
use atoll_types::{Cidr, NetworkName};

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
    /// The address kept back for the gateway, where one is.
    pub gateway: Option<IpAddr>,
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
    /// Whether pods may get addresses from it.
    pub fn gives_addresses(&self) -> bool {
        let phase = self.status.as_ref().map(|status| status.phase).unwrap_or_default();
        phase == api::SubnetPhase::Active && !self.meta.deleting
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
        let gateway = gateway(spec.gateway.as_deref(), &cidr)?;
        let automatic = name == subnet_name(&network, &cidr);
        Ok(SubnetPlan { network, cidr, gateway, automatic })
    }

    /// Ranges that no pod gets: the ends of an IPv4 range, the first address of an IPv6 range (it
    /// is every router's), and the gateway. A range of one or two addresses has no ends to spare.
    pub fn reserved(&self) -> Vec<(IpAddr, IpAddr)> {
        let mut reserved: Vec<IpAddr> = self.gateway.into_iter().collect();
        if self.cidr.size() > 2 {
            reserved.push(self.cidr.first());
            reserved.extend(self.cidr.is_ipv4().then(|| self.cidr.last()));
        }
        reserved.into_iter().map(|ip| (ip, ip)).collect()
    }
}

fn gateway(given: Option<&str>, cidr: &Cidr) -> Result<Option<IpAddr>, Malformed> {
    let Some(text) = given else {
        return Ok(if cidr.size() > 2 { cidr.nth(1) } else { None });
    };
    let wrong = |what: &str| {
        let message = format!("spec.gateway: {text:?} {what}");
        Malformed::new(Reason::RequestMalformed, message)
    };
    let ip: IpAddr = text.parse().map_err(|_| wrong("is not an IP address"))?;
    if cidr.contains(ip) { Ok(Some(ip)) } else { Err(wrong(&format!("lies outside {cidr}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(cidr: &str, gateway: Option<&str>) -> Result<SubnetPlan, Malformed> {
        let spec = api::SubnetSpec {
            network: "acme.default".into(),
            cidr: cidr.into(),
            gateway: gateway.map(str::to_owned),
        };
        SubnetPlan::parse("acme.default.10-0-0-0-24", &spec)
    }

    fn kept_back(cidr: &str, gateway: Option<&str>) -> Vec<String> {
        let reserved = parse(cidr, gateway).unwrap().reserved();
        reserved.into_iter().map(|(first, _)| first.to_string()).collect()
    }

    #[test]
    fn ends_and_gateway_are_kept_back() {
        assert_eq!(kept_back("10.0.0.0/24", None), ["10.0.0.1", "10.0.0.0", "10.0.0.255"]);
        let given = kept_back("10.0.0.0/24", Some("10.0.0.9"));
        assert_eq!(given, ["10.0.0.9", "10.0.0.0", "10.0.0.255"]);
        assert_eq!(kept_back("fd00::/64", None), ["fd00::1", "fd00::"]);
    }

    #[test]
    fn a_range_of_one_or_two_addresses_keeps_nothing_back() {
        assert!(kept_back("10.0.0.4/31", None).is_empty());
        assert!(kept_back("10.0.0.4/32", None).is_empty());
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
