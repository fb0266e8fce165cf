//! One namespace of a tenant, as far as it was listed.

use std::collections::{BTreeMap, BTreeSet};

use atoll_policy::{Labels, PolicyKey};
use atoll_types::Label;

use super::SeenPod;
use crate::seen::Delta;

/// What was seen of a ward.
#[derive(Debug)]
pub(super) struct WardSeen {
    pub(super) tenant: Label,
    pub(super) labels: Labels,
    pub(super) is_ending: bool,
    /// It was being deleted when it was first seen: which policies it had, nobody can tell.
    began_ending: bool,
    /// The pods; `None` until they were listed once.
    pub(super) pods: Option<BTreeMap<String, SeenPod>>,
    /// The policies, likewise.
    pub(super) policies: Option<BTreeMap<String, PolicyKey>>,
    /// The pods that the compiler was told of.
    pub(super) told: BTreeSet<String>,
}

impl WardSeen {
    /// A ward of which nothing was listed.
    pub(super) fn begin(tenant: &Label, is_ending: bool) -> Self {
        WardSeen {
            tenant: tenant.clone(),
            labels: Labels::new(),
            is_ending: false,
            began_ending: is_ending,
            pods: None,
            policies: None,
            told: BTreeSet::new(),
        }
    }

    /// Whether its pods and policies have been listed once.
    pub(super) fn is_listed(&self) -> bool {
        self.pods.is_some() && self.policies.is_some()
    }

    /// A pod, once every policy of the ward is known.
    pub(super) fn tellable(&self, pod: &str) -> Option<&SeenPod> {
        let seen = self.pods.as_ref()?.get(pod)?;
        (self.policies.is_some() && !self.began_ending).then_some(seen)
    }

    /// Takes pods in, and names those that are other than before.
    pub(super) fn absorb_pods(&mut self, delta: &Delta<String, SeenPod>) -> BTreeSet<String> {
        match (delta, &mut self.pods) {
            (Delta::All(all), known) => {
                let before = known.replace(all.clone()).unwrap_or_default();
                let names = before.keys().chain(all.keys());
                names.filter(|name| before.get(*name) != all.get(*name)).cloned().collect()
            }
            (Delta::Put(name, pod), Some(known)) => {
                let before = known.insert(name.clone(), pod.clone());
                (before.as_ref() != Some(pod)).then(|| name.clone()).into_iter().collect()
            }
            (Delta::Gone(name), Some(known)) => {
                known.remove(name).map(|_| name.clone()).into_iter().collect()
            }
            (Delta::Put(..) | Delta::Gone(_), None) => BTreeSet::new(),
        }
    }
}
