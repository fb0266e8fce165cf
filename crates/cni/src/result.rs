//! The answer to ADD, in the shape of each version.
//!
//! The interface that the runtime asked for comes first. Of each interface the pod's side comes
//! before the host's, so that who looks at the first entry sees the pod's own interface.

use std::net::IpAddr;
use std::path::Path;

use atoll_types::{Cidr, gateway_of};
use serde_json::{Value, json};

use crate::invocation::place;
use crate::{Attached, AttachedInterface};

/// A successful ADD.
pub struct CniResult<'a> {
    /// The interfaces that were made.
    pub attached: &'a Attached,
    /// The pod's network namespace.
    pub sandbox: &'a Path,
    /// What the plugins before this one in a list have made; ours is added to it.
    pub previous: Option<&'a Value>,
}

impl CniResult<'_> {
    /// The JSON that goes to standard output.
    pub fn to_json(&self, version: &str) -> Value {
        let before = self.earlier("interfaces");
        let made = || self.attached.interfaces.iter().zip((before.len()..).step_by(2));
        let sides = made().flat_map(|(one, _)| self.sides(one, version));
        let ips = made().flat_map(|(one, place)| addresses(one, place, version));
        let routes = made().flat_map(|(one, place)| routes(one, place == before.len()));
        json!({
            "cniVersion": version,
            "interfaces": before.iter().cloned().chain(sides).collect::<Vec<_>>(),
            "ips": self.earlier("ips").iter().cloned().chain(ips).collect::<Vec<_>>(),
            "routes": self.earlier("routes").iter().cloned().chain(routes).collect::<Vec<_>>(),
            "dns": self.previous.and_then(|previous| previous.get("dns")).unwrap_or(&json!({})),
        })
    }

    /// A list of the result so far.
    fn earlier(&self, list: &str) -> &[Value] {
        let list = self.previous.and_then(|previous| previous.get(list)).and_then(Value::as_array);
        list.map(Vec::as_slice).unwrap_or_default()
    }

    /// The pod's side and the host's.
    fn sides(&self, interface: &AttachedInterface, version: &str) -> [Value; 2] {
        let mut pod = json!({
            "name": interface.name, "mac": interface.mac, "sandbox": self.sandbox,
        });
        if version == "1.1.0" {
            pod["mtu"] = json!(self.attached.mtu);
        }
        [pod, json!({"name": interface.host_interface})]
    }
}

/// Has somebody's result be one of another version, as a plugin of that version reads it: it looks at the version
/// first, and before 1.0.0 at the family of each address.
pub(crate) fn rewrite(result: &mut Value, version: &str) {
    let is_of_another = result.get("cniVersion").is_some_and(|own| own != version);
    if !is_of_another || place(version).is_none() {
        return;
    }
    result["cniVersion"] = version.into();
    let ips = result.get_mut("ips").and_then(Value::as_array_mut).into_iter().flatten();
    for ip in ips.filter_map(Value::as_object_mut).filter(|_| version.starts_with("0.")) {
        let is_ipv6 = ip.get("address").and_then(Value::as_str).is_some_and(|it| it.contains(':'));
        ip.insert("version".to_owned(), json!(if is_ipv6 { "6" } else { "4" }));
    }
}

/// The addresses of the interface at `place` in the list, IPv4 first. Versions before 1.0.0 say
/// the family too.
fn addresses(interface: &AttachedInterface, place: usize, version: &str) -> Vec<Value> {
    let entry = |ip: &IpAddr| {
        let (family, length) = if ip.is_ipv4() { ("4", 32) } else { ("6", 128) };
        let mut entry = json!({
            "interface": place, "address": format!("{ip}/{length}"), "gateway": gateway_of(*ip),
        });
        if version.starts_with("0.") {
            entry["version"] = json!(family);
        }
        entry
    };
    ipv4_first(interface).iter().map(entry).collect()
}

fn ipv4_first(interface: &AttachedInterface) -> Vec<IpAddr> {
    let mut ips = interface.ips.clone();
    ips.sort_by_key(IpAddr::is_ipv6);
    ips
}

/// The named ranges; of the pod's first interface, where it names none, one default route for each
/// family that it has.
fn routes(interface: &AttachedInterface, is_first: bool) -> Vec<Value> {
    let mut families = ipv4_first(interface);
    families.dedup_by_key(|ip| ip.is_ipv6());
    let of_family = |ip: IpAddr| {
        let named = interface.routes.iter().filter(move |range| range.is_ipv4() == ip.is_ipv4());
        let named: Vec<_> = named.map(Cidr::to_string).collect();
        let default = if ip.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        let is_default = is_first && interface.routes.is_empty();
        let all = if is_default { vec![default.to_owned()] } else { named };
        all.into_iter().map(move |range| json!({"dst": range, "gw": gateway_of(ip)}))
    };
    families.into_iter().flat_map(of_family).collect()
}
