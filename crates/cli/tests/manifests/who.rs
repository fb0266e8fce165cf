//! `atoll who`.

use serde_json::Value;

use crate::atoll;
use crate::cluster::Cluster;

fn port(tenant: &str, pod: &str) -> String {
    format!(
        "apiVersion: v1
kind: Namespace
metadata: {{name: {tenant}}}
---
apiVersion: atoll.dev/v1alpha1
kind: Port
metadata: {{name: {pod}.eth0, namespace: {tenant}}}
spec: {{network: {tenant}.default, networkID: 7, subnet: s, ips: [10.0.0.5, 'fd00::5'],
  mac: '0a:04:0a:00:00:05', pod: {pod}, podUID: u, interface: eth0, node: node1}}
---
"
    )
}

#[test]
fn who_has_an_address_is_told_for_every_network() {
    let cluster = Cluster::start();
    let ports = format!("{}{}", port("acme", "web"), port("globex", "db"));
    let said = cluster.apply(&["-f", "-"], &ports);
    assert!(said.ok, "{}", said.err);

    let table = cluster.run("who", &["10.0.0.5"]);
    assert!(table.ok, "{}", table.err);
    let lines: Vec<&str> = table.out.lines().collect();
    assert_eq!(lines.len(), 3, "{}", table.out);
    for (line, cells) in [(lines[1], ["acme.default", "web"]), (lines[2], ["globex.default", "db"])]
    {
        assert!(cells.iter().chain(&["node1", "0a:04:0a:00:00:05"]).all(|it| line.contains(it)));
    }

    let json: Value =
        serde_json::from_str(&cluster.run("who", &["fd00:0::5", "-o", "json"]).out).unwrap();
    assert_eq!(json[1]["tenant"], "globex");
    assert_eq!((&json[1]["pod"], &json[1]["phase"]), (&"db".into(), &"Allocated".into()));

    let nobody = cluster.run("who", &["10.0.0.6"]);
    assert!(!nobody.ok);
    assert_eq!(nobody.out, "nobody has 10.0.0.6\n");
    let unknown = cluster.run("who", &["10.0.0.5", "--network", "acme.nowhere"]);
    assert!(unknown.err.contains("network acme.nowhere does not exist"), "{}", unknown.err);
}

#[test]
fn the_help_of_who_has_an_example_and_nonsense_is_refused() {
    assert!(atoll(&["who", "--help"], "").out.contains("atoll who 10.0.0.5"));
    let said = atoll(&["who", "ten"], "");
    assert!(!said.ok && said.err.contains("'ten'"), "{}", said.err);
}
