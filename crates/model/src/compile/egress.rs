//! Which networks of a node have a way to the outside, and what lies behind none.
//!
//! The rules: a network has egress only where it says so, and only where those that share its number
//! say the same. One that leaves with addresses of its own does so by the nodes that answer for them,
//! as its claims say, and not at all without. No way leads to a node, to what is the cluster's own, to
//! what means the link, the machine or a group, or to what an administrator denied; a network's own
//! ranges stay inside.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_api::{EgressMode, Network, NetworkIsolation};
use atoll_plan::{Closed, Egress, Exit, Exits, NodePlan};
use atoll_types::{Cidr, NetworkId};

use super::{Complaint, NodeView};
use crate::outside::{Held, Purpose};

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
    /// Its number, once it has one.
    pub id: Option<NetworkId>,
    /// Whether it is open, and so shares its number with those of other tenants.
    pub is_open: bool,
}

impl Outlet {
    /// What the object says. Its ranges are those that it serves; one that cannot be read is none.
    pub fn read(network: &Network) -> Self {
        let served = network.status.iter().flat_map(|status| &status.cidrs);
        let asked = network.spec.cidrs.iter();
        Outlet {
            mode: network.spec.egress.as_ref().map_or(EgressMode::None, |egress| egress.mode),
            ranges: served.chain(asked).filter_map(|range| range.parse().ok()).collect(),
            id: network.status.as_ref().and_then(|status| NetworkId::try_from(status.id?).ok()),
            is_open: network.spec.isolation == Some(NetworkIsolation::Open),
        }
    }
}

/// A network of this node, by its object name, and what it says of the outside.
#[derive(Clone, Debug)]
pub struct OutletOf<'a> {
    /// The network's object name.
    pub name: &'a str,
    /// Its number.
    pub network: NetworkId,
    /// What it says.
    pub outlet: &'a Outlet,
    /// The addresses of the outside that are for it.
    pub held: Vec<&'a Held>,
}

impl OutletOf<'_> {
    /// How the network's pods leave this node, if they do.
    fn egress(&self, view: &NodeView<'_>) -> Option<Egress> {
        match self.outlet.mode {
            EgressMode::None => None,
            EgressMode::Node => Some(Egress::Node),
            EgressMode::Address => {
                let exits = self.exits(view);
                (exits != Exits::default()).then_some(Egress::Addresses(exits))
            }
        }
    }

    /// An address whose node is not known is no way out.
    fn exits(&self, view: &NodeView<'_>) -> Exits {
        let mut exits = Exits::default();
        for held in self.held.iter().filter(|held| is_for_egress(held, self.name)) {
            let exit = match held.node == view.node {
                true => Some(Exit::Here(held.address)),
                false => view.nodes.get(held.node.as_str()).map(|node| Exit::There(*node)),
            };
            let place = if held.address.is_ipv4() { &mut exits.v4 } else { &mut exits.v6 };
            *place = exit;
        }
        exits
    }
}

fn is_for_egress(held: &Held, name: &str) -> bool {
    matches!(&held.purpose, Purpose::Egress { network } if network == name)
}

/// The range of one address.
pub fn only(ip: IpAddr) -> Option<Cidr> {
    format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }).parse().ok()
}

/// Writes the ways out, and what is closed, into the plan. What is a network's own is closed to it
/// whether it has egress or not: nobody comes in from there, either.
pub(super) fn plan_egress(
    view: &NodeView<'_>,
    plan: &mut NodePlan,
    complaints: &mut Vec<Complaint>,
) {
    let of_pods = plan.interfaces.values().map(|it| it.guard.network);
    let here: BTreeSet<NetworkId> = of_pods.chain(view.guests.iter().copied()).collect();
    let mut sharers: BTreeMap<NetworkId, Vec<&OutletOf<'_>>> = BTreeMap::new();
    for of in view.outlets.iter().filter(|of| here.contains(&of.network)) {
        sharers.entry(of.network).or_default().push(of);
    }
    for (network, sharers) in sharers {
        let own = sharers.iter().flat_map(|it| &it.outlet.ranges);
        plan.closed.extend(own.map(|range| Closed { to: Some(network), range: *range }));
        let [first, others @ ..] = &sharers[..] else { continue };
        let egress = first.egress(view);
        if let Some(other) = others.iter().find(|it| it.egress(view) != egress) {
            let [one, other] = [first, other].map(|it| it.name.to_owned());
            complaints.push(Complaint::EgressContested { one, other });
            continue;
        }
        let is_of_pods = !view.guests.contains(&network);
        let egress = egress.filter(|it| is_of_pods || leaves_here(it));
        plan.egress.extend(egress.map(|egress| (network, egress)));
    }
    if !plan.egress.is_empty() {
        let all = never_outside().chain(view.denied.iter().copied());
        plan.closed.extend(all.map(|range| Closed { to: None, range }));
    }
}

