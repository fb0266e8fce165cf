//! What has no room in the kernel, told to whoever wrote it and to who looks after the node.
//!
//! The rule of this file: it is said when it begins, when it is over, and again before the cluster
//! forgets what was said.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_policy::{PolicyKey, Report};
use tokio::time::Instant;

use super::Policies;

/// How long the cluster may go without a word: it keeps an event for an hour.
const AGAIN: Duration = Duration::from_secs(30 * 60);

/// What was said so far.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Why the tables could not be written last, and whether they were since.
    failure: Option<String>,
    told: BTreeMap<Subject, (String, Instant)>,
}

/// What is held.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A policy, for which its tenant has no room here.
    Policy(PolicyKey),
    /// All tables of this node.
    Node,
}

/// Something to say of it: what is wrong and what is done instead, or that it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldReport {
    /// What is held.
    pub(crate) subject: Subject,
    /// Why; nothing where it is over.
    pub(crate) complaint: Option<String>,
}

impl Held {
    pub(super) fn failed(&mut self, error: String) {
        self.failure = Some(error);
    }

    pub(super) fn succeeded(&mut self) {
        self.failure = None;
    }
}

impl Policies {
    /// What has to be said now.
    pub(crate) fn untold(&mut self) -> Vec<HeldReport> {
        let now = Instant::now();
        let policies = self.compiler.held_policies();
        let policies =
            policies.map(|report| (Subject::Policy(report.policy.clone()), told(report)));
        let failure = self.held.failure.iter().map(|error| (Subject::Node, error.clone()));
        let held: BTreeMap<Subject, String> = policies.chain(failure).collect();
        let over: Vec<Subject> =
            self.held.told.keys().filter(|subject| !held.contains_key(subject)).cloned().collect();
        let mut untold = Vec::new();
        for subject in over {
            self.held.told.remove(&subject);
            untold.push(HeldReport { subject, complaint: None });
        }
        for (subject, complaint) in held {
            let last = self.held.told.get(&subject);
            if last.is_some_and(|(said, at)| *said == complaint && now < *at + AGAIN) {
                continue;
            }
            self.held.told.insert(subject.clone(), (complaint.clone(), now));
            untold.push(HeldReport { subject, complaint: Some(complaint) });
        }
        untold
    }

    /// Whether the pod has no room.
    pub(crate) fn has_no_room(&self, pod: &atoll_types::PodRef) -> bool {
        self.compiler.held_pods().any(|(_, held)| held == pod)
    }
}

fn told(report: &Report) -> String {
    format!("{}: {}; {}", report.field, report.message, report.instead)
}
