//! What has no room in the kernel's tables, and what is done until it has.
//!
//! The rule kept here: what was in force stays in force. A change of a policy that has no room is not
//! made. A policy of which nothing was in force closes whom it is about, since nobody may be open
//! because of a policy. A pod that has no room is not known. All of it is tried again when there is
//! more room than when it was refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_types::{Label, NetAddr, PodRef};

use super::Compiler;
use crate::facts::{Labels, Pod};
use crate::policy::{Action, Policy, PolicyKey, Rule, RulePlace, Tier};
use crate::report::{Instead, Reason, Report};
use crate::room::{Lack, Room};
use crate::tenant::{Installed, Tenant};

/// What waits for room.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    policies: BTreeMap<PolicyKey, (Policy, Report)>,
    pods: BTreeMap<(Label, PodRef), Pod>,
    /// What each tenant lacked last, and how far it was from having it.
    lacks: BTreeMap<Label, (Lack, isize)>,
}

impl Held {
    /// The policies that are not in force as they are now.
    pub(super) fn reports(&self) -> impl Iterator<Item = &Report> {
        self.policies.values().map(|(_, report)| report)
    }
}

impl Compiler {
    /// A compiler for tables that have so much room. Nothing that a tenant writes takes more of it
    /// than it leaves to others. Policies of the cluster's administrators, and nodes, are not refused.
    pub fn within(room: Room) -> Self {
        Compiler { room: Some(room), ..Compiler::default() }
    }

    /// The policies that have no room, and what is in force instead.
    pub fn held_policies(&self) -> impl Iterator<Item = &Report> {
        self.held.reports()
    }

    /// The pods that have no room, and so are not known.
    pub fn held_pods(&self) -> impl Iterator<Item = (&Label, &PodRef)> {
        self.held.pods.keys().map(|(tenant, pod)| (tenant, pod))
    }

    /// A namespace came, changed or went. Its last pods are turned out where there is no room for
    /// what all of them have become.
    pub(super) fn place_namespace(&mut self, tenant: &Label, name: &str, labels: Option<Labels>) {
        let before = self.used_by(tenant);
        self.with(tenant, |tenant, shared| tenant.set_namespace(shared, name, labels));
        if self.lack(tenant, before).is_none() {
            return;
        }
        let pods = self.tenants.get(tenant).map(|tenant| tenant.pods_in(name));
        let pods = pods.into_iter().flatten().map(|(pod, facts)| (pod.clone(), facts.clone()));
        for (pod, facts) in pods.collect::<Vec<_>>().into_iter().rev() {
            let Some(lack) = self.lack(tenant, before) else { return };
            self.turn_out((tenant.clone(), pod), facts, lack);
        }
    }

    /// A pod came, changed or went.
    pub(super) fn place_pod(&mut self, tenant: Label, name: PodRef, pod: Option<Pod>) {
        let before = self.used_by(&tenant);
        self.with(&tenant, |tenant, shared| tenant.set_pod(shared, &name, pod.as_ref()));
        let lack = self.lack(&tenant, before);
        let place = (tenant, name);
        self.held.pods.remove(&place);
        if let Some((pod, lack)) = pod.zip(lack) {
            self.turn_out(place, pod, lack);
        }
    }

    /// A guest came or went. One that has no room is not known.
    pub(super) fn place_guest(&mut self, tenant: &Label, address: NetAddr, is_there: bool) {
        let before = self.used_by(tenant);
        self.with(tenant, |tenant, shared| tenant.set_guest(shared, address, is_there));
        if is_there && self.lack(tenant, before).is_some() {
            self.with(tenant, |tenant, shared| tenant.set_guest(shared, address, false));
        }
    }

    fn turn_out(&mut self, (tenant, name): (Label, PodRef), pod: Pod, lack: Lack) {
        self.with(&tenant, |tenant, shared| tenant.set_pod(shared, &name, None));
        self.note(&tenant, lack);
        self.held.pods.insert((tenant, name), pod);
    }

