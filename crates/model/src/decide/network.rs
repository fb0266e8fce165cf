//! A network gets its VPC's number and a subnet for each of its ranges, and is Active when its nodes
//! have taken it.

use atoll_api::{NetworkPhase, Reason};
use atoll_types::{Cidr, NetworkId, NetworkName};
use atoll_vpc::{Moment, NextBlock, Number, Sorted};

use super::flat::none_free;
use super::hold;
use super::number::claim_number;
use super::ranges::{Conflict, complaint};
use crate::action::{Action, Decision, Target};
use crate::conditions::{Verdict, named};
use crate::intent::{Kind, Network, NetworkPlan, ObjectName, Tenant, Thing, holder_of_block};
use crate::world::{Now, World};

/// How long a flat network waits before it looks again for a free block.
const NO_BLOCK_PAUSE: Moment = Moment::from_secs(5);

impl World {
    /// The network of that name.
    pub(crate) fn network_named(&self, name: &NetworkName) -> Option<&Network> {
        self.networks.get(&ObjectName::cluster(name.to_string()))
    }

    pub(crate) fn decide_network(&mut self, name: &ObjectName, now: &Now) -> Decision {
        let Some(network) = self.networks.hold(name) else { return Decision::nothing() };
        if let Some((plan, type_)) = network.foreign() {
            return self.decide_provided(&network, plan, type_, now);
        }
        if network.meta.deleting {
            return self.take_down_network(&network, now);
        }
        if !network.meta.is_held() {
            return hold(Kind::Network, &network.meta);
        }
        match self.obstacle(&network) {
            Some((phase, verdict)) => self.complain_of_network(&network, phase, &verdict, now),
            None => match &network.plan {
                Ok(plan) => self.build_network(&network, plan, now),
                Err(_) => Decision::nothing(),
            },
        }
    }

    /// What keeps a network from being built at all.
    fn obstacle(&self, network: &Network) -> Option<(NetworkPhase, Verdict)> {
        let plan = match &network.plan {
            Ok(plan) => plan,
            Err(malformed) => return Some((NetworkPhase::Failed, malformed.into())),
        };
        let pending = |reason, message: String| {
            Some((NetworkPhase::Pending, Verdict::not_ready(reason, message)))
        };
        let tenant = &plan.name.tenant;
        let Some(owner) = self.tenants.get(&ObjectName::cluster(tenant.as_str())) else {
            return pending(
                Reason::TenantNotFound,
                format!("spec.tenant: tenant {tenant} does not exist"),
            );
        };
        if let Some(verdict) = self.over_services(owner, plan) {
            return Some((NetworkPhase::Failed, verdict));
        }
        if let Some(verdict) = self.over_network_quota(network, tenant) {
            return Some((NetworkPhase::Pending, verdict));
        }
        let unusable = plan.check_ranges().err()?;
        Some((NetworkPhase::Failed, Verdict::from(&unusable)))
    }

    /// A range that is also its tenant's for services would hide them.
    fn over_services(&self, tenant: &Tenant, plan: &NetworkPlan) -> Option<Verdict> {
        let services = self.service_ranges(tenant);
        let pairs = plan.cidrs.iter().flat_map(|range| services.iter().map(move |it| (range, it)));
        let (range, service) = pairs.into_iter().find(|(range, it)| range.overlaps(it))?;
        let message = format!(
            "spec.cidrs: {range} overlaps {service}, from which services of tenant {} get \
             addresses; name another range",
            plan.name.tenant
        );
        Some(Verdict::not_ready(Reason::CidrOverlap, message))
    }

    fn build_network(&mut self, network: &Network, plan: &NetworkPlan, now: &Now) -> Decision {
        let Sorted { accepted, conflicts } = self.vpcs.sort_ranges(&plan.name);
        if let (true, Some(conflict)) = (accepted.is_empty(), conflicts.first()) {
            let verdict = Verdict::not_ready(Reason::CidrOverlap, complaint(conflict));
            return self.complain_of_network(network, NetworkPhase::Failed, &verdict, now);
        }
        let id = match self.number_of(network, &plan.vpc, now) {
            Number::Held(id) => id,
            Number::Claimable(id) => return claim_number(&plan.vpc, id),
            Number::Unfounded(id) => return self.give_up_right(&plan.vpc, id),
            Number::Stolen(id) => {
                let holder = self.claim_on(&Thing::NetworkId(id));
                let holder = holder.map_or("another", |claim| claim.holder.name.as_str());
                let message = format!("network id {id} of this network is claimed by VPC {holder}");
                let verdict = Verdict::not_ready(Reason::InUse, message);
                return self.complain_of_network(network, NetworkPhase::Failed, &verdict, now);
            }
            Number::NoneFree => {
                let verdict = Verdict::not_ready(Reason::NoFreeNetworkId, "no network id is free");
                return self.complain_of_network(network, NetworkPhase::Pending, &verdict, now);
            }
        };
        match self.vpcs.next_block(&plan.name, id, now.moment) {
            NextBlock::Enough => {}
            NextBlock::Claimable(block) => return claim_block(network, block),
            NextBlock::NoneFree(family) => {
                let verdict = none_free(family);
                let told = self.complain_of_network(network, NetworkPhase::Pending, &verdict, now);
                return told.and_again(now.moment + NO_BLOCK_PAUSE);
            }
        }
        let missing = self.missing_subnets(network, plan, &accepted);
        if !missing.is_empty() {
            return Decision::act(missing);
        }
        let egress = self.egress_steps(network, plan, now);
        if !egress.is_empty() {
            return Decision::act(egress);
        }
        self.open_network(network, plan, id, conflicts.first(), now)
    }

    /// The network serves the ranges that are its own; one that is not is complained about.
    fn open_network(
        &mut self,
        network: &Network,
        plan: &NetworkPlan,
        id: NetworkId,
        conflict: Option<&Conflict>,
        now: &Now,
    ) -> Decision {
        if let Some(verdict) = self.unacknowledged(network, plan) {
            return self.set_network_status(
                network,
                NetworkPhase::Pending,
                Some(id),
                &verdict,
                now,
            );
        }
        let target = Target::new(Kind::Network, &network.meta);
        let (verdict, said) = match conflict {
            None => {
                self.said.remove(&target.key);
                (Verdict::ready("pods can be attached"), None)
            }
            Some(conflict) => {
                let message = complaint(conflict);
                let said = self.say(target, Reason::CidrOverlap, &message);
                (Verdict::not_ready(Reason::CidrOverlap, message), said)
            }
        };
        let mut decision =
            self.set_network_status(network, NetworkPhase::Active, Some(id), &verdict, now);
        decision.actions.extend(said);
        decision
    }

    /// A network does not become Active before every node that has pods of it has taken them. Once
    /// it is, it stays: the next pod on the next node is not the others' matter.
    fn unacknowledged(&self, network: &Network, plan: &NetworkPlan) -> Option<Verdict> {
        let hosts = self.indexes.hosts_of_network.get(&plan.name)?;
        let unready = hosts.unready();
        (!network.is_active() && !unready.is_empty()).then(|| {
            let message =
                format!("waits for nodes to attach its pods: {}", named(unready.into_iter()));
            Verdict::not_ready(Reason::InProgress, message)
        })
    }
}

fn claim_block(network: &Network, block: Cidr) -> Decision {
    let holder = holder_of_block(&network.meta.name, &network.meta.uid);
    Action::Claim(Thing::Block(block), holder).into()
}
