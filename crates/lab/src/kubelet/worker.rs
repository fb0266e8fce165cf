//! The hands of one pod's life: hears what happens, asks the machine, does what it says, and keeps
//! the status in the API true.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::events::EventType;
use kube::{Resource, ResourceExt};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::container::{self, Handle};
use super::launch_plan::{self, Surroundings};
use super::lifecycle::{Action, Fact, Lifecycle, Notice, RestartPolicy, Role, Wish};
use super::sandbox::Sandbox;
use super::{NodeContext, etc_files, readiness, status};
use crate::event;
use crate::home::{PodHome, PodRecord, write_json};

/// How long to wait before telling the API again what it did not take.
const API_RETRY: Duration = Duration::from_secs(1);

/// What the API says about the pod.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Pod(Box<Pod>),
    Vanished,
}

/// One pod's worker.
pub(crate) struct Worker {
    context: Arc<NodeContext>,
    pod: Pod,
    home: PodHome,
    sandbox: Sandbox,
    life: Lifecycle,
    handles: HashMap<String, Handle>,
    /// The checks of containers that say how; each ends with its place here.
    checks: HashMap<String, JoinSet<()>>,
    facts: mpsc::UnboundedSender<Fact>,
    published: Option<PodStatus>,
}

/// Lives the pod's whole life on this node.
pub(crate) async fn run(context: Arc<NodeContext>, pod: Pod, mut seen: watch::Receiver<Seen>) {
    let (facts, mut news) = mpsc::unbounded_channel();
    let wish = wish(&pod);
    let mut worker = Worker::new(context, pod, facts);
    let mut fact = Fact::Changed(wish);
    loop {
        let actions = worker.life.step(fact, Timestamp::now());
        if worker.perform(actions).await {
            return;
        }
        let published = worker.publish().await;
        let pause = worker.pause(published);
        fact = tokio::select! {
            Some(fact) = news.recv() => fact,
            Ok(()) = seen.changed() => worker.look(&seen.borrow_and_update().clone()),
            () = tokio::time::sleep(pause) => Fact::Clock,
        };
    }
}

impl Worker {
    fn new(context: Arc<NodeContext>, pod: Pod, facts: mpsc::UnboundedSender<Fact>) -> Self {
        let containers: Vec<_> =
            containers(&pod).map(|(container, role)| (container.name.as_str(), role)).collect();
        Worker {
            home: context.node.pod(&pod.uid().unwrap_or_default()),
            sandbox: Sandbox::of(&context, &pod),
            life: Lifecycle::new(policy(&pod), &containers, &wish(&pod), Timestamp::now()),
            handles: HashMap::new(),
            checks: HashMap::new(),
            facts,
            published: None,
            pod,
            context,
        }
    }

    /// Takes in what the API shows; the status in it is this worker's own.
    fn look(&mut self, seen: &Seen) -> Fact {
        match seen {
            Seen::Vanished => Fact::Vanished,
            Seen::Pod(pod) => {
                self.pod = (**pod).clone();
                self.pod.status = self.published.clone().or(self.pod.status.take());
                Fact::Changed(wish(&self.pod))
            }
        }
    }

    /// How long nothing needs to be done.
    fn pause(&self, published: bool) -> Duration {
        let until = |moment: Timestamp| Duration::try_from(moment - Timestamp::now());
        let machine = self.life.next_deadline().map(|moment| until(moment).unwrap_or_default());
        let retry = (!published).then_some(API_RETRY);
        machine.into_iter().chain(retry).min().unwrap_or(Duration::MAX)
    }

    /// Does what the machine says; whether the pod's life is over.
    async fn perform(&mut self, actions: Vec<Action>) -> bool {
        for action in actions {
            match action {
                Action::MakeSandbox => self.make_sandbox(),
                Action::RemoveSandbox => self.remove_sandbox(),
                Action::Start { name, attempt } => self.start(&name, attempt),
                Action::Stop(name) => self.handles.get(&name).into_iter().for_each(Handle::stop),
                Action::Kill(name) => self.handles.get(&name).into_iter().for_each(Handle::kill),
                Action::Tell(notice) => self.tell(&notice),
                Action::DeleteObject => self.delete_object().await,
                Action::Finish => {
                    self.forget();
                    return true;
                }
            }
        }
        false
    }

