//! A tenant's role: what of the tenant its users may read and change, by name.
//!
//! Networks and subnets are objects of the whole cluster, and roles cannot filter a list: they can
//! only name what may be touched. So there is one for each tenant, and it is kept true. Whoever has
//! it may read it: it is the list of what there is.

use atoll_api::marks;
use atoll_types::Label;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Meta, ObjectName};

/// What a tenant's role is called before the tenant's name. No tenant's name has a dot, so that no
/// two tenants mean one role, and no role of ours is meant by any.
const PREFIX: &str = "atoll.tenant.";

/// A tenant's role.
#[derive(Clone, Debug)]
pub struct Role {
    /// Metadata.
    pub meta: Meta,
    /// What it allows.
    pub rules: Vec<PolicyRule>,
}

impl From<&ClusterRole> for Role {
    fn from(role: &ClusterRole) -> Self {
        Role { meta: Meta::from(&role.metadata), rules: role.rules.clone().unwrap_or_default() }
    }
}

/// The name of a tenant's role.
pub fn role_name(tenant: &str) -> ObjectName {
    ObjectName::cluster(format!("{PREFIX}{tenant}"))
}

/// The tenant whose role has this name.
pub fn tenant_of_role(name: &ObjectName) -> Option<Label> {
    name.name.strip_prefix(PREFIX)?.parse().ok()
}

/// The role of a tenant that has these networks and subnets.
pub fn role_of(tenant: &Label, networks: Vec<String>, subnets: Vec<String>) -> ClusterRole {
    const OWN: &[&str] = &["get", "list", "watch", "update", "patch", "delete"];
    let rules = [
        ("tenants", vec![tenant.to_string()], &["get", "list", "watch", "manage"] as &[&str]),
        ("networks", networks, OWN),
        ("subnets", subnets, OWN),
    ];
    // A rule without names would be about every object of its kind.
    let rules = rules.into_iter().filter(|(_, names, _)| !names.is_empty());
    let named = rules.map(|(resource, names, verbs)| rule(resource, verbs, Some(names)));
    let itself = PolicyRule {
        api_groups: owned(&["rbac.authorization.k8s.io"]),
        ..rule("clusterroles", &["get"], Some(vec![role_name(tenant.as_str()).name]))
    };
    let create = rule("networks", &["create"], None);
    let create = PolicyRule { resources: owned(&["networks", "subnets"]), ..create };
    ClusterRole {
        metadata: ObjectMeta {
            name: Some(role_name(tenant.as_str()).name),
            labels: Some([(marks::TENANT.to_owned(), tenant.to_string())].into()),
            ..ObjectMeta::default()
        },
        rules: Some(named.chain([itself, create]).collect()),
        aggregation_rule: None,
    }
}

fn rule(resource: &str, verbs: &[&str], names: Option<Vec<String>>) -> PolicyRule {
    PolicyRule {
        api_groups: owned(&[atoll_api::GROUP]),
        resources: owned(&[resource]),
        resource_names: names,
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    }
}

fn owned(texts: &[&str]) -> Option<Vec<String>> {
    Some(texts.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acme() -> Label {
        "acme".parse().unwrap()
    }

    #[test]
    fn a_role_is_found_by_its_tenant_and_its_tenant_by_the_role() {
        assert_eq!(role_name("acme").name, "atoll.tenant.acme");
        assert_eq!(tenant_of_role(&role_name("acme")), Some(acme()));
        for other in ["atoll-tenant-user", "atoll.tenant.", "atoll.tenant.a.b", "edit"] {
            assert_eq!(tenant_of_role(&ObjectName::cluster(other)), None, "{other}");
        }
    }

    #[test]
    fn no_rule_that_reads_or_changes_is_without_names() {
        for networks in [vec![], vec!["acme.default".to_owned()]] {
            let role = role_of(&acme(), networks.clone(), networks);
            for rule in role.rules.unwrap() {
                let names = rule.resource_names.is_some_and(|names| !names.is_empty());
                assert!(names || rule.verbs == ["create"], "{:?}", rule.verbs);
            }
        }
    }
}
