//! What is said of objects in their status: phases and conditions, from typed verdicts.
//!
//! The rule: a status is built here and nowhere else, and it differs from the one that stands
//! only where there is news. A phase never goes back to `Initializing` and never leaves
//! `Terminating`.

use atoll_api::{self as api, ConditionType, Reason, condition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::intent::{Malformed, Meta};

/// Whether an object does what it was made for, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it does.
    pub ready: bool,
    /// Why, for machines.
    pub reason: Reason,
    /// Why, for people.
    pub message: String,
}

impl Verdict {
    /// All is as asked.
    pub fn ready(message: impl Into<String>) -> Self {
        Verdict { ready: true, reason: Reason::AsDeclared, message: message.into() }
    }

    /// Something is in the way.
    pub fn not_ready(reason: Reason, message: impl Into<String>) -> Self {
        Verdict { ready: false, reason, message: message.into() }
    }
}

impl From<&Malformed> for Verdict {
    fn from(malformed: &Malformed) -> Self {
        Verdict::not_ready(malformed.reason, &malformed.message)
    }
}

/// The conditions that follow from a verdict; those of others stay.
pub(crate) fn conditions(
    verdict: &Verdict,
    meta: &Meta,
    standing: &[Condition],
    now: &Time,
) -> Vec<Condition> {
    with_condition(ConditionType::Ready, verdict, meta, standing, now)
}

/// The standing conditions with one of them as a verdict says.
pub(crate) fn with_condition(
    kind: ConditionType,
    verdict: &Verdict,
    meta: &Meta,
    standing: &[Condition],
    now: &Time,
) -> Vec<Condition> {
    let said = condition(
        kind,
        verdict.ready,
        verdict.reason,
        &verdict.message,
        meta.generation,
        now.clone(),
        standing,
    );
    let mut conditions = standing.to_vec();
    match conditions.iter_mut().find(|it| it.type_ == said.type_) {
        Some(place) => *place = said,
        None => conditions.push(said),
    }
    conditions
}

/// The network phase to tell, when `wanted` follows from what is seen and `standing` is what was
/// told last.
pub(crate) fn network_phase(
    standing: api::NetworkPhase,
    wanted: api::NetworkPhase,
) -> api::NetworkPhase {
    use api::NetworkPhase::{Pending, Terminating};
    match standing {
        _ if standing == wanted || standing.may_become(wanted) => wanted,
        Terminating => Terminating,
        _ => Pending,
    }
}

/// At most five names, and how many more there are.
pub(crate) fn named(names: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 5;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names.take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn a_verdict_that_did_not_change_changes_nothing() {
        let verdict = Verdict::not_ready(Reason::InUse, "used by shop/web");
        let first = conditions(&verdict, &Meta::default(), &[], &at(1));
        let second = conditions(&verdict, &Meta::default(), &first, &at(2));
        assert_eq!(first, second);
    }

    #[test]
    fn conditions_of_others_stay() {
        let other = Condition { type_: "Acknowledged".into(), ..ready(&[], true, 1)[0].clone() };
        let both = ready(std::slice::from_ref(&other), true, 2);
        assert!(both.contains(&other));
        assert_eq!(ready(&both, false, 3).len(), 2);
    }

    fn ready(standing: &[Condition], ready: bool, second: i64) -> Vec<Condition> {
        let verdict = Verdict { ready, reason: Reason::InProgress, message: String::new() };
        conditions(&verdict, &Meta::default(), standing, &at(second))
    }

    #[test]
    fn the_time_of_a_condition_is_when_its_status_changed() {
        let first = ready(&[], false, 1);
        let later = ready(&first, true, 2);
        assert_eq!(later[0].last_transition_time, at(2));
        assert_eq!(ready(&later, true, 3)[0].last_transition_time, at(2));
    }

    #[test]
    fn long_lists_of_names_are_cut() {
        let names = |count: usize| (0..count).map(|number| number.to_string());
        assert_eq!(named(names(2)), "0, 1");
        assert_eq!(named(names(7)), "0, 1, 2, 3, 4 and 2 more");
    }

    #[test]
    fn no_sequence_of_what_is_seen_leads_to_an_illegal_change_of_phase() {
        use api::NetworkPhase::{Active, Failed, Initializing, Pending, Terminating};
        const ALL: [api::NetworkPhase; 5] = [Initializing, Pending, Active, Failed, Terminating];
        let mut reached = vec![Initializing];
        for _ in 0..5 {
            let mut next = Vec::new();
            for (standing, wanted) in reached.iter().flat_map(|it| ALL.map(|wanted| (*it, wanted)))
            {
                let told = network_phase(standing, wanted);
                assert!(standing == told || standing.may_become(told), "{standing:?}, {told:?}");
                let back = told == Initializing && standing != Initializing;
                let risen = standing == Terminating && told != Terminating;
                assert!(!back && !risen, "{standing:?} was followed by {told:?}");
                next.push(told);
            }
            reached = next;
        }
        assert!(ALL.iter().all(|phase| reached.contains(phase)), "each can be reached");
    }

    #[test]
    fn terminating_is_final_and_nothing_begins_anew() {
        use api::NetworkPhase::{Active, Failed, Initializing, Pending, Terminating};
        for wanted in [Initializing, Pending, Active, Failed, Terminating] {
            assert_eq!(network_phase(Terminating, wanted), Terminating);
            assert_ne!(network_phase(Active, wanted), Initializing);
        }
    }
}
