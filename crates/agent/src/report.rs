//! What the agent says to the cluster: of its ports in their status, of services and policies in
//! events.

use atoll_api::{Port, PortPhase, PortStatus, marks};
use atoll_model::compile::{ServiceComplaint, ServiceName};
use atoll_policy::{ClusterNetworkPolicy, PolicyKey};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::policy::held::{HeldReport, Subject};
use crate::seen::PortKey;

/// Who says it, in events.
pub(crate) const CONTROLLER: &str = "atoll.dev/agent";

/// Something to say.
#[derive(Debug)]
pub(crate) enum Report {
    /// A port's interface was made.
    Attached(AttachedReport),
    /// Something of a service gets no traffic.
    Service(ServiceReport),
    /// Policy has no room in the kernel, or has it again.
    Held(HeldReport),
}

/// Something of a service gets no traffic.
#[derive(Debug)]
pub(crate) struct ServiceReport {
    /// The service.
    pub(crate) service: ServiceName,
    /// Its UID.
    pub(crate) uid: String,
    /// What, and why.
    pub(crate) complaint: ServiceComplaint,
}

/// A port's interface was made.
#[derive(Debug)]
pub(crate) struct AttachedReport {
    /// The port.
    pub(crate) port: PortKey,
    /// The name of the interface's host side.
    pub(crate) host_interface: String,
}

/// Starts the reporter. It ends when nobody can send any more.
pub(crate) fn start(client: Client, node: &str) -> UnboundedSender<Report> {
    let (sender, receiver) = unbounded_channel();
    let reporter = Reporter { controller: CONTROLLER.into(), instance: Some(node.to_owned()) };
    tokio::spawn(report_all(client, reporter, receiver));
    sender
}

async fn report_all(client: Client, reporter: Reporter, mut reports: UnboundedReceiver<Report>) {
    while let Some(report) = reports.recv().await {
        let told = match &report {
            Report::Attached(attached) => write(&client, attached).await,
            Report::Service(service) => say(&client, &reporter, service).await,
            Report::Held(held) => say_held(&client, &reporter, held).await,
        };
        if let Err(error) = told {
            tracing::warn!(?report, %error, "cannot tell the cluster");
        }
    }
}

/// A recorder that lasts would take two complaints with one reason for the same one.
async fn say(client: &Client, reporter: &Reporter, report: &ServiceReport) -> kube::Result<()> {
    let event = Event {
        type_: EventType::Warning,
        reason: match report.complaint {
            ServiceComplaint::ForeignEndpoint(_) => "ForeignEndpoint",
            ServiceComplaint::TakenAddress(_) => "AddressTaken",
            ServiceComplaint::Contested(_) => "AddressContested",
        }
        .into(),
        note: Some(report.complaint.to_string()),
        action: "Serve".into(),
        secondary: None,
    };
    let service = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Service".into()),
        namespace: Some(report.service.namespace.clone()),
        name: Some(report.service.name.clone()),
        uid: Some(report.uid.clone()),
        ..ObjectReference::default()
    };
    Recorder::new(client.clone(), reporter.clone()).publish(&event, &service).await
}

/// Says of a policy, or of this node, that it is held or is no more. What is gone needs no word.
async fn say_held(client: &Client, reporter: &Reporter, report: &HeldReport) -> kube::Result<()> {
    let node = reporter.instance.as_deref().unwrap_or_default();
    let (object, name) = match &report.subject {
        Subject::Policy(key) => (find_policy(client, key).await?, key.to_string()),
        Subject::Node => (Some(node_ref(node)), node.to_owned()),
    };
    let Some(object) = object else { return Ok(()) };
    let note = report.complaint.as_ref().map(|complaint| format!("on node {node}: {complaint}"));
    let event = Event {
        type_: if note.is_some() { EventType::Warning } else { EventType::Normal },
        reason: if note.is_some() { marks::POLICY_HELD } else { marks::POLICY_ENFORCED }.into(),
        note: Some(
            note.unwrap_or_else(|| format!("on node {node}: {name} is enforced as written")),
        ),
        action: "Enforce".into(),
        secondary: None,
    };
    Recorder::new(client.clone(), reporter.clone()).publish(&event, &object).await
}

/// Nodes are known to events by their name.
fn node_ref(node: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(node.to_owned()),
        uid: Some(node.to_owned()),
        ..ObjectReference::default()
    }
}

/// A policy as events refer to it, where it is still there.
async fn find_policy(client: &Client, key: &PolicyKey) -> kube::Result<Option<ObjectReference>> {
    let client = client.clone();
    Ok(match &key.namespace {
        Some(namespace) => {
            let api = Api::<NetworkPolicy>::namespaced(client, namespace);
            api.get_opt(&key.name).await?.map(|policy| policy.object_ref(&()))
        }
        None => {
            let api = Api::<ClusterNetworkPolicy>::all(client);
            api.get_opt(&key.name).await?.map(|policy| policy.object_ref(&()))
        }
    })
}

async fn write(client: &Client, report: &AttachedReport) -> kube::Result<()> {
    let (namespace, name) = &report.port;
    let status = PortStatus {
        phase: PortPhase::Attached,
        host_interface: Some(report.host_interface.clone()),
    };
    let patch = Patch::Merge(serde_json::json!({ "status": status }));
    let ports = Api::<Port>::namespaced(client.clone(), namespace);
    ports.patch_status(name, &PatchParams::default(), &patch).await.map(drop)
}
