//! Taking objects away, each with all it made, told one by one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, DynamicObject, PatchParams, PropagationPolicy};
use kube::{Client, ResourceExt};

use super::manifests::NAMESPACE;
use super::progress::Patience;
use crate::target::{FIELD_MANAGER, Target, shown};

/// How long an object may take to go.
const LIMIT: Duration = Duration::from_secs(120);

/// What another version had.
pub(super) async fn delete(
    client: &Client,
    objects: &[DynamicObject],
    dry_run: bool,
) -> Result<()> {
    let params = PatchParams::apply(FIELD_MANAGER);
    let target = Target { client: client.clone(), namespace: NAMESPACE.into(), params };
    for object in objects {
        delete_one(&target, object, LIMIT, dry_run).await?;
    }
    Ok(())
}

/// Deletes it with all it made, and waits until it is gone.
pub(super) async fn delete_one(
    target: &Target,
    object: &DynamicObject,
    limit: Duration,
    dry_run: bool,
) -> Result<()> {
    let api = target.api(object).await?;
    let name = object.name_any();
    let cannot = || format!("cannot delete {}", shown(object));
    if api.get_opt(&name).await.with_context(cannot)?.is_none() {
        return Ok(());
    }
    if dry_run {
        println!("{} would be deleted", shown(object));
        return Ok(());
    }
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..DeleteParams::default()
    };
    match api.delete(&name, &params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        done => drop(done.with_context(cannot)?),
    }
    let patience = Patience::new(limit);
    while api.get_opt(&name).await?.is_some() {
        ensure!(!patience.is_over(), "{} is not gone after {limit:?}", shown(object));
        patience.pause().await;
    }
    println!("{} deleted", shown(object));
    Ok(())
}
