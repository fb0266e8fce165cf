//! What pods may write about their interfaces, and what they hear when it is wrong.

use super::*;

fn nics(text: &str) -> Vec<Nic> {
    parse(Some(text), None).unwrap()
}

fn names_and_networks(extra: &str) -> Vec<String> {
    let nics = parse(None, Some(extra)).unwrap();
    let network = |nic: &Nic| nic.network.as_ref().map_or("-".into(), Label::to_string);
    nics.iter().map(|nic| format!("{} {}", nic.name, network(nic))).collect()
}

#[test]
fn a_pod_that_asks_for_nothing_has_one_interface() {
    let nics = parse(None, None).unwrap();
    assert_eq!((nics.len(), nics[0].name.as_str(), nics[0].asks_for_place()), (1, "eth0", false));
}

#[test]
fn an_interface_is_a_veth_unless_a_tap_is_asked_for() {
    let nics = nics(r#"[{"type": "tap"}, {"type": "veth"}, {}]"#);
    let kinds: Vec<_> = nics.iter().map(|nic| nic.kind).collect();
    assert_eq!(kinds, [InterfaceType::Tap, InterfaceType::Veth, InterfaceType::Veth]);
    let wrong = parse(Some(r#"[{"type": "bridge"}]"#), None).unwrap_err().message;
    assert_eq!(wrong, "atoll.dev/nics[0].type: \"bridge\" is neither veth nor tap");
}

#[test]
fn a_pod_asks_for_subnet_address_and_name() {
    let nics = nics(r#"[{"subnet": "web", "ip": "10.0.0.5", "name": "eth0"}, {}]"#);
    assert_eq!(nics[0].subnet.as_deref(), Some("web"));
    assert_eq!(nics[0].ips, ["10.0.0.5".parse::<IpAddr>().unwrap()]);
    assert_eq!((nics[1].name.as_str(), nics[1].asks_for_place()), ("net1", false));
}

#[test]
fn an_interface_may_ask_for_an_address_of_each_family() {
    let nics = nics(r#"[{"ips": ["10.0.0.5", "fd00::5"]}]"#);
    assert_eq!(nics[0].ips.len(), 2);
}

#[test]
fn extra_networks_are_written_as_json_or_as_a_short_list() {
    let expected = ["eth0 -", "net1 b", "net2 c"];
    assert_eq!(names_and_networks(r#"["b", {"network": "c"}]"#), expected);
    assert_eq!(names_and_networks("b, c"), expected);
    assert_eq!(names_and_networks("b@data,c"), ["eth0 -", "data b", "net1 c"]);
    assert_eq!(names_and_networks("b,c@net1"), ["eth0 -", "net2 b", "net1 c"]);
    assert_eq!(names_and_networks("b,b"), ["eth0 -", "net1 b", "net2 b"]);
}

/// Each way to be wrong, and all that is said of it.
const WRONG_NICS: &[(&str, &str)] = &[
    ("ten", "atoll.dev/nics must be a JSON list like [{\"ip\": \"10.0.0.5\"}]: "),
    ("{}", "atoll.dev/nics must be a JSON list like [{\"ip\": \"10.0.0.5\"}]: "),
    ("[]", "atoll.dev/nics: the list is empty; leave the annotation out, or write [{}]"),
    ("[{}, 7]", "atoll.dev/nics[1]: 7 is none; it must be an object with network, subnet, ip,"),
    (r#"[{"adress": "10.0.0.5"}]"#, "atoll.dev/nics[0].adress: no such field; there are network,"),
    (
        r#"[{"network": "b"}]"#,
        "atoll.dev/nics[0].network: these are all in the pod's network; use atoll.dev/extra-networks",
    ),
    (r#"[{"subnet": 7}]"#, "atoll.dev/nics[0].subnet: 7 is no text; write it in quotes"),
    (r#"[{"subnet": "Web"}]"#, "atoll.dev/nics[0].subnet: \"Web\" is no object's name: "),
    (r#"[{"ip": 10}]"#, "atoll.dev/nics[0].ip: 10 is no text; write it in quotes"),
    (
        r#"[{"ip": "10.0.0"}]"#,
        "atoll.dev/nics[0].ip: \"10.0.0\" is not an IP address like 10.0.0.5",
    ),
    (
        r#"[{"ip": "10.0.0.5/24"}]"#,
        "atoll.dev/nics[0].ip: \"10.0.0.5/24\" is not an IP address like",
    ),
    (
        r#"[{"ips": "10.0.0.5"}]"#,
        "atoll.dev/nics[0].ips: \"10.0.0.5\" is none; it must be a list like",
    ),
    (
        r#"[{"ips": [7]}]"#,
        "atoll.dev/nics[0].ips: [7]: it must be a list like [\"10.0.0.5\", \"fd00::5\"]",
    ),
    (r#"[{"ips": ["ten"]}]"#, "atoll.dev/nics[0].ips: \"ten\" is not an IP address like 10.0.0.5"),
    (
        r#"[{"ips": ["10.0.0.5", "10.0.0.6"]}]"#,
        "atoll.dev/nics[0].ips: an interface has at most one address of each family",
    ),
    (
        r#"[{"ip": "10.0.0.5", "ips": ["fd00::5"]}]"#,
        "atoll.dev/nics[0].ips: ip is given too; give one of both",
    ),
    (r#"[{"mac": 7}]"#, "atoll.dev/nics[0].mac: 7 is no text; write it in quotes"),
    (
        r#"[{"mac": "10.0.0.5"}]"#,
        "atoll.dev/nics[0].mac: \"10.0.0.5\" is not a MAC address like 02:00:0a:00:00:05",
    ),
    (
        r#"[{"mac": "ff:ff:ff:ff:ff:ff"}]"#,
        "atoll.dev/nics[0].mac: ff:ff:ff:ff:ff:ff is not a unicast MAC address",
    ),
    (r#"[{"name": true}]"#, "atoll.dev/nics[0].name: true is no text; write it in quotes"),
    (r#"[{}, {"name": "eth_0"}]"#, "atoll.dev/nics[1].name: \"eth_0\""),
    (
        r#"[{}, {"name": "a-very-long-name"}]"#,
        "atoll.dev/nics[1].name: \"a-very-long-name\" is longer than the 15 characters that Linux allows",
    ),
    (
        r#"[{}, {"name": "lo"}]"#,
        "atoll.dev/nics[1].name: \"lo\" is every pod's loopback; take another name",
    ),
    (
        r#"[{"name": "net1"}]"#,
        "atoll.dev/nics[0].name: a pod's first interface is always eth0, not net1; leave it out",
    ),
    (
        r#"[{}, {"name": "b"}, {"name": "b"}]"#,
        "atoll.dev/nics[2].name: two interfaces are called b; give each a name of its own",
    ),
    (r#"[{"port": []}]"#, "atoll.dev/nics[0].port: [] is no text; write it in quotes"),
    (r#"[{"port": "shop/mine"}]"#, "atoll.dev/nics[0].port: \"shop/mine\" is no object's name: "),
    (
        r#"[{"port": "mine", "ip": "10.0.0.5"}]"#,
        "atoll.dev/nics[0].port: a port made beforehand has its subnet, addresses and mac already; leave them out",
    ),
];

const WRONG_NETWORKS: &[(&str, &str)] = &[
    ("[1]", "atoll.dev/extra-networks[0]: 1 is none; it must be an object with network,"),
    (
        "[",
        "atoll.dev/extra-networks must be a JSON list like [\"net-b\", {\"network\": \"net-c\", \"name\": \"net1\"}]: ",
    ),
    ("b,", "atoll.dev/extra-networks[1].network: names no network; write one of the tenant's own"),
    (r#"[{"name": "b"}]"#, "atoll.dev/extra-networks[0].network: names no network; write one of"),
    (
        r#"[{"network": 7}]"#,
        "atoll.dev/extra-networks[0].network: 7 is no text; write it in quotes",
    ),
    ("globex.b", "atoll.dev/extra-networks[0].network: \"globex.b\""),
    (
        "b@data,c@data",
        "atoll.dev/extra-networks[1].name: two interfaces are called data; give each",
    ),
    ("b@eth0", "atoll.dev/extra-networks[0].name: two interfaces are called eth0; give each"),
    ("b@DATA", "atoll.dev/extra-networks[0].name: \"DATA\""),
    (
        r#"[{"network": "b", "ip": "x"}]"#,
        "atoll.dev/extra-networks[0].ip: \"x\" is not an IP address",
    ),
    (
        r#"[{"network": "b", "net": "c"}]"#,
        "atoll.dev/extra-networks[0].net: no such field; there are",
    ),
    ("b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b", "17 interfaces are asked for; a pod may have 16"),
];

#[test]
fn each_field_of_an_annotation_that_is_wrong_is_named_with_what_would_be_right() {
    for (text, says) in WRONG_NICS {
        let message = parse(Some(text), None).unwrap_err().message;
        assert!(message.starts_with(says), "{text}: {message}");
    }
    for (text, says) in WRONG_NETWORKS {
        let message = parse(None, Some(text)).unwrap_err().message;
        assert!(message.starts_with(says), "{text}: {message}");
    }
}
