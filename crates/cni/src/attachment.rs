//! An interface of a container: what is asked of the agent, and what it answers.

use std::net::IpAddr;
use std::path::PathBuf;

use atoll_types::{Cidr, MacAddr, PodRef};
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

/// A pod's interfaces as they were made, the one that was asked for first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The interfaces.
    pub interfaces: Vec<AttachedInterface>,
    /// The largest packet.
    pub mtu: u32,
}

/// One interface of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedInterface {
    /// Its name inside the pod.
    pub name: String,
    /// The name of the host side.
    pub host_interface: String,
    /// The pod side's Ethernet address.
    pub mac: MacAddr,
    /// The pod's addresses on it.
    pub ips: Vec<IpAddr>,
    /// The ranges that the pod reaches through it; everything else, if none are named.
    pub routes: Vec<Cidr>,
}
