//! A pod's life told as the status that Kubernetes' users and tools read.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::lifecycle::{Ended, Lifecycle, Phase, Role, Run, Sandbox, Slot};

/// One condition before it is compared with the one that was there.
struct Claim {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

/// The status of `pod`, whose life stands at `life`, on the node with `host`.
pub(crate) fn build(life: &Lifecycle, pod: &Pod, host: IpAddr, now: Timestamp) -> PodStatus {
    let before = pod.status.as_ref();
    let old_conditions = before.and_then(|status| status.conditions.clone()).unwrap_or_default();
    let claims = claims(life).into_iter();
    PodStatus {
        phase: Some(phase_name(life.phase()).to_owned()),
        host_ip: Some(host.to_string()),
        host_ips: Some(vec![HostIP { ip: host.to_string() }]),
        pod_ip: life.ips.first().map(ToString::to_string),
        pod_ips: Some(life.ips.iter().map(|ip| PodIP { ip: ip.to_string() }).collect()),
        start_time: Some(Time(life.began)),
        conditions: Some(claims.map(|claim| condition(claim, &old_conditions, now)).collect()),
        init_container_statuses: containers(life, pod, Role::Init),
        container_statuses: containers(life, pod, Role::Main),
        qos_class: before.and_then(|status| status.qos_class.clone()),
        ..PodStatus::default()
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    }
}

fn claims(life: &Lifecycle) -> Vec<Claim> {
    let ready = readiness(life);
    let plain = |kind, holds| Claim { kind, holds, reason: None, message: None };
    let initialized = life.is_initialized();
    vec![
        plain("PodScheduled", true),
        plain("PodReadyToStartContainers", life.sandbox == Sandbox::Ready),
        Claim {
            reason: (!initialized).then_some("ContainersNotInitialized"),
            ..plain("Initialized", initialized)
        },
        Claim { kind: "ContainersReady", ..ready.clone_as() },
        Claim { kind: "Ready", ..ready },
    ]
}

impl Claim {
    fn clone_as(&self) -> Claim {
        Claim { message: self.message.clone(), ..*self }
    }
}

fn readiness(life: &Lifecycle) -> Claim {
    let unready: Vec<_> = life
        .slots
        .iter()
        .filter(|slot| slot.role == Role::Main && !slot.is_ready())
        .map(|slot| slot.name.as_str())
        .collect();
    let reason = match (life.phase(), unready.is_empty()) {
        (Phase::Succeeded, _) => Some("PodCompleted"),
        (Phase::Failed, _) => Some("PodFailed"),
        (_, true) => None,
        (_, false) => Some("ContainersNotReady"),
    };
    let message = (reason == Some("ContainersNotReady"))
        .then(|| format!("containers with unready status: [{}]", unready.join(" ")));
    Claim { kind: "Ready", holds: reason.is_none(), reason, message }
}

fn is_running(slot: &Slot) -> bool {
    matches!(slot.run, Run::Running { .. })
}

/// The moment of the last change stays unless the condition turned.
fn condition(claim: Claim, before: &[PodCondition], now: Timestamp) -> PodCondition {
    let status = if claim.holds { "True" } else { "False" };
    let same = before.iter().find(|old| old.type_ == claim.kind && old.status == status);
    let since = same.and_then(|old| old.last_transition_time.clone());
    PodCondition {
        type_: claim.kind.to_owned(),
        status: status.to_owned(),
        reason: claim.reason.map(str::to_owned),
        message: claim.message,
        last_transition_time: since.or(Some(Time(now))),
        ..PodCondition::default()
    }
}

fn containers(life: &Lifecycle, pod: &Pod, role: Role) -> Option<Vec<ContainerStatus>> {
    let slots = life.slots.iter().filter(|slot| slot.role == role);
    let statuses: Vec<_> = slots.map(|slot| container(slot, pod)).collect();
    (!statuses.is_empty()).then_some(statuses)
}

fn container(slot: &Slot, pod: &Pod) -> ContainerStatus {
    let ready = match slot.role {
        Role::Main => slot.is_ready(),
        Role::Init => slot.is_complete(),
    };
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let began = slot.last.is_some() || is_running(slot);
    ContainerStatus {
        name: slot.name.clone(),
        image: image_of(pod, &slot.name).unwrap_or_default(),
        container_id: began.then(|| format!("atoll://{uid}/{}/{}", slot.name, slot.restarts)),
        ready,
        started: Some(is_running(slot)),
        restart_count: slot.restarts.try_into().unwrap_or(i32::MAX),
        state: Some(state(slot)),
        last_state: last_state(slot),
        ..ContainerStatus::default()
    }
}

fn image_of(pod: &Pod, name: &str) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.find(|container: &&Container| container.name == name)?.image.clone()
}

fn state(slot: &Slot) -> ContainerState {
    match (&slot.run, &slot.last) {
        (Run::Waiting | Run::Starting, _) => waiting("ContainerCreating", None),
        (Run::Refused(message), _) => waiting("CreateContainerConfigError", Some(message.clone())),
        (Run::BackingOff { .. }, _) => waiting("CrashLoopBackOff", Some(back_off_message(slot))),
        (Run::Running { since }, _) => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(Time(*since)) }),
            ..ContainerState::default()
        },
        (Run::Done, Some(last)) => terminated(last),
        (Run::Done, None) => waiting("ContainerCreating", None),
    }
}

fn back_off_message(slot: &Slot) -> String {
    format!("the container {} ended and is started again after a pause", slot.name)
}

