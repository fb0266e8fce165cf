//! The answer to ADD, in the shape of each version.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use atoll_types::{GATEWAY_V4, GATEWAY_V6, gateway_of};
use serde_json::{Value, json};

use crate::Attached;

/// A successful ADD.
pub struct CniResult<'a> {
    /// The interface that was made.
    pub attached: &'a Attached,
    /// Its name inside the pod.
    pub interface: &'a str,
    /// The pod's network namespace.
    pub sandbox: &'a Path,
}

impl CniResult<'_> {
    /// The JSON that goes to standard output.
    pub fn to_json(&self, version: &str) -> Value {
        let ips = &self.attached.ips;
        let mut pod = json!({
            "name": self.interface, "mac": self.attached.mac, "sandbox": self.sandbox,
        });
        if version == "1.1.0" {
            pod["mtu"] = json!(self.attached.mtu);
        }
        json!({
            "cniVersion": version,
            "interfaces": [{"name": self.attached.host_interface}, pod],
            "ips": ips.iter().map(|ip| address(*ip, version)).collect::<Vec<_>>(),
            "routes": routes(ips),
            "dns": {},
        })
    }
}

/// An address of the pod's interface, which is the second of the list. Versions before 1.0.0 say
/// the family too.
fn address(ip: IpAddr, version: &str) -> Value {
    let (family, length) = if ip.is_ipv4() { ("4", 32) } else { ("6", 128) };
    let mut entry = json!({
        "interface": 1, "address": format!("{ip}/{length}"), "gateway": gateway_of(ip),
    });
    if version.starts_with("0.") {
        entry["version"] = json!(family);
    }
    entry
}

/// One default route for each family that the pod has.
fn routes(ips: &[IpAddr]) -> Vec<Value> {
    let families: BTreeSet<bool> = ips.iter().map(IpAddr::is_ipv6).collect();
    let route = |is_ipv6: bool| match is_ipv6 {
        false => json!({"dst": "0.0.0.0/0", "gw": GATEWAY_V4}),
        true => json!({"dst": "::/0", "gw": GATEWAY_V6}),
    };
    families.into_iter().map(route).collect()
}
