//! Which doors of services to the outside are open to the networks of a node that leave it.
//!
//! The rules: a network is let in where all that share its number are invited, and none of them is the
//! service's own. The address of a load balancer is a claim's word. Of nodes, only ports that Kubernetes
//! gives to services are open, at addresses that a node has itself. What an administrator denies, and
//! what is never outside, stays closed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::ops::RangeInclusive;

use atoll_plan::{NodePlan, Opening as Open};
use atoll_types::{NetworkId, Protocol};

use super::NodeView;
use super::egress::never_outside;
use crate::opening::Opening;
use crate::outside::Held;

/// The ports that Kubernetes gives to services at nodes.
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// A service of somebody's that is open to others.
#[derive(Clone, Debug)]
pub struct Opened<'a> {
    /// The object name of the network that it is in.
    pub network: &'a str,
    /// Whom to, and what of it.
    pub opening: &'a Opening,
    /// The addresses of the outside that it holds.
    pub held: Vec<&'a Held>,
}

impl Opened<'_> {
    fn is_open_to(&self, sharers: &[&str]) -> bool {
        let is_others = |name: &&str| *name != self.network && self.opening.invites(name);
        !sharers.is_empty() && sharers.iter().all(is_others)
    }

    /// Its doors, and whether this node answers at each; of node ports, every node does.
    fn doors(&self, view: &NodeView<'_>) -> Vec<(Door, bool)> {
        let held = self.held.iter().filter(|held| !is_kept_closed(view, held.address));
        let held: Vec<_> = held.map(|it| (it.address, it.node == view.node)).collect();
        let families = [true, false].into_iter().filter(|v4| self.opening.has_family(*v4));
        let everywhere: Vec<IpAddr> = families.map(unspecified).collect();
        let ports = self.opening.front.ports.iter();
        let doors = ports.flat_map(|it| {
            let at_held = held.iter().map(|(ip, here)| ((*ip, it.protocol, it.port), *here));
            let node_port = it.node_port.filter(|port| NODE_PORTS.contains(&port.get()));
            let at_nodes = node_port.into_iter().flat_map(|port| {
                everywhere.iter().map(move |ip| ((*ip, it.protocol, port), false))
            });
            at_held.chain(at_nodes).collect::<Vec<_>>()
        });
        doors.collect()
    }
}

/// An address, a protocol and a port.
type Door = (IpAddr, Protocol, NonZeroU16);

