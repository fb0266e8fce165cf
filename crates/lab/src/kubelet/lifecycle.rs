//! The life of one pod on its node, as a machine without a clock or hands: facts go in, actions
//! come out.
//!
//! The rule: [`Lifecycle::step`] first takes a fact in, then compares what is with what should be.
//! An action that was asked for is remembered as under way, so it is never asked for twice.

mod slot;
mod step;

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use self::slot::starts_again;
pub(crate) use self::slot::{Ended, RestartPolicy, Role, Run, Slot};
pub(crate) use self::step::{Action, Fact, Notice, Wish};

/// The wait before the second try at a pod's network, doubled with each failure.
const FIRST_SANDBOX_RETRY: Duration = Duration::from_millis(500);
const LONGEST_SANDBOX_RETRY: Duration = Duration::from_secs(5);
/// What containers get to end in when the pod's object is gone already.
const GRACE_OF_THE_VANISHED: Duration = Duration::from_secs(2);

/// Where the pod's network namespace stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sandbox {
    /// Not there; may be tried from then on.
    Wanted {
        from: Timestamp,
    },
    Making,
    Ready,
    Removing,
    /// Could not be removed; tried again then.
    Stuck {
        until: Timestamp,
    },
    Removed,
}

/// The end of the pod, once it has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ending {
    kill_at: Timestamp,
    object_gone: bool,
}

/// The pod's phase in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// One pod's life.
#[derive(Clone, Debug)]
pub(crate) struct Lifecycle {
    policy: RestartPolicy,
    fingerprint: u64,
    pub(crate) began: Timestamp,
    pub(crate) sandbox: Sandbox,
    /// The wait after the next failure of the sandbox.
    sandbox_patience: Duration,
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) slots: Vec<Slot>,
    ending: Option<Ending>,
    object_deleted: bool,
}

impl Lifecycle {
    /// A pod that has just been bound to this node.
    pub(crate) fn new(
        policy: RestartPolicy,
        containers: &[(&str, Role)],
        wish: &Wish,
        now: Timestamp,
    ) -> Self {
        Lifecycle {
            policy,
            fingerprint: wish.fingerprint,
            began: now,
            sandbox: Sandbox::Wanted { from: now },
            sandbox_patience: FIRST_SANDBOX_RETRY,
            ips: Vec::new(),
            slots: containers.iter().map(|(name, role)| Slot::new(name, *role)).collect(),
            ending: None,
            object_deleted: false,
        }
    }

    /// Takes a fact in and says what to do next.
    pub(crate) fn step(&mut self, fact: Fact, now: Timestamp) -> Vec<Action> {
        let mut actions = self.take_in(fact, now);
        actions.extend(self.advance(now));
        actions
    }

