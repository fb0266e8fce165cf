//! What statuses tell, one after the other: every phase may follow the one before, and conditions are
//! of one mind with it.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::{NetworkPhase, PortPhase, SubnetPhase, TenantPhase};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::cluster::{Message, Object};

/// The phase of any object that has one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Tenant(TenantPhase),
    Network(NetworkPhase),
    Subnet(SubnetPhase),
    Port(PortPhase),
}

impl Phase {
    fn may_become(self, next: Phase) -> bool {
        match (self, next) {
            _ if self == next => true,
            (Phase::Tenant(it), Phase::Tenant(next)) => it.may_become(next),
            (Phase::Network(it), Phase::Network(next)) => it.may_become(next),
            (Phase::Subnet(it), Phase::Subnet(next)) => it.may_become(next),
            // A port that outlives its pod waits for the next one.
            (Phase::Port(_), Phase::Port(_)) => true,
            _ => false,
        }
    }

    fn is_terminating(self) -> bool {
        matches!(
            self,
            Phase::Tenant(TenantPhase::Terminating)
                | Phase::Network(NetworkPhase::Terminating)
                | Phase::Subnet(SubnetPhase::Terminating)
        )
    }

    fn is_active(self) -> bool {
        matches!(
            self,
            Phase::Tenant(TenantPhase::Active)
                | Phase::Network(NetworkPhase::Active)
                | Phase::Subnet(SubnetPhase::Active)
        )
    }
}

/// What an object tells of itself.
fn told(object: &Object) -> Option<(Phase, Vec<Condition>)> {
    match object {
        Object::Tenant(it) => it.status.clone().map(|it| (Phase::Tenant(it.phase), it.conditions)),
        Object::Network(it) => {
            it.status.clone().map(|it| (Phase::Network(it.phase), it.conditions))
        }
        Object::Subnet(it) => it.status.clone().map(|it| (Phase::Subnet(it.phase), it.conditions)),
        Object::Port(it) => it.status.clone().map(|it| (Phase::Port(it.phase), Vec::new())),
        _ => None,
    }
}

/// What was told last of each incarnation.
#[derive(Default)]
pub(crate) struct Phases(BTreeMap<String, (Phase, Vec<Condition>)>);

impl Phases {
    /// Takes in what is told, and fails where it may not follow what was told before.
    pub(crate) fn hear(&mut self, message: &Message) {
        match message {
            Message::There(object) => self.hear_of(object),
            Message::Gone(_, uid) => drop(self.0.remove(uid)),
        }
    }

    fn hear_of(&mut self, object: &Object) {
        let Some((phase, conditions)) = told(object) else { return };
        check_conditions(object, phase, &conditions);
        let uid = object.meta().uid.clone().unwrap();
        let Some((before, old)) = self.0.insert(uid, (phase, conditions.clone())) else { return };
        let name = object.key();
        assert!(before.may_become(phase), "{name}: {before:?} was followed by {phase:?}");
        for old in old {
            let new = conditions.iter().find(|it| it.type_ == old.type_);
            let is_newer = new.is_none_or(|new| new.observed_generation >= old.observed_generation);
            assert!(is_newer, "{name}: {old:?} was followed by {new:?}");
        }
    }
}

/// Who is Ready is Active, who is not Active says why, and only what is being deleted ends.
fn check_conditions(object: &Object, phase: Phase, conditions: &[Condition]) {
    let (name, meta) = (object.key(), object.meta());
    let ends = meta.deletion_timestamp.is_some();
    assert!(ends || !phase.is_terminating(), "{name} ends and nobody deleted it");
    let kinds: BTreeSet<&str> = conditions.iter().map(|it| it.type_.as_str()).collect();
    assert_eq!(kinds.len(), conditions.len(), "{name}: {conditions:?}");
    let latest = conditions.iter().all(|it| it.observed_generation <= meta.generation);
    assert!(latest, "{name} has not been at the generation of {conditions:?}");
    if matches!(phase, Phase::Port(_)) {
        return;
    }
    let ready = conditions.iter().find(|it| it.type_ == "Ready");
    let ready = ready.unwrap_or_else(|| panic!("{name} does not say whether it is Ready"));
    assert!(ready.status == "False" || phase.is_active(), "{name}: {phase:?} and {ready:?}");
    assert!(!ready.message.is_empty() && !ready.reason.is_empty(), "{name}: {ready:?}");
}
