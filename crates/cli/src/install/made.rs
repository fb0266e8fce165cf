//! What controllers made beside our own kinds of objects. Nobody is left to take it away.
//!
//! The rule of this file: only what carries our mark and our name goes; what people made stays.

use anyhow::{Context, Result};
use atoll_api::marks;
use atoll_model::intent::{ObjectName, tenant_of_role};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DynamicObject, ListParams, TypeMeta};
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// The DNS pods of networks. A controller makes them again for networks that stay.
pub(super) async fn resolvers(client: &Client) -> Result<Vec<DynamicObject>> {
    marked::<Deployment>(client, marks::DNS_OF).await
}

/// What is left once no network is: the namespaces of DNS pods, and the roles of tenants.
pub(super) async fn rest(client: &Client) -> Result<Vec<DynamicObject>> {
    let mut rest = marked::<Namespace>(client, marks::DNS_OF).await?;
    let roles = marked::<ClusterRole>(client, marks::TENANT).await?;
    rest.extend(roles.into_iter().filter(|role| is_role_of_tenant(&role.name_any())));
    Ok(rest)
}

async fn marked<K>(client: &Client, mark: &str) -> Result<Vec<DynamicObject>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let everywhere: Api<K> = Api::all(client.clone());
    let found = everywhere.list_metadata(&ListParams::default().labels(mark)).await;
    let found = found.with_context(|| format!("cannot list {}", K::plural(&())))?;
    Ok(found.iter().map(name_only).collect())
}

fn name_only<K: Resource<DynamicType = ()>>(found: &PartialObjectMeta<K>) -> DynamicObject {
    let (name, namespace) = (Some(found.name_any()), found.namespace());
    DynamicObject {
        types: Some(TypeMeta::resource::<K>()),
        metadata: ObjectMeta { name, namespace, ..ObjectMeta::default() },
        data: serde_json::Value::Null,
    }
}

fn is_role_of_tenant(name: &str) -> bool {
    tenant_of_role(&ObjectName::cluster(name)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_that_somebody_else_marked_is_not_a_tenants() {
        assert!(is_role_of_tenant("atoll.tenant.acme"));
        assert!(!is_role_of_tenant("acme-people"));
        assert!(!is_role_of_tenant("atoll-admin"));
    }
}
