//! The addresses of pods, as their ports tell them.
//!
//! The rule of this file: a port is a pod's by name and by UID. A pod that has the name of one
//! before it has none of its addresses.

use std::collections::{BTreeMap, BTreeSet};

use atoll_model::compile::PlacedPort;
use atoll_policy::{Interface, Pod};
use atoll_types::{Label, NetAddr, NetworkId, NetworkName, PodRef};

use super::SeenPod;
use crate::seen::{Delta, PortKey};

/// A port, as policy needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    pod: PodRef,
    uid: String,
    interface: Interface,
}

/// The ports of the networks that are present here, by network and by pod.
#[derive(Debug, Default)]
pub(super) struct Ends {
    networks: BTreeMap<NetworkId, BTreeMap<PortKey, End>>,
    of_pods: BTreeMap<PodRef, BTreeSet<(NetworkId, PortKey)>>,
}

impl Ends {
    /// Keeps these networks alone, and names the pods that lost something.
    pub(super) fn keep(&mut self, present: &BTreeSet<NetworkId>) -> BTreeSet<PodRef> {
        let left: Vec<NetworkId> =
            self.networks.keys().filter(|network| !present.contains(*network)).copied().collect();
        let mut changed = BTreeSet::new();
        for network in left {
            changed.extend(self.absorb(network, &Delta::All(BTreeMap::new())));
            self.networks.remove(&network);
        }
        changed
    }

    /// Takes ports in, and names the pods whose addresses may be others.
    pub(super) fn absorb(
        &mut self,
        network: NetworkId,
        delta: &Delta<PortKey, PlacedPort>,
    ) -> BTreeSet<PodRef> {
        match delta {
            Delta::All(all) => {
                let known = self.networks.entry(network).or_default();
                let gone: Vec<_> =
                    known.keys().filter(|key| !all.contains_key(*key)).cloned().collect();
                let put = all.iter().flat_map(|(key, port)| self.put(network, key, port));
                let mut changed: BTreeSet<PodRef> = put.collect();
                changed.extend(gone.iter().filter_map(|key| self.remove(network, key)));
                changed
            }
            Delta::Put(key, port) => self.put(network, key, port).into_iter().collect(),
            Delta::Gone(key) => self.remove(network, key).into_iter().collect(),
        }
    }

    /// The pod with its interfaces.
    pub(super) fn attach(&self, name: &PodRef, seen: &SeenPod) -> Pod {
        let ports = self.of_pods.get(name).into_iter().flatten();
        let ends = ports.filter_map(|(network, key)| self.networks.get(network)?.get(key));
        let own = ends.filter(|end| end.uid == seen.uid);
        Pod { interfaces: own.map(|end| end.interface.clone()).collect(), ..seen.pod.clone() }
    }

    /// The pods of a namespace that have ports here.
    pub(super) fn pods_in(&self, namespace: &str) -> impl Iterator<Item = &PodRef> {
        let first = PodRef::new(namespace, "");
        let from_here = self.of_pods.range(first..).map(|(pod, _)| pod);
        from_here.take_while(move |pod| pod.namespace == namespace)
    }

    /// The addresses of a pod, whichever of those that had its name it is.
    pub(super) fn addresses_of(&self, pod: &PodRef) -> BTreeSet<NetAddr> {
        let ports = self.of_pods.get(pod).into_iter().flatten();
        let ends = ports.filter_map(|(network, key)| self.networks.get(network)?.get(key));
        ends.flat_map(|end| end.interface.addresses()).collect()
    }

    fn put(&mut self, network: NetworkId, key: &PortKey, port: &PlacedPort) -> Vec<PodRef> {
        let Some(end) = end(port) else {
            return self.remove(network, key).into_iter().collect();
        };
        let known = self.networks.entry(network).or_default();
        if known.get(key) == Some(&end) {
            return vec![];
        }
        let before = self.remove(network, key);
        let pod = end.pod.clone();
        self.networks.entry(network).or_default().insert(key.clone(), end);
        self.of_pods.entry(pod.clone()).or_default().insert((network, key.clone()));
        before.into_iter().chain([pod]).collect()
    }

    fn remove(&mut self, network: NetworkId, key: &PortKey) -> Option<PodRef> {
        let end = self.networks.get_mut(&network)?.remove(key)?;
        if let Some(ports) = self.of_pods.get_mut(&end.pod) {
            ports.remove(&(network, key.clone()));
            if ports.is_empty() {
                self.of_pods.remove(&end.pod);
            }
        }
        Some(end.pod)
    }
}

/// A port whose network has no proper name is nobody's.
fn end(port: &PlacedPort) -> Option<End> {
    let network: Label = port.network_name.parse::<NetworkName>().ok()?.network;
    let ips = port.ips.iter().copied().collect();
    let interface = Interface { network, id: port.network, ips };
    Some(End { pod: port.pod.clone(), uid: port.pod_uid.clone(), interface })
}