fn unspecified(v4: bool) -> IpAddr {
    if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

fn is_kept_closed(view: &NodeView<'_>, ip: IpAddr) -> bool {
    view.forbidden.iter().any(|range| range.contains(ip))
        || never_outside().any(|range| range.contains(ip))
}

/// Writes what is open into the plan, whose ways out are known.
pub(super) fn plan_openings(view: &NodeView<'_>, plan: &mut NodePlan) {
    let leaving: Vec<NetworkId> = plan.egress.keys().copied().collect();
    for to in leaving {
        let sharers = view.outlets.iter().filter(|of| of.network == to);
        let sharers: Vec<&str> = sharers.map(|of| of.name).collect();
        for opened in view.opened.iter().filter(|opened| opened.is_open_to(&sharers)) {
            plan.openings.extend(opened.doors(view).into_iter().map(
                |((address, protocol, port), is_here)| {
                    (Open::Port { to, address, protocol, port }, is_here)
                },
            ));
        }
    }
    let is_of_nodes =
        |open: &Open| matches!(open, Open::Port { address, .. } if address.is_unspecified());
    if plan.openings.keys().any(is_of_nodes) {
        let nodes = view.node_ips.iter().filter(|(ip, _)| !is_kept_closed(view, **ip));
        plan.openings.extend(nodes.map(|(ip, is_here)| (Open::Node(*ip), *is_here)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use atoll_plan::Egress;
    use serde_json::json;

    use super::super::{Outlet, OutletOf, ServiceName};
    use super::*;
    use crate::outside::Purpose;

    fn id(number: u32) -> NetworkId {
        NetworkId::try_from(number).unwrap()
    }

    fn opening(to: &str) -> Opening {
        let service = json!({
            "metadata": {"labels": {"atoll.dev/open": "listed"},
                         "annotations": {"atoll.dev/open-to": to}},
            "spec": {"type": "LoadBalancer", "clusterIPs": ["10.96.0.7"], "ports": [
                {"name": "web", "port": 80, "nodePort": 30080},
                {"name": "kubelet", "port": 81, "nodePort": 10250, "protocol": "UDP"}]},
        });
        Opening::read(&serde_json::from_value(service).unwrap()).unwrap().unwrap()
    }

    fn held(node: &str) -> Held {
        let service = ServiceName {
            network: "acme.default".into(),
            namespace: "shop".into(),
            name: "web".into(),
        };
        let purpose = Purpose::LoadBalancer { service };
        Held { address: [192, 0, 2, 80].into(), node: node.into(), purpose }
    }

    type Networks = &'static [(&'static str, u32)];

    /// What of the service is open on a node whose networks are these and leave it.
    fn planned(networks: Networks, opened: &Opened<'_>, forbidden: &[&str]) -> Vec<String> {
        let outlet = Outlet::default();
        let of = |(name, number): &(&'static str, u32)| OutletOf {
            name,
            network: id(*number),
            outlet: &outlet,
            held: vec![],
        };
        let view = NodeView {
            node: "node1",
            outlets: networks.iter().map(of).collect(),
            opened: vec![opened.clone()],
            node_ips: [([192, 0, 2, 1].into(), true), ([192, 0, 2, 2].into(), false)].into(),
            forbidden: forbidden.iter().map(|range| range.parse().unwrap()).collect(),
            ..NodeView::default()
        };
        let mut plan = NodePlan::default();
        plan.egress.extend(networks.iter().map(|(_, number)| (id(*number), Egress::Node)));
        plan_openings(&view, &mut plan);
        let here = |is_here: bool| if is_here { " here" } else { "" };
        let texts = plan.openings.iter().map(|(open, is_here)| format!("{open}{}", here(*is_here)));
        texts.collect::<BTreeSet<_>>().into_iter().collect()
    }

    #[test]
    fn a_network_that_was_invited_finds_the_ports_open_and_no_other_network_does() {
        let (opening, held) = (opening("globex"), held("node1"));
        let opened = Opened { network: "acme.default", opening: &opening, held: vec![&held] };
        let all = [
            "TCP port 30080 of 0.0.0.0 to network 2",
            "TCP port 80 of 192.0.2.80 to network 2 here",
            "UDP port 81 of 192.0.2.80 to network 2 here",
            "node ports at 192.0.2.1 here",
            "node ports at 192.0.2.2",
        ];
        assert_eq!(planned(&[("globex.default", 2), ("hooli.default", 3)], &opened, &[]), all);
        assert!(planned(&[("hooli.default", 3)], &opened, &[]).is_empty());
        assert!(planned(&[("acme.default", 1)], &opened, &[]).is_empty(), "nor its own");
    }

    #[test]
    fn the_address_is_the_claims_and_is_here_only_on_the_node_that_answers_for_it() {
        let (opening, there) = (opening("globex"), held("node2"));
        let opened = Opened { network: "acme.default", opening: &opening, held: vec![&there] };
        let open = planned(&[("globex.default", 2)], &opened, &[]);
        assert!(open.contains(&"TCP port 80 of 192.0.2.80 to network 2".to_owned()), "{open:?}");
        let unheld = Opened { held: vec![], ..opened };
        let open = planned(&[("globex.default", 2)], &unheld, &[]);
        assert!(!open.iter().any(|it| it.contains("192.0.2.80")) && open.len() == 3, "{open:?}");
    }

    #[test]
    fn networks_that_share_a_number_are_let_in_together_or_not_at_all() {
        let (opening, held) = (opening("globex.blue,globex.red,acme"), held("node1"));
        let opened = Opened { network: "acme.default", opening: &opening, held: vec![&held] };
        assert_eq!(planned(&[("globex.blue", 2), ("globex.red", 2)], &opened, &[]).len(), 5);
        assert!(planned(&[("globex.blue", 2), ("globex.green", 2)], &opened, &[]).is_empty());
        let own = planned(&[("acme.data", 2), ("acme.default", 2)], &opened, &[]);
        assert!(own.is_empty(), "they are inside");
        assert_eq!(planned(&[("acme.data", 2)], &opened, &[]).len(), 5, "another VPC is not");
    }

    #[test]
    fn what_an_administrator_denies_stays_closed_whoever_opens_it() {
        let (opening, held) = (opening("globex"), held("node1"));
        let opened = Opened { network: "acme.default", opening: &opening, held: vec![&held] };
        let open = planned(&[("globex.default", 2)], &opened, &["192.0.2.80/30", "192.0.2.1/32"]);
        assert_eq!(open, ["TCP port 30080 of 0.0.0.0 to network 2", "node ports at 192.0.2.2"]);
    }
}
