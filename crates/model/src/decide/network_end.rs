//! A network that is being deleted goes when no port is in it any more: first its subnets, then
//! what it holds, then its number.

use atoll_api::{NetworkPhase, Reason};
use atoll_types::NetworkName;

use super::let_go;
use crate::action::{Action, Decision, Target};
use crate::conditions::{Verdict, named};
use crate::intent::{Kind, Network, ObjectName};
use crate::world::{Now, World};

impl World {
    pub(super) fn take_down_network(&mut self, network: &Network, now: &Now) -> Decision {
        if !network.meta.is_held() {
            return Decision::nothing();
        }
        let Ok(plan) = &network.plan else { return let_go(Kind::Network, &network.meta).into() };
        if let Some(waiting) = self.inside_network(&plan.name) {
            return self.terminating(network, Reason::InUse, waiting, now);
        }
        let subnets: Vec<Action> = self.subnets_to_delete(&plan.name);
        if !subnets.is_empty() {
            return Decision::act(subnets);
        }
        if self.vpcs.subnets().of_network(&plan.name).len() > 0 {
            let message = "waits for its subnets to go".to_owned();
            return self.terminating(network, Reason::InProgress, message, now);
        }
        let mut returns = self.blocks_to_return(network);
        returns.extend(self.egress_to_return(network, &[]));
        if !returns.is_empty() {
            return Decision::act(returns);
        }
        self.forget_block_proposal(network, now);
        self.give_up_number(network, &plan.vpc, now)
    }

    pub(super) fn inside_network(&self, name: &NetworkName) -> Option<String> {
        let ports = self.indexes.ports_of_network.of(name);
        if ports.len() == 0 {
            return None;
        }
        let pod_of = |port: &ObjectName| {
            let bound = self.ports.get(port).and_then(|port| port.bound.as_ref());
            bound.map_or_else(|| format!("(none, port {port})"), |bound| bound.pod.to_string())
        };
        Some(format!("is used by pods {}", named(ports.map(pod_of))))
    }

    pub(super) fn subnets_to_delete(&self, name: &NetworkName) -> Vec<Action> {
        let subnets = self.vpcs.subnets().of_network(name);
        subnets
            .filter_map(|subnet| self.subnets.get(subnet))
            .filter(|subnet| !subnet.meta.deleting)
            .map(|subnet| Action::Delete(Target::new(Kind::Subnet, &subnet.meta)))
            .collect()
    }

    pub(super) fn terminating(
        &self,
        network: &Network,
        reason: Reason,
        message: String,
        now: &Now,
    ) -> Decision {
        let verdict = Verdict::not_ready(reason, message);
        self.set_network_status(network, NetworkPhase::Terminating, network.id(), &verdict, now)
    }
}
