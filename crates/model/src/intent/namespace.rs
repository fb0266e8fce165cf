//! A namespace: which tenant owns it and which network its pods join.

use std::collections::BTreeMap;

use atoll_api::marks;
use k8s_openapi::api::core::v1 as core;

use super::Meta;

/// A namespace.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// Metadata.
    pub meta: Meta,
    /// The tenant that owns it, if one does.
    pub tenant: Option<String>,
    /// The network of its pods that name none.
    pub network: Option<String>,
}

impl From<&core::Namespace> for Namespace {
    fn from(namespace: &core::Namespace) -> Self {
        let labels = namespace.metadata.labels.as_ref();
        Namespace {
            meta: Meta::from(&namespace.metadata),
            tenant: mark(labels, marks::TENANT),
            network: mark(labels, marks::NETWORK),
        }
    }
}

/// The text of a label or annotation, if it is there and not empty.
pub(super) fn mark(marks: Option<&BTreeMap<String, String>>, name: &str) -> Option<String> {
    marks?.get(name).filter(|text| !text.is_empty()).cloned()
}
