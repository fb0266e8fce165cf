//! Where the pods of one network live in it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_types::PodRef;

use super::slice::Who;
use crate::compile::PlacedPort;

/// A namespaced object by namespace and name.
pub(super) type ObjectKey = (String, String);

/// One interface of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Home {
    pod: PodRef,
    ips: Vec<IpAddr>,
    node: Option<String>,
}

impl From<&PlacedPort> for Home {
    fn from(port: &PlacedPort) -> Self {
        Home { pod: port.pod.clone(), ips: port.ips.clone(), node: port.node.clone() }
    }
}

impl Home {
    fn who(&self) -> impl Iterator<Item = Who> + '_ {
        let pod = std::iter::once(Who::Pod(self.pod.clone()));
        pod.chain(self.ips.iter().map(|ip| Who::Address(*ip)))
    }
}

/// The interfaces of a network's pods, found by pod and by address.
#[derive(Debug, Default)]
pub(super) struct Homes {
    ports: BTreeMap<ObjectKey, Home>,
    found: BTreeMap<Who, BTreeSet<ObjectKey>>,
    /// How many are on each node, or on none yet.
    at: BTreeMap<Option<String>, usize>,
}

impl Homes {
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.ports.keys()
    }

    /// The port is this one's home, or nobody's. Says about whom something changed.
    pub(super) fn put(&mut self, key: &ObjectKey, home: Option<Home>) -> BTreeSet<Who> {
        if self.ports.get(key) == home.as_ref() {
            return BTreeSet::new();
        }
        let mut changed = BTreeSet::new();
        if let Some(former) = self.ports.remove(key) {
            self.leave(&former.node);
            for who in former.who() {
                self.lose(&who, key);
                changed.insert(who);
            }
        }
        if let Some(home) = home {
            for who in home.who() {
                self.found.entry(who.clone()).or_default().insert(key.clone());
                changed.insert(who);
            }
            *self.at.entry(home.node.clone()).or_default() += 1;
            self.ports.insert(key.clone(), home);
        }
        let neighbours = self.pods_at(&changed);
        changed.extend(neighbours);
        changed
    }

    /// The pods that have any of these addresses: whoever shares one is found or not found as the
    /// other comes and goes.
    fn pods_at(&self, whom: &BTreeSet<Who>) -> BTreeSet<Who> {
        let keys = whom.iter().filter_map(|who| self.found.get(who)).flatten();
        let homes = keys.filter_map(|key| self.ports.get(key));
        homes.map(|home| Who::Pod(home.pod.clone())).collect()
    }

    fn leave(&mut self, node: &Option<String>) {
        let Some(count) = self.at.get_mut(node) else { return };
        *count -= 1;
        if *count == 0 {
            self.at.remove(node);
        }
    }

    /// Whether any pod is not on this node, or may not be.
    pub(super) fn is_beyond(&self, node: &str) -> bool {
        self.at.keys().any(|at| at.as_deref() != Some(node))
    }

    fn lose(&mut self, who: &Who, key: &ObjectKey) {
        let Some(keys) = self.found.get_mut(who) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.found.remove(who);
        }
    }

    pub(super) fn has_address(&self, ip: IpAddr) -> bool {
        self.found.contains_key(&Who::Address(ip))
    }

    /// The addresses of one family at which `who` is found, each with its node. An address that
    /// two ports have is nobody's.
    pub(super) fn find(&self, who: &Who, v4: bool) -> Vec<(IpAddr, Option<&str>)> {
        let keys = self.found.get(who).into_iter().flatten();
        let homes = keys.filter_map(|key| self.ports.get(key));
        let of_home = |home: &'_ Home| -> Vec<IpAddr> {
            match who {
                Who::Pod(_) => home.ips.clone(),
                Who::Address(ip) => vec![*ip],
            }
        };
        let all = homes.flat_map(|home| {
            of_home(home).into_iter().map(|ip| (ip, home.node.as_deref())).collect::<Vec<_>>()
        });
        all.filter(|(ip, _)| ip.is_ipv4() == v4 && self.is_of_one(*ip)).collect()
    }

    fn is_of_one(&self, ip: IpAddr) -> bool {
        self.found.get(&Who::Address(ip)).is_some_and(|keys| keys.len() == 1)
    }
}
