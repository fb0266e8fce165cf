//! A network of a type that is not built in is given to the provider that registered for the type.
//!
//! The rule: until then its status is ours, and says what it waits for. From then on it is the
//! provider's, and we write only that the network is being deleted; it goes when the provider says
//! that nothing of it is left. A type is not given up while its provider has networks.

use atoll_api::{self as api, ConditionType, NetworkPhase, Reason};

use super::{hold, let_go};
use crate::action::{Action, Decision, Key, Target};
use crate::conditions::{Verdict, conditions, named, network_phase, with_condition};
use crate::intent::{Kind, Network, NetworkPlan, ObjectName, Registration};
use crate::world::{Now, World};

impl World {
    /// What to do about a network of a type that is not built in.
    pub(super) fn decide_provided(
        &mut self,
        network: &Network,
        plan: &NetworkPlan,
        type_: &str,
        now: &Now,
    ) -> Decision {
        if network.meta.deleting {
            return self.take_back(network, plan, type_, now);
        }
        if !network.meta.is_held() {
            return hold(Kind::Network, &network.meta);
        }
        match self.given_to(network, plan, type_) {
            Err(verdict) => self.keep_back(network, &verdict, now),
            Ok(_) if network.is_provided() => Decision::nothing(),
            Ok(provider) => {
                self.said.remove(&Key::new(Kind::Network, network.meta.name.clone()));
                let is_there = self.confirm(Kind::NetworkType, &ObjectName::cluster(type_));
                let given = give(network, &provider, now);
                Decision::act([is_there].into_iter().chain(given.actions))
            }
        }
    }

    /// The provider that has a network, or shall have it; or why none does. What it has, it keeps,
    /// whatever becomes of the tenant's quota.
    fn given_to(
        &self,
        network: &Network,
        plan: &NetworkPlan,
        type_: &str,
    ) -> Result<String, Verdict> {
        let Some(registration) = self.registration_for(network, type_) else {
            let message = format!("spec.type: no provider serves networks of type {type_}");
            return Err(Verdict::not_ready(Reason::NoProvider, message));
        };
        let provider = registration.provider.clone();
        if network.is_provided() {
            return Ok(provider);
        }
        let tenant = &plan.name.tenant;
        if self.tenants.get(&ObjectName::cluster(tenant.as_str())).is_none() {
            let message = format!("spec.tenant: tenant {tenant} does not exist");
            return Err(Verdict::not_ready(Reason::TenantNotFound, message));
        }
        self.over_network_quota(network, tenant).map_or(Ok(provider), Err)
    }

    /// Who registered for a type. One who gives it up keeps the networks that it has and gets no
    /// more.
    fn registration_for(&self, network: &Network, type_: &str) -> Option<&Registration> {
        let registration = self.registrations.get(&ObjectName::cluster(type_))?;
        (!registration.meta.deleting || network.is_provided()).then_some(registration)
    }

    fn keep_back(&mut self, network: &Network, verdict: &Verdict, now: &Now) -> Decision {
        let target = Target::new(Kind::Network, &network.meta);
        let said = self.say(target, verdict.reason, &verdict.message);
        let mut decision = set_status(network, NetworkPhase::Pending, verdict, Some(verdict), now);
        decision.actions.extend(said);
        decision
    }

    /// A network goes when nobody uses it and its provider has let go of it.
    fn take_back(&self, network: &Network, plan: &NetworkPlan, type_: &str, now: &Now) -> Decision {
        if !network.meta.is_held() {
            return Decision::nothing();
        }
        if let Some(waiting) = self.inside_network(&plan.name) {
            let verdict = Verdict::not_ready(Reason::InUse, waiting);
            return set_status(network, NetworkPhase::Terminating, &verdict, None, now);
        }
        let subnets = self.subnets_to_delete(&plan.name);
        if !subnets.is_empty() {
            return Decision::act(subnets);
        }
        match self.registration_for(network, type_) {
            Some(registration) if network.is_provided() && !network.is_released() => {
                self.await_release(network, &registration.provider, now)
            }
            None if network.is_provided() => {
                let is_gone = self.confirm(Kind::NetworkType, &ObjectName::cluster(type_));
                Decision::act([is_gone, let_go(Kind::Network, &network.meta)])
            }
            Some(_) | None => let_go(Kind::Network, &network.meta).into(),
        }
    }

    /// Says once that the provider is waited for: what it writes meanwhile is its own.
    fn await_release(&self, network: &Network, provider: &str, now: &Now) -> Decision {
        let was_in_use = network.ready_reason() == Some(Reason::InUse.to_string().as_str());
        if network.phase() == NetworkPhase::Terminating && !was_in_use {
            return Decision::nothing();
        }
        let message = format!(
            "waits for provider {provider} to say by condition {} that nothing of it is left",
            ConditionType::Released
        );
        let verdict = Verdict::not_ready(Reason::InProgress, message);
        set_status(network, NetworkPhase::Terminating, &verdict, None, now)
    }

    /// What a type says of itself, and whether it may go.
    pub(crate) fn decide_type(&mut self, name: &ObjectName, now: &Now) -> Decision {
        let Some(registration) = self.registrations.get(name) else { return Decision::nothing() };
        let meta = &registration.meta;
        if !meta.is_held() {
            return if meta.deleting { Decision::nothing() } else { hold(Kind::NetworkType, meta) };
        }
        let given = self.indexes.provided_of_type.of(&name.name);
        let networks = i32::try_from(given.len()).unwrap_or(i32::MAX);
        let verdict = match meta.deleting {
            true if networks == 0 => return let_go(Kind::NetworkType, meta).into(),
            true => {
                let inside = named(given.map(ToString::to_string));
                let message = format!("waits for its networks to be deleted: {inside}");
                Verdict::not_ready(Reason::InUse, message)
            }
            false => {
                let provider = &registration.provider;
                Verdict::ready(format!("networks of this type are given to provider {provider}"))
            }
        };
        let standing = registration.status.clone().unwrap_or_default();
        let conditions = conditions(&verdict, meta, &standing.conditions, &now.time);
        let status = api::NetworkTypeStatus { networks, conditions };
        if registration.status.as_ref() == Some(&status) {
            return Decision::nothing();
        }
        Action::SetTypeStatus(Target::new(Kind::NetworkType, meta), Box::new(status)).into()
    }
}

/// Gives a network to its provider: our last words before the provider's first.
fn give(network: &Network, provider: &str, now: &Now) -> Decision {
    let provided = Verdict::ready(format!("provider {provider} serves it"));
    let message = format!("waits for provider {provider}");
    let ready = Verdict::not_ready(Reason::InProgress, message);
    set_status(network, NetworkPhase::Pending, &ready, Some(&provided), now)
}

/// The status as it stands, with our words in it.
fn set_status(
    network: &Network,
    phase: NetworkPhase,
    ready: &Verdict,
    provided: Option<&Verdict>,
    now: &Now,
) -> Decision {
    let standing = network.status.clone().unwrap_or_default();
    let mut said = conditions(ready, &network.meta, &standing.conditions, &now.time);
    if let Some(verdict) = provided {
        let kind = ConditionType::Provided;
        said = with_condition(kind, verdict, &network.meta, &said, &now.time);
    }
    let phase = network_phase(standing.phase, phase);
    let status = api::NetworkStatus { phase, conditions: said, ..standing };
    if network.status.as_ref() == Some(&status) {
        return Decision::nothing();
    }
    let target = Target::new(Kind::Network, &network.meta);
    Action::SetNetworkStatus(target, Box::new(status)).into()
}