    fn make_sandbox(&self) {
        let (sandbox, facts) = (self.sandbox.clone(), self.facts.clone());
        let (home, pod) = (self.home.clone(), self.pod.clone());
        let record = record(&pod, &self.context.node.name);
        tokio::spawn(async move {
            let fact = match sandbox.make().await {
                Err(message) => Fact::SandboxFailed(message),
                Ok(ips) => match prepare(&home, &record, &pod, &ips) {
                    Err(error) => Fact::SandboxFailed(error.to_string()),
                    Ok(()) => Fact::SandboxMade(ips),
                },
            };
            let _over = facts.send(fact);
        });
    }

    fn remove_sandbox(&self) {
        let (sandbox, facts) = (self.sandbox.clone(), self.facts.clone());
        tokio::spawn(async move {
            let _over = facts.send(match sandbox.remove().await {
                Ok(()) => Fact::SandboxRemoved,
                Err(message) => Fact::SandboxStuck(message),
            });
        });
    }

    fn start(&mut self, name: &str, attempt: u32) {
        let home = self.home.container(name);
        let namespace = self.sandbox.namespace();
        let around = Surroundings {
            node: &self.context.node.name,
            host: self.context.host,
            ips: &self.life.ips,
            namespace: &namespace,
            program_directory: self.context.program_directory(),
            hidden: self.context.home.all_labs(),
        };
        let Some((container, _)) = containers(&self.pod).find(|(one, _)| one.name == name) else {
            return;
        };
        match launch_plan::build(&self.pod, container, &around, (&self.home, &home), attempt) {
            Ok(launch) => {
                let facts = self.facts.clone();
                if let Some(check) = readiness::Check::of(container) {
                    let inside = [&self.pod.namespace().unwrap_or_default(), &self.pod.name_any()];
                    let check = check.repeat(&self.context, inside, name, facts.clone());
                    self.checks.insert(name.to_owned(), [check].into_iter().collect());
                }
                let handle = container::start(&self.context, name, home, &launch, facts);
                self.handles.insert(name.to_owned(), handle);
            }
            Err(message) => {
                let _over = self.facts.send(Fact::Refused(name.to_owned(), message));
            }
        }
    }

    fn tell(&self, notice: &Notice) {
        let (kind, reason, note) = words(notice);
        tracing::info!(pod = full_name(&self.pod), reason, note);
        let event = event::new(kind, reason, "Kubelet", &note);
        event::publish(&self.context.recorder, event, self.pod.object_ref(&()));
    }

    /// Writes the status when it changed; whether the API has it now.
    async fn publish(&mut self) -> bool {
        let status = status::build(&self.life, &self.pod, self.context.host, Timestamp::now());
        if self.published.as_ref() == Some(&status) {
            return true;
        }
        let patch = json!({"metadata": {"uid": self.pod.uid()}, "status": status});
        let api = self.api();
        let params = PatchParams::default();
        match api.patch_status(&self.pod.name_any(), &params, &Patch::Merge(patch)).await {
            Ok(_) => {}
            // Whose object is gone, or another's by now, has no status to write.
            Err(kube::Error::Api(refusal)) if matches!(refusal.code, 404 | 409) => {}
            Err(error) => {
                tracing::warn!(pod = full_name(&self.pod), %error, "cannot write the status");
                return false;
            }
        }
        self.pod.status = Some(status.clone());
        self.published = Some(status);
        true
    }

    /// Tries until the API takes it: a pod that has ended must not stay for ever.
    async fn delete_object(&self) {
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: self.pod.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        loop {
            match self.api().delete(&self.pod.name_any(), &params).await {
                Ok(_) => return,
                Err(kube::Error::Api(refusal)) if matches!(refusal.code, 404 | 409) => return,
                Err(error) => {
                    tracing::warn!(pod = full_name(&self.pod), %error, "cannot delete the object");
                    tokio::time::sleep(API_RETRY).await;
                }
            }
        }
    }

    fn forget(&self) {
        if let Err(error) = self.home.remove() {
            tracing::warn!(pod = full_name(&self.pod), %error, "cannot remove the pod's files");
        }
    }

    fn api(&self) -> Api<Pod> {
        let namespace = self.pod.namespace().unwrap_or_default();
        Api::namespaced(self.context.client.clone(), &namespace)
    }
}

/// Lays out the pod's home before its containers start.
fn prepare(
    home: &PodHome,
    record: &PodRecord,
    pod: &Pod,
    ips: &[std::net::IpAddr],
) -> std::io::Result<()> {
    home.create()?;
    write_json(&home.record(), record)?;
    etc_files::write(home, pod, ips)
}

