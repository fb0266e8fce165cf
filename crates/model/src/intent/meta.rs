//! What every object has: its name, its incarnation, its age, and whether it is being deleted.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

/// The kinds of objects that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `Tenant`
    Tenant,
    /// `Network`
    Network,
    /// `Subnet`
    Subnet,
    /// `Port`
    Port,
    /// `Claim`
    Claim,
    /// `Namespace`
    Namespace,
    /// `Pod`
    Pod,
    /// `Service`
    Service,
    /// `ClusterRole`
    ClusterRole,
    /// `AddressPool`
    AddressPool,
    /// `Node`
    Node,
    /// `NetworkType`
    NetworkType,
    /// `EndpointSlice`
    EndpointSlice,
}

/// An object's name, with its namespace where it has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// The namespace; empty for objects of the whole cluster.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectName {
    /// An object of the whole cluster.
    pub fn cluster(name: impl Into<String>) -> Self {
        ObjectName { namespace: String::new(), name: name.into() }
    }

    /// An object inside a namespace.
    pub fn inside(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        ObjectName { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An object's metadata, as far as decisions need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The name.
    pub name: ObjectName,
    /// The incarnation: an object of the same name made later has another.
    pub uid: String,
    /// The version of the object; larger is newer. Zero where the API's text is no number.
    pub revision: u64,
    /// The version of its spec.
    pub generation: Option<i64>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What has to happen before it may go.
    pub finalizers: Vec<String>,
}

impl Meta {
    /// Whether our finalizer is on the object.
    pub fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == atoll_api::FINALIZER)
    }

    /// Oldest first; the name decides between equals.
    pub fn age_order(&self) -> (Option<Timestamp>, &ObjectName) {
        (self.created, &self.name)
    }
}

impl From<&ObjectMeta> for Meta {
    fn from(meta: &ObjectMeta) -> Self {
        Meta {
            name: ObjectName {
                namespace: meta.namespace.clone().unwrap_or_default(),
                name: meta.name.clone().unwrap_or_default(),
            },
            uid: meta.uid.clone().unwrap_or_default(),
            revision: meta
                .resource_version
                .as_deref()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
            generation: meta.generation,
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_no_number_is_taken_as_unknown() {
        let version = |text: &str| ObjectMeta {
            resource_version: Some(text.to_owned()),
            ..ObjectMeta::default()
        };
        assert_eq!(Meta::from(&version("41")).revision, 41);
        assert_eq!(Meta::from(&version("forty-one")).revision, 0);
    }

    #[test]
    fn names_are_written_as_kubectl_users_write_them() {
        assert_eq!(ObjectName::cluster("acme").to_string(), "acme");
        assert_eq!(ObjectName::inside("shop", "web").to_string(), "shop/web");
    }
}
