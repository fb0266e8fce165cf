//! What an installation consists of, kept beside its settings: by it the next version finds what it
//! has no longer.
//!
//! The rule of this file: definitions are never among what goes. With a definition goes everything
//! that people wrote.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::{DynamicObject, ObjectMeta, TypeMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::manifests::{SETTINGS, is_definition, kind};

/// The field of the settings that has it, as JSON.
pub(super) const FIELD: &str = "objects";

/// An object, as it is found again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    api_version: String,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
}

impl Item {
    fn of(object: &DynamicObject) -> Self {
        let types = object.types.clone().unwrap_or_default();
        let (namespace, name) = (object.namespace(), object.name_any());
        Item { api_version: types.api_version, kind: types.kind, namespace, name }
    }

    /// Another version of the API names the same object.
    fn is(&self, other: &Item) -> bool {
        let group = |item: &Item| match item.api_version.rsplit_once('/') {
            Some((group, _)) => group.to_owned(),
            None => String::new(),
        };
        let place = |item: &Item| (item.kind.clone(), item.namespace.clone(), item.name.clone());
        group(self) == group(other) && place(self) == place(other)
    }

    /// An object that can be deleted, and nothing else.
    fn named(&self) -> DynamicObject {
        let types = TypeMeta { api_version: self.api_version.clone(), kind: self.kind.clone() };
        let (namespace, name) = (self.namespace.clone(), Some(self.name.clone()));
        let metadata = ObjectMeta { name, namespace, ..ObjectMeta::default() };
        DynamicObject { types: Some(types), metadata, data: Value::Null }
    }
}

/// All objects of an installation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inventory(BTreeSet<Item>);

impl Inventory {
    pub(super) fn of(objects: &[DynamicObject]) -> Self {
        Inventory(objects.iter().filter(|it| !is_definition(it)).map(Item::of).collect())
    }

    pub(super) fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text).map(Inventory).context("it is no list of objects")
    }

    /// Both together.
    pub(super) fn and(&self, other: &Inventory) -> Inventory {
        Inventory(self.0.union(&other.0).cloned().collect())
    }

    /// What is not in the other one.
    pub(super) fn without(&self, other: &Inventory) -> Vec<DynamicObject> {
        let is_gone = |item: &&Item| !other.0.iter().any(|kept| kept.is(item));
        self.0.iter().filter(is_gone).map(Item::named).collect()
    }

    /// Writes it into the settings that are among the objects.
    pub(super) fn write_into(&self, objects: &mut [DynamicObject]) -> Result<()> {
        let is_settings =
            |it: &&mut DynamicObject| kind(it) == "ConfigMap" && it.name_any() == SETTINGS;
        let settings = objects.iter_mut().find(is_settings).context("there are no settings")?;
        settings.data["data"][FIELD] = serde_json::to_string(&self.0)?.into();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifests::installation;
    use super::super::settings::Settings;
    use super::*;

    fn object(api_version: &str, kind: &str, name: &str) -> DynamicObject {
        let item = Item {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: None,
            name: name.into(),
        };
        item.named()
    }

    fn names(objects: &[DynamicObject]) -> Vec<String> {
        objects.iter().map(ResourceExt::name_any).collect()
    }

    #[test]
    fn what_a_version_has_no_longer_is_found_and_another_version_of_the_api_is_the_same_object() {
        let old = Inventory::of(&[
            object("rbac.authorization.k8s.io/v1beta1", "ClusterRole", "atoll-agent"),
            object("rbac.authorization.k8s.io/v1beta1", "ClusterRole", "atoll-helper"),
            object("apps/v1", "DaemonSet", "atoll-agent"),
        ]);
        let new = Inventory::of(&[
            object("rbac.authorization.k8s.io/v1", "ClusterRole", "atoll-agent"),
            object("apps/v1", "DaemonSet", "atoll-agent"),
        ]);
        assert_eq!(names(&old.without(&new)), ["atoll-helper"]);
        assert_eq!(names(&new.without(&old)), Vec::<String>::new());
        assert_eq!(names(&old.and(&new).without(&new)), ["atoll-helper"]);
    }

    #[test]
    fn a_definition_is_never_among_what_goes() {
        let definition =
            object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "tenants.atoll.dev");
        let nothing = Inventory::default();
        assert_eq!(Inventory::of(&[definition]).without(&nothing), vec![]);
    }

    #[test]
    fn an_installation_carries_its_own_list_and_it_is_read_as_it_was_written() {
        let objects = installation(&Settings::default()).unwrap();
        let settings = objects.iter().find(|object| object.name_any() == SETTINGS).unwrap();
        let read = Inventory::read(settings.data["data"][FIELD].as_str().unwrap()).unwrap();
        assert_eq!(read, Inventory::of(&objects));
        assert!(names(&read.without(&Inventory::default())).contains(&"atoll-agent".to_owned()));
        let odd = Inventory::read("{}").unwrap_err();
        assert_eq!(odd.to_string(), "it is no list of objects");
    }
}
