//! Which ranges a network has: those that no other network of its VPC has, each with a subnet.
//!
//! The rule: a range belongs to the network that has a subnet for it; before there is one, to the
//! older network.

use atoll_api as api;
use atoll_types::{Cidr, NetworkName};
use atoll_vpc::{Overlap, first_overlap};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::action::Action;
use crate::intent::{Network, NetworkPlan, NetworkType, ObjectName, subnet_name};
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
    /// The ranges of a network that are its own, and those that another network has.
    pub(super) fn sort_ranges(
        &self,
        network: &Network,
        plan: &NetworkPlan,
    ) -> (Vec<Cidr>, Vec<Conflict>) {
        let (mut accepted, mut conflicts) = (Vec::new(), Vec::new());
        for range in self.ranges_of(network, plan) {
            match self.conflict(network, plan, &range) {
                Some(conflict) => conflicts.push(conflict),
                None => accepted.push(range),
            }
        }
        (accepted, conflicts)
    }

    /// A range belongs to the network that has a subnet for it; before there is one, to the older.
    /// A block belongs to the network that claimed it.
    fn conflict(&self, network: &Network, plan: &NetworkPlan, range: &Cidr) -> Option<Conflict> {
        if plan.type_ == NetworkType::Flat {
            return None;
        }
        let ours = self.rank(network, &plan.name, range);
        let others = self.vpcs.networks.of_vpc(&plan.vpc);
        let others = others
            .filter(|other| **other != plan.name)
            .filter_map(|other| self.network_named(other))
            .filter_map(|other| Some((other, other.plan.as_ref().ok()?)))
            .flat_map(|(other, plan)| plan.cidrs.iter().map(move |cidr| (other, plan, cidr)))
            .map(|(other, plan, cidr)| (&plan.name, *cidr, self.rank(other, &plan.name, cidr)));
        let overlap = first_overlap(*range, &ours, others)?;
        let Overlap { range, other_range, other } = overlap;
        Some(Overlap { range, other_range, other: other.clone() })
    }

    fn rank<'a>(&self, network: &'a Network, name: &NetworkName, range: &Cidr) -> impl Ord + 'a {
        let subnet = ObjectName::cluster(subnet_name(name, range));
        (self.subnets.get(&subnet).is_none(), network.meta.age_order())
    }

    pub(super) fn missing_subnets(
        &self,
        network: &Network,
        plan: &NetworkPlan,
        accepted: &[Cidr],
    ) -> Vec<Action> {
        let has_subnet = |name: &String| self.subnets.get(&ObjectName::cluster(name)).is_some();
        accepted
            .iter()
            .map(|range| (range, subnet_name(&plan.name, range)))
            .filter(|(_, name)| !has_subnet(name))
            .map(|(range, name)| Action::CreateSubnet(Box::new(subnet(network, &name, range))))
            .collect()
    }

    /// The ranges that a network serves, as people read them.
    pub(super) fn served_ranges(&self, network: &Network) -> Vec<String> {
        let Ok(plan) = &network.plan else { return Vec::new() };
        self.sort_ranges(network, plan).0.iter().map(ToString::to_string).collect()
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
