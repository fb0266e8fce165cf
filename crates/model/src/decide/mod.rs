//! What to do about each kind of object.
//!
//! The rule: a decision rests on the world alone. It gives the next wave of actions; when they are
//! done and seen, the object is looked at again, until there is nothing to do.

mod balancer;
mod claim;
mod dns;
mod egress;
mod flat;
mod grant;
mod keep;
mod network;
mod network_end;
mod network_status;
mod number;
mod outside;
mod pod;
mod port;
mod provided;
mod quota;
mod ranges;
mod role;
mod routes;
mod service;
mod subnet;
mod tell;
mod tenant;
mod wait;

pub(crate) use claim::pod_of_port;
pub(crate) use dns::kept_for_dns;
pub(crate) use wait::Waiting;

use atoll_api::{ClaimHolder, FINALIZER, Reason};

use crate::action::{Action, Decision, Target, Tone};
use crate::intent::{Kind, Meta, Thing};
use crate::world::{Said, World};

/// Puts our finalizer on an object.
fn hold(kind: Kind, meta: &Meta) -> Decision {
    let mut finalizers = meta.finalizers.clone();
    finalizers.push(FINALIZER.to_owned());
    Action::SetFinalizers(Target::new(kind, meta), finalizers).into()
}

/// Takes our finalizer off an object.
fn let_go(kind: Kind, meta: &Meta) -> Action {
    let others = meta.finalizers.iter().filter(|finalizer| *finalizer != FINALIZER);
    Action::SetFinalizers(Target::new(kind, meta), others.cloned().collect())
}

impl World {
    /// Gives a thing back: right away where the claim is known, else after a look at it.
    fn give_back(&self, thing: Thing, holder: &ClaimHolder) -> Action {
        match self.claim_on(&thing) {
            Some(claim) if claim.holder == *holder => {
                Action::Delete(Target::new(Kind::Claim, &claim.meta))
            }
            Some(_) | None => Action::Release(thing, holder.clone()),
        }
    }

    /// Tells people about an object, unless that is what they were last told.
    fn say(&mut self, target: Target, reason: Reason, message: &str) -> Option<Action> {
        let said = Said { uid: target.uid.clone(), message: message.to_owned() };
        if self.said.get(&target.key) == Some(&said) {
            return None;
        }
        self.said.insert(target.key.clone(), said);
        Some(Action::Say(target, Tone::Warning, reason, message.to_owned()))
    }
}
