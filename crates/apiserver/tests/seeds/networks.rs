//! The seeds' `Network`: kept as ours, read back as it was written.

use crate::cluster::{Cluster, seed};
use serde_json::{Value, json};

const OURS: &str = "networks.atoll.dev";
const ARKTOS: &str = "networks.v1.arktos.futurewei.com";

/// The arktos network of the seeds, for another tenant.
fn arktos(tenant: &str) -> String {
    seed("s4-4").replace("acme", tenant)
}

#[test]
fn every_network_of_the_seeds_is_kept_as_ours() {
    let cluster = Cluster::start();
    for (name, kept, spec) in [
        ("s0-1", "default.default", json!({"tenant": "default", "type": "flat", "cidrs": []})),
        (
            "s0-2",
            "default.vpc-1",
            json!({"tenant": "default", "type": "vpc", "vpcID": "vpc-1a2b3c4d",
                "cidrs": ["10.0.0.0/16"]}),
        ),
        (
            "s2-1",
            "default.net1",
            json!({"tenant": "default", "type": "vpc", "cidrs": ["10.0.0.0/16"]}),
        ),
        (
            "s4-4",
            "acme.vpc-1",
            json!({"tenant": "acme", "type": "vpc", "vpcID": "vpc-acme",
                "cidrs": ["10.0.0.0/16"]}),
        ),
    ] {
        cluster.apply("default", &seed(name));
        let first = cluster.get(&[OURS, kept]);
        assert_eq!(first["spec"], spec, "{name}");
        assert_eq!(first["apiVersion"], "atoll.dev/v1alpha1");
        cluster.apply("default", &seed(name));
        assert_eq!(cluster.get(&[OURS, kept])["metadata"]["generation"], 1, "{name}");
    }
}

#[test]
fn a_network_is_read_back_as_it_was_written() {
    let cluster = Cluster::start();
    cluster.apply("default", &seed("s0-2"));
    let core = cluster.get(&["corenetworks", "vpc-1"]);
    assert_eq!((&core["apiVersion"], &core["kind"]), (&json!("v1"), &json!("Network")));
    assert_eq!(core["spec"]["vpc-id"], "vpc-1a2b3c4d");
    let raw = cluster.kubectl(&["get", "--raw", "/api/v1/networks/vpc-1"]);
    assert_eq!(serde_json::from_str::<Value>(&raw).unwrap()["spec"], core["spec"]);
    assert!(cluster.apply("default", &seed("s0-2")).out.ends_with(" unchanged\n"));

    let cluster = Cluster::start();
    cluster.apply("default", &seed("s4-4"));
    let arktos = cluster.get(&[ARKTOS, "vpc-1"]);
    assert_eq!(arktos["apiVersion"], "arktos.futurewei.com/v1");
    assert_eq!(arktos["metadata"]["tenant"], "acme");
    assert_eq!(arktos["spec"]["vpcID"], "vpc-acme");
    assert!(cluster.apply("default", &seed("s4-4")).out.ends_with(" unchanged\n"));
    let table = cluster.kubectl(&["get", ARKTOS]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], ["vpc-1", "acme", "vpc"]);
}

#[test]
fn to_kubectl_networks_are_ours() {
    let cluster = Cluster::start();
    cluster.apply("default", &seed("s0-1"));
    let names = cluster.kubectl(&["get", "networks", "-o", "name"]);
    assert_eq!(names, "network.atoll.dev/default.default\n");
    assert_eq!(cluster.kubectl(&["get", "network", "-o", "name"]), names);
}

#[test]
fn tenants_may_call_their_networks_alike_and_each_apply_reaches_its_own() {
    let cluster = Cluster::start();
    for _ in 0..2 {
        for tenant in ["acme", "globex", "default"] {
            cluster.apply("default", &arktos(tenant));
        }
        cluster.apply("default", &seed("s0-2").replace("vpc-1a2b3c4d", "vpc-default"));
    }
    for tenant in ["acme", "globex", "default"] {
        let network = cluster.get(&[OURS, &format!("{tenant}.vpc-1")]);
        assert_eq!(network["spec"]["tenant"], tenant);
        assert_eq!(network["spec"]["vpcID"], format!("vpc-{tenant}"));
        assert_eq!(network["metadata"]["generation"], 1, "{tenant}");
    }
}

#[test]
fn nothing_is_deleted_by_a_name_that_may_be_anothers() {
    let cluster = Cluster::start();
    cluster.apply("default", &arktos("globex"));
    let said = cluster.say(&["delete", "-f", "-"], &arktos("acme"));
    assert!(!said.ok);
    assert!(said.err.contains("delete <tenant>.vpc-1"), "{}", said.err);
    cluster.kubectl(&["delete", ARKTOS, "globex.vpc-1"]);
    assert_eq!(cluster.kubectl(&["get", OURS, "-o", "name"]), "");
    cluster.apply("default", &seed("s2-1"));
    let said = cluster.say(&["delete", "-f", "-"], &seed("s2-1"));
    assert!(said.ok, "{}", said.err);
}

#[test]
fn a_network_made_as_a_seed_is_changed_as_ours_and_seen_by_both() {
    let cluster = Cluster::start();
    cluster.apply("default", &seed("s2-1"));
    let more = json!({"spec": {"cidrs": ["10.0.0.0/16", "10.1.0.0/16"]}}).to_string();
    cluster.kubectl(&["patch", OURS, "default.net1", "--type", "merge", "-p", &more]);
    cluster.apply("default", &seed("s2-1"));
    let network = cluster.get(&["corenetworks", "net1"]);
    assert_eq!(network["spec"]["cidrs"], json!(["10.0.0.0/16", "10.1.0.0/16"]));
    assert_eq!(network["spec"]["tenant"], Value::Null);
    let said = cluster.say(&["apply", "--server-side", "-f", "-"], &seed("s2-1"));
    assert!(said.ok, "{}", said.err);
    assert_eq!(cluster.get(&["corenetworks", "net1"])["spec"], network["spec"]);
}

#[test]
fn what_is_wrong_with_a_network_is_said_with_its_field() {
    let cluster = Cluster::start();
    let wrong = seed("s0-2").replace("vpc-id", "colour");
    let said = cluster.say(&["apply", "-f", "-"], &wrong);
    assert!(!said.ok);
    assert!(said.err.contains("Network vpc-1: spec.colour: no such field"), "{}", said.err);
    let created = cluster.say(&["create", "-f", "-"], &seed("s0-2"));
    assert!(created.ok, "{}", created.err);
    let again = cluster.say(&["create", "-f", "-"], &seed("s0-2"));
    assert!(again.err.contains("already exists"), "{}", again.err);
}
