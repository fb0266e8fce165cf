//! A tenant has a role that names what is its own, as long as it lives.

use atoll_types::Label;

use crate::action::{Action, Decision, Target};
use crate::intent::{Kind, ObjectName, role_of, tenant_of_role};
use crate::world::World;

impl World {
    pub(crate) fn decide_role(&self, name: &ObjectName) -> Decision {
        let Some(tenant) = tenant_of_role(name) else { return Decision::nothing() };
        let standing = self.roles.get(name);
        let found = self.tenants.get(&ObjectName::cluster(tenant.as_str()));
        let target = || standing.map(|role| Target::new(Kind::ClusterRole, &role.meta));
        if found.is_none_or(|tenant| tenant.meta.deleting) {
            return Decision::act(target().map(Action::Delete));
        }
        let wanted = role_of(&tenant, self.network_names(&tenant), self.subnet_names(&tenant));
        match (target(), standing) {
            (Some(target), Some(standing)) => {
                let rules = wanted.rules.unwrap_or_default();
                let changed = standing.rules != rules && !standing.meta.deleting;
                Decision::act(changed.then_some(Action::SetRules(target, rules)))
            }
            (Some(_), None) | (None, _) => Action::CreateRole(Box::new(wanted)).into(),
        }
    }

    fn network_names(&self, tenant: &Label) -> Vec<String> {
        let networks = self.indexes.networks_of_tenant.of(tenant.as_str());
        networks.map(|name| name.name.clone()).collect()
    }

    fn subnet_names(&self, tenant: &Label) -> Vec<String> {
        let networks = self.indexes.networks_of_tenant.of(tenant.as_str());
        let plans = networks.filter_map(|name| self.networks.get(name)?.plan.as_ref().ok());
        let subnets = plans.flat_map(|plan| self.vpcs.subnets().of_network(&plan.name));
        subnets.map(|name| name.name.clone()).collect()
    }
}
