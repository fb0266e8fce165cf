//! Services: defaults, cluster addresses, and which of their fields stay.

use crate::failure::Cause;
use crate::object::{at, set, set_default, text};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::Ipv4Addr;

/// The range of cluster addresses, 10.96.0.0/16.
const FIRST: u32 = u32::from_be_bytes([10, 96, 0, 0]);
const COUNT: u32 = 1 << 16;
/// Addresses below this one are handed out only on request, as kube-apiserver does.
const RESERVED: u32 = 16;

/// Cluster addresses in use.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    used: HashSet<Ipv4Addr>,
    next: u32,
}

impl Addresses {
    pub(crate) fn take(&mut self, address: Ipv4Addr) -> bool {
        self.used.insert(address)
    }

    pub(crate) fn release(&mut self, address: Ipv4Addr) {
        self.used.remove(&address);
    }

    /// A free address, other than the one given last as long as there are others.
    pub(crate) fn allocate(&mut self) -> Option<Ipv4Addr> {
        let span = COUNT - RESERVED - 1;
        for _ in 0..span {
            let address = Ipv4Addr::from(FIRST + RESERVED + self.next % span);
            self.next = self.next.wrapping_add(1);
            if self.used.insert(address) {
                return Some(address);
            }
        }
        None
    }

    pub(crate) fn in_range(address: Ipv4Addr) -> bool {
        (FIRST + 1..FIRST + COUNT - 1).contains(&u32::from(address))
    }
}

pub(super) fn fill_defaults(service: &mut Value) {
    set_default(service, "spec.type", "ClusterIP");
    set_default(service, "spec.sessionAffinity", "None");
    if text(service, "spec.type") != "ExternalName" {
        set_default(service, "spec.internalTrafficPolicy", "Cluster");
        set_default(service, "spec.ipFamilies", json!(["IPv4"]));
        set_default(service, "spec.ipFamilyPolicy", "SingleStack");
    }
    if matches!(text(service, "spec.type"), "NodePort" | "LoadBalancer") {
        set_default(service, "spec.externalTrafficPolicy", "Cluster");
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
pub(crate) fn needs_address(service: &Value) -> bool {
    text(service, "spec.type") != "ExternalName" && text(service, "spec.clusterIP").is_empty()
}

/// An update that does not mention the address keeps it.
pub(super) fn keep_addresses(service: &mut Value, old: &Value) {
    if needs_address(service) {
        for field in ["spec.clusterIP", "spec.clusterIPs"] {
            if let Some(kept) = at(old, field).cloned() {
                set(service, field, kept);
            }
        }
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

    #[test]
    fn addresses_are_handed_out_once_until_released() {
        let mut addresses = Addresses::default();
        let first = addresses.allocate().unwrap();
        let second = addresses.allocate().unwrap();
        assert_ne!(first, second);
        assert!(Addresses::in_range(first));
        assert!(!addresses.take(first));
        addresses.release(first);
        assert!(addresses.take(first));
    }

    #[test]
    fn a_full_range_has_no_address_left() {
        let mut addresses = Addresses::default();
        let given = std::iter::from_fn(|| addresses.allocate()).count();
        assert_eq!(given, (COUNT - RESERVED - 1) as usize);
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
