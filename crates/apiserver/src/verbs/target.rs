//! What a request is about: a resource in a version, a namespace, a name, a subresource.

use crate::failure::{About, Failure};
use crate::registry::{Resource, Snapshot, Version};
use crate::store::{Key, Stored};
use std::sync::Arc;

/// A resource path that names something that exists in the registry.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    version: usize,
    /// Empty for cluster-wide resources and requests over all namespaces.
    pub(crate) namespace: String,
    /// Empty for collections.
    pub(crate) name: String,
    pub(crate) subresource: Option<String>,
    /// The namespace as it was when the request came, where there is one.
    pub(crate) home: Option<Arc<Stored>>,
}

impl Target {
    /// Finds the resource; `NotFound` when group, version, plural or scope do not fit.
    pub(crate) fn find(
        snapshot: &Snapshot,
        group: &str,
        version: &str,
        plural: &str,
        namespace: Option<&str>,
    ) -> Result<Target, Failure> {
        let resource = snapshot.find(group, plural).ok_or_else(Failure::no_such_path)?;
        let version = resource.versions.iter().position(|known| known.name == version);
        if namespace.is_some() && !resource.namespaced {
            return Err(Failure::no_such_path());
        }
        Ok(Target {
            resource: Arc::clone(resource),
            version: version.ok_or_else(Failure::no_such_path)?,
            namespace: namespace.unwrap_or("").to_owned(),
            name: String::new(),
            subresource: None,
            home: None,
        })
    }

    /// The object of a resource in its storage version, for work of the server itself.
    pub(crate) fn stored(resource: &Arc<Resource>, key: &Key) -> Target {
        let storage = &resource.storage_version;
        Target {
            resource: Arc::clone(resource),
            version: resource.versions.iter().position(|v| v.name == *storage).unwrap_or(0),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            subresource: None,
            home: None,
        }
    }

    pub(crate) fn named(mut self, name: &str) -> Target {
        self.name = name.to_owned();
        self
    }

    pub(crate) fn in_namespace(mut self, namespace: &str) -> Target {
        self.namespace = namespace.to_owned();
        self
    }

    /// The object itself instead of a subresource.
    pub(crate) fn whole(mut self) -> Target {
        self.subresource = None;
        self
    }

    pub(crate) fn version(&self) -> &Version {
        &self.resource.versions[self.version]
    }

    pub(crate) fn api_version(&self) -> String {
        self.resource.api_version(&self.version().name)
    }

    pub(crate) fn key(&self) -> Key {
        self.key_of(&self.name)
    }

    pub(crate) fn key_of(&self, name: &str) -> Key {
        Key {
            collection: Arc::clone(&self.resource.collection),
            namespace: self.namespace.clone(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn is_status(&self) -> bool {
        self.subresource.as_deref() == Some("status")
    }

    pub(crate) fn is_core(&self, plural: &str) -> bool {
        self.resource.group.is_empty() && self.resource.plural == plural
    }

    /// For failures about a resource by its plural.
    pub(crate) fn about(&self) -> About<'_> {
        About { group: &self.resource.group, kind: &self.resource.plural, name: &self.name }
    }

    /// For failures about an object's content.
    pub(crate) fn about_kind<'a>(&'a self, name: &'a str) -> About<'a> {
        About { group: &self.resource.group, kind: &self.resource.kind, name }
    }
}
