//! What the agent says of its ports in their status.

use atoll_api::{Port, PortPhase, PortStatus};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::seen::PortKey;

/// A port's interface was made.
#[derive(Debug)]
pub(crate) struct AttachedReport {
    /// The port.
    pub(crate) port: PortKey,
    /// The name of the interface's host side.
    pub(crate) host_interface: String,
}

/// Starts the reporter. It ends when nobody can send any more.
pub(crate) fn start(client: Client) -> UnboundedSender<AttachedReport> {
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(report_all(client, receiver));
    sender
}

async fn report_all(client: Client, mut reports: UnboundedReceiver<AttachedReport>) {
    while let Some(report) = reports.recv().await {
        if let Err(error) = write(&client, &report).await {
            tracing::warn!(port = ?report.port, %error, "cannot write the port's status");
        }
    }
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
