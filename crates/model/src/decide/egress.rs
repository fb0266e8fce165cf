//! A network whose pods speak to the outside from addresses of their own holds these, or its
//! condition says why not.

use std::net::IpAddr;

use atoll_api::{ConditionType, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::balancer::list;
use super::grant::holder_text;
use crate::action::Action;
use crate::conditions::{Verdict, with_condition};
use crate::intent::{Network, NetworkPlan, Thing, holder_of_block};
use crate::world::{Now, World};

impl World {
    /// Claims what a network lacks of the addresses that it names, and gives back the others.
    pub(super) fn egress_steps(
        &self,
        network: &Network,
        plan: &NetworkPlan,
        now: &Now,
    ) -> Vec<Action> {
        let holder = holder_of_block(&network.meta.name, &network.meta.uid);
        let lacking =
            plan.egress.iter().filter(|ip| self.claim_on(&Thing::Outside(**ip)).is_none());
        let lacking = lacking.filter(|ip| self.keeps_from_egress(plan, **ip, now).is_none());
        let claims = lacking.map(|ip| Action::Claim(Thing::Outside(*ip), holder.clone()));
        claims.chain(self.egress_to_return(network, &plan.egress)).collect()
    }

    /// The return of the addresses that a network holds and does not want.
    pub(super) fn egress_to_return(&self, network: &Network, wanted: &[IpAddr]) -> Vec<Action> {
        let holder = holder_of_block(&network.meta.name, &network.meta.uid);
        let surplus = self.outsides.held_by(&holder).filter(|ip| !wanted.contains(ip));
        surplus.map(|ip| self.give_back(Thing::Outside(ip), &holder)).collect()
    }

    /// Why a network cannot have an address that nobody holds.
    fn keeps_from_egress(&self, plan: &NetworkPlan, ip: IpAddr, now: &Now) -> Option<Verdict> {
        let tenant = plan.name.tenant.as_str();
        let ranges = self.pool_ranges(tenant);
        if !ranges.iter().any(|range| range.contains(ip)) {
            let message = format!(
                "spec.egress.addresses: {ip} is in no pool of tenant {tenant}; name an address of {}",
                list(&ranges)
            );
            return Some(Verdict::not_ready(Reason::NoPool, message));
        }
        let refused = self.check_outside_quota(tenant, now).err()?;
        Some(refused.into_verdict())
    }

    /// What is to be said of the addresses that a network names.
    fn egress_verdict(&self, network: &Network, plan: &NetworkPlan, now: &Now) -> Verdict {
        let holder = holder_of_block(&network.meta.name, &network.meta.uid);
        for ip in &plan.egress {
            match self.claim_on(&Thing::Outside(*ip)) {
                Some(claim) if claim.holder == holder && claim.node.is_some() => {}
                Some(claim) if claim.holder == holder => {
                    let message = format!("no node is ready to answer for {ip}");
                    return Verdict::not_ready(Reason::InProgress, message);
                }
                Some(claim) => {
                    let message = format!(
                        "spec.egress.addresses: {ip} is in use by {}; name another",
                        holder_text(claim)
                    );
                    return Verdict::not_ready(Reason::AddressInUse, message);
                }
                None => {
                    let waits = || Verdict::not_ready(Reason::InProgress, format!("claims {ip}"));
                    return self.keeps_from_egress(plan, *ip, now).unwrap_or_else(waits);
                }
            }
        }
        let ips = plan.egress.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" and ");
        Verdict::ready(format!("pods speak to the outside from {ips}"))
    }

    /// A network's conditions with one that tells of its addresses for the outside, if it names any.
    pub(super) fn with_egress(
        &self,
        network: &Network,
        standing: &[Condition],
        now: &Now,
    ) -> Vec<Condition> {
        let plan = network.plan.as_ref().ok().filter(|plan| !plan.egress.is_empty());
        let Some(plan) = plan else {
            let kind = ConditionType::Egress.to_string();
            return standing.iter().filter(|it| it.type_ != kind).cloned().collect();
        };
        let verdict = self.egress_verdict(network, plan, now);
        with_condition(ConditionType::Egress, &verdict, &network.meta, standing, &now.time)
    }
}
