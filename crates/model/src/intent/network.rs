//! A network: its VPC, its ranges, and the names that follow from them.

use std::fmt;
use std::net::IpAddr;

use atoll_api::{self as api, Reason};
use atoll_types::{Cidr, Label, NameError, NetworkId, NetworkName};

use super::{Malformed, Meta};

/// A network.
#[derive(Clone, Debug)]
pub struct Network {
    /// Metadata.
    pub meta: Meta,
    /// What it shall be.
    pub plan: Result<NetworkPlan, Malformed>,
    /// The status as it stands.
    pub status: Option<api::NetworkStatus>,
}

/// What a network shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPlan {
    /// Its name.
    pub name: NetworkName,
    /// Who serves it.
    pub type_: NetworkType,
    /// The routing domain it is part of.
    pub vpc: Vpc,
    /// Its ranges, each once.
    pub cidrs: Vec<Cidr>,
}

/// Who serves a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkType {
    /// Built in.
    Vpc,
    /// A provider that may come.
    Other(String),
}

/// A routing domain: a tenant's, by the name the tenant gives it. Networks of one VPC share its
/// number and must not overlap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vpc {
    /// The tenant.
    pub tenant: Label,
    /// What the tenant calls it.
    pub id: Label,
}

impl fmt::Display for Vpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.tenant, self.id)
    }
}

impl Network {
    /// The number that its status tells.
    pub fn id(&self) -> Option<NetworkId> {
        self.status.as_ref()?.id.and_then(|id| NetworkId::try_from(id).ok())
    }

    /// The phase that its status tells.
    pub fn phase(&self) -> api::NetworkPhase {
        self.status.as_ref().map(|status| status.phase).unwrap_or_default()
    }

    /// Whether pods can be attached to it.
    pub fn is_active(&self) -> bool {
        self.phase() == api::NetworkPhase::Active && !self.meta.deleting
    }

    /// The VPC, where the network can be understood.
    pub fn vpc(&self) -> Option<&Vpc> {
        self.plan.as_ref().ok().map(|plan| &plan.vpc)
    }
}

impl From<&api::Network> for Network {
    fn from(network: &api::Network) -> Self {
        let meta = Meta::from(&network.metadata);
        let plan = NetworkPlan::parse(&meta.name.name, &network.spec);
        Network { meta, plan, status: network.status.clone() }
    }
}

impl NetworkPlan {
    /// Whether its pods have addresses of a range that all such networks share, and none to choose.
    pub fn is_flat(&self) -> bool {
        matches!(&self.type_, NetworkType::Other(type_) if type_ == "flat")
    }

    /// Whether a network that is still to be made would be understood and can be served.
    pub(crate) fn check(name: &str, spec: &api::NetworkSpec) -> Result<(), Malformed> {
        NetworkPlan::parse(name, spec)?.check_ranges()
    }

    /// A network of type vpc has at least one range.
    pub(crate) fn check_ranges(&self) -> Result<(), Malformed> {
        if self.type_ == NetworkType::Vpc && self.cidrs.is_empty() {
            let message = "spec.cidrs: a network of type vpc needs at least one range";
            return Err(Malformed::new(Reason::CidrMalformed, message));
        }
        Ok(())
    }

    fn parse(name: &str, spec: &api::NetworkSpec) -> Result<Self, Malformed> {
        let malformed =
            |error: NameError| Malformed::new(Reason::RequestMalformed, error.to_string());
        let name: NetworkName = name.parse().map_err(malformed)?;
        if name.tenant.as_str() != spec.tenant {
            let message =
                format!("spec.tenant is {} but the name says {}", spec.tenant, name.tenant);
            return Err(Malformed::new(Reason::RequestMalformed, message));
        }
        let id = match &spec.vpc_id {
            Some(id) => id.parse().map_err(|error| {
                Malformed::new(Reason::RequestMalformed, format!("spec.vpcID: {error}"))
            })?,
            None => name.network.clone(),
        };
        let vpc = Vpc { tenant: name.tenant.clone(), id };
        Ok(NetworkPlan { type_: NetworkType::parse(&spec.type_), vpc, cidrs: cidrs(spec)?, name })
    }
}

