//! What users of Kubernetes expect of a pod, told as facts in and actions out.

use super::slot::{FIRST_RESTART, GOOD_RUN};
use super::*;

/// A pod with its own clock, driven by hand.
struct Pod {
    life: Lifecycle,
    now: Timestamp,
}

fn wish(fingerprint: u64) -> Wish {
    Wish { fingerprint, deleted_with_grace: None }
}

fn deleted(grace: u64) -> Fact {
    Fact::Changed(Wish { fingerprint: 1, deleted_with_grace: Some(Duration::from_secs(grace)) })
}

fn exited(name: &str, code: i32) -> Fact {
    Fact::Exited { name: name.to_owned(), code, start_error: None }
}

fn start(name: &str, attempt: u32) -> Action {
    Action::Start { name: name.to_owned(), attempt }
}

impl Pod {
    fn new(policy: RestartPolicy, containers: &[(&str, Role)]) -> Self {
        let now = Timestamp::UNIX_EPOCH;
        Pod { life: Lifecycle::new(policy, containers, &wish(1), now), now }
    }

    /// A pod whose one container `web` runs.
    fn running(policy: RestartPolicy) -> Self {
        let mut pod = Pod::new(policy, &[("web", Role::Main)]);
        assert_eq!(pod.tell(Fact::Clock), [Action::MakeSandbox]);
        assert_eq!(pod.tell(Fact::SandboxMade(vec![[10, 0, 0, 5].into()])), [start("web", 0)]);
        assert_eq!(pod.tell(Fact::Started("web".into())), []);
        pod
    }

    /// What the machine does about `fact`, without what it only tells.
    fn tell(&mut self, fact: Fact) -> Vec<Action> {
        let mut actions = self.life.step(fact, self.now);
        actions.retain(|action| !matches!(action, Action::Tell(_)));
        actions
    }

    fn notices(&mut self, fact: Fact) -> Vec<Notice> {
        let actions = self.life.step(fact, self.now);
        let notice = |action| match action {
            Action::Tell(notice) => Some(notice),
            _ => None,
        };
        actions.into_iter().filter_map(notice).collect()
    }

    /// Waits until the machine's next deadline; how long that took.
    fn wait(&mut self) -> Duration {
        let deadline = self.life.next_deadline().expect("the machine waits for a moment");
        let waited = deadline.duration_since(self.now).unsigned_abs();
        self.now = deadline;
        waited
    }

    fn run(&self, name: &str) -> &Run {
        &self.life.slots.iter().find(|slot| slot.name == name).unwrap().run
    }
}

#[test]
fn a_pod_gets_its_network_before_its_containers_start() {
    let mut pod = Pod::new(RestartPolicy::Always, &[("web", Role::Main), ("log", Role::Main)]);
    assert_eq!(pod.tell(Fact::Clock), [Action::MakeSandbox]);
    assert_eq!(pod.tell(Fact::Clock), [], "asked for once");
    assert_eq!(pod.life.phase(), Phase::Pending);
    let started = pod.tell(Fact::SandboxMade(vec![]));
    assert_eq!(started, [start("web", 0), start("log", 0)]);
    pod.tell(Fact::Started("web".into()));
    assert_eq!(pod.life.phase(), Phase::Running);
    assert_eq!(pod.life.next_deadline(), None);
}

#[test]
fn a_network_that_fails_is_tried_again_ever_more_patiently() {
    let mut pod = Pod::new(RestartPolicy::Always, &[("web", Role::Main)]);
    pod.tell(Fact::Clock);
    let mut waits = Vec::new();
    for _ in 0..6 {
        let told = pod.notices(Fact::SandboxFailed("no address".into()));
        assert_eq!(told, [Notice::SandboxFailed("no address".into())]);
        waits.push(pod.wait().as_millis());
        assert_eq!(pod.tell(Fact::Clock), [Action::MakeSandbox]);
    }
    assert_eq!(waits, [500, 1000, 2000, 4000, 5000, 5000]);
    assert_eq!(pod.life.phase(), Phase::Pending);
}

#[test]
fn a_change_of_the_pod_tries_its_network_at_once() {
    let mut pod = Pod::new(RestartPolicy::Always, &[("web", Role::Main)]);
    pod.tell(Fact::Clock);
    pod.tell(Fact::SandboxFailed("no network".into()));
    assert_eq!(pod.tell(Fact::Changed(wish(1))), [], "nothing changed");
    assert_eq!(pod.tell(Fact::Changed(wish(2))), [Action::MakeSandbox]);
}

