//! Many questions to one address at once, from a pod or from outside, and who answers them.
//!
//! The rule of this file: who is to answer is awaited; once that is so, everybody who asks is answered, and
//! by nobody else. A question that fails then fails the test.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::fixture::{Lab, Said, atoll_command, await_condition};

/// How many ask at once. With two backends, all of them miss one of the two in one of 2,000 cases.
const MANY: usize = 12;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker<'a> {
    /// A pod, by namespace and name.
    Pod(&'a str),
    /// A machine on the nodes' wire that is no node.
    Outside,
}

/// Runs the toolbox on the wires between the nodes: outside.
pub(crate) fn outside(lab: &Lab, command: &[&str]) -> Said {
    let netns = lab.place("fabric").display().to_string();
    let enter = ["lab", "enter", "--netns", &netns, "--", env!("CARGO_BIN_EXE_atoll"), "toolbox"];
    atoll_command(&[&enter[..], command].concat()).output().unwrap().into()
}

/// What each of those who asked found: who answered, or how it failed, like `refused` or `timeout`.
pub(crate) type Found = Vec<Result<String, String>>;

/// Many ask over a protocol at the same time.
pub(crate) fn found(
    lab: &Lab,
    asker: Asker<'_>,
    (protocol, to): (&str, &str),
    timeout: &str,
) -> Found {
    let target = format!("{protocol}/{to}");
    let probe = [&["probe", "--timeout", timeout][..], &[target.as_str(); MANY]].concat();
    let said = match asker {
        Asker::Pod(pod) => lab.exec(pod, &[&["atoll", "toolbox"], &probe[..]].concat()),
        Asker::Outside => outside(lab, &probe),
    };
    let found: Found = said.out.lines().map(one).collect();
    assert_eq!(found.len(), MANY, "{}{}", said.out, said.err);
    found
}

/// Whoever cannot say who it is (SCTP) is its address.
fn one(line: &str) -> Result<String, String> {
    let report: Value = serde_json::from_str(line).unwrap();
    let outcome = &report["outcome"];
    let who = outcome["answered"]["pod"].as_str().or_else(|| outcome["replied"].as_str());
    let why = || outcome["failed"]["error"].as_str().unwrap_or(line).to_owned();
    who.map(ToOwned::to_owned).ok_or_else(why)
}

/// Those who answered, where everybody was answered.
fn all_answered(found: &Found) -> Option<BTreeSet<&str>> {
    found.iter().map(|it| it.as_deref().ok()).collect()
}

/// Waits until exactly these answer; then everybody who asks is answered by one of them.
pub(crate) fn await_answered_by(
    lab: &Lab,
    asker: Asker<'_>,
    at: (&str, &str),
    who: &BTreeSet<String>,
) {
    let who: BTreeSet<&str> = who.iter().map(String::as_str).collect();
    let mut last = Found::new();
    await_condition(|| {
        last = found(lab, asker, at, "5s");
        all_answered(&last).is_some_and(|answering| answering == who)
    })
    .unwrap_or_else(|()| panic!("{asker:?} {at:?}: {last:?} and never {who:?}"));
    let settled = found(lab, asker, at, "20s");
    let is_so = all_answered(&settled).is_some_and(|answering| answering.is_subset(&who));
    assert!(is_so, "{asker:?} {at:?}, {who:?} had answered: {settled:?}");
}

/// Waits until one and the same answers everybody who asks, and says who; it goes on to.
pub(crate) fn await_one(lab: &Lab, asker: Asker<'_>, at: (&str, &str)) -> String {
    let one = |found: &Found| {
        all_answered(found).filter(|it| it.len() == 1)?.pop_first().map(ToOwned::to_owned)
    };
    let (mut last, mut who) = (Found::new(), None);
    await_condition(|| {
        last = found(lab, asker, at, "5s");
        who = one(&last);
        who.is_some()
    })
    .unwrap_or_else(|()| panic!("{asker:?} {at:?}: {last:?}"));
    for _ in 0..2 {
        let settled = found(lab, asker, at, "20s");
        assert_eq!(one(&settled), who, "{asker:?} {at:?}: {settled:?}");
    }
    who.unwrap()
}

/// Waits until nobody answers, whether in silence or by a refusal, and nobody does after that.
pub(crate) fn await_unanswered(lab: &Lab, asker: Asker<'_>, at: (&str, &str)) {
    let mut last = Found::new();
    let mut is_so = || {
        last = found(lab, asker, at, "1s");
        last.iter().all(Result::is_err)
    };
    let settled = await_condition(&mut is_so).is_ok() && is_so();
    assert!(settled, "{asker:?} {at:?}: {last:?}");
}

/// Waits until everybody who asks is refused, and everybody is after that: not left in silence.
pub(crate) fn await_refused(lab: &Lab, asker: Asker<'_>, at: (&str, &str)) {
    let refused = Err("refused".to_owned());
    await_unanswered(lab, asker, at);
    let settled = found(lab, asker, at, "20s");
    assert!(settled.iter().all(|it| *it == refused), "{asker:?} {at:?}: {settled:?}");
}
