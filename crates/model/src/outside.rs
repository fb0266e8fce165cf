//! Addresses that the outside knows, and the node that answers for each.
//!
//! The rule: an address has one purpose and one node at a time. Who holds it was decided once and
//! written down; nothing here guesses.

use std::net::IpAddr;

use atoll_api as api;

use crate::compile::ServiceName;
use crate::intent::{Claim, ObjectName};

/// A node by the name of its object.
pub type NodeName = String;

/// An address of the outside that a node of ours answers for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// The address.
    pub address: IpAddr,
    /// The one node that answers for it.
    pub node: NodeName,
    /// What it is there for.
    pub purpose: Purpose,
}

/// What an address of the outside is there for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Pods of a network, known by its object name, speak to the outside from it.
    Egress {
        /// The network's object name.
        network: String,
    },
    /// The outside speaks to a service at it.
    LoadBalancer {
        /// The service.
        service: ServiceName,
    },
}

/// The node among these that answers for an address. Each node has a lot for each address, and the
/// highest wins: when a node goes, only its own addresses move, and everybody who knows the same
/// nodes names the same one.
pub fn holder_among<'a>(address: IpAddr, nodes: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    nodes.max_by_key(|node| (lot(address, node), std::cmp::Reverse(*node)))
}

/// A number that looks as if it were drawn, and is the same wherever it is worked out.
fn lot(address: IpAddr, node: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let address = match address.to_canonical() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let bytes = node.bytes().chain([0]).chain(address);
    let sum = bytes.fold(BASIS, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(PRIME));
    scatter(sum)
}

/// Lets every bit of a number count for every bit of the result.
fn scatter(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl Held {
    /// The object name of the network that it is for.
    pub fn network(&self) -> &str {
        match &self.purpose {
            Purpose::Egress { network } => network,
            Purpose::LoadBalancer { service } => &service.network,
        }
    }

    /// What a claim says of an address of the outside; nothing where it is on another thing, or on
    /// one for which no node answers.
    pub fn read(claim: &api::Claim) -> Option<Held> {
        let claim = Claim::from(claim);
        let address = claim.thing.as_ref()?.outside()?;
        let network = claim.network.clone()?;
        let purpose = match claim.service_holder() {
            Some((ObjectName { namespace, name }, _)) => {
                Purpose::LoadBalancer { service: ServiceName { network, namespace, name } }
            }
            None => claim.network_holder().map(|_| Purpose::Egress { network })?,
        };
        Some(Held { address, node: claim.node?, purpose })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::{Thing, holder_of_block, holder_of_service};

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn nodes(count: usize) -> Vec<String> {
        (1..=count).map(|number| format!("node{number}")).collect()
    }

    fn holder(last: u8, nodes: &[String]) -> Option<String> {
        holder_among(address(last), nodes.iter().map(String::as_str)).map(ToOwned::to_owned)
    }

    #[test]
    fn whoever_knows_the_same_nodes_names_the_same_holder_in_whatever_order() {
        let (there, mut back) = (nodes(7), nodes(7));
        back.reverse();
        for last in 0..=255 {
            assert_eq!(holder(last, &there), holder(last, &back));
        }
        assert_eq!(holder(1, &[]), None, "no node, no holder");
    }

    #[test]
    fn when_a_node_goes_only_its_addresses_move_and_come_back_with_it() {
        let all = nodes(5);
        let left: Vec<_> = all.iter().filter(|node| *node != "node3").cloned().collect();
        for last in 0..=255 {
            match holder(last, &all).unwrap().as_str() {
                "node3" => assert_ne!(holder(last, &left).as_deref(), Some("node3")),
                other => assert_eq!(holder(last, &left).as_deref(), Some(other)),
            }
        }
    }

    #[test]
    fn addresses_are_spread_over_all_nodes() {
        let all = nodes(4);
        for node in &all {
            let held = (0..=255).filter(|last| holder(*last, &all).as_ref() == Some(node)).count();
            assert!((32..=96).contains(&held), "{node} holds {held} of 256");
        }
    }

    fn claim(thing: &Thing, holder: api::ClaimHolder, node: Option<&str>) -> api::Claim {
        let mut claim = thing.claimed_by(holder);
        claim.spec.network = Some("acme.default".into());
        claim.spec.node = node.map(ToOwned::to_owned);
        claim
    }

    #[test]
    fn a_claim_says_who_answers_for_an_address_and_what_for() {
        let thing = Thing::Outside(address(5));
        let service = holder_of_service(&ObjectName::inside("shop", "web"), "u1");
        let held = Held::read(&claim(&thing, service.clone(), Some("node1"))).unwrap();
        assert_eq!((held.address, held.node.as_str()), (address(5), "node1"));
        let name = ServiceName {
            network: "acme.default".into(),
            namespace: "shop".into(),
            name: "web".into(),
        };
        assert_eq!(held.purpose, Purpose::LoadBalancer { service: name });
        assert_eq!(held.network(), "acme.default");
        let network = holder_of_block(&ObjectName::cluster("acme.default"), "u2");
        let held = Held::read(&claim(&thing, network, Some("node1"))).unwrap();
        assert_eq!(held.purpose, Purpose::Egress { network: "acme.default".into() });
        assert_eq!(held.network(), "acme.default");
        assert_eq!(Held::read(&claim(&thing, service.clone(), None)), None, "no node has it");
        let other = Thing::NetworkId(atoll_types::NetworkId::MIN);
        assert_eq!(Held::read(&claim(&other, service, Some("node1"))), None);
    }
}
