//! Whose the networks of a node are: what the node has only so much of is divided among tenants, and not
//! among networks, of which each tenant makes as many as it likes.
//!
//! The rule: a number that is one tenant's counts as that tenant's, with all others of it. The number that
//! open networks share is nobody's, and counts as one more, however many tenants are there: so nobody's
//! share hangs on who else joins them.

use std::collections::{BTreeMap, BTreeSet};

use atoll_plan::NodePlan;
use atoll_types::NetworkId;

use super::NodeView;

/// The networks that have a pod here or are guests, those of one tenant together.
pub(super) fn tenants(view: &NodeView<'_>, plan: &NodePlan) -> BTreeSet<BTreeSet<NetworkId>> {
    let of_pods = plan.interfaces.values().map(|it| it.guard.network);
    let here: BTreeSet<NetworkId> = of_pods.chain(view.guests.iter().copied()).collect();
    let mut whose = whose(view);
    let mut tenants: BTreeMap<&str, BTreeSet<NetworkId>> = BTreeMap::new();
    let mut nobodys = BTreeSet::new();
    for network in here {
        match whose.remove(&network).as_deref() {
            Some([tenant]) => _ = tenants.entry(tenant).or_default().insert(network),
            Some(_) | None => _ = nobodys.insert(BTreeSet::from([network])),
        }
    }
    tenants.into_values().chain(nobodys).collect()
}

/// The tenants of each number; of one that is open, none.
fn whose<'a>(view: &NodeView<'a>) -> BTreeMap<NetworkId, Vec<&'a str>> {
    let of_ports = view.ports.iter().map(|port| (port.network, port.network_name.as_str()));
    let of_objects = view.outlets.iter().map(|of| (of.network, of.name));
    let mut whose: BTreeMap<NetworkId, Vec<&str>> = BTreeMap::new();
    for (network, name) in of_ports.chain(of_objects) {
        let tenants = whose.entry(network).or_default();
        if !tenants.contains(&tenant_of(name)) {
            tenants.push(tenant_of(name));
        }
    }
    for open in view.outlets.iter().filter(|of| of.outlet.is_open) {
        whose.remove(&open.network);
    }
    whose
}

/// The tenant in the object name of a network.
pub(super) fn tenant_of(network: &str) -> &str {
    network.split('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Outlet, OutletOf};

    fn id(number: u32) -> NetworkId {
        NetworkId::try_from(number).unwrap()
    }

    /// What is divided among, where all of these networks are guests: their names, their numbers, and
    /// whether they are open.
    fn among(networks: &[(&str, u32, bool)]) -> BTreeSet<BTreeSet<NetworkId>> {
        let outlets: Vec<Outlet> =
            networks.iter().map(|it| Outlet { is_open: it.2, ..Outlet::default() }).collect();
        let of = |(outlet, (name, number, _))| OutletOf {
            name,
            network: id(number),
            outlet,
            held: vec![],
        };
        let view = NodeView {
            outlets: outlets.iter().zip(networks.iter().copied()).map(of).collect(),
            guests: networks.iter().map(|(_, number, _)| id(*number)).collect(),
            ..NodeView::default()
        };
        tenants(&view, &NodePlan::default())
    }

    fn sets<const N: usize>(sets: [&[u32]; N]) -> BTreeSet<BTreeSet<NetworkId>> {
        sets.iter().map(|networks| networks.iter().map(|it| id(*it)).collect()).collect()
    }

    #[test]
    fn the_networks_of_one_tenant_are_together_whatever_vpcs_they_are_in() {
        let own = [("acme.a", 1, false), ("acme.b", 1, false), ("acme.c", 2, false)];
        assert_eq!(among(&own), sets([&[1, 2]]));
        let two = [own[0], own[2], ("hooli.a", 3, false)];
        assert_eq!(among(&two), sets([&[1, 2], &[3]]));
    }

    #[test]
    fn open_networks_are_one_more_and_nobodys_whoever_has_pods_there() {
        let alone = [("acme.a", 1, false), ("acme.open", 9, true)];
        assert_eq!(among(&alone), sets([&[1], &[9]]));
        let others = [alone[0], alone[1], ("hooli.open", 9, true), ("hooli.a", 2, false)];
        assert_eq!(among(&others), sets([&[1], &[2], &[9]]));
    }

    #[test]
    fn a_network_whose_object_is_gone_or_that_two_tenants_name_is_by_itself() {
        assert_eq!(among(&[("acme.a", 5, false), ("hooli.a", 5, false)]), sets([&[5]]));
        let view = NodeView { guests: [id(7)].into(), ..NodeView::default() };
        assert_eq!(tenants(&view, &NodePlan::default()), sets([&[7]]));
    }
}
