//! Services: defaults, and which of their fields stay and which go when they change.

use super::{cluster_addresses, health_port, node_ports};
use crate::failure::Cause;
use crate::object::{at, remove, set, set_default, text};
use serde_json::{Value, json};
use std::net::IpAddr;

/// What only one service may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Claim {
    Address(IpAddr),
    NodePort(u16),
}

/// What a service has for itself.
pub(super) fn claims(service: &Value) -> Vec<Claim> {
    let addresses = cluster_addresses::named(service);
    let addresses = addresses.into_iter().filter_map(|ip| ip.parse().ok()).map(Claim::Address);
    let ports = node_ports::named(service).into_iter().chain(health_port::named(service));
    let ports = ports.map(Claim::NodePort);
    addresses.chain(ports).collect()
}

/// Whether services of this type are reached at ports of nodes.
pub(super) fn has_node_ports(service: &Value) -> bool {
    matches!(text(service, "spec.type"), "NodePort" | "LoadBalancer")
}

/// Whether clients from outside of the cluster are meant to reach the service.
fn is_reached_from_outside(service: &Value) -> bool {
    let external = at(service, "spec.externalIPs").and_then(Value::as_array);
    has_node_ports(service)
        || text(service, "spec.type") == "ClusterIP" && external.is_some_and(|it| !it.is_empty())
}

/// Gives a service what it needs and lacks. `taken` says what others have, `from` where to begin
/// to look, and `is_new` that it was not there before; an error says which field asks for what cannot be
/// given.
pub(crate) fn provision(
    service: &mut Value,
    is_new: bool,
    taken: impl Fn(Claim) -> bool,
    from: u32,
) -> Result<(), Cause> {
    cluster_addresses::give(service, &taken, from)?;
    node_ports::give(service, is_new, &taken, from)?;
    health_port::give(service, &taken, from)
}

pub(super) fn fill_defaults(service: &mut Value) {
    set_default(service, "spec.type", "ClusterIP");
    set_default(service, "spec.sessionAffinity", "None");
    if text(service, "spec.type") != "ExternalName" {
        set_default(service, "spec.internalTrafficPolicy", "Cluster");
        cluster_addresses::fill_families(service);
    }
    if is_reached_from_outside(service) {
        set_default(service, "spec.externalTrafficPolicy", "Cluster");
    }
    if text(service, "spec.type") == "LoadBalancer" {
        set_default(service, "spec.allocateLoadBalancerNodePorts", true);
    }
    if text(service, "spec.sessionAffinity") == "ClientIP" {
        set_default(service, "spec.sessionAffinityConfig.clientIP.timeoutSeconds", 10_800);
    }
    let ports = service.get_mut("spec").and_then(|s| s.get_mut("ports")?.as_array_mut());
    for port in ports.into_iter().flatten() {
        set_default(port, "protocol", "TCP");
        set_default(port, "targetPort", port["port"].clone());
    }
    set_default(service, "status.loadBalancer", json!({}));
}

/// Whether the service must be given a cluster address.
fn needs_address(service: &Value) -> bool {
    text(service, "spec.type") != "ExternalName" && text(service, "spec.clusterIP").is_empty()
}

/// An update that does not mention address and node ports keeps them, where its type has any.
pub(super) fn keep_addresses(service: &mut Value, old: &Value) {
    if needs_address(service) {
        for field in ["spec.clusterIP", "spec.clusterIPs"] {
            if let Some(kept) = at(old, field).cloned() {
                set(service, field, kept);
            }
        }
    }
    node_ports::keep(service, old);
    health_port::keep(service, old);
}

/// Takes away what only the type that the service had before has a use for. What the update says anew
/// stays, to be refused.
pub(super) fn drop_of_former_type(service: &mut Value, old: &Value) {
    let is_name = |service: &Value| text(service, "spec.type") == "ExternalName";
    if is_name(service) && !is_name(old) {
        let fields =
            ["spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"];
        fields.iter().for_each(|field| drop_unchanged(service, old, field));
    }
    if is_reached_from_outside(old) && !is_reached_from_outside(service) {
        drop_unchanged(service, old, "spec.externalTrafficPolicy");
    }
    if text(service, "spec.type") != "LoadBalancer" {
        drop_unchanged(service, old, "spec.loadBalancerClass");
        drop_unchanged(service, old, "spec.allocateLoadBalancerNodePorts");
        set(service, "status.loadBalancer", json!({}));
    }
    node_ports::drop_of_former_type(service, old);
    health_port::drop_of_former_type(service, old);
}

fn drop_unchanged(service: &mut Value, old: &Value, field: &str) {
    if at(service, field) == at(old, field) {
        remove(service, field);
    }
}