#[test]
fn restart_policies_decide_who_is_started_again_and_how_the_pod_ends() {
    use RestartPolicy::*;
    let cases = [
        (Always, 0, true, Phase::Running),
        (Always, 1, true, Phase::Running),
        (OnFailure, 1, true, Phase::Running),
        (OnFailure, 0, false, Phase::Succeeded),
        (Never, 0, false, Phase::Succeeded),
        (Never, 137, false, Phase::Failed),
    ];
    for (policy, code, again, phase) in cases {
        let mut pod = Pod::running(policy);
        let actions = pod.tell(exited("web", code));
        assert_eq!(matches!(pod.run("web"), Run::BackingOff { .. }), again, "{policy:?} {code}");
        assert_eq!(pod.life.phase(), phase, "{policy:?} {code}");
        let network_goes = if again { vec![] } else { vec![Action::RemoveSandbox] };
        assert_eq!(actions, network_goes, "{policy:?} {code}");
    }
}

#[test]
fn a_container_that_crashes_again_and_again_waits_ever_longer() {
    let mut pod = Pod::running(RestartPolicy::Always);
    let mut waits = Vec::new();
    for attempt in 1..=7 {
        assert_eq!(pod.tell(exited("web", 1)), []);
        waits.push(pod.wait().as_secs());
        assert_eq!(pod.tell(Fact::Clock), [start("web", attempt)]);
        pod.tell(Fact::Started("web".into()));
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    assert_eq!(pod.life.slots[0].restarts, 7);
}

#[test]
fn a_good_run_makes_the_next_restart_quick_again() {
    let mut pod = Pod::running(RestartPolicy::Always);
    for _ in 0..3 {
        pod.tell(exited("web", 1));
        pod.wait();
        pod.tell(Fact::Clock);
        pod.tell(Fact::Started("web".into()));
    }
    pod.now += GOOD_RUN;
    pod.tell(exited("web", 1));
    assert_eq!(pod.wait(), FIRST_RESTART);
}

#[test]
fn a_command_that_cannot_start_is_told_with_its_reason() {
    let mut pod = Pod::running(RestartPolicy::Never);
    let told = pod.notices(Fact::Exited {
        name: "web".into(),
        code: 128,
        start_error: Some("cannot run \"nginx\"".into()),
    });
    assert_eq!(told, [Notice::CannotStart("web".into(), "cannot run \"nginx\"".into())]);
    assert_eq!(pod.life.phase(), Phase::Failed);
}

#[test]
fn a_container_that_is_written_wrong_waits_and_the_others_run() {
    let mut pod = Pod::new(RestartPolicy::Always, &[("web", Role::Main), ("log", Role::Main)]);
    pod.tell(Fact::Clock);
    pod.tell(Fact::SandboxMade(vec![]));
    pod.tell(Fact::Refused("web".into(), "it has no command".into()));
    assert_eq!(pod.tell(Fact::Started("log".into())), []);
    assert_eq!(pod.run("web"), &Run::Refused("it has no command".into()));
    assert_eq!(pod.life.phase(), Phase::Running);
}

#[test]
fn init_containers_run_one_after_the_other_before_the_rest() {
    let containers = [("a", Role::Init), ("b", Role::Init), ("web", Role::Main)];
    let mut pod = Pod::new(RestartPolicy::Always, &containers);
    pod.tell(Fact::Clock);
    assert_eq!(pod.tell(Fact::SandboxMade(vec![])), [start("a", 0)]);
    assert_eq!(pod.tell(Fact::Started("a".into())), []);
    assert_eq!(pod.tell(exited("a", 1)), [], "a failed one is tried again");
    pod.wait();
    assert_eq!(pod.tell(Fact::Clock), [start("a", 1)]);
    assert_eq!(pod.tell(exited("a", 0)), [start("b", 0)]);
    assert_eq!(pod.life.phase(), Phase::Pending);
    assert_eq!(pod.tell(exited("b", 0)), [start("web", 0)]);
}

#[test]
fn a_failed_init_container_fails_a_pod_that_never_restarts() {
    let mut pod = Pod::new(RestartPolicy::Never, &[("a", Role::Init), ("web", Role::Main)]);
    pod.tell(Fact::Clock);
    pod.tell(Fact::SandboxMade(vec![]));
    assert_eq!(pod.tell(exited("a", 1)), [Action::RemoveSandbox]);
    assert_eq!(pod.life.phase(), Phase::Failed);
}

#[test]
fn a_deleted_pod_is_asked_to_end_then_loses_its_network_then_its_object() {
    let mut pod = Pod::running(RestartPolicy::Always);
    assert_eq!(pod.tell(deleted(30)), [Action::Stop("web".into())]);
    assert_eq!(pod.tell(deleted(30)), [], "asked once");
    assert_eq!(pod.tell(exited("web", 143)), [Action::RemoveSandbox], "and not started again");
    assert_eq!(pod.tell(Fact::SandboxRemoved), [Action::DeleteObject, Action::Finish]);
}

#[test]
fn a_container_that_does_not_end_in_time_is_killed() {
    let mut pod = Pod::running(RestartPolicy::Always);
    pod.tell(deleted(30));
    assert_eq!(pod.wait(), Duration::from_secs(30));
    assert_eq!(pod.tell(Fact::Clock), [Action::Kill("web".into())]);
    assert_eq!(pod.tell(Fact::Clock), [], "killed once");
    assert_eq!(pod.life.next_deadline(), None, "and nothing more is waited for");
}

#[test]
fn a_second_deletion_may_shorten_the_grace_but_not_lengthen_it() {
    let mut pod = Pod::running(RestartPolicy::Always);
    pod.tell(deleted(30));
    pod.tell(deleted(60));
    assert_eq!(pod.tell(deleted(0)), [Action::Kill("web".into())]);
}

#[test]
fn a_pod_whose_object_vanished_is_ended_without_touching_the_api() {
    let mut pod = Pod::running(RestartPolicy::Always);
    assert_eq!(pod.tell(Fact::Vanished), [Action::Stop("web".into())]);
    assert_eq!(pod.wait(), GRACE_OF_THE_VANISHED);
    assert_eq!(pod.tell(Fact::Clock), [Action::Kill("web".into())]);
    pod.tell(exited("web", 137));
    assert_eq!(pod.tell(Fact::SandboxRemoved), [Action::Finish]);
}

#[test]
fn a_pod_deleted_while_its_network_is_made_waits_for_that_and_undoes_it() {
    let mut pod = Pod::new(RestartPolicy::Always, &[("web", Role::Main)]);
    pod.tell(Fact::Clock);
    assert_eq!(pod.tell(deleted(30)), []);
    assert_eq!(pod.tell(Fact::SandboxMade(vec![])), [Action::RemoveSandbox]);
    assert_eq!(pod.tell(Fact::SandboxRemoved), [Action::DeleteObject, Action::Finish]);
}

#[test]
fn a_container_deleted_while_it_starts_is_stopped_as_soon_as_it_runs() {
    let mut pod = Pod::new(RestartPolicy::Always, &[("web", Role::Main)]);
    pod.tell(Fact::Clock);
    pod.tell(Fact::SandboxMade(vec![]));
    assert_eq!(pod.tell(deleted(30)), []);
    assert_eq!(pod.tell(Fact::Started("web".into())), [Action::Stop("web".into())]);
}

#[test]
fn a_network_that_cannot_be_removed_is_tried_until_it_is() {
    let mut pod = Pod::running(RestartPolicy::Never);
    pod.tell(deleted(1));
    pod.tell(exited("web", 0));
    let told = pod.notices(Fact::SandboxStuck("the agent is away".into()));
    assert_eq!(told, [Notice::SandboxStuck("the agent is away".into())]);
    pod.wait();
    assert_eq!(pod.tell(Fact::Clock), [Action::RemoveSandbox]);
    assert_eq!(pod.tell(Fact::SandboxRemoved), [Action::DeleteObject, Action::Finish]);
}

#[test]
fn a_finished_pod_keeps_its_object_until_it_is_deleted() {
    let mut pod = Pod::running(RestartPolicy::Never);
    assert_eq!(pod.tell(exited("web", 0)), [Action::RemoveSandbox]);
    assert_eq!(pod.tell(Fact::SandboxRemoved), []);
    assert_eq!(pod.life.ips, [IpAddr::from([10, 0, 0, 5])], "and the address it had");
    assert_eq!(pod.tell(deleted(30)), [Action::DeleteObject, Action::Finish]);
}
