//! What the agent says to the cluster: of its ports in their status, of services in events.

use atoll_api::{Port, PortPhase, PortStatus};
use atoll_model::compile::{ServiceComplaint, ServiceName};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

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