pub(super) fn validate(service: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let kind = text(service, "spec.type");
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !types.contains(&kind) {
        let types = types.map(str::to_owned);
        causes.push(Cause::unsupported("spec.type", &kind.into(), &types));
    }
    let address = text(service, "spec.clusterIP");
    let ports = at(service, "spec.ports").and_then(Value::as_array);
    if ports.is_none_or(Vec::is_empty) && kind != "ExternalName" && address != "None" {
        causes.push(Cause::required("spec.ports", ""));
    }
    for (index, port) in ports.into_iter().flatten().enumerate() {
        let path = format!("spec.ports[{index}].port");
        if !port["port"].as_i64().is_some_and(|port| (1..=65_535).contains(&port)) {
            causes.push(Cause::invalid(
                &path,
                &port["port"],
                "must be between 1 and 65535, inclusive",
            ));
        }
    }
    causes.extend(node_ports::validate(service));
    causes.extend(health_port::validate(service, old));
    causes.extend(old.and_then(|old| changed_address(old, address, kind)));
    causes
}

fn changed_address(old: &Value, address: &str, kind: &str) -> Option<Cause> {
    let before = text(old, "spec.clusterIP");
    let changed = !before.is_empty() && before != address && kind != "ExternalName";
    changed
        .then(|| Cause::invalid("spec.clusterIPs[0]", &json!([address]), "may not change once set"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(kind: &str) -> Value {
        json!({"spec": {"type": kind, "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}})
    }

    #[test]
    fn a_service_is_given_what_nobody_else_has() {
        let mut service = service("NodePort");
        let first = Claim::Address([10, 96, 0, 16].into());
        let taken = [first, Claim::NodePort(30_000)];
        provision(&mut service, true, |claim| taken.contains(&claim), 0).unwrap();
        assert_eq!(service["spec"]["clusterIPs"], json!(["10.96.0.17"]));
        assert_eq!(service["spec"]["ports"][0]["nodePort"], 30_001);
        assert_eq!(service["spec"]["ports"][1]["nodePort"], 30_002);
        assert_eq!(claims(&service).len(), 3);
    }

    #[test]
    fn what_is_taken_or_out_of_range_is_refused() {
        let refused = |field: &str, value: Value, taken: bool| {
            let mut service = service("NodePort");
            match field {
                "clusterIP" => service["spec"]["clusterIP"] = value,
                _ => service["spec"]["ports"][0]["nodePort"] = value,
            }
            provision(&mut service, true, |_| taken, 0).unwrap_err().message
        };
        assert!(refused("clusterIP", json!("10.97.0.1"), false).contains("current range"));
        assert!(refused("clusterIP", json!("10.96.0.1"), true).contains("already allocated"));
        assert!(refused("nodePort", json!(80), false).contains("30000-32767"));
        assert!(refused("none", json!(null), true).contains("range is full"));
    }

    #[test]
    fn a_headless_service_says_so_twice() {
        let mut service = json!({"spec": {"type": "ClusterIP", "clusterIP": "None"}});
        provision(&mut service, true, |_| false, 0).unwrap();
        assert_eq!(service["spec"]["clusterIPs"], json!(["None"]));
    }

    #[test]
    fn node_ports_are_kept_by_an_update_that_does_not_mention_them() {
        let mut old = service("NodePort");
        provision(&mut old, true, |_| false, 7).unwrap();
        let mut new = service("NodePort");
        keep_addresses(&mut new, &old);
        assert_eq!(claims(&new), claims(&old));
        let mut inside = service("ClusterIP");
        keep_addresses(&mut inside, &old);
        assert_eq!(claims(&inside), [claims(&old)[0]]);
    }

    #[test]
    fn what_only_the_former_type_had_a_use_for_goes_unless_it_is_said_anew() {
        let mut old = service("NodePort");
        old["spec"]["externalTrafficPolicy"] = "Cluster".into();
        provision(&mut old, true, |_| false, 7).unwrap();
        let to = |kind: &str| {
            let mut new = old.clone();
            new["spec"]["type"] = kind.into();
            drop_of_former_type(&mut new, &old);
            new
        };
        let inside = to("ClusterIP");
        assert_eq!(claims(&inside), [claims(&old)[0]], "the address alone");
        assert_eq!(inside["spec"]["externalTrafficPolicy"], Value::Null);
        assert!(claims(&to("ExternalName")).is_empty());
        assert_eq!(claims(&to("LoadBalancer")), claims(&old));
        let mut stubborn = to("ClusterIP");
        stubborn["spec"]["ports"][0]["nodePort"] = 30_500.into();
        drop_of_former_type(&mut stubborn, &old);
        assert_eq!(validate(&stubborn, Some(&old))[0].field, "spec.ports[0].nodePort");
    }

    #[test]
    fn an_address_may_not_change() {
        let old = json!({"spec": {"clusterIP": "10.96.0.20"}});
        let mut new = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80}]}});
        keep_addresses(&mut new, &old);
        assert!(validate(&new, Some(&old)).is_empty());
        new["spec"]["clusterIP"] = "10.96.0.21".into();
        assert_eq!(validate(&new, Some(&old))[0].field, "spec.clusterIPs[0]");
    }

    #[test]
    fn a_service_needs_ports_unless_it_is_headless_or_a_name() {
        let service = |spec: Value| json!({"spec": spec});
        assert_eq!(validate(&service(json!({"type": "ClusterIP"})), None).len(), 1);
        assert!(
            validate(&service(json!({"type": "ClusterIP", "clusterIP": "None"})), None).is_empty()
        );
        assert!(validate(&service(json!({"type": "ExternalName"})), None).is_empty());
    }
}