/// How the run before the present one ended; a container that is done shows it as its state.
fn last_state(slot: &Slot) -> Option<ContainerState> {
    if slot.run == Run::Done { None } else { slot.last.as_ref().map(terminated) }
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn terminated(ended: &Ended) -> ContainerState {
    let reason = match (&ended.start_error, ended.code) {
        (Some(_), _) => "StartError",
        (None, 0) => "Completed",
        (None, _) => "Error",
    };
    let terminated = ContainerStateTerminated {
        exit_code: ended.code,
        reason: Some(reason.to_owned()),
        message: ended.start_error.clone(),
        started_at: Some(Time(ended.started)),
        finished_at: Some(Time(ended.finished)),
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::lifecycle::{Fact, RestartPolicy, Wish};
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(172, 30, 0, 11));
    const START: Timestamp = Timestamp::UNIX_EPOCH;

    fn life(policy: RestartPolicy, facts: Vec<Fact>) -> Lifecycle {
        let wish = Wish { fingerprint: 1, deleted_with_grace: None };
        let mut life = Lifecycle::new(policy, &[("web", Role::Main)], &wish, START);
        life.step(Fact::Clock, START);
        for fact in facts {
            life.step(fact, START);
        }
        life
    }

    fn made() -> Fact {
        Fact::SandboxMade(vec![[10, 0, 0, 5].into()])
    }

    fn started() -> Fact {
        Fact::Started("web".into())
    }

    fn exited(code: i32, start_error: Option<&str>) -> Fact {
        Fact::Exited { name: "web".into(), code, start_error: start_error.map(str::to_owned) }
    }

    fn checked(is_ready: bool) -> Fact {
        Fact::Checked("web".into(), is_ready)
    }

    fn pod() -> Pod {
        let spec = serde_json::json!({
            "metadata": {"uid": "u1"},
            "spec": {"containers": [{"name": "web", "image": "nginx:1"}]},
        });
        serde_json::from_value(spec).unwrap()
    }

    /// The status in the words that `kubectl get` and `describe` show.
    fn summary(life: &Lifecycle) -> (String, String, String) {
        let status = build(life, &pod(), HOST, START);
        let container = &status.container_statuses.as_ref().unwrap()[0];
        let state = container.state.clone().unwrap();
        let reason = match (state.waiting, state.terminated) {
            (Some(waiting), _) => waiting.reason.unwrap(),
            (None, Some(terminated)) => terminated.reason.unwrap(),
            (None, None) => "running".to_owned(),
        };
        let conditions = status.conditions.unwrap();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
        (status.phase.unwrap(), reason, ready.status.clone())
    }

    #[test]
    fn every_stage_has_the_words_that_users_know() {
        use RestartPolicy::*;
        let cases = [
            (Always, vec![], ("Pending", "ContainerCreating", "False")),
            (
                Always,
                vec![Fact::SandboxFailed("x".into())],
                ("Pending", "ContainerCreating", "False"),
            ),
            (Always, vec![made()], ("Pending", "ContainerCreating", "False")),
            (Always, vec![made(), started()], ("Running", "running", "True")),
            (Always, vec![made(), checked(false), started()], ("Running", "running", "False")),
            (
                Always,
                vec![made(), checked(false), started(), checked(true)],
                ("Running", "running", "True"),
            ),
            (
                Always,
                vec![made(), started(), exited(1, None)],
                ("Running", "CrashLoopBackOff", "False"),
            ),
            (Never, vec![made(), started(), exited(0, None)], ("Succeeded", "Completed", "False")),
            (Never, vec![made(), started(), exited(2, None)], ("Failed", "Error", "False")),
            (Never, vec![made(), exited(128, Some("no such"))], ("Failed", "StartError", "False")),
            (
                Always,
                vec![made(), Fact::Refused("web".into(), "no command".into())],
                ("Pending", "CreateContainerConfigError", "False"),
            ),
        ];
        for (policy, facts, expected) in cases {
            let said = summary(&life(policy, facts.clone()));
            let said = (said.0.as_str(), said.1.as_str(), said.2.as_str());
            assert_eq!(said, expected, "{policy:?} {facts:?}");
        }
    }

    #[test]
    fn addresses_of_pod_and_node_are_told() {
        let status = build(&life(RestartPolicy::Always, vec![made()]), &pod(), HOST, START);
        assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.5"));
        assert_eq!(status.pod_ips.unwrap()[0].ip, "10.0.0.5");
        assert_eq!(status.host_ip.as_deref(), Some("172.30.0.11"));
    }

    #[test]
    fn a_restarted_container_still_tells_how_the_run_before_ended() {
        let mut life = life(RestartPolicy::Always, vec![made(), started(), exited(3, None)]);
        life.step(Fact::Clock, START + Duration::from_secs(1));
        life.step(started(), START + Duration::from_secs(1));
        let status = build(&life, &pod(), HOST, START);
        let container = &status.container_statuses.unwrap()[0];
        assert_eq!((container.restart_count, container.ready), (1, true));
        let last = container.last_state.clone().unwrap().terminated.unwrap();
        assert_eq!(last.exit_code, 3);
    }

    #[test]
    fn a_condition_keeps_its_moment_until_it_turns() {
        let mut pod = pod();
        let waiting = life(RestartPolicy::Always, vec![made()]);
        pod.status = Some(build(&waiting, &pod, HOST, START));
        let later = START + Duration::from_secs(60);
        let moment = |life: &Lifecycle, kind: &str| {
            let conditions = build(life, &pod, HOST, later).conditions.unwrap();
            let found = conditions.into_iter().find(|condition| condition.type_ == kind).unwrap();
            found.last_transition_time.unwrap().0
        };
        assert_eq!(moment(&waiting, "Ready"), START);
        let running = life(RestartPolicy::Always, vec![made(), started()]);
        assert_eq!(moment(&running, "Ready"), later);
        assert_eq!(moment(&running, "Initialized"), START);
    }
}
