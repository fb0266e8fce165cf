//! Which networks of a node reach infra directly, and what of it: the nodes, and their pods that are of
//! no tenant.
//!
//! The rules: an administrator says that networks may (the view then knows of infra). A network whose
//! own ranges have an address of infra's stays apart, since its pods could not tell one from the other,
//! and so do all that share its number. What is closed outside for another reason than being infra's
//! stays closed, also within infra's ranges.

use std::collections::{BTreeMap, BTreeSet};

use atoll_plan::{Infra, NodePlan};
use atoll_types::{Cidr, NetworkId};

use super::egress::{OutletOf, never_outside};
use super::{Complaint, NodeView};

/// Writes the ways to infra into the plan.
pub(super) fn plan_infra(
    view: &NodeView<'_>,
    plan: &mut NodePlan,
    complaints: &mut Vec<Complaint>,
) {
    if view.infra.is_empty() {
        return;
    }
    let here: BTreeSet<NetworkId> = plan.interfaces.values().map(|it| it.guard.network).collect();
    let (mut known_here, mut apart) = (BTreeSet::new(), BTreeSet::new());
    for of in view.outlets.iter().filter(|of| here.contains(&of.network)) {
        known_here.insert(of.network);
        if let Some(conflict) = conflict(view, of) {
            apart.insert(of.network);
            complaints.push(conflict);
        }
    }
    plan.compatible = &known_here - &apart;
    if !plan.compatible.is_empty() {
        plan.infra = known(view);
    }
}

/// The range of a network's own that is infra's, too.
fn conflict(view: &NodeView<'_>, of: &OutletOf<'_>) -> Option<Complaint> {
    let all = of.outlet.ranges.iter();
    let mut pairs = all.flat_map(|own| view.infra.keys().map(move |infra| (own, infra)));
    let (own, infra) = pairs.find(|(own, infra)| own.overlaps(infra))?;
    Some(Complaint::InfraConflict { network: of.name.to_owned(), own: *own, infra: *infra })
}

/// What of infra is where. What is closed lies within it, or around it.
fn known(view: &NodeView<'_>) -> BTreeMap<Cidr, Infra> {
    let closed: BTreeSet<Cidr> = never_outside().chain(view.kept.iter().copied()).collect();
    let open = view.infra.iter().map(|(range, place)| {
        let is_closed = closed.iter().any(|it| it.contains_cidr(range));
        (*range, if is_closed { Infra::Nowhere } else { *place })
    });
    let lies_within = |it: &&Cidr| view.infra.keys().any(|range| range.contains_cidr(it));
    let within = closed.iter().filter(lies_within).map(|it| (*it, Infra::Nowhere));
    open.chain(within).collect()
}

#[cfg(test)]
mod tests {
    use atoll_api::EgressMode;
    use atoll_plan::{Device, Guard, HostInterface, PodInterface, Reach};
    use atoll_types::MacAddr;

    use super::super::Outlet;
    use super::*;

    fn id(number: u32) -> NetworkId {
        NetworkId::try_from(number).unwrap()
    }

    fn range(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn outlet(own: &str) -> Outlet {
        Outlet { mode: EgressMode::None, ranges: [range(own)].into(), ..Outlet::default() }
    }

    fn of<'a>(name: &'a str, number: u32, outlet: &'a Outlet) -> OutletOf<'a> {
        OutletOf { name, network: id(number), outlet, held: vec![] }
    }

    /// Infra of two nodes, and a pool and a denied range that an administrator keeps.
    fn view<'a>(outlets: Vec<OutletOf<'a>>) -> NodeView<'a> {
        NodeView {
            node: "node1",
            outlets,
            infra: [
                (range("192.0.2.1/32"), Infra::ThisNode),
                (range("192.0.2.2/32"), Infra::OtherNode),
                (range("10.244.0.0/24"), Infra::PodsHere),
                (range("10.244.1.0/24"), Infra::PodsThere),
            ]
            .into(),
            kept: ["10.244.1.128/25", "192.0.2.2/31", "198.51.100.0/24"].map(range).into(),
            ..NodeView::default()
        }
    }

    /// The plan of a node with a pod of each of these networks.
    fn planned(view: &NodeView<'_>, networks: &[u32]) -> (NodePlan, Vec<Complaint>) {
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
        let interfaces = networks.iter().map(interface).collect();
        let (mut plan, mut complaints) = (NodePlan { interfaces, ..NodePlan::default() }, vec![]);
        plan_infra(view, &mut plan, &mut complaints);
        (plan, complaints)
    }

    #[test]
    fn a_network_reaches_infra_where_it_has_a_pod_unless_their_addresses_conflict() {
        let (apart, conflicting) = (outlet("10.0.0.0/16"), outlet("10.240.0.0/13"));
        let outlets =
            vec![of("a.one", 1, &apart), of("b.one", 2, &conflicting), of("c.one", 3, &apart)];
        let (plan, complaints) = planned(&view(outlets), &[1, 2, 4]);
        assert_eq!(plan.compatible, [id(1)].into(), "nothing is known of the fourth");
        let complaints: Vec<_> = complaints.iter().map(ToString::to_string).collect();
        assert_eq!(
            complaints,
            ["b.one stays apart from nodes and pods of no tenant: its range 10.240.0.0/13 has \
              addresses of their 10.244.0.0/24; give it another range"]
        );
    }

    #[test]
    fn one_network_whose_addresses_conflict_keeps_those_that_share_its_number_apart() {
        let (apart, conflicting) = (outlet("10.0.0.0/16"), outlet("192.0.2.0/24"));
        let outlets = vec![of("a.one", 1, &apart), of("a.two", 1, &conflicting)];
        let (plan, complaints) = planned(&view(outlets), &[1]);
        assert_eq!((plan.compatible.len(), plan.infra.len(), complaints.len()), (0, 0, 1));
    }

    #[test]
    fn what_is_closed_stays_so_within_infra_and_around_it() {
        let apart = outlet("10.0.0.0/16");
        let (plan, _) = planned(&view(vec![of("a.one", 1, &apart)]), &[1]);
        let expected = [
            ("10.244.0.0/24", Infra::PodsHere),
            ("10.244.1.0/24", Infra::PodsThere),
            ("10.244.1.128/25", Infra::Nowhere),
            ("192.0.2.1/32", Infra::ThisNode),
            ("192.0.2.2/32", Infra::Nowhere),
        ];
        assert_eq!(plan.infra, expected.map(|(it, place)| (range(it), place)).into());
    }

    #[test]
    fn where_nobody_said_so_no_network_reaches_infra() {
        let apart = outlet("10.0.0.0/16");
        let isolated = NodeView { infra: [].into(), ..view(vec![of("a.one", 1, &apart)]) };
        let (plan, complaints) = planned(&isolated, &[1]);
        assert_eq!((plan.compatible.len(), plan.infra.len(), complaints.len()), (0, 0, 0));
    }
}
