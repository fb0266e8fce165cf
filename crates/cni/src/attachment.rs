//! An interface of a container: what is asked of the agent, and what it answers.

use std::net::IpAddr;
use std::path::PathBuf;

use atoll_types::{MacAddr, PodRef};
use serde::{Deserialize, Serialize};

/// What names an attachment: a container and an interface inside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttachmentId {
    /// The container runtime's id of the sandbox.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// The interface's name inside the pod.
    #[serde(rename = "ifname")]
    pub interface: String,
}

/// A pod's interface to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentRequest {
    /// Its name.
    pub id: AttachmentId,
    /// The pod's network namespace.
    pub sandbox: PathBuf,
    /// The pod.
    pub pod: PodRef,
    /// The pod's UID, where the runtime says it.
    pub pod_uid: Option<String>,
}

/// A pod's interface as it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The name of the host side.
    pub host_interface: String,
    /// The pod side's Ethernet address.
    pub mac: MacAddr,
    /// The pod's addresses.
    pub ips: Vec<IpAddr>,
    /// The largest packet.
    pub mtu: u32,
}