    /// A policy came, changed or went.
    pub(super) fn place_policy(&mut self, key: &PolicyKey, policy: Option<Policy>) {
        self.held.policies.remove(key);
        let new = policy.as_ref().map(|policy| self.installed(policy.clone(), false));
        let Some(owner) = &key.tenant else { return self.install_for_all(key, new) };
        let former = self.tenants.get(owner).and_then(|tenant| tenant.in_force(key)).cloned();
        let before = self.used_by(owner);
        self.install(owner, key, new.as_ref());
        let Some((policy, lack)) = policy.zip(self.lack(owner, before)) else { return };
        let (stays, instead) = match former.filter(|former| !former.is_closed) {
            Some(former) => (former, Instead::FormerStays),
            None => (self.installed(closed(&policy), true), Instead::Closes),
        };
        self.install(owner, key, Some(&stays));
        self.note(owner, lack);
        let report = Report {
            policy: key.clone(),
            reason: Reason::NoRoom,
            field: "spec".to_owned(),
            message: lack.to_string(),
            instead,
        };
        self.held.policies.insert(key.clone(), (policy, report));
    }

    /// Tries again what waits, where there is more room than when it was refused: policies first,
    /// and no further than to the first that still has none.
    pub(super) fn try_held(&mut self) {
        let Some(room) = self.room else { return };
        let all = self.all_used();
        let has_more = |(tenant, (lack, slack)): &(&Label, &(Lack, isize))| {
            room.slack(all, self.used_by(tenant), *lack) > *slack
        };
        let tenants = self.held.lacks.iter().filter(has_more).map(|(tenant, _)| tenant.clone());
        for tenant in tenants.collect::<Vec<_>>() {
            self.held.lacks.remove(&tenant);
            self.try_policies(&tenant);
            self.try_pods(&tenant);
        }
    }

    fn try_policies(&mut self, tenant: &Label) {
        let waiting = self.held.policies.iter();
        let waiting = waiting.filter(|(key, _)| key.tenant.as_ref() == Some(tenant));
        let waiting: Vec<_> =
            waiting.map(|(key, (policy, _))| (key.clone(), policy.clone())).collect();
        for (key, policy) in waiting {
            self.place_policy(&key, Some(policy));
            if self.held.lacks.contains_key(tenant) {
                return;
            }
        }
    }

    fn try_pods(&mut self, tenant: &Label) {
        let waiting = self.held.pods.iter().filter(|((owner, _), _)| owner == tenant);
        let waiting: Vec<_> = waiting.map(|((_, name), pod)| (name.clone(), pod.clone())).collect();
        for (name, pod) in waiting {
            if self.held.lacks.contains_key(tenant) {
                return;
            }
            self.place_pod(tenant.clone(), name, Some(pod));
        }
    }

    fn lack(&self, tenant: &Label, before: Room) -> Option<Lack> {
        self.room?.lack(self.all_used(), before, self.used_by(tenant))
    }

    /// Remembers what a tenant lacked, once everything is as it stays.
    fn note(&mut self, tenant: &Label, lack: Lack) {
        let Some(room) = self.room else { return };
        let slack = room.slack(self.all_used(), self.used_by(tenant), lack);
        self.held.lacks.insert(tenant.clone(), (lack, slack));
    }

    fn used_by(&self, tenant: &Label) -> Room {
        self.tenants.get(tenant).map(Tenant::used).unwrap_or_default()
    }

    fn all_used(&self) -> Room {
        let tables = self.tables();
        Room {
            endpoints: tables.endpoints.len(),
            outside: tables.outside.len(),
            identities: tables.identities.len(),
            peers: tables.peers.len(),
            ports: tables.ports.len(),
        }
    }

    fn installed(&mut self, policy: Policy, is_closed: bool) -> Installed {
        self.revision += 1;
        Installed { revision: self.revision, policy: Arc::new(policy), is_closed }
    }
}

/// A policy of the same pods in the same directions that lets nothing through. It stands in no tier
/// that a pod's way to itself passes, because administrators may have closed that.
fn closed(policy: &Policy) -> Policy {
    let nothing = Rule {
        action: Action::Deny,
        place: RulePlace { index: 0, name: None },
        peers: None,
        ports: None,
    };
    Policy {
        tier: Tier::TenantAdmin,
        ingress: policy.ingress.as_ref().map(|_| vec![nothing.clone()]),
        egress: policy.egress.as_ref().map(|_| vec![nothing.clone()]),
        ..policy.clone()
    }
}
