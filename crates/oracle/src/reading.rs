//! What the world says to one packet: tier after tier, as the API tells it.

use atoll_types::NetAddr;

use crate::cluster_words::{Answer, first_matching, is_about, of_tier};
use crate::words::{End, Packet, affects, aimed_at, first_allowing, selects_pod};
use crate::world::{Pod, World};

/// What one end says, and who says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Whether the packet passes.
    pub passes: bool,
    /// The tier that decided, or the reason why none did.
    pub tier: String,
    /// The policy that decided.
    pub policy: String,
    /// The position of its rule.
    pub rule: Option<usize>,
}

/// What both ends say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Says {
    /// The sender's end.
    pub egress: Side,
    /// The receiver's end.
    pub ingress: Side,
}

impl Says {
    /// Whether the packet passes both.
    pub fn passes(&self) -> bool {
        self.egress.passes && self.ingress.passes
    }
}

impl Side {
    fn because(passes: bool, reason: &str) -> Side {
        Side { passes, tier: reason.to_owned(), policy: String::new(), rule: None }
    }
}

/// What the world says to a packet from one address to another. Where a network is open to several
/// tenants, a pod of another tenant is an address and no more.
pub fn says(world: &World, from: NetAddr, to: NetAddr, protocol: &str, port: u16) -> Says {
    let (sender, receiver) = (world.pod_at(from), world.pod_at(to));
    let both = |reason| {
        let side = Side::because(false, reason);
        Says { egress: side.clone(), ingress: side }
    };
    match (sender, receiver) {
        (None, None) => return both("Unknown"),
        (Some((a, _)), Some((b, _))) if a.tenant != b.tenant && from.network != to.network => {
            return both("AnotherTenant");
        }
        (Some(_), Some(_)) => {}
        _ if from.network != to.network => return both("Unknown"),
        _ => {}
    }
    let packet = Packet { protocol, port, receiver: receiver.map(|(pod, _)| pod) };
    let itself = (from == to).then_some("Itself");
    let own_node = receiver.filter(|_| sender.is_none()).and_then(|(pod, _)| {
        let mut nodes = world.nodes.iter().filter(|node| node.name == pod.node);
        nodes.any(|node| node.ips.contains(&from.ip)).then_some("OwnNode")
    });
    let nothing = || Side::because(true, "NoPolicy");
    Says {
        egress: sender.map_or_else(nothing, |subject| {
            let known = known_to(subject.0, receiver);
            let other = End { ip: to.ip, pod: known };
            let packet = Packet { receiver: known, ..packet };
            side(world, subject, "Egress", (other, packet), itself)
        }),
        ingress: receiver.map_or_else(nothing, |subject| {
            let other = End { ip: from.ip, pod: known_to(subject.0, sender) };
            side(world, subject, "Ingress", (other, packet), itself.or(own_node))
        }),
    }
}

/// Who the other end is, where it is a pod of the same tenant.
fn known_to<'a>(viewer: &Pod, other: Option<(&'a Pod, &str)>) -> Option<&'a Pod> {
    other.map(|(pod, _)| pod).filter(|pod| pod.tenant == viewer.tenant)
}

/// One end's tiers. Where `exempt` gives a reason, a `NetworkPolicy` cannot stand in the way.
fn side(
    world: &World,
    subject: (&Pod, &str),
    direction: &str,
    about: (End<'_>, Packet<'_>),
    exempt: Option<&str>,
) -> Side {
    let administrators = |tier| administrators(world, tier, subject, direction, about);
    administrators("ClusterAdmin")
        .or_else(|| administrators("TenantAdmin"))
        .or_else(|| {
            let side = developers(world, subject, direction, about)?;
            Some(exempt.map_or(side, |reason| Side::because(true, reason)))
        })
        .or_else(|| administrators("TenantBaseline"))
        .or_else(|| administrators("ClusterBaseline"))
        .unwrap_or_else(|| Side::because(true, "NoPolicy"))
}

fn administrators(
    world: &World,
    tier: &str,
    (pod, network): (&Pod, &str),
    direction: &str,
    (other, packet): (End<'_>, Packet<'_>),
) -> Option<Side> {
    for policy in of_tier(world, &pod.tenant, tier) {
        if !is_about(world, policy, pod, network) {
            continue;
        }
        let about = (pod.tenant.as_str(), other, packet);
        let Some((rule, answer)) = first_matching(world, policy, direction, about) else {
            continue;
        };
        let name = policy["metadata"]["name"].as_str().unwrap_or_default();
        let side = |passes| Side {
            passes,
            tier: tier.to_owned(),
            policy: name.to_owned(),
            rule: Some(rule),
        };
        return match answer {
            Answer::Accept => Some(side(true)),
            Answer::Deny => Some(side(false)),
            Answer::Pass => None,
        };
    }
    None
}

fn developers(
    world: &World,
    (pod, network): (&Pod, &str),
    direction: &str,
    about: (End<'_>, Packet<'_>),
) -> Option<Side> {
    let mut selecting: Vec<_> = world
        .policies
        .iter()
        .filter(|(tenant, policy)| *tenant == pod.tenant && selects_pod(policy, pod))
        .filter(|(_, policy)| affects(policy, direction))
        .filter(|(_, policy)| aimed_at(policy.metadata.annotations.as_ref(), network))
        .collect();
    selecting.sort_by_key(|(_, policy)| policy.metadata.name.clone());
    let side = |passes, name: &Option<String>, rule| Side {
        passes,
        tier: "NetworkPolicy".to_owned(),
        policy: format!("{}/{}", pod.namespace, name.as_deref().unwrap_or_default()),
        rule,
    };
    for (tenant, policy) in &selecting {
        let rule = first_allowing(world, (tenant, policy), direction, about);
        if rule.is_some() {
            return Some(side(true, &policy.metadata.name, rule));
        }
    }
    selecting.first().map(|(_, policy)| side(false, &policy.metadata.name, None))
}
