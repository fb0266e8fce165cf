//! Who asks, and so which view is answered.

use std::net::SocketAddr;

/// A network, by a number that is its own on this node. Networks of one VPC share what the datapath
/// knows them by, and still have names of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkKey(pub u64);

/// A pod, by a number that is its own on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PodId(pub u64);

/// A tenant, by a number that is its own on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TenantId(pub u64);

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The network whose names are answered: the pod's primary one.
    pub network: NetworkKey,
    /// The pod.
    pub pod: PodId,
    /// The tenant that the pod belongs to.
    pub tenant: TenantId,
}

/// Knows who asks by where the question came from. It is called for every question, so it must
/// neither wait nor allocate.
pub trait Askers: Send + Sync + 'static {
    /// Who asks from this address; nobody where it is not known.
    fn asker(&self, from: SocketAddr) -> Option<Asker>;
}

impl<F: Fn(SocketAddr) -> Option<Asker> + Send + Sync + 'static> Askers for F {
    fn asker(&self, from: SocketAddr) -> Option<Asker> {
        self(from)
    }
}
