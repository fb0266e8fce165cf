//! The schemas of the built-in types, taken from the Rust types generated from Kubernetes' own
//! OpenAPI document, so that field names and types are never typed by hand.

use crate::schema::{Definitions, Node, annotate};
use k8s_openapi::api::{apps, coordination, core, discovery, events, networking, rbac};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// All definitions as OpenAPI 3 components; made anew on each call, for they are large.
pub(crate) fn components() -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    generator.subschema_for::<core::v1::Namespace>();
    generator.subschema_for::<core::v1::Node>();
    generator.subschema_for::<core::v1::Pod>();
    generator.subschema_for::<core::v1::Binding>();
    generator.subschema_for::<core::v1::Service>();
    generator.subschema_for::<core::v1::Endpoints>();
    generator.subschema_for::<core::v1::ConfigMap>();
    generator.subschema_for::<core::v1::Secret>();
    generator.subschema_for::<core::v1::ServiceAccount>();
    generator.subschema_for::<core::v1::Event>();
    generator.subschema_for::<events::v1::Event>();
    generator.subschema_for::<discovery::v1::EndpointSlice>();
    generator.subschema_for::<coordination::v1::Lease>();
    generator.subschema_for::<networking::v1::NetworkPolicy>();
    generator.subschema_for::<rbac::v1::ClusterRole>();
    generator.subschema_for::<apps::v1::Deployment>();
    generator.subschema_for::<apps::v1::ReplicaSet>();
    generator.subschema_for::<apps::v1::StatefulSet>();
    generator.subschema_for::<apps::v1::DaemonSet>();
    generator.subschema_for::<apiextensions::v1::CustomResourceDefinition>();
    generator.take_definitions(true)
}

/// The same, parsed and completed with how lists merge.
pub(super) fn definitions() -> Definitions {
    let mut definitions: Definitions = components()
        .iter()
        .map(|(name, raw)| (name.clone(), Node::parse(raw).unwrap_or_default()))
        .collect();
    annotate(&mut definitions);
    definitions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ListType;

    #[test]
    fn containers_of_a_pod_are_merged_by_name() {
        let definitions = definitions();
        let containers = &definitions["io.k8s.api.core.v1.PodSpec"].properties["containers"];
        assert_eq!(containers.list_type, ListType::Map(vec!["name".to_owned()]));
        assert_eq!(containers.patch_key.as_deref(), Some("name"));
    }

    #[test]
    fn every_builtin_schema_can_be_parsed() {
        for (name, raw) in components() {
            Node::parse(&raw).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
