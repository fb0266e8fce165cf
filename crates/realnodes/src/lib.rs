//! A real Kubernetes on one machine, for tests: unmodified etcd, API server, controller manager,
//! scheduler, and per node kubelet, containerd and runc, each node a box of namespaces with all
//! standard paths. There is no kube-proxy and no CNI plugin: bringing one is the test's subject.
//!
//! The rules of this crate: nothing touches the host's network but one port on its loopback;
//! everything made is found again by the cluster's name alone, so that [`Cluster::down`] also
//! removes what a crash left.

mod certificates;
mod cgroups;
mod cluster;
mod control_plane;
mod down;
mod fabric;
mod forward;
mod home;
mod namespace;
mod node;
mod patience;
mod processes;
mod reference;
mod store;
mod traces;
mod up;

pub use cluster::Cluster;
pub use fabric::Node;
pub use forward::serve as serve_forwarder;
pub use node::{boot as boot_node, init as init_node};
pub use patience::wait_until;
pub use reference::BRIDGE_CONFIGURATION;
pub use up::UpOptions;