impl NetworkType {
    fn parse(text: &str) -> Self {
        if text == "vpc" { NetworkType::Vpc } else { NetworkType::Other(text.to_owned()) }
    }
}

fn cidrs(spec: &api::NetworkSpec) -> Result<Vec<Cidr>, Malformed> {
    let mut cidrs = Vec::with_capacity(spec.cidrs.len());
    for (position, text) in spec.cidrs.iter().enumerate() {
        let cidr: Cidr = text.parse().map_err(|error| {
            Malformed::new(Reason::CidrMalformed, format!("spec.cidrs[{position}]: {error}"))
        })?;
        if !cidrs.contains(&cidr) {
            cidrs.push(cidr);
        }
    }
    Ok(cidrs)
}

/// The name of the subnet that a network gets for one of its ranges: `acme.default.10-0-0-0-16`.
pub fn subnet_name(network: &NetworkName, cidr: &Cidr) -> String {
    format!("{network}.{}-{}", dashed(cidr.first()), cidr.prefix_len())
}

/// An address in letters, digits and inner dashes alone.
pub(super) fn dashed(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(v4) => v4.to_string().replace('.', "-"),
        IpAddr::V6(v6) => v6.segments().map(|group| format!("{group:x}")).join("-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> api::NetworkSpec {
        api::NetworkSpec {
            tenant: "acme".into(),
            type_: "vpc".into(),
            vpc_id: None,
            cidrs: vec!["10.0.0.0/16".into()],
        }
    }

    fn refusal(name: &str, spec: &api::NetworkSpec) -> Malformed {
        NetworkPlan::parse(name, spec).unwrap_err()
    }

    #[test]
    fn a_network_has_a_vpc_of_its_own_unless_it_names_one() {
        let own = NetworkPlan::parse("acme.default", &spec()).unwrap();
        assert_eq!(own.vpc.to_string(), "acme.default");
        let named = api::NetworkSpec { vpc_id: Some("default".into()), ..spec() };
        let joined = NetworkPlan::parse("acme.second", &named).unwrap();
        assert_eq!(joined.vpc, own.vpc);
    }

    #[test]
    fn what_is_wrong_with_a_network_is_said_with_its_field() {
        let bad_range = api::NetworkSpec { cidrs: vec!["10.0.0.5/16".into()], ..spec() };
        let error = refusal("acme.default", &bad_range);
        assert_eq!(error.reason, Reason::CidrMalformed);
        assert_eq!(
            error.message,
            "spec.cidrs[0]: 10.0.0.5/16 has bits set beyond its prefix; did you mean 10.0.0.0/16?"
        );
        let other_tenant = api::NetworkSpec { tenant: "globex".into(), ..spec() };
        let message = refusal("acme.default", &other_tenant).message;
        assert_eq!(message, "spec.tenant is globex but the name says acme");
        let bad_vpc = api::NetworkSpec { vpc_id: Some("a.b".into()), ..spec() };
        assert!(refusal("acme.default", &bad_vpc).message.starts_with("spec.vpcID: "));
        assert!(refusal("default", &spec()).message.contains("<tenant>.<network>"));
    }

    #[test]
    fn subnets_are_named_after_their_range() {
        let network: NetworkName = "acme.default".parse().unwrap();
        let name = |cidr: &str| subnet_name(&network, &cidr.parse().unwrap());
        assert_eq!(name("10.0.0.0/16"), "acme.default.10-0-0-0-16");
        assert_eq!(name("fd00::/64"), "acme.default.fd00-0-0-0-0-0-0-0-64");
        assert_eq!(name("::/0"), "acme.default.0-0-0-0-0-0-0-0-0");
    }
}
