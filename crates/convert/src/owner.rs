//! Whose a manifest is. Who names a tenant belongs to it; the others belong to the tenant that was
//! asked for, else to the tenant of their namespace, else to `default`.

use std::collections::BTreeMap;

use atoll_api::marks;
use atoll_types::{Cidr, Label};
use serde_json::Value;

use crate::finding::{Findings, Wrong};

/// The tenant of whoever names none and is in no tenant's namespace.
pub const DEFAULT_TENANT: &str = "default";

/// The range of a vpc network that names none.
const DEFAULT_CIDR: &str = "10.0.0.0/16";

/// What the manifests themselves do not say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tenant of manifests that name none.
    pub tenant: Option<Label>,
    /// The range of vpc networks that name none.
    pub default_cidr: Cidr,
    /// The namespace of objects that name none, where it is known.
    pub namespace: Option<String>,
    /// The namespaces that are known, with the tenants that own them.
    pub namespaces: BTreeMap<String, Option<String>>,
    /// The networks that exist, by their full names, with their ranges, which they keep.
    pub networks: BTreeMap<String, Vec<String>>,
    /// Whether a namespace that asks for a network and names no tenant is given to one.
    pub adopts_namespaces: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            tenant: None,
            default_cidr: DEFAULT_CIDR.parse().expect("a constant range"),
            namespace: None,
            namespaces: BTreeMap::new(),
            networks: BTreeMap::new(),
            adopts_namespaces: true,
        }
    }
}

/// Whose a manifest is, and who says so.
pub(crate) struct Owner {
    pub(crate) tenant: Label,
    /// Why it is this tenant, where the manifest does not name it.
    pub(crate) because: Option<String>,
}

impl Settings {
    /// The owner of a manifest that names no tenant.
    pub(crate) fn unnamed_owner(&self, namespace: Option<&str>) -> Owner {
        let guess = |tenant: Label, because: String| Owner { tenant, because: Some(because) };
        if let Some(tenant) = &self.tenant {
            return guess(tenant.clone(), "the tenant asked for".to_owned());
        }
        if let Some((namespace, tenant)) = namespace.and_then(|name| self.owner_of(name)) {
            return guess(tenant, format!("the tenant of namespace {namespace}"));
        }
        let tenant = DEFAULT_TENANT.parse().expect("a constant name");
        guess(tenant, "nothing names a tenant".to_owned())
    }

    fn owner_of<'a>(&self, namespace: &'a str) -> Option<(&'a str, Label)> {
        let tenant = self.namespaces.get(namespace)?.as_deref()?;
        Some((namespace, tenant.parse().ok()?))
    }

    /// Drops the tenant from the metadata at `path`; in a known namespace it must be its owner.
    pub(crate) fn drop_tenant(
        &self,
        metadata: &Value,
        namespace: Option<&str>,
        path: &[&'static str],
        findings: &mut Findings,
    ) -> Result<(), Wrong> {
        let field = path.join(".");
        let Some(tenant) = named_tenant(metadata, &field)? else { return Ok(()) };
        findings.remove(path);
        let Some(namespace) = namespace else {
            findings.note(format!(
                "{field} {tenant} is dropped: the tenant that owns the namespace owns what is in it"
            ));
            return Ok(());
        };
        match self.namespaces.get(namespace) {
            Some(Some(owner)) if owner == tenant.as_str() => {
                findings.note(format!(
                    "{field} {tenant} is dropped: it owns namespace {namespace} already"
                ));
                Ok(())
            }
            Some(owner) => Err(contradicts(&field, &tenant, namespace, owner.as_deref())),
            None => {
                findings.note(format!(
                    "{field} {tenant} is dropped: namespace {namespace} must carry the label {}={tenant}",
                    marks::TENANT
                ));
                Ok(())
            }
        }
    }
}

fn contradicts(field: &str, tenant: &Label, namespace: &str, owner: Option<&str>) -> Wrong {
    let belongs = owner.map_or_else(|| "no tenant".to_owned(), |owner| format!("tenant {owner}"));
    Wrong::new(
        field,
        format!(
            "is {tenant}, but namespace {namespace} belongs to {belongs}; use a namespace with the \
             label {}={tenant}",
            marks::TENANT
        ),
    )
}

/// `tenant` of some metadata.
pub(crate) fn named_tenant(metadata: &Value, field: &str) -> Result<Option<Label>, Wrong> {
    name(&metadata["tenant"], field)
}

/// A field that holds a name, if it is there and says anything.
pub(crate) fn name(value: &Value, field: &str) -> Result<Option<Label>, Wrong> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.is_empty() => Ok(None),
        Value::String(text) => {
            text.parse::<Label>().map(Some).map_err(|error| Wrong::new(field, error.to_string()))
        }
        other => Err(Wrong::new(field, not_text(other))),
    }
}

/// YAML takes words such as `n` and `on`, and digits, for something else than names.
pub(crate) fn not_text(value: &Value) -> String {
    let hint = if value.is_boolean() || value.is_number() { "; put it in quotes" } else { "" };
    format!("{value} is not a name{hint}")
}
