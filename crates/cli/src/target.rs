//! Where objects go: a cluster that takes them by server-side apply, and what that did to each.

use anyhow::{Context, Result, anyhow};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, ResourceExt};

/// Who owns the fields that are applied.
pub(crate) const FIELD_MANAGER: &str = "atoll";

/// What applying did to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Created,
    Configured,
    Unchanged,
}

/// Where objects go.
pub(crate) struct Target {
    pub(crate) client: Client,
    /// The namespace of objects that name none.
    pub(crate) namespace: String,
    pub(crate) params: PatchParams,
}

impl Target {
    pub(crate) async fn apply(&self, object: &DynamicObject) -> Result<Outcome> {
        let shown = shown(object);
        let name = object.metadata.name.as_deref();
        let name = name.ok_or_else(|| anyhow!("{shown}: metadata.name is missing"))?;
        let api = self.api(object).await?;
        let context = || format!("cannot apply {shown}");
        let before = api.get_opt(name).await.with_context(context)?;
        let patch = Patch::Apply(object);
        let after = api.patch(name, &self.params, &patch).await.with_context(context)?;
        Ok(outcome(before, after))
    }

    pub(crate) async fn api(&self, object: &DynamicObject) -> Result<Api<DynamicObject>> {
        let (resource, scope) = self.resource(object).await?;
        Ok(match scope {
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            Scope::Namespaced => {
                let namespace = object.metadata.namespace.as_ref().unwrap_or(&self.namespace);
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
        })
    }

    async fn resource(&self, object: &DynamicObject) -> Result<(ApiResource, Scope)> {
        let types = object.types.as_ref().context("an object names no kind")?;
        let kind = GroupVersionKind::try_from(types)?;
        let found = pinned_kind(&self.client, &kind).await;
        let (resource, capabilities) = found.with_context(|| {
            format!("the cluster does not know {} of {}", types.kind, types.api_version)
        })?;
        Ok((resource, capabilities.scope))
    }
}

/// What changed, apart from who owns which field.
fn outcome(before: Option<DynamicObject>, after: DynamicObject) -> Outcome {
    let content = |mut object: DynamicObject| {
        object.metadata.managed_fields = None;
        object.metadata.resource_version = None;
        object
    };
    match before {
        None => Outcome::Created,
        Some(before) if content(before.clone()) == content(after) => Outcome::Unchanged,
        Some(_) => Outcome::Configured,
    }
}

/// `network.atoll.dev/acme.vpc-1`
pub(crate) fn shown(object: &DynamicObject) -> String {
    let types = object.types.clone().unwrap_or_default();
    let kind = types.kind.to_lowercase();
    match types.api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", object.name_any()),
        None => format!("{kind}/{}", object.name_any()),
    }
}

pub(crate) fn told(object: &DynamicObject, outcome: Outcome, dry_run: bool) -> String {
    let verb = match outcome {
        Outcome::Created => "created",
        Outcome::Configured => "configured",
        Outcome::Unchanged => "unchanged",
    };
    format!("{} {verb}{}", shown(object), if dry_run { " (dry run)" } else { "" })
}
