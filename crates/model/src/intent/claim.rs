//! A claim: what is held, and by whom.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use atoll_api as api;
use atoll_api::ClaimHolder;
use atoll_types::{Cidr, Label, NetAddr, NetworkId, NetworkName};
use atoll_vpc::Holder;

use super::network::dashed;
use super::{Meta, ObjectName, Vpc};

/// A claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Metadata.
    pub meta: Meta,
    /// What is held; `None` for a name that is none of ours.
    pub thing: Option<Thing>,
    /// Who holds it.
    pub holder: ClaimHolder,
    /// Of an address of the outside: the network that it is for.
    pub network: Option<String>,
    /// Of an address of the outside: the node that answers for it.
    pub node: Option<String>,
}

/// What can be held once. Its text is the claim's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Thing {
    /// An address, held by a port.
    Address(NetAddr),
    /// An address of a tenant's services, held by a service.
    Vip(Vip),
    /// An address of the outside, held by a service or a network.
    Outside(IpAddr),
    /// A network id, held by a VPC.
    NetworkId(NetworkId),
    /// A block of the range that flat networks share, held by a network.
    Block(Cidr),
    /// A VPC's right to one network id: held by that id, so that a VPC cannot have two.
    Vpc(Vpc),
}

/// An address of a tenant's services. Two tenants may have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vip {
    /// The tenant.
    pub tenant: Label,
    /// The address.
    pub ip: IpAddr,
}

/// Who holds addresses: one incarnation of a port, or of the pod that it is for.
pub type PortHolder = Holder<ObjectName, Box<str>>;

/// Who holds a block: one incarnation of a network.
pub type BlockHolder = Holder<NetworkName, Box<str>>;

const PORT: &str = "Port";
const SERVICE: &str = "Service";
const NETWORK: &str = "Network";
const VPC: &str = "VPC";
const NETWORK_ID: &str = "NetworkID";

/// The holder of a port's addresses: this incarnation of the pod that the port is for, or of the
/// port itself where it outlives pods.
pub fn holder_of_port(port: &ObjectName, uid: &str) -> ClaimHolder {
    ClaimHolder {
        kind: PORT.into(),
        namespace: Some(port.namespace.clone()),
        name: port.name.clone(),
        uid: Some(uid.to_owned()),
    }
}

/// The holder of a service's addresses: this incarnation of it.
pub fn holder_of_service(service: &ObjectName, uid: &str) -> ClaimHolder {
    ClaimHolder { kind: SERVICE.into(), ..holder_of_port(service, uid) }
}

/// The holder of a network id.
pub fn holder_of_vpc(vpc: &Vpc) -> ClaimHolder {
    ClaimHolder { kind: VPC.into(), namespace: None, name: vpc.to_string(), uid: None }
}

/// The holder of blocks and of addresses for egress: one incarnation of a network.
pub fn holder_of_block(network: &ObjectName, uid: &str) -> ClaimHolder {
    ClaimHolder {
        kind: NETWORK.into(),
        namespace: None,
        name: network.name.clone(),
        uid: Some(uid.to_owned()),
    }
}

/// The holder of a VPC's right to one id: that id.
pub fn holder_of_id(id: NetworkId) -> ClaimHolder {
    ClaimHolder { kind: NETWORK_ID.into(), namespace: None, name: id.to_string(), uid: None }
}

impl Claim {
    /// The port that holds an address, and the UID of its pod or of itself.
    pub fn port_holder(&self) -> Option<(ObjectName, &str)> {
        self.holder_inside(PORT)
    }

    /// The same, as the layer of VPCs knows it.
    pub fn address_holder(&self) -> Option<PortHolder> {
        let (name, uid) = self.port_holder()?;
        Some(Holder { name, incarnation: uid.into() })
    }

    /// The service that holds an address, and its incarnation.
    pub fn service_holder(&self) -> Option<(ObjectName, &str)> {
        self.holder_inside(SERVICE)
    }

    /// A holder of this kind in a namespace.
    fn holder_inside(&self, kind: &str) -> Option<(ObjectName, &str)> {
        let uid = self.holder.uid.as_deref()?;
        let namespace = self.holder.namespace.as_deref()?;
        let name = ObjectName::inside(namespace, &self.holder.name);
        (self.holder.kind == kind).then_some((name, uid))
    }

    /// The VPC that holds a network id.
    pub fn vpc_holder(&self) -> Option<Vpc> {
        Vpc::parse(&self.holder.name).filter(|vpc| self.holder == holder_of_vpc(vpc))
    }

    /// The network that holds a block or an address of the outside, and its incarnation.
    pub fn network_holder(&self) -> Option<(ObjectName, &str)> {
        let uid = self.holder.uid.as_deref()?;
        (self.holder.kind == NETWORK).then(|| (ObjectName::cluster(&self.holder.name), uid))
    }

    /// The same of a block, where the network has a name that one can have.
    pub fn block_holder(&self) -> Option<BlockHolder> {
        let (network, uid) = self.network_holder()?;
        Some(Holder { name: network.name.parse().ok()?, incarnation: uid.into() })
    }

    /// The network id that a VPC was given.
    pub fn given_id(&self) -> Option<NetworkId> {
        if self.holder.kind != NETWORK_ID {
            return None;
        }
        NetworkId::try_from(self.holder.name.parse::<u32>().ok()?).ok()
    }
}

impl From<&api::Claim> for Claim {
    fn from(claim: &api::Claim) -> Self {
        let meta = Meta::from(&claim.metadata);
        Claim {
            thing: Thing::parse(&meta.name.name),
            meta,
            holder: claim.spec.holder.clone(),
            network: claim.spec.network.clone(),
            node: claim.spec.node.clone(),
        }
    }
}

