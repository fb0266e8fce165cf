//! What plugin and agent say to each other: one JSON line each way over a unix socket that only
//! root may open. Whoever listens to events says one line and is told many, until either side goes
//! away.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Attached, AttachmentId, AttachmentRequest, CniError, ErrorCode, EventFilter, EventReport,
};
use atoll_types::PodRef;

/// What a caller of the agent says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Call {
    /// Wants to listen.
    Listen(Listen),
    /// Tells of links.
    Made(Made),
    /// Wants one answer.
    Ask(AgentRequest),
}

/// A wish to be told what happens to packets, from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listen {
    /// Of what.
    pub observe: EventFilter,
}

/// The links of the node that another plugin has made for a pod of no tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    /// Their names.
    pub plain_links: Vec<String>,
}

/// What a listener is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Word {
    /// Listening begins: what happens from now on is told.
    Listening,
    /// Something happened to a packet.
    Happened(Box<EventReport>),
    /// So many events found no room on their way.
    Missed(u64),
    /// It cannot be told.
    Failed(CniError),
}

/// A question to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AgentRequest {
    /// Make this interface.
    Add(AttachmentRequest),
    /// Is this interface as it was made?
    Check(AttachmentId),
    /// Remove this interface.
    Del(AttachmentId),
    /// Remove every interface but these.
    Gc(Vec<AttachmentId>),
    /// Can you take containers?
    Status,
    /// What has been dropped so far?
    Drops,
    /// What has each pod sent and received so far?
    Traffic,
    /// What would this pod be told about this name?
    Name(NameQuestion),
}

/// A name that a pod may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NameQuestion {
    /// The pod.
    pub pod: PodRef,
    /// The name, as a program in the pod would write it.
    pub name: String,
    /// The type of records, like `A`.
    pub kind: String,
}

/// The agent's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AgentReply {
    /// The interface is there.
    Attached(Attached),
    /// It is so.
    Done,
    /// It is no pod of a tenant, or no interface that the agent ever made.
    NotOurs,
    /// The drop counters.
    Drops(Vec<DropReport>),
    /// What pods have sent and received.
    Traffic(Vec<TrafficReport>),
    /// What a pod would be told about a name.
    Name(NameReport),
    /// It could not be done.
    Failed(CniError),
}

/// What a pod would be told about a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NameReport {
    /// The object name of the network whose names the pod is answered with.
    pub network: String,
    /// The names that are asked for in turn, by the search list of a stock pod.
    pub tries: Vec<NameTry>,
}

/// One name that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NameTry {
    /// The whole name.
    pub name: String,
    /// What the network says, in a sentence.
    pub outcome: String,
    /// The records, where there are any.
    pub records: Vec<String>,
}

/// How many packets of a network were dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DropReport {
    /// The network's object name, or its number where the node no longer has it.
    pub network: Option<String>,
    /// The reason's stable name.
    pub reason: String,
    /// What the reason means, in a sentence.
    pub meaning: String,
    /// Packets dropped.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What one interface of a pod has sent and received since it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficReport {
    /// The pod; none where the agent does not know it yet.
    pub pod: Option<PodRef>,
    /// The name of the interface's host side.
    pub interface: String,
    /// The network's object name, or its number where the agent does not know it yet.
    pub network: String,
    /// What it sent, and was let through.
    pub sent: Volume,
    /// What it received.
    pub received: Volume,
    /// What it sent, and was dropped.
    pub dropped: Volume,
}

/// So many packets, and their bytes from the Ethernet header on. A batch that the kernel had not yet cut
/// into packets is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// How long the agent may take. Longer than it waits for a pod's port, shorter than a runtime's
/// own patience.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks the agent at `socket`.
pub fn ask(socket: &Path, request: &AgentRequest) -> Result<AgentReply, CniError> {
    call(socket, request)
}

/// Tells the agent at `socket` of links; it answers when pods behind them are served.
pub fn tell_made(socket: &Path, made: &Made) -> Result<AgentReply, CniError> {
    call(socket, made)
}

fn call(socket: &Path, request: &impl Serialize) -> Result<AgentReply, CniError> {
    exchange(socket, request).map_err(|error| {
        CniError::new(
            ErrorCode::TryAgainLater,
            format!(
                "cannot reach the atoll agent at {}; is it running on this node?",
                socket.display()
            ),
        )
        .because(error)
    })
}

fn exchange(socket: &Path, request: &impl Serialize) -> std::io::Result<AgentReply> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_who_tells_and_who_listens_are_told_apart() {
        let all = [
            Call::Ask(AgentRequest::Drops),
            Call::Ask(AgentRequest::Traffic),
            Call::Ask(AgentRequest::Gc(vec![])),
            Call::Listen(Listen { observe: EventFilter::default() }),
            Call::Made(Made { plain_links: vec!["veth1".to_owned()] }),
        ];
        for call in all {
            let line = serde_json::to_string(&call).unwrap();
            assert_eq!(serde_json::from_str::<Call>(&line).unwrap(), call, "{line}");
        }
        assert!(serde_json::from_str::<Call>(r#"{"sing": {}}"#).is_err());
    }
}
