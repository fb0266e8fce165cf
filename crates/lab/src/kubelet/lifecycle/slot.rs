//! One container of a pod: where it stands, and when it is started again.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::step::{Action, Notice};

/// The wait before a container that ended is started again, doubled with each end.
pub(super) const FIRST_RESTART: Duration = Duration::from_secs(1);
const LONGEST_RESTART: Duration = Duration::from_secs(30);
/// A run of this length is a good one: the next restart waits as short as the first.
pub(super) const GOOD_RUN: Duration = Duration::from_secs(60);

/// When a container that ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

/// What a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to its end before the others start.
    Init,
    /// The pod's work.
    Main,
}

/// How one run of a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) started: Timestamp,
    pub(crate) finished: Timestamp,
    /// Why the command could not even start.
    pub(crate) start_error: Option<String>,
}

/// Where a container stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// Not started yet.
    Waiting,
    /// Asked to start.
    Starting,
    Running {
        since: Timestamp,
    },
    /// Ended; will be started again then.
    BackingOff {
        until: Timestamp,
    },
    /// Ended for good.
    Done,
    /// Cannot be started as it is written.
    Refused(String),
}

/// One container of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) run: Run,
    pub(crate) restarts: u32,
    /// How the last run ended.
    pub(crate) last: Option<Ended>,
    /// The wait before the next restart.
    patience: Duration,
    told_to_stop: bool,
    killed: bool,
    /// The check of its readiness failed, or has not been made yet.
    is_unready: bool,
}

impl Slot {
    pub(super) fn new(name: &str, role: Role) -> Self {
        Slot {
            name: name.to_owned(),
            role,
            run: Run::Waiting,
            restarts: 0,
            last: None,
            patience: FIRST_RESTART,
            told_to_stop: false,
            killed: false,
            is_unready: false,
        }
    }

    /// Takes in whether it can work, as its check found.
    pub(super) fn checked(&mut self, is_ready: bool) {
        self.is_unready = !is_ready;
    }

    /// Runs, and nothing says that it cannot work.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.run, Run::Running { .. }) && !self.is_unready
    }

    pub(super) fn is_active(&self) -> bool {
        matches!(self.run, Run::Starting | Run::Running { .. })
    }

    /// Ended well and for good.
    pub(crate) fn is_complete(&self) -> bool {
        self.run == Run::Done && self.last.as_ref().is_some_and(|last| last.code == 0)
    }

    /// Runs, or is about to, and was not killed yet.
    pub(super) fn can_be_killed(&self) -> bool {
        self.is_active() && !self.killed
    }

    pub(super) fn may_start(&self, now: Timestamp) -> bool {
        match self.run {
            Run::Waiting => true,
            Run::BackingOff { until } => until <= now,
            _ => false,
        }
    }

    pub(super) fn start(&mut self) -> Action {
        self.restarts += u32::from(self.last.is_some());
        self.run = Run::Starting;
        Action::Start { name: self.name.clone(), attempt: self.restarts }
    }

    /// Asks to end once, and kills once when time is up.
    pub(super) fn stop(&mut self, time_is_up: bool) -> Vec<Action> {
        let mut actions = Vec::new();
        if matches!(self.run, Run::Running { .. }) && !self.told_to_stop {
            self.told_to_stop = true;
            actions.push(Action::Tell(Notice::Stopping(self.name.clone())));
            actions.push(Action::Stop(self.name.clone()));
        }
        if self.can_be_killed() && time_is_up {
            self.killed = true;
            actions.push(Action::Kill(self.name.clone()));
        }
        actions
    }

    /// Takes in that the run ended, and whether it is to be started again.
    pub(super) fn ended(&mut self, ended: Ended, again: bool, now: Timestamp) {
        let good = now.duration_since(ended.started).unsigned_abs() >= GOOD_RUN;
        let patience = if good { FIRST_RESTART } else { self.patience };
        self.last = Some(ended);
        self.run = if again { Run::BackingOff { until: now + patience } } else { Run::Done };
        self.patience = (patience * 2).min(LONGEST_RESTART);
    }
}

/// Whether a container that ended with this code is started again.
pub(super) fn starts_again(policy: RestartPolicy, role: Role, code: i32) -> bool {
    match (policy, role) {
        (RestartPolicy::Never, _) => false,
        (RestartPolicy::Always, Role::Main) => true,
        (RestartPolicy::OnFailure, _) | (RestartPolicy::Always, Role::Init) => code != 0,
    }
}
