//! What the agent says to the cluster: of its ports in their status, of services, policies and
//! networks in events.
//!
//! The rule of this file: what is not heard the first time is said again where others wait for it, which
//! they do for the status of a port and not for an event.

mod attached;

use std::io;
use std::net::SocketAddr;

use atoll_api::{Network, marks};
use atoll_model::compile::{Complaint, ServiceComplaint, ServiceName};
use atoll_policy::{ClusterNetworkPolicy, PolicyKey};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(crate) use self::attached::AttachedReport;
use self::attached::Unheard;
use crate::policy::held::{HeldReport, Subject};

/// Who says it, in events.
pub(crate) const CONTROLLER: &str = "atoll.dev/agent";

/// Something to say.
#[derive(Debug)]
pub(crate) enum Report {
    /// A port's interface was made.
    Attached(AttachedReport),
    /// Something of a service is not served.
    Service(ServiceReport),
    /// Policy has no room in the kernel, or has it again.
    Held(HeldReport),
    /// Something that a network could have is kept from it.
    Network(NetworkReport),
}

/// Something that a network could have is kept from it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NetworkReport {
    /// The network's object name.
    pub(crate) network: String,
    /// What, and why.
    pub(crate) note: String,
}

impl NetworkReport {
    /// What the network's own users should hear of.
    pub(crate) fn of(complaint: &Complaint) -> Option<Self> {
        let Complaint::InfraConflict { network, .. } = complaint else { return None };
        Some(NetworkReport { network: network.clone(), note: complaint.to_string() })
    }
}

/// Something of a service is not served.
#[derive(Debug)]
pub(crate) struct ServiceReport {
    namespace: String,
    name: String,
    uid: String,
    reason: &'static str,
    /// What, and why.
    pub(crate) note: String,
}

impl ServiceReport {
    /// Something of it gets no traffic.
    pub(crate) fn of(service: &ServiceName, uid: &str, complaint: &ServiceComplaint) -> Self {
        let reason = match complaint {
            ServiceComplaint::ForeignEndpoint(_) => "ForeignEndpoint",
            ServiceComplaint::TakenAddress(_) => "AddressTaken",
            ServiceComplaint::Contested(_) => "AddressContested",
            ServiceComplaint::NoRoom => "ServiceHeld",
        };
        ServiceReport {
            namespace: service.namespace.clone(),
            name: service.name.clone(),
            uid: uid.to_owned(),
            reason,
            note: complaint.to_string(),
        }
    }

    /// Nobody can ask here how it fares.
    pub(crate) fn health_port_taken(
        (namespace, name): &(String, String),
        uid: &str,
        at: SocketAddr,
        error: &io::Error,
    ) -> Self {
        ServiceReport {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.to_owned(),
            reason: "HealthPortTaken",
            note: format!(
                "nobody answers for the service's healthCheckNodePort at {at}: {error}; free the port \
                 there, or have another by making the service anew"
            ),
        }
    }
}

/// Starts the reporter. It ends when nobody can send any more.
pub(crate) fn start(client: Client, node: &str) -> UnboundedSender<Report> {
    let (sender, receiver) = unbounded_channel();
    let reporter = Reporter { controller: CONTROLLER.into(), instance: Some(node.to_owned()) };
    tokio::spawn(report_all(client, reporter, receiver));
    sender
}

async fn report_all(client: Client, reporter: Reporter, mut reports: UnboundedReceiver<Report>) {
    let mut unheard = Unheard::default();
    loop {
        tokio::select! {
            biased;
            report = reports.recv() => match report {
                Some(report) => tell(&client, &reporter, report, &mut unheard).await,
                None => return,
            },
            () = unheard.are_due() => unheard.write_again(&client).await,
        }
    }
}

async fn tell(client: &Client, reporter: &Reporter, report: Report, unheard: &mut Unheard) {
    let told = match &report {
        Report::Attached(attached) => attached.write(client).await,
        Report::Service(service) => say(client, reporter, service).await,
        Report::Held(held) => say_held(client, reporter, held).await,
        Report::Network(network) => say_network(client, reporter, network).await,
    };
    let Err(error) = told else { return };
    tracing::warn!(?report, %error, "cannot tell the cluster");
    if let Report::Attached(attached) = report {
        unheard.keep(attached, &error);
    }
}

/// A recorder that lasts would take two complaints with one reason for the same one.
async fn say(client: &Client, reporter: &Reporter, report: &ServiceReport) -> kube::Result<()> {
    let event = Event {
        type_: EventType::Warning,
        reason: report.reason.into(),
        note: Some(report.note.clone()),
        action: "Serve".into(),
        secondary: None,
    };
    let service = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Service".into()),
        namespace: Some(report.namespace.clone()),
        name: Some(report.name.clone()),
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

/// What is gone needs no word.
async fn say_network(
    client: &Client,
    reporter: &Reporter,
    report: &NetworkReport,
) -> kube::Result<()> {
    let network = Api::<Network>::all(client.clone()).get_opt(&report.network).await?;
    let Some(network) = network else { return Ok(()) };
    let event = Event {
        type_: EventType::Warning,
        reason: marks::INFRA_CONFLICT.into(),
        note: Some(report.note.clone()),
        action: "Reach".into(),
        secondary: None,
    };
    let object = network.object_ref(&());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_told_of_a_conflict_with_infra_and_of_nothing_that_is_another_matter() {
        let conflict = Complaint::InfraConflict {
            network: "acme.default".into(),
            own: "10.244.0.0/16".parse().unwrap(),
            infra: "10.244.1.0/24".parse().unwrap(),
        };
        let report = NetworkReport::of(&conflict).unwrap();
        assert_eq!((report.network.as_str(), report.note), ("acme.default", conflict.to_string()));
        let other = Complaint::EgressContested { one: "a.b".into(), other: "a.c".into() };
        assert_eq!(NetworkReport::of(&other), None);
    }
}
