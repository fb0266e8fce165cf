//! Which resources exist: the built-in kinds and every CustomResourceDefinition, each with its
//! versions, schema, printer columns and ways of being written. A snapshot is immutable; a changed
//! definition makes a new snapshot.

mod builtin;
mod crd;
mod openapi_types;

pub(crate) use crd::{CRDS, from_definition};
pub(crate) use openapi_types::components;

use crate::schema::Schema;
use crate::seeds;
use crate::store::Collection;
use crate::table::Column;
use atoll_convert::SeedVersion;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// How objects of a resource behave where kinds differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    /// A kind of Kubernetes itself: bad types are a bad request, defaults are ours.
    Builtin,
    /// A kind of a CustomResourceDefinition.
    Custom,
}

/// One resource, such as `pods` or `networks.atoll.dev`.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) nature: Nature,
    /// Whether its definition is being deleted: nothing new is taken then.
    pub(crate) terminating: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub(crate) counts_generations: bool,
    /// Where it is kept; two resources may be two views of one collection (events).
    pub(crate) collection: Collection,
    pub(crate) storage_version: String,
    /// Served versions, the preferred one first.
    pub(crate) versions: Vec<Version>,
    /// Set where this is another view of a collection that is kept as our networks.
    pub(crate) seed: Option<SeedVersion>,
}

/// One served version of a resource.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) schema: Schema,
    pub(crate) status_subresource: bool,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) columns: Vec<Column>,
    /// Dotted paths that field selectors may name, beside name and namespace.
    pub(crate) selectable: Vec<String>,
    pub(crate) deprecation: Option<String>,
}

/// Where a custom resource keeps what its `scale` subresource shows.
#[derive(Debug, Clone)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    pub(crate) selector: Option<String>,
}

impl Resource {
    pub(crate) fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The version objects are kept in; the first one when it is not served.
    pub(crate) fn storage(&self) -> &Version {
        self.version(&self.storage_version).unwrap_or(&self.versions[0])
    }

    /// `v1` or `group/v1`.
    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }
}

/// All resources at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    resources: BTreeMap<(String, String), Arc<Resource>>,
    /// Grows with each change; part of what makes cached discovery stale.
    pub(crate) serial: u64,
}

impl Snapshot {
    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&(group.to_owned(), plural.to_owned()))
    }

    /// Resources ordered by group and plural.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    pub(crate) fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = self.all().map(|r| r.group.as_str()).collect();
        groups.dedup();
        groups.sort_by_key(|group| seeds::is_seed_group(group));
        groups
    }

    /// The versions of a group, most stable and newest first.
    pub(crate) fn versions(&self, group: &str) -> Vec<&str> {
        let mut versions: Vec<&str> = self
            .all()
            .filter(|r| r.group == group)
            .flat_map(|r| r.versions.iter().map(|v| v.name.as_str()))
            .collect();
        versions.sort_by_key(|name| std::cmp::Reverse(version_rank(name)));
        versions.dedup();
        versions
    }

    /// The resources of one group and version.
    pub(crate) fn served(&self, group: &str, version: &str) -> Vec<(&Arc<Resource>, &Version)> {
        self.all()
            .filter(|resource| resource.group == group)
            .filter_map(|resource| Some((resource, resource.version(version)?)))
            .collect()
    }

    pub(crate) fn by_collection(&self, collection: &str) -> Option<&Arc<Resource>> {
        self.all().find(|resource| *resource.collection == *collection && resource.seed.is_none())
    }
}

/// Orders versions as Kubernetes does: v2 > v1 > v1beta2 > v1beta1 > v1alpha1 > others by name.
fn version_rank(name: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let other = (0, 0, 0, std::cmp::Reverse(name.to_owned()));
    let Some(rest) = name.strip_prefix('v') else { return other };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let Ok(major) = rest[..digits].parse() else { return other };
    let (stability, minor) = match &rest[digits..] {
        "" => (3, "0"),
        tail if tail.starts_with("beta") => (2, &tail[4..]),
        tail if tail.starts_with("alpha") => (1, &tail[5..]),
        _ => return other,
    };
    minor.parse().map_or(other, |minor| (stability, major, minor, std::cmp::Reverse(String::new())))
}

/// The current snapshot; clones share it.
#[derive(Clone)]
pub(crate) struct Registry {
    current: Arc<RwLock<Arc<Snapshot>>>,
}

impl Registry {
    /// The built-in kinds.
    pub(crate) fn with_builtins() -> Registry {
        let mut snapshot = Snapshot::default();
        for resource in builtin::resources() {
            snapshot.resources.insert(place(&resource), Arc::new(resource));
        }
        Registry { current: Arc::new(RwLock::new(Arc::new(snapshot))) }
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds or replaces a resource.
    pub(crate) fn insert(&self, resource: Resource) {
        self.change(|resources| {
            resources.insert(place(&resource), Arc::new(resource));
        });
    }

    pub(crate) fn remove(&self, group: &str, plural: &str) {
        self.change(|resources| {
            resources.remove(&(group.to_owned(), plural.to_owned()));
        });
    }

    fn change(&self, edit: impl FnOnce(&mut BTreeMap<(String, String), Arc<Resource>>)) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let mut resources = current.resources.clone();
        edit(&mut resources);
        *current = Arc::new(Snapshot { resources, serial: current.serial + 1 });
    }
}

fn place(resource: &Resource) -> (String, String) {
    (resource.group.clone(), resource.plural.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_before_beta_and_alpha() {
        let mut names = ["v1alpha1", "v1", "foo", "v2", "v1beta2", "v10", "v1beta1"];
        names.sort_by_key(|name| std::cmp::Reverse(version_rank(name)));
        assert_eq!(names, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo"]);
    }

    #[test]
    fn every_builtin_kind_has_a_schema_with_its_metadata() {
        let snapshot = Registry::with_builtins().snapshot();
        for resource in snapshot.all() {
            for version in &resource.versions {
                assert!(
                    version.schema.root_field("metadata").is_some(),
                    "{} {} has no metadata",
                    resource.plural,
                    version.name
                );
            }
        }
    }
}
