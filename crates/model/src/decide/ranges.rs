//! What follows from the ranges that a network has: a subnet for each, what its status says of them,
//! and what people hear of one that another network has.

use atoll_api as api;
use atoll_types::{Cidr, NetworkName};
use atoll_vpc::Overlap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::action::Action;
use crate::intent::{Network, NetworkPlan};
use crate::world::World;

/// Why a range of a network is not served.
pub(super) type Conflict = Overlap<NetworkName>;

pub(super) fn complaint(conflict: &Conflict) -> String {
    let Overlap { range, other_range, other } = conflict;
    format!(
        "spec.cidrs: {range} overlaps {other_range} of network {other}, which is in the same VPC; \
         name another range, or another vpcID"
    )
}

impl World {
    pub(super) fn missing_subnets(
        &self,
        network: &Network,
        plan: &NetworkPlan,
        accepted: &[Cidr],
    ) -> Vec<Action> {
        let missing = self.vpcs.missing_subnets(&plan.name, accepted);
        let made = missing.iter().map(|(name, range)| subnet(network, &name.name, range));
        made.map(|subnet| Action::CreateSubnet(Box::new(subnet))).collect()
    }

    /// The ranges that a network serves, as people read them.
    pub(super) fn served_ranges(&self, network: &Network) -> Vec<String> {
        let Ok(plan) = &network.plan else { return Vec::new() };
        self.vpcs.sort_ranges(&plan.name).accepted.iter().map(ToString::to_string).collect()
    }
}

fn subnet(network: &Network, name: &str, range: &Cidr) -> api::Subnet {
    let spec = api::SubnetSpec {
        network: network.meta.name.name.clone(),
        cidr: range.to_string(),
        ..api::SubnetSpec::default()
    };
    let mut subnet = api::Subnet::new(name, spec);
    subnet.metadata.owner_references = Some(vec![OwnerReference {
        api_version: format!("{}/v1alpha1", api::GROUP),
        kind: "Network".into(),
        name: network.meta.name.name.clone(),
        uid: network.meta.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    subnet.metadata.finalizers = Some(vec![api::FINALIZER.to_owned()]);
    subnet
}