impl Thing {
    fn parse(name: &str) -> Option<Self> {
        let (kind, rest) = name.split_once('.')?;
        match kind {
            "address" => parse_address(rest).map(Thing::Address),
            "outside" => parse_ip(rest).map(Thing::Outside),
            "vip" => parse_vip(rest).map(Thing::Vip),
            "network-id" => {
                Some(Thing::NetworkId(NetworkId::try_from(rest.parse::<u32>().ok()?).ok()?))
            }
            "block" => parse_block(rest).map(Thing::Block),
            "vpc" => Vpc::parse(rest).map(Thing::Vpc),
            _ => None,
        }
    }

    /// The address of services that this is.
    pub(crate) fn vip(&self) -> Option<&Vip> {
        match self {
            Thing::Vip(vip) => Some(vip),
            Thing::Address(_)
            | Thing::Outside(_)
            | Thing::NetworkId(_)
            | Thing::Block(_)
            | Thing::Vpc(_) => None,
        }
    }

    /// The address of the outside that this is.
    pub(crate) fn outside(&self) -> Option<IpAddr> {
        match self {
            Thing::Outside(ip) => Some(*ip),
            Thing::Address(_)
            | Thing::Vip(_)
            | Thing::NetworkId(_)
            | Thing::Block(_)
            | Thing::Vpc(_) => None,
        }
    }

    /// The claim that `holder` makes on this.
    pub fn claimed_by(&self, holder: ClaimHolder) -> api::Claim {
        api::Claim::new(&self.to_string(), api::ClaimSpec { holder, ..api::ClaimSpec::default() })
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Thing::Address(NetAddr { network, ip }) => {
                write!(f, "address.{network}.{}", dotted_or_dashed(*ip))
            }
            Thing::Vip(Vip { tenant, ip }) => write!(f, "vip.{tenant}.{}", dotted_or_dashed(*ip)),
            Thing::Outside(ip) => write!(f, "outside.{}", dotted_or_dashed(*ip)),
            Thing::NetworkId(id) => write!(f, "network-id.{id}"),
            Thing::Block(block) => {
                write!(f, "block.{}-{}", dashed(block.first()), block.prefix_len())
            }
            Thing::Vpc(vpc) => write!(f, "vpc.{vpc}"),
        }
    }
}

/// A block by the text that [`Thing`] writes: the address with dashes, and the length.
fn parse_block(text: &str) -> Option<Cidr> {
    let (dashed, length) = text.rsplit_once('-')?;
    let ipv4 = dashed.split('-').count() == 4;
    let address = dashed.replace('-', if ipv4 { "." } else { ":" });
    format!("{address}/{length}").parse().ok()
}

fn parse_address(text: &str) -> Option<NetAddr> {
    let (network, ip) = text.split_once('.')?;
    let network = NetworkId::try_from(network.parse::<u32>().ok()?).ok()?;
    Some(NetAddr::new(network, parse_ip(ip)?))
}

fn parse_vip(text: &str) -> Option<Vip> {
    let (tenant, ip) = text.split_once('.')?;
    Some(Vip { tenant: tenant.parse().ok()?, ip: parse_ip(ip)? })
}

/// An address as it can stand in an object's name, where no colon may.
fn dotted_or_dashed(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(_) => dashed(ip),
    }
}

fn parse_ip(text: &str) -> Option<IpAddr> {
    match text.contains('-') {
        true => Some(IpAddr::V6(text.replace('-', ":").parse::<Ipv6Addr>().ok()?)),
        false => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(ip: &str) -> Thing {
        Thing::Address(NetAddr::new(NetworkId::MIN, ip.parse().unwrap()))
    }

    fn vip(ip: &str) -> Thing {
        Thing::Vip(Vip { tenant: "acme".parse().unwrap(), ip: ip.parse().unwrap() })
    }

    #[test]
    fn every_thing_is_found_again_by_its_claims_name() {
        let vpc = Vpc::parse("acme.vpc-1").unwrap();
        let things = [
            (address("10.0.0.5"), "address.1.10.0.0.5"),
            (address("fd00::5"), "address.1.fd00-0-0-0-0-0-0-5"),
            (vip("198.18.0.5"), "vip.acme.198.18.0.5"),
            (vip("fd18::5"), "vip.acme.fd18-0-0-0-0-0-0-5"),
            (Thing::Outside("192.0.2.5".parse().unwrap()), "outside.192.0.2.5"),
            (Thing::Outside("2001:db8::5".parse().unwrap()), "outside.2001-db8-0-0-0-0-0-5"),
            (Thing::NetworkId(NetworkId::MAX), "network-id.16777215"),
            (Thing::Vpc(vpc), "vpc.acme.vpc-1"),
            (Thing::Vpc(Vpc::Open), "vpc.flat"),
            (Thing::Block("100.64.3.0/24".parse().unwrap()), "block.100-64-3-0-24"),
            (Thing::Block("fd64::/64".parse().unwrap()), "block.fd64-0-0-0-0-0-0-0-64"),
        ];
        for (thing, name) in things {
            assert_eq!(thing.to_string(), name);
            assert_eq!(Thing::parse(name), Some(thing));
        }
    }

    #[test]
    fn names_that_are_none_of_ours_are_no_thing() {
        for name in [
            "",
            "address",
            "address.0.10.0.0.5",
            "address.1.ten",
            "network-id.0",
            "x.1",
            "block.1",
            "vip.acme",
            "vip.acme.ten",
            "outside.ten",
        ] {
            assert_eq!(Thing::parse(name), None, "{name}");
        }
    }
}