fn record(pod: &Pod, node: &str) -> PodRecord {
    let mains = containers(pod).filter(|(_, role)| *role == Role::Main);
    let default_container = mains.map(|(container, _)| container.name.clone()).next();
    PodRecord {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        node: node.to_owned(),
        containers: containers(pod).map(|(container, _)| container.name.clone()).collect(),
        default_container: default_container.unwrap_or_default(),
    }
}

/// All containers of a pod in the order they start in.
fn containers(pod: &Pod) -> impl Iterator<Item = (&Container, Role)> {
    let spec = pod.spec.as_ref();
    let inits = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
    let mains = spec.map(|spec| &spec.containers).into_iter().flatten();
    inits.map(|one| (one, Role::Init)).chain(mains.map(|one| (one, Role::Main)))
}

fn policy(pod: &Pod) -> RestartPolicy {
    match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
        Some("Never") => RestartPolicy::Never,
        Some("OnFailure") => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    }
}

/// What of the pod's object can change its life.
fn wish(pod: &Pod) -> Wish {
    let mut hasher = DefaultHasher::new();
    pod.metadata.labels.hash(&mut hasher);
    pod.metadata.annotations.hash(&mut hasher);
    pod.metadata.generation.hash(&mut hasher);
    let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
    let grace = Duration::from_secs(seconds.try_into().unwrap_or_default());
    Wish {
        fingerprint: hasher.finish(),
        deleted_with_grace: pod.metadata.deletion_timestamp.as_ref().map(|_| grace),
    }
}

fn words(notice: &Notice) -> (EventType, &'static str, String) {
    use EventType::{Normal, Warning};
    match notice {
        Notice::SandboxFailed(why) => {
            let note = format!("Failed to create pod sandbox: {why}");
            (Warning, "FailedCreatePodSandBox", note)
        }
        Notice::SandboxStuck(why) => {
            (Warning, "FailedKillPod", format!("error killing pod: {why}"))
        }
        Notice::Started(name) => (Normal, "Started", format!("Started container {name}")),
        Notice::Stopping(name) => (Normal, "Killing", format!("Stopping container {name}")),
        Notice::BackingOff(name) => {
            (Warning, "BackOff", format!("Back-off restarting container {name}"))
        }
        Notice::CannotStart(name, why) => {
            (Warning, "Failed", format!("Cannot start container {name}: {why}"))
        }
    }
}

fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn labels_and_annotations_are_changes_and_the_status_is_none() {
        let plain = wish(&pod(json!({"metadata": {"labels": {"a": "1"}}})));
        let same = pod(json!({"metadata": {"labels": {"a": "1"}}, "status": {"phase": "Running"}}));
        assert_eq!(wish(&same), plain);
        for changed in [
            json!({"metadata": {"labels": {"a": "2"}}}),
            json!({"metadata": {"labels": {"a": "1"}, "annotations": {"b": "1"}}}),
        ] {
            assert_ne!(wish(&pod(changed)).fingerprint, plain.fingerprint);
        }
    }

    #[test]
    fn a_deleted_pod_ends_within_its_grace_period() {
        let deleted = pod(json!({"metadata": {
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 7,
        }}));
        assert_eq!(wish(&deleted).deleted_with_grace, Some(Duration::from_secs(7)));
    }

    #[test]
    fn the_record_of_a_pod_names_its_containers_and_the_one_that_is_meant() {
        let pod = pod(json!({
            "metadata": {"name": "web", "namespace": "acme"},
            "spec": {"initContainers": [{"name": "a"}], "containers": [{"name": "b"}, {"name": "c"}]},
        }));
        let record = record(&pod, "node1");
        assert_eq!(record.containers, ["a", "b", "c"]);
        assert_eq!(record.default_container, "b");
    }

    #[test]
    fn without_a_policy_containers_are_always_started_again() {
        let spec = |policy: serde_json::Value| {
            pod(json!({"metadata": {}, "spec": {"containers": [], "restartPolicy": policy}}))
        };
        assert_eq!(policy(&spec(json!(null))), RestartPolicy::Always);
        assert_eq!(policy(&spec(json!("Never"))), RestartPolicy::Never);
        assert_eq!(policy(&spec(json!("OnFailure"))), RestartPolicy::OnFailure);
    }
}
