//! The answer to ADD as each version of the specification wants it.

use std::path::Path;

use atoll_types::MacAddr;
use serde_json::{Value, json};

use crate::{Attached, AttachedInterface, CniResult};

fn interface(name: &str, ips: &[&str]) -> AttachedInterface {
    let ips: Vec<_> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
    AttachedInterface {
        name: name.into(),
        host_interface: format!("atl-of-{name}"),
        mac: MacAddr::for_ip(ips[0]),
        ips,
        routes: vec![],
    }
}

fn result_of(version: &str, interfaces: &[AttachedInterface]) -> Value {
    let attached = Attached { interfaces: interfaces.to_vec(), mtu: 1450 };
    let sandbox = Path::new("/run/netns/pod");
    CniResult { attached: &attached, sandbox, previous: None }.to_json(version)
}

fn result(version: &str, ips: &[&str]) -> Value {
    result_of(version, &[interface("eth0", ips)])
}

#[test]
fn the_newest_version_has_everything() {
    assert_eq!(
        result("1.1.0", &["10.0.0.5"]),
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [
                {"name": "eth0", "mac": "0a:04:0a:00:00:05", "sandbox": "/run/netns/pod", "mtu": 1450},
                {"name": "atl-of-eth0"},
            ],
            "ips": [{"interface": 0, "address": "10.0.0.5/32", "gateway": "169.254.1.1"}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}],
            "dns": {},
        })
    );
}

#[test]
fn older_versions_say_the_family_and_not_the_mtu() {
    let old = result("0.4.0", &["10.0.0.5"]);
    assert_eq!(old["ips"][0]["version"], "4");
    assert_eq!(old["interfaces"][0].get("mtu"), None);
    assert_eq!(result("1.0.0", &["10.0.0.5"])["ips"][0].get("version"), None);
}

#[test]
fn a_pod_of_both_families_has_a_gateway_and_a_route_of_each_ipv4_first() {
    for ips in [["10.0.0.5", "fd00::5"], ["fd00::5", "10.0.0.5"]] {
        let both = result("1.1.0", &ips);
        assert_eq!(both["ips"][0]["address"], "10.0.0.5/32");
        assert_eq!(both["ips"][1]["address"], "fd00::5/128");
        assert_eq!(both["ips"][1]["gateway"], "fe80::1");
        let default = |range, gateway| json!({"dst": range, "gw": gateway});
        let routes = json!([default("0.0.0.0/0", "169.254.1.1"), default("::/0", "fe80::1")]);
        assert_eq!(both["routes"], routes);
    }
}

#[test]
fn every_interface_is_listed_and_each_address_says_whose_it_is() {
    let mut further = interface("net1", &["10.1.0.7", "fd01::7"]);
    further.routes = vec!["10.1.0.0/16".parse().unwrap(), "fd01::/64".parse().unwrap()];
    let all = result_of("1.1.0", &[interface("eth0", &["10.0.0.5"]), further]);
    let names = ["eth0", "atl-of-eth0", "net1", "atl-of-net1"];
    for (place, name) in names.into_iter().enumerate() {
        assert_eq!(all["interfaces"][place]["name"], name);
    }
    for (place, (address, of)) in
        [("10.0.0.5/32", 0), ("10.1.0.7/32", 2), ("fd01::7/128", 2)].into_iter().enumerate()
    {
        assert_eq!(all["ips"][place]["address"], address);
        assert_eq!(all["ips"][place]["interface"], of);
    }
    let routes: Vec<_> = all["routes"].as_array().unwrap().iter().map(|one| &one["dst"]).collect();
    assert_eq!(routes, ["0.0.0.0/0", "10.1.0.0/16", "fd01::/64"]);
}

#[test]
fn only_the_first_interface_has_a_default_route() {
    let further = interface("net1", &["10.1.0.7", "fd01::7"]);
    let all = result_of("1.1.0", &[interface("eth0", &["10.0.0.5"]), further]);
    assert_eq!(all["routes"], json!([{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}]));
}

#[test]
fn what_a_plugin_before_has_made_stays_and_ours_is_added() {
    let previous = json!({
        "interfaces": [{"name": "lo"}],
        "ips": [{"interface": 0, "address": "127.0.0.1/8"}],
        "dns": {"nameservers": ["10.9.9.9"]},
    });
    let attached = Attached { interfaces: vec![interface("eth0", &["10.0.0.5"])], mtu: 1450 };
    let sandbox = Path::new("/run/netns/pod");
    let result = CniResult { attached: &attached, sandbox, previous: Some(&previous) };
    let merged = result.to_json("1.1.0");
    let names: Vec<_> =
        merged["interfaces"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["lo", "eth0", "atl-of-eth0"]);
    assert_eq!(merged["ips"][0], previous["ips"][0]);
    assert_eq!(merged["ips"][1]["interface"], 1);
    assert_eq!(merged["dns"], previous["dns"]);
}