/// Whether pods of other nodes leave by this one. Of a network that has none here, nothing else does.
fn leaves_here(egress: &Egress) -> bool {
    matches!(egress, Egress::Addresses(exits) if exits.is_here())
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
        Outlet { mode, ranges: [range.parse().unwrap()].into(), ..Outlet::default() }
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
        planned_with_guests(outlets, networks, &[])
    }

    fn planned_with_guests(
        outlets: &[OutletOf<'_>],
        networks: &[u32],
        guests: &[u32],
    ) -> (NodePlan, Vec<Complaint>) {
        let (mut plan, mut complaints) = (node_with(networks), Vec::new());
        let view = NodeView {
            node: "node1",
            nodes: [("node1", [192, 0, 2, 1].into()), ("node2", [192, 0, 2, 2].into())].into(),
            outlets: outlets.to_vec(),
            guests: guests.iter().map(|number| id(*number)).collect(),
            denied: ["192.0.2.1/32".parse().unwrap()].into(),
            ..NodeView::default()
        };
        plan_egress(&view, &mut plan, &mut complaints);
        (plan, complaints)
    }

    /// An address of the outside by which the pods of `a.one` leave.
    fn held(ip: &str, node: &str) -> Held {
        let purpose = Purpose::Egress { network: "a.one".into() };
        Held { address: ip.parse().unwrap(), node: node.into(), purpose }
    }

    #[test]
    fn a_network_leaves_with_its_address_by_the_node_that_answers_for_it() {
        let own = outlet(EgressMode::Address, "10.0.0.0/16");
        let [here, there] = ["node1", "node2"].map(|node| held("192.0.2.9", node));
        let [v6, nowhere] = [held("2001:db8::9", "node2"), held("192.0.2.9", "node9")];
        let exits = |held: &[&Held], networks: &[u32], guests: &[u32]| {
            let held = held.to_vec();
            let outlets = [OutletOf { name: "a.one", network: id(1), outlet: &own, held }];
            planned_with_guests(&outlets, networks, guests).0.egress.remove(&id(1))
        };
        let (by_node2, own_ip) = (Exit::There([192, 0, 2, 2].into()), [192, 0, 2, 9].into());
        let expected = |v4, v6| Some(Egress::Addresses(Exits { v4, v6 }));
        assert_eq!(exits(&[&here], &[1], &[]), expected(Some(Exit::Here(own_ip)), None));
        assert_eq!(exits(&[&there], &[1], &[]), expected(Some(by_node2), None));
        let both = expected(Some(Exit::Here(own_ip)), Some(by_node2));
        assert_eq!(exits(&[&here, &v6], &[1], &[]), both);
        assert_eq!(exits(&[&here], &[], &[1]), expected(Some(Exit::Here(own_ip)), None));
        assert_eq!(exits(&[&there], &[], &[1]), None, "without a pod, only what leaves here");
        assert_eq!(exits(&[], &[1], &[]), None, "nobody answers for its address");
        assert_eq!(exits(&[&nowhere], &[1], &[]), None, "its node is not known");
    }

    #[test]
    fn what_is_a_networks_own_is_closed_to_it_also_where_none_of_its_pods_is() {
        let none = outlet(EgressMode::None, "10.0.0.0/16");
        let of = OutletOf { name: "a.one", network: id(1), outlet: &none, held: vec![] };
        let (plan, _) = planned_with_guests(&[of], &[], &[1]);
        assert_eq!((plan.egress.len(), plan.closed.len()), (0, 1));
    }

    #[test]
    fn a_network_that_asks_for_it_has_egress_where_it_has_a_pod_and_its_own_ranges_stay_inside() {
        let (node, none) =
            (outlet(EgressMode::Node, "10.0.0.0/16"), outlet(EgressMode::None, "10.0.0.0/16"));
        let of =
            |name, number, outlet| OutletOf { name, network: id(number), outlet, held: vec![] };
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
        let outlets = [OutletOf { name: "a.one", network: id(1), outlet: &none, held: vec![] }];
        let (plan, _) = planned(&outlets, &[1]);
        assert_eq!((plan.egress.len(), plan.closed.len()), (0, 1));
    }

    #[test]
    fn networks_of_one_number_that_do_not_agree_have_no_egress() {
        let (node, none) =
            (outlet(EgressMode::Node, "10.0.0.0/16"), outlet(EgressMode::None, "10.1.0.0/16"));
        let of = |name, outlet| OutletOf { name, network: id(1), outlet, held: vec![] };
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