    /// When the machine wants to be asked again even if nothing happens.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let of_sandbox = match self.sandbox {
            Sandbox::Wanted { from } => Some(from),
            Sandbox::Stuck { until } => Some(until),
            _ => None,
        };
        let of_slots = self.slots.iter().filter_map(|slot| match slot.run {
            Run::BackingOff { until } if self.ending.is_none() => Some(until),
            _ => None,
        });
        let waits_to_kill = self.slots.iter().any(Slot::can_be_killed);
        let of_ending = self.ending.filter(|_| waits_to_kill).map(|ending| ending.kill_at);
        of_sandbox.into_iter().chain(of_slots).chain(of_ending).min()
    }

    /// The phase that users see.
    pub(crate) fn phase(&self) -> Phase {
        if self.is_finished() {
            let well = self.slots.iter().all(Slot::is_complete);
            return if well { Phase::Succeeded } else { Phase::Failed };
        }
        let began = |slot: &Slot| slot.last.is_some() || matches!(slot.run, Run::Running { .. });
        let at_work = self.is_initialized() && self.mains().any(began);
        if at_work { Phase::Running } else { Phase::Pending }
    }

    /// Whether every init container has done its work.
    pub(crate) fn is_initialized(&self) -> bool {
        self.slots.iter().filter(|slot| slot.role == Role::Init).all(Slot::is_complete)
    }

    fn mains(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.role == Role::Main)
    }

    /// Whether no container will ever run again although the pod was not told to end.
    fn is_finished(&self) -> bool {
        let failed_init = self
            .slots
            .iter()
            .any(|slot| slot.role == Role::Init && slot.run == Run::Done && !slot.is_complete());
        failed_init || self.mains().all(|slot| slot.run == Run::Done)
    }

    fn take_in(&mut self, fact: Fact, now: Timestamp) -> Vec<Action> {
        match fact {
            Fact::Changed(wish) => self.changed(&wish, now),
            Fact::Vanished => self.end_by(now + GRACE_OF_THE_VANISHED, true),
            Fact::SandboxMade(ips) => {
                self.ips = ips;
                self.sandbox = Sandbox::Ready;
                self.sandbox_patience = FIRST_SANDBOX_RETRY;
            }
            Fact::SandboxFailed(message) => return self.sandbox_failed(message, now),
            Fact::SandboxRemoved => self.sandbox = Sandbox::Removed,
            Fact::SandboxStuck(message) => return self.sandbox_stuck(message, now),
            Fact::Started(name) => return self.started(&name, now),
            Fact::Refused(name, message) => return self.refused(&name, message),
            Fact::Exited { name, code, start_error } => {
                return self.exited(&name, code, start_error, now);
            }
            Fact::Checked(name, is_ready) => {
                self.slot(&name).into_iter().for_each(|slot| slot.checked(is_ready));
            }
            Fact::Clock => {}
        }
        Vec::new()
    }

    fn changed(&mut self, wish: &Wish, now: Timestamp) {
        if self.fingerprint != wish.fingerprint {
            self.fingerprint = wish.fingerprint;
            if let Sandbox::Wanted { from } = &mut self.sandbox {
                *from = now;
            }
        }
        if let Some(grace) = wish.deleted_with_grace {
            self.end_by(now + grace, false);
        }
    }

    /// The end may be brought forward, never put off.
    fn end_by(&mut self, kill_at: Timestamp, object_gone: bool) {
        let before = self.ending.unwrap_or(Ending { kill_at, object_gone });
        self.ending = Some(Ending {
            kill_at: before.kill_at.min(kill_at),
            object_gone: before.object_gone || object_gone,
        });
    }

    fn sandbox_failed(&mut self, message: String, now: Timestamp) -> Vec<Action> {
        self.sandbox = Sandbox::Wanted { from: now + self.next_sandbox_patience() };
        vec![Action::Tell(Notice::SandboxFailed(message))]
    }

    fn sandbox_stuck(&mut self, message: String, now: Timestamp) -> Vec<Action> {
        self.sandbox = Sandbox::Stuck { until: now + self.next_sandbox_patience() };
        vec![Action::Tell(Notice::SandboxStuck(message))]
    }

    fn slot(&mut self, name: &str) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.name == name)
    }

    fn started(&mut self, name: &str, now: Timestamp) -> Vec<Action> {
        let Some(slot) = self.slot(name) else { return Vec::new() };
        slot.run = Run::Running { since: now };
        vec![Action::Tell(Notice::Started(name.to_owned()))]
    }

    fn refused(&mut self, name: &str, message: String) -> Vec<Action> {
        let Some(slot) = self.slot(name) else { return Vec::new() };
        slot.run = Run::Refused(message.clone());
        vec![Action::Tell(Notice::CannotStart(name.to_owned(), message))]
    }

    fn exited(
        &mut self,
        name: &str,
        code: i32,
        start_error: Option<String>,
        now: Timestamp,
    ) -> Vec<Action> {
        let policy = self.policy;
        let ending = self.ending.is_some();
        let Some(slot) = self.slot(name) else { return Vec::new() };
        let started = match slot.run {
            Run::Running { since } => since,
            _ => now,
        };
        let mut actions = Vec::new();
        if let Some(why) = &start_error {
            actions.push(Action::Tell(Notice::CannotStart(name.to_owned(), why.clone())));
        }
        let again = !ending && starts_again(policy, slot.role, code);
        slot.ended(Ended { code, started, finished: now, start_error }, again, now);
        if again {
            actions.push(Action::Tell(Notice::BackingOff(name.to_owned())));
        }
        actions
    }

    /// How long to wait now; each failure doubles it for the next.
    fn next_sandbox_patience(&mut self) -> Duration {
        let patience = self.sandbox_patience;
        self.sandbox_patience = (patience * 2).min(LONGEST_SANDBOX_RETRY);
        patience
    }

    fn advance(&mut self, now: Timestamp) -> Vec<Action> {
        if let Some(ending) = self.ending {
            return self.advance_ending(ending, now);
        }
        if self.is_finished() {
            return self.remove_sandbox(now);
        }
        match self.sandbox {
            Sandbox::Wanted { from } if from <= now => {
                self.sandbox = Sandbox::Making;
                vec![Action::MakeSandbox]
            }
            Sandbox::Ready => self.start_containers(now),
            _ => Vec::new(),
        }
    }

    /// Init containers one after the other, then all others together.
    fn start_containers(&mut self, now: Timestamp) -> Vec<Action> {
        let initialized = self.is_initialized();
        let next_init = self.slots.iter().position(|slot| !slot.is_complete());
        let due = |(index, slot): &(usize, &mut Slot)| {
            let turn =
                if initialized { slot.role == Role::Main } else { Some(*index) == next_init };
            turn && slot.may_start(now)
        };
        let ready = self.slots.iter_mut().enumerate().filter(due);
        ready.map(|(_, slot)| slot.start()).collect()
    }

    fn advance_ending(&mut self, ending: Ending, now: Timestamp) -> Vec<Action> {
        let stops = self.slots.iter_mut().flat_map(|slot| slot.stop(ending.kill_at <= now));
        let mut actions: Vec<_> = stops.collect();
        if self.slots.iter().any(Slot::is_active) {
            return actions;
        }
        actions.extend(self.remove_sandbox(now));
        if self.sandbox == Sandbox::Removed && !self.object_deleted {
            self.object_deleted = true;
            let delete = (!ending.object_gone).then_some(Action::DeleteObject);
            actions.extend(delete.into_iter().chain([Action::Finish]));
        }
        actions
    }

    fn remove_sandbox(&mut self, now: Timestamp) -> Vec<Action> {
        let due = match self.sandbox {
            Sandbox::Ready | Sandbox::Wanted { .. } => true,
            Sandbox::Stuck { until } => until <= now,
            Sandbox::Making | Sandbox::Removing | Sandbox::Removed => false,
        };
        if !due {
            return Vec::new();
        }
        self.sandbox = Sandbox::Removing;
        vec![Action::RemoveSandbox]
    }
}

#[cfg(test)]
mod tests;
