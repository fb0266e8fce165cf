//! The world as the oracle sees it: lists of what there is, with nothing worked out beforehand.

use std::collections::BTreeMap;
use std::net::IpAddr;

use atoll_types::NetAddr;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::Value;

/// A namespace of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Namespace {
    /// The tenant that owns it.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// A pod of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// The tenant that owns it.
    pub tenant: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its named ports: name, protocol, number.
    pub ports: Vec<(String, String, u16)>,
    /// Its addresses, each with the name of the network it is in.
    pub addresses: Vec<(String, NetAddr)>,
    /// The node it runs on.
    pub node: String,
    /// Whether it uses its node's network.
    pub host_network: bool,
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
}

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct World {
    /// All namespaces.
    pub namespaces: Vec<Namespace>,
    /// All pods.
    pub pods: Vec<Pod>,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// All `NetworkPolicy` objects, each with its tenant.
    pub policies: Vec<(String, NetworkPolicy)>,
    /// All `ClusterNetworkPolicy` objects, as they were written.
    pub cluster_policies: Vec<Value>,
}

impl World {
    /// The labels of a namespace of a tenant.
    pub(crate) fn namespace_labels(
        &self,
        tenant: &str,
        name: &str,
    ) -> Option<&BTreeMap<String, String>> {
        let mut of_name = self.namespaces.iter().filter(|n| n.tenant == tenant && n.name == name);
        of_name.next().map(|namespace| &namespace.labels)
    }

    /// The pod at an address with the name of its network there, if there is exactly one.
    pub(crate) fn pod_at(&self, address: NetAddr) -> Option<(&Pod, &str)> {
        let mut at: Vec<(&Pod, &str)> = Vec::new();
        for pod in self.pods.iter().filter(|pod| !pod.host_network) {
            for (network, own) in &pod.addresses {
                if *own == address && !at.iter().any(|(known, _)| std::ptr::eq(*known, pod)) {
                    at.push((pod, network));
                }
            }
        }
        let only = at.first().filter(|_| at.len() == 1).copied()?;
        self.namespace_labels(&only.0.tenant, &only.0.namespace).map(|_| only)
    }
}
