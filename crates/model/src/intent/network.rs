//! A network: its VPC, its ranges, and the names that follow from them.

use std::fmt;
use std::net::IpAddr;

use atoll_api::{self as api, Reason};
use atoll_types::{Cidr, Label, NameError, NetworkId, NetworkName};
use atoll_vpc::Holder;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{BlockHolder, DnsPlan, Malformed, Meta};

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
    /// Who answers its names, and what they may ask outside.
    pub dns: DnsPlan,
    /// The addresses that its pods speak to the outside from, at most one of each family; none
    /// where they do not, or speak as their nodes.
    pub egress: Vec<IpAddr>,
}

/// Who serves a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkType {
    /// Built in: ranges of its own.
    Vpc,
    /// Built in: blocks of the range that all flat networks share.
    Flat,
    /// A provider that may come.
    Other(String),
}

/// A routing domain. Networks of one VPC share its number and must not overlap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vpc {
    /// A tenant's, by the name the tenant gives it.
    Named {
        /// The tenant.
        tenant: Label,
        /// What the tenant calls it.
        id: Label,
    },
    /// That of one isolated flat network.
    Flat(NetworkName),
    /// The one that all open flat networks share.
    Open,
}

/// The first label of the VPCs of flat networks.
const FLAT: &str = "flat";

impl fmt::Display for Vpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Vpc::Named { tenant, id } => write!(f, "{tenant}.{id}"),
            Vpc::Flat(network) => write!(f, "{FLAT}.{network}"),
            Vpc::Open => f.write_str(FLAT),
        }
    }
}

impl Vpc {
    /// The VPC with this text: one label, two or three.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match *text.split('.').collect::<Vec<_>>() {
            [FLAT] => Some(Vpc::Open),
            [tenant, id] => Some(Vpc::Named { tenant: tenant.parse().ok()?, id: id.parse().ok()? }),
            [FLAT, tenant, network] => {
                let (tenant, network) = (tenant.parse().ok()?, network.parse().ok()?);
                Some(Vpc::Flat(NetworkName::new(tenant, network)))
            }
            _ => None,
        }
    }
}

impl Network {
    /// The number that its status tells. What a provider writes there is none of ours.
    pub fn id(&self) -> Option<NetworkId> {
        if self.foreign().is_some() {
            return None;
        }
        self.status.as_ref()?.id.and_then(|id| NetworkId::try_from(id).ok())
    }

    /// The phase that its status tells.
    pub fn phase(&self) -> api::NetworkPhase {
        self.status.as_ref().map(|status| status.phase).unwrap_or_default()
    }

    /// What it shall be, and its type, where that is not built in.
    pub fn foreign(&self) -> Option<(&NetworkPlan, &str)> {
        let plan = self.plan.as_ref().ok()?;
        Some((plan, plan.type_.foreign()?))
    }

    /// Whether it was given to the provider of its type.
    pub fn is_provided(&self) -> bool {
        self.foreign().is_some() && self.holds(api::ConditionType::Provided)
    }

    /// Whether its provider says that nothing of it is left.
    pub fn is_released(&self) -> bool {
        self.holds(api::ConditionType::Released)
    }

    /// Why it is ready or not, as its status tells.
    pub fn ready_reason(&self) -> Option<&str> {
        self.condition(api::ConditionType::Ready).map(|ready| ready.reason.as_str())
    }

    fn holds(&self, kind: api::ConditionType) -> bool {
        self.condition(kind).is_some_and(|condition| condition.status == "True")
    }

