//! A subnet gives addresses while its network is Active, counts them, and goes when nobody has one.

use atoll_api::{self as api, Reason, SubnetPhase};
use atoll_types::{NetAddr, NetworkId, NetworkName};
use atoll_vpc::Misplaced;

use super::{hold, let_go};
use crate::action::{Action, Decision, Target};
use crate::conditions::{Verdict, conditions, named};
use crate::intent::{Kind, ObjectName, Subnet, SubnetPlan, Thing};
use crate::world::{Now, World};

impl World {
    pub(crate) fn decide_subnet(&mut self, name: &ObjectName, now: &Now) -> Decision {
        let Some(subnet) = self.subnets.hold(name) else { return Decision::nothing() };
        if subnet.meta.deleting {
            return self.take_down_subnet(&subnet, now);
        }
        if !subnet.meta.is_held() {
            return hold(Kind::Subnet, &subnet.meta);
        }
        let plan = match &subnet.plan {
            Ok(plan) => plan,
            Err(malformed) => {
                return self.set_subnet_status(
                    &subnet,
                    SubnetPhase::Failed,
                    &malformed.into(),
                    now,
                );
            }
        };
        if let Some(farewell) = self.end_orphan(&subnet, plan) {
            return farewell;
        }
        let (phase, verdict) = self.judge_subnet(&subnet, plan);
        let verdict = self.exhaustion(&subnet, plan, phase).unwrap_or(verdict);
        self.set_subnet_status(&subnet, phase, &verdict, now)
    }

    /// A subnet that was made for an incarnation of a network that is gone goes after it.
    fn end_orphan(&self, subnet: &Subnet, plan: &SubnetPlan) -> Option<Decision> {
        let maker = subnet.made_by.as_ref()?;
        let network = ObjectName::cluster(plan.network.to_string());
        let lives = self.networks.get(&network).is_some_and(|it| it.meta.uid == *maker);
        (!lives).then(|| {
            let target = Target::new(Kind::Subnet, &subnet.meta);
            Decision::act([self.confirm(Kind::Network, &network), Action::Delete(target)])
        })
    }

    fn judge_subnet(&self, subnet: &Subnet, plan: &SubnetPlan) -> (SubnetPhase, Verdict) {
        let network = &plan.network;
        let pending =
            |reason, message: String| (SubnetPhase::Pending, Verdict::not_ready(reason, message));
        let Some(object) = self.network_named(network).filter(|object| object.plan.is_ok()) else {
            let message = format!("spec.network: network {network} does not exist");
            return pending(Reason::NetworkNotFound, message);
        };
        if let Some((_, type_)) = object.foreign() {
            let message = format!(
                "spec.network: network {network} is of type {type_}: its provider gives its \
                 addresses, and Atoll none of this subnet"
            );
            return pending(Reason::NoProvider, message);
        }
        if let Some(verdict) = self.misplaced(subnet, plan) {
            return (SubnetPhase::Failed, verdict);
        }
        if !object.is_active() {
            let message = format!("network {network} is not Active");
            return pending(Reason::NetworkNotReady, message);
        }
        (SubnetPhase::Active, Verdict::ready("addresses can be given"))
    }

    /// Why a subnet cannot be where it is.
    fn misplaced(&self, subnet: &Subnet, plan: &SubnetPlan) -> Option<Verdict> {
        let (cidr, name) = (&plan.cidr, &plan.network);
        let (reason, what) = match self.vpcs.misplaced(&subnet.meta.name)? {
            Misplaced::Outside(ranges) => {
                let ranges = ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let what = format!("{cidr} lies in no range of network {name}, which has {ranges}");
                (Reason::CidrOutside, what)
            }
            Misplaced::Unusable => {
                let what = format!("{cidr} lies in a range that network {name} cannot use");
                (Reason::CidrOverlap, what)
            }
            Misplaced::Twin(twin) => {
                (Reason::CidrOverlap, format!("subnet {twin} has the range {cidr} already"))
            }
        };
        Some(Verdict::not_ready(reason, format!("spec.cidr: {what}")))
    }

    /// An Active subnet without a free address says so until it has one.
    fn exhaustion(
        &mut self,
        subnet: &Subnet,
        plan: &SubnetPlan,
        phase: SubnetPhase,
    ) -> Option<Verdict> {
        let full = phase == SubnetPhase::Active && self.count(subnet).1 == 0;
        full.then(|| {
            let SubnetPlan { cidr, network, .. } = plan;
            let message = format!(
                "every address of {cidr} is in use or kept back; add a range to network {network}"
            );
            Verdict::not_ready(Reason::SubnetExhausted, message)
        })
    }

    fn take_down_subnet(&mut self, subnet: &Subnet, now: &Now) -> Decision {
        if !subnet.meta.is_held() {
            return Decision::nothing();
        }
        match subnet.plan.as_ref().ok().and_then(|plan| self.inside_subnet(plan)) {
            None => let_go(Kind::Subnet, &subnet.meta).into(),
            Some(inside) => {
                let verdict = Verdict::not_ready(Reason::InUse, inside);
                self.set_subnet_status(subnet, SubnetPhase::Terminating, &verdict, now)
            }
        }
    }

    /// Who has addresses of a subnet.
    fn inside_subnet(&self, plan: &SubnetPlan) -> Option<String> {
        let id = self.number_told_by(&plan.network)?;
        let held = self.vpcs.holdings().held_in(id, plan.cidr);
        let claim_on = |ip| self.claim_on(&Thing::Address(NetAddr::new(id, ip)));
        let holders: Vec<String> = held
            .filter_map(|ip| Some((ip, claim_on(ip)?.port_holder()?.0)))
            .map(|(ip, port)| format!("{port} ({ip})"))
            .collect();
        (!holders.is_empty())
            .then(|| format!("its addresses are used by ports {}", named(holders.into_iter())))
    }

    fn number_told_by(&self, network: &NetworkName) -> Option<NetworkId> {
        self.network_named(network)?.id()
    }

    fn set_subnet_status(
        &mut self,
        subnet: &Subnet,
        phase: SubnetPhase,
        verdict: &Verdict,
        now: &Now,
    ) -> Decision {
        let standing = subnet.status.clone().unwrap_or_default();
        let (used, free) = self.count(subnet);
        let status = api::SubnetStatus {
            phase,
            used,
            free,
            conditions: conditions(verdict, &subnet.meta, &standing.conditions, &now.time),
        };
        if subnet.status.as_ref() == Some(&status) {
            return Decision::nothing();
        }
        let target = Target::new(Kind::Subnet, &subnet.meta);
        Action::SetSubnetStatus(target, Box::new(status)).into()
    }

    fn count(&mut self, subnet: &Subnet) -> (i64, i64) {
        let Ok(plan) = &subnet.plan else { return (0, 0) };
        let id = self.number_told_by(&plan.network);
        let count = id.and_then(|id| self.vpcs.count(&subnet.meta.name, id)).unwrap_or_default();
        let fit = |count: u128| i64::try_from(count).unwrap_or(i64::MAX);
        (fit(count.used), fit(count.free))
    }
}
