//! What is said of a network in its status, and to people.

use atoll_api::{self as api, ConditionType, NetworkPhase, Reason};
use atoll_types::NetworkId;

use crate::action::{Action, Decision, Target};
use crate::conditions::{Verdict, conditions, named, network_phase, with_condition};
use crate::intent::{Kind, Network, NetworkPlan};
use crate::world::{Hosts, Now, World};

impl World {
    /// The nodes that have pods of a network, and whether all have taken them.
    fn nodes_of(&self, network: &Network) -> (api::NetworkNodes, Verdict) {
        let hosts = network.plan.as_ref().ok();
        let hosts = hosts.and_then(|plan| self.indexes.hosts_of_network.get(&plan.name));
        let nodes = hosts.map(Hosts::summary).unwrap_or_default();
        let message = format!(
            "{} of {} nodes with pods of it have attached them all",
            nodes.ready, nodes.total
        );
        let verdict = match hosts.map(Hosts::unready).filter(|unready| !unready.is_empty()) {
            None => Verdict::ready(message),
            Some(unready) => {
                let message = format!("{message}; not yet: {}", named(unready.into_iter()));
                Verdict::not_ready(Reason::InProgress, message)
            }
        };
        (nodes, verdict)
    }

    pub(super) fn complain_of_network(
        &mut self,
        network: &Network,
        phase: NetworkPhase,
        verdict: &Verdict,
        now: &Now,
    ) -> Decision {
        let target = Target::new(Kind::Network, &network.meta);
        let said = self.say(target, verdict.reason, &verdict.message);
        let mut decision = self.set_network_status(network, phase, network.id(), verdict, now);
        decision.actions.extend(said);
        decision
    }

    pub(super) fn set_network_status(
        &self,
        network: &Network,
        phase: NetworkPhase,
        id: Option<NetworkId>,
        verdict: &Verdict,
        now: &Now,
    ) -> Decision {
        let standing = network.status.clone().unwrap_or_default();
        let (nodes, programmed) = self.nodes_of(network);
        let said = conditions(verdict, &network.meta, &standing.conditions, &now.time);
        let said = self.with_egress(network, &said, now);
        let kind = ConditionType::Programmed;
        let plan = network.plan.as_ref().ok();
        let dns: Vec<String> = plan
            .iter()
            .flat_map(|plan| self.dns_addresses(plan))
            .map(|ip| ip.to_string())
            .collect();
        let status = api::NetworkStatus {
            phase: network_phase(standing.phase, phase),
            id: id.map(NetworkId::get).or(standing.id),
            cidrs: self.served_ranges(network),
            isolation: plan.map(NetworkPlan::isolation),
            dns_service_ip: dns.first().cloned(),
            dns_service_ips: dns,
            dns_mode: plan.map(|plan| self.dns_mode(plan)).unwrap_or_default(),
            nodes: Some(nodes),
            conditions: with_condition(kind, &programmed, &network.meta, &said, &now.time),
        };
        if network.status.as_ref() == Some(&status) {
            return Decision::nothing();
        }
        let target = Target::new(Kind::Network, &network.meta);
        Action::SetNetworkStatus(target, Box::new(status)).into()
    }
}
