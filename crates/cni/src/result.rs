//! The answer to ADD, in the shape of each version.

use std::net::IpAddr;
use std::path::Path;

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
        let has_ip_version = version.starts_with("0.");
        let ips: Vec<Value> =
            self.attached.ips.iter().map(|ip| self.ip(*ip, has_ip_version)).collect();
        let mut pod = json!({
            "name": self.interface, "mac": self.attached.mac, "sandbox": self.sandbox,
        });
        if version == "1.1.0" {
            pod["mtu"] = json!(self.attached.mtu);
        }
        json!({
            "cniVersion": version,
            "interfaces": [{"name": self.attached.host_interface}, pod],
            "ips": ips,
            "routes": [{"dst": "0.0.0.0/0", "gw": self.attached.gateway}],
            "dns": {},
        })
    }

    fn ip(&self, ip: IpAddr, has_ip_version: bool) -> Value {
        let length = if ip.is_ipv4() { 32 } else { 128 };
        let mut entry = json!({
            "interface": 1, "address": format!("{ip}/{length}"), "gateway": self.attached.gateway,
        });
        if has_ip_version {
            entry["version"] = json!(if ip.is_ipv4() { "4" } else { "6" });
        }
        entry
    }
}
