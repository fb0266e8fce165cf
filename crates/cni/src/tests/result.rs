//! The answer to ADD as each version of the specification wants it.

use std::path::Path;

use atoll_types::MacAddr;
use serde_json::{Value, json};

use crate::{Attached, CniResult};

fn result(version: &str, ips: &[&str]) -> Value {
    let ips: Vec<_> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
    let mac = MacAddr::for_ip(ips[0]);
    let attached = Attached { host_interface: "atl0123456789ab".into(), mac, ips, mtu: 1450 };
    let result =
        CniResult { attached: &attached, interface: "eth0", sandbox: Path::new("/run/netns/pod") };
    result.to_json(version)
}

#[test]
fn the_newest_version_has_everything() {
    assert_eq!(
        result("1.1.0", &["10.0.0.5"]),
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [
                {"name": "atl0123456789ab"},
                {"name": "eth0", "mac": "0a:04:0a:00:00:05", "sandbox": "/run/netns/pod", "mtu": 1450},
            ],
            "ips": [{"interface": 1, "address": "10.0.0.5/32", "gateway": "169.254.1.1"}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}],
            "dns": {},
        })
    );
}

#[test]
fn older_versions_say_the_family_and_not_the_mtu() {
    let old = result("0.4.0", &["10.0.0.5"]);
    assert_eq!(old["ips"][0]["version"], "4");
    assert_eq!(old["interfaces"][1].get("mtu"), None);
    assert_eq!(result("1.0.0", &["10.0.0.5"])["ips"][0].get("version"), None);
}

#[test]
fn a_pod_of_both_families_has_a_gateway_and_a_route_of_each() {
    let both = result("1.1.0", &["10.0.0.5", "fd00::5"]);
    assert_eq!(both["ips"][1]["address"], "fd00::5/128");
    assert_eq!(both["ips"][1]["gateway"], "fe80::1");
    assert_eq!(both["routes"][1], json!({"dst": "::/0", "gw": "fe80::1"}));
}