    fn condition(&self, kind: api::ConditionType) -> Option<&Condition> {
        let kind = kind.to_string();
        self.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind)
    }

    /// Whether pods can be attached to it.
    pub fn is_active(&self) -> bool {
        self.phase() == api::NetworkPhase::Active && !self.meta.deleting
    }

    /// Whether what pods ask of their interfaces (subnet, address) does not count here.
    pub fn ignores_nic_requests(&self) -> bool {
        self.plan.as_ref().is_ok_and(|plan| plan.type_ == NetworkType::Flat)
    }

    /// As whom this incarnation holds blocks, where the network can be understood.
    pub fn block_holder(&self) -> Option<BlockHolder> {
        let plan = self.plan.as_ref().ok()?;
        Some(Holder { name: plan.name.clone(), incarnation: self.meta.uid.as_str().into() })
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
    /// Whether a network that is still to be made would be understood and can be served.
    pub(crate) fn check(name: &str, spec: &api::NetworkSpec) -> Result<(), Malformed> {
        NetworkPlan::parse(name, spec)?.check_ranges()
    }

    /// A network of type vpc has at least one range, and one of type flat has none of its own.
    pub(crate) fn check_ranges(&self) -> Result<(), Malformed> {
        if self.type_ == NetworkType::Vpc && self.cidrs.is_empty() {
            let message = "spec.cidrs: a network of type vpc needs at least one range";
            return Err(Malformed::new(Reason::CidrMalformed, message));
        }
        if self.type_ == NetworkType::Flat && !self.cidrs.is_empty() {
            let message = "spec.cidrs: a network of type flat has no ranges of its own";
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
        let type_ = NetworkType::parse(&spec.type_);
        let vpc = vpc(&name, &type_, spec)?;
        let dns = DnsPlan::parse(spec.dns.as_ref())?;
        let egress = egress(spec.egress.as_ref())?;
        Ok(NetworkPlan { type_, vpc, cidrs: cidrs(spec)?, dns, egress, name })
    }

    /// Who reaches the network.
    pub fn isolation(&self) -> api::NetworkIsolation {
        match self.vpc {
            Vpc::Open => api::NetworkIsolation::Open,
            Vpc::Named { .. } | Vpc::Flat(_) => api::NetworkIsolation::Isolated,
        }
    }
}

fn vpc(name: &NetworkName, type_: &NetworkType, spec: &api::NetworkSpec) -> Result<Vpc, Malformed> {
    if *type_ == NetworkType::Flat {
        return Ok(match spec.isolation.unwrap_or_default() {
            api::NetworkIsolation::Open => Vpc::Open,
            api::NetworkIsolation::Isolated => Vpc::Flat(name.clone()),
        });
    }
    let id = match &spec.vpc_id {
        Some(id) => id.parse().map_err(|error| {
            Malformed::new(Reason::RequestMalformed, format!("spec.vpcID: {error}"))
        })?,
        None => name.network.clone(),
    };
    Ok(Vpc::Named { tenant: name.tenant.clone(), id })
}

impl NetworkType {
    fn parse(text: &str) -> Self {
        match text {
            "vpc" => NetworkType::Vpc,
            "flat" => NetworkType::Flat,
            _ => NetworkType::Other(text.to_owned()),
        }
    }

    /// Its name, where it is not built in.
    pub fn foreign(&self) -> Option<&str> {
        match self {
            NetworkType::Vpc | NetworkType::Flat => None,
            NetworkType::Other(name) => Some(name),
        }
    }
}

fn egress(spec: Option<&api::NetworkEgress>) -> Result<Vec<IpAddr>, Malformed> {
    let Some(spec) = spec.filter(|spec| spec.mode == api::EgressMode::Address) else {
        return Ok(Vec::new());
    };
    let mut addresses: Vec<IpAddr> = Vec::new();
    for (position, text) in spec.addresses.iter().enumerate() {
        let wrong = |what: String| {
            let message = format!("spec.egress.addresses[{position}]: {what}");
            Malformed::new(Reason::RequestMalformed, message)
        };
        let ip: IpAddr = text.parse().map_err(|_| wrong(format!("{text:?} is no IP address")))?;
        let ip = ip.to_canonical();
        if addresses.iter().any(|other| other.is_ipv4() == ip.is_ipv4()) {
            return Err(wrong(format!("{ip} is a second one of its family; name one of each")));
        }
        addresses.push(ip);
    }
    Ok(addresses)
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
            cidrs: vec!["10.0.0.0/16".into()],
            ..api::NetworkSpec::default()
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
    fn a_flat_network_has_a_vpc_of_its_own_that_no_vpc_id_can_name_and_open_ones_share_one() {
        let flat = |isolation| api::NetworkSpec {
            type_: "flat".into(),
            cidrs: Vec::new(),
            isolation,
            ..spec()
        };
        let vpc = |name: &str, spec: &api::NetworkSpec| NetworkPlan::parse(name, spec).unwrap().vpc;
        let own = vpc("acme.default", &flat(None));
        assert_eq!(own.to_string(), "flat.acme.default");
        assert_ne!(own, vpc("acme.default", &spec()));
        let open = flat(Some(api::NetworkIsolation::Open));
        let other = api::NetworkSpec { tenant: "globex".into(), ..open.clone() };
        assert_eq!(vpc("acme.default", &open), vpc("globex.default", &other));
        for text in ["flat", "flat.default", "flat.acme.default"] {
            assert_eq!(Vpc::parse(text).unwrap().to_string(), text);
        }
        assert_eq!([Vpc::parse("acme"), Vpc::parse("a.b.c"), Vpc::parse("")], [None, None, None]);
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
