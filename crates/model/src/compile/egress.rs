//! Which networks of a node have a way to the outside, and what lies behind none.
//!
//! The rules: a network has egress only where it says so, and only where those that share its number
//! say the same. No way leads to a node, to what is the cluster's own, to what means the link, the
//! machine or a group, or to what an administrator denied; a network's own ranges stay inside.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_api::{EgressMode, Network};
use atoll_plan::{Closed, Egress, NodePlan};
use atoll_types::{Cidr, NetworkId};

use super::Complaint;

/// Never outside: this machine, its links, groups, reserved addresses, and what our own programs
/// use between a pod and its node.
const NEVER: [&str; 10] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/128",
    "::1/128",
    "fe80::/10",
    "ff00::/8",
    "fd61:746f:6c6c::/48",
];

/// What is never outside, whoever asks for it.
pub fn never_outside() -> impl Iterator<Item = Cidr> {
    NEVER.iter().filter_map(|range| range.parse().ok())
}

/// What a network says of the outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlet {
    /// How its pods reach it.
    pub mode: EgressMode,
    /// Its own ranges.
    pub ranges: BTreeSet<Cidr>,
}

impl Outlet {
    /// What the object says. Its ranges are those that it serves; one that cannot be read is none.
    pub fn read(network: &Network) -> Self {
        let served = network.status.iter().flat_map(|status| &status.cidrs);
        let asked = network.spec.cidrs.iter();
        Outlet {
            mode: network.spec.egress.as_ref().map_or(EgressMode::None, |egress| egress.mode),
            ranges: served.chain(asked).filter_map(|range| range.parse().ok()).collect(),
        }
    }
}

/// A network of this node, by its object name, and what it says of the outside.
#[derive(Clone, Copy, Debug)]
pub struct OutletOf<'a> {
    /// The network's object name.
    pub name: &'a str,
    /// Its number.
    pub network: NetworkId,
    /// What it says.
    pub outlet: &'a Outlet,
}

/// The range of one address.
pub fn only(ip: IpAddr) -> Option<Cidr> {
    format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }).parse().ok()
}

/// Writes the ways out, and what is closed, into the plan. What is a network's own is closed to it
/// whether it has egress or not: nobody comes in from there, either.
pub(super) fn plan_egress(
    outlets: &[OutletOf<'_>],
    denied: &BTreeSet<Cidr>,
    plan: &mut NodePlan,
    complaints: &mut Vec<Complaint>,
) {
    let here: BTreeSet<NetworkId> = plan.interfaces.values().map(|it| it.guard.network).collect();
    let mut sharers: BTreeMap<NetworkId, Vec<&OutletOf<'_>>> = BTreeMap::new();
    for of in outlets.iter().filter(|of| here.contains(&of.network)) {
        sharers.entry(of.network).or_default().push(of);
    }
    for (network, sharers) in sharers {
        let own = sharers.iter().flat_map(|it| &it.outlet.ranges);
        plan.closed.extend(own.map(|range| Closed { to: Some(network), range: *range }));
        let [first, others @ ..] = &sharers[..] else { continue };
        if let Some(other) = others.iter().find(|it| it.outlet.mode != first.outlet.mode) {
            let [one, other] = [first, other].map(|it| it.name.to_owned());
            complaints.push(Complaint::EgressContested { one, other });
            continue;
        }
        if first.outlet.mode == EgressMode::Node {
            plan.egress.insert(network, Egress::Node);
        }
    }
    if !plan.egress.is_empty() {
        let all = never_outside().chain(denied.iter().copied());
        plan.closed.extend(all.map(|range| Closed { to: None, range }));
    }
}

#[cfg(test)]
mod tests {
    use atoll_plan::{Device, Guard, HostInterface, PodInterface, Reach};
    use atoll_types::MacAddr;

    use super::*;

    fn id(number: u32) -> NetworkId {
        NetworkId::try_from(number).unwrap()
    }

    fn outlet(mode: EgressMode, range: &str) -> Outlet {
        Outlet { mode, ranges: [range.parse().unwrap()].into() }
    }

    /// A node with a pod of each of these networks.
    fn node_with(networks: &[u32]) -> NodePlan {
        let interface = |number: &u32| {
            let guard = Guard { network: id(*number), mac: MacAddr::GATEWAY, ips: [].into() };
            let interface = PodInterface {
                sandbox: "/run/netns/pod".into(),
                name: "eth0".into(),
                description: "pod".into(),
                mtu: 1450,
                guard,
                reach: Reach::Everything,
                has_siblings: false,
                device: Device::Veth,
            };
            (HostInterface::for_attachment(&number.to_string(), "eth0"), interface)
        };
        NodePlan { interfaces: networks.iter().map(interface).collect(), ..NodePlan::default() }
    }

    fn planned(outlets: &[OutletOf<'_>], networks: &[u32]) -> (NodePlan, Vec<Complaint>) {
        let (mut plan, mut complaints) = (node_with(networks), Vec::new());
        let denied = ["192.0.2.1/32".parse().unwrap()].into();
        plan_egress(outlets, &denied, &mut plan, &mut complaints);
        (plan, complaints)
    }

    #[test]
    fn a_network_that_asks_for_it_has_egress_where_it_has_a_pod_and_its_own_ranges_stay_inside() {
        let (node, none) =
            (outlet(EgressMode::Node, "10.0.0.0/16"), outlet(EgressMode::None, "10.0.0.0/16"));
        let of = |name, number, outlet| OutletOf { name, network: id(number), outlet };
        let outlets = [of("a.one", 1, &node), of("b.one", 2, &none), of("c.one", 3, &node)];
        let (plan, complaints) = planned(&outlets, &[1, 2]);
        assert_eq!(plan.egress, [(id(1), Egress::Node)].into());
        assert_eq!(complaints, []);
        let closed =
            |to, range: &str| plan.closed.contains(&Closed { to, range: range.parse().unwrap() });
        assert!(closed(Some(id(1)), "10.0.0.0/16") && closed(Some(id(2)), "10.0.0.0/16"));
        assert!(closed(None, "192.0.2.1/32") && closed(None, "169.254.0.0/16"));
        assert_eq!(plan.closed.len(), 2 + 1 + NEVER.len(), "every range of ours can be read");
    }

    #[test]
    fn where_nobody_has_egress_only_what_is_a_networks_own_is_closed() {
        let none = outlet(EgressMode::None, "10.0.0.0/16");
        let outlets = [OutletOf { name: "a.one", network: id(1), outlet: &none }];
        let (plan, _) = planned(&outlets, &[1]);
        assert_eq!((plan.egress.len(), plan.closed.len()), (0, 1));
    }

    #[test]
    fn networks_of_one_number_that_do_not_agree_have_no_egress() {
        let (node, none) =
            (outlet(EgressMode::Node, "10.0.0.0/16"), outlet(EgressMode::None, "10.1.0.0/16"));
        let of = |name, outlet| OutletOf { name, network: id(1), outlet };
        let (plan, complaints) = planned(&[of("a.one", &node), of("a.two", &none)], &[1]);
        assert_eq!(plan.egress, BTreeMap::new());
        assert_eq!(
            complaints[0].to_string(),
            "a.one and a.two share one VPC and do not agree on egress: neither has it"
        );
        let (plan, _) = planned(&[of("a.one", &node), of("a.two", &node)], &[1]);
        assert_eq!(plan.egress.len(), 1);
    }
}
