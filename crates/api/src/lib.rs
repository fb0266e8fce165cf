//! The Kubernetes objects of Atoll: group `atoll.dev`, version `v1alpha1`.
//!
//! The rule of this crate: what one object can show to be wrong is refused by its schema and its
//! CEL rules, before anything of ours sees it. Labels, annotations, condition types and reasons
//! have their one spelling here. [`crds`] is what `deploy/crds/` is written from.

#![allow(
    unreachable_pub,
    reason = "KubeSchema's expansion repeats each struct inside a private scope"
)]
#![allow(clippy::duplicated_attributes, reason = "printer columns of one kind share their type")]

mod address_pool;
mod claim;
mod cluster_network_policy;
mod condition;
mod network;
mod network_type;
mod port;
mod subnet;
mod tenant;

/// Labels and annotations on objects that are not ours.
pub mod marks;

pub use address_pool::{AddressPool, AddressPoolSpec, AddressPoolStatus};
pub use claim::{Claim, ClaimHolder, ClaimSpec};
pub use cluster_network_policy::cluster_network_policy_crd;
pub use condition::{ConditionType, Reason, condition};
pub use network::{
    DnsMode, DnsService, EgressMode, Network, NetworkDns, NetworkEgress, NetworkIsolation,
    NetworkNodes, NetworkPhase, NetworkSpec, NetworkStatus,
};
pub use network_type::{NetworkType, NetworkTypeSpec, NetworkTypeStatus};
pub use port::{InterfaceType, Port, PortPhase, PortSpec, PortStatus};
pub use subnet::{Subnet, SubnetPhase, SubnetSpec, SubnetStatus};
pub use tenant::{
    DefaultNetwork, IsolationGrade, Tenant, TenantIsolation, TenantPhase, TenantQuota, TenantSpec,
    TenantStatus,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// The API group of every object here.
pub const GROUP: &str = "atoll.dev";

/// The finalizer that keeps an object until what it made is gone.
pub const FINALIZER: &str = "atoll.dev/cleanup";

/// Every custom resource definition that Atoll needs, in the order in which to apply them.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = vec![Tenant::crd(), Network::crd(), Subnet::crd(), Port::crd(), Claim::crd()];
    all.extend([AddressPool::crd(), NetworkType::crd()]);
    all.push(cluster_network_policy_crd());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_in_the_group_and_has_a_schema_and_columns() {
        let foreign = cluster_network_policy_crd();
        for crd in crds() {
            assert!(crd.spec.group == GROUP || crd == foreign);
            for version in &crd.spec.versions {
                let name = &crd.spec.names.kind;
                assert!(version.schema.is_some(), "{name} has no schema");
                assert!(version.additional_printer_columns.is_some(), "{name} has no columns");
            }
        }
    }

    #[test]
    fn ports_can_be_watched_by_node_and_by_network() {
        let port = Port::crd();
        let fields: Vec<_> = port.spec.versions[0]
            .selectable_fields
            .iter()
            .flatten()
            .map(|field| field.json_path.as_str())
            .collect();
        assert_eq!(fields, [".spec.node", ".spec.networkID"]);
    }
}
