//! `atoll apply`, against the embedded API, and where a case is for any cluster also a real one.

use crate::cluster::Cluster;
use crate::seed;

const NETWORK: (&str, &str, &str) = ("atoll.dev", "v1alpha1", "Network");
const POD: (&str, &str, &str) = ("", "v1", "Pod");

const SHOP: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop, tenant: acme}
spec: {network: vpc-1}
---
apiVersion: v1
kind: Network
metadata: {name: vpc-1, tenant: acme}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, tenant: acme}
spec:
  network: vpc-1
  containers: [{name: main, image: 'none:1'}]
";

#[test]
fn every_object_is_created_then_left_alone_then_configured() {
    let cluster = Cluster::start();
    let said = |file: &str| {
        let said = cluster.apply(&["-f", "-"], file);
        assert!(said.ok, "{}", said.err);
        said.out
    };
    assert_eq!(
        said(SHOP),
        "namespace/shop created\nnetwork.atoll.dev/acme.vpc-1 created\npod/web created\n"
    );
    assert_eq!(
        said(SHOP),
        "namespace/shop unchanged\nnetwork.atoll.dev/acme.vpc-1 unchanged\npod/web unchanged\n"
    );
    assert_eq!(
        said(&SHOP.replace("none:1", "none:2")),
        "namespace/shop unchanged\nnetwork.atoll.dev/acme.vpc-1 unchanged\npod/web configured\n"
    );
    let pod = cluster.get(POD, "shop", "web").unwrap();
    assert_eq!(pod.metadata.labels.unwrap()["atoll.dev/network"], "vpc-1");
}

/// The pod comes after the account of its namespace is there, without which a real cluster takes
/// none.
#[test]
fn manifests_of_the_seeds_are_applied_to_any_cluster() {
    let cluster = Cluster::any();
    let (place, _) = SHOP.rsplit_once("---").unwrap();
    let said = |file: &str| {
        let said = cluster.apply(&["-f", "-"], file);
        assert!(said.ok, "{}", said.err);
        said.out
    };
    assert_eq!(said(place), "namespace/shop created\nnetwork.atoll.dev/acme.vpc-1 created\n");
    let account = ("", "v1", "ServiceAccount");
    cluster.until(|| cluster.get(account, "shop", "default").is_some(), "the account of the shop");
    assert!(said(SHOP).ends_with("pod/web created\n"));
    assert_eq!(
        said(SHOP),
        "namespace/shop unchanged\nnetwork.atoll.dev/acme.vpc-1 unchanged\npod/web unchanged\n"
    );
    let pod = cluster.get(POD, "shop", "web").unwrap();
    assert_eq!(pod.metadata.labels.unwrap()["atoll.dev/network"], "vpc-1");
    let network = cluster.get(NETWORK, "", "acme.vpc-1").unwrap();
    assert_eq!(network.data["spec"]["tenant"], "acme");
}

#[test]
fn every_manifest_of_the_seeds_that_is_complete_is_applied_twice() {
    let cluster = Cluster::start();
    for name in ["s0-1", "s0-2", "s0-4", "s2-1", "s2-2", "s4-4"] {
        let file = seed(name);
        let said = cluster.apply(&["-f", file.to_str().unwrap()], "");
        assert!(said.ok && said.out.ends_with(" created\n"), "{name}: {}{}", said.out, said.err);
        let said = cluster.apply(&["-f", file.to_str().unwrap()], "");
        assert!(said.ok && said.out.ends_with(" unchanged\n"), "{name}: {}{}", said.out, said.err);
    }
    assert!(cluster.get(NETWORK, "", "acme.vpc-1").is_some());
    assert!(cluster.get(NETWORK, "", "default.net1").is_some());
}

#[test]
fn the_tenant_of_a_namespace_is_read_from_the_cluster() {
    let cluster = Cluster::start();
    cluster.apply(&["-f", "-"], SHOP);
    let network = "{apiVersion: v1, kind: Network, metadata: {name: net2, namespace: shop}}";
    let said = cluster.apply(&["-f", "-"], network);
    assert_eq!(said.out, "network.atoll.dev/acme.net2 created\n", "{}", said.err);
    let stranger = SHOP.rsplit("---").next().unwrap().replace("tenant: acme", "tenant: globex");
    let said = cluster.apply(&["-f", "-"], &stranger);
    assert!(!said.ok);
    assert!(said.err.contains("namespace shop belongs to tenant acme"), "{}", said.err);
}

#[test]
fn a_network_that_was_given_more_ranges_keeps_them() {
    let cluster = Cluster::start();
    let more = "
apiVersion: atoll.dev/v1alpha1
kind: Network
metadata: {name: default.net1}
spec: {tenant: default, type: vpc, cidrs: [10.1.0.0/16, 10.2.0.0/16]}
";
    assert!(cluster.apply(&["-f", "-"], more).ok);
    let said = cluster.apply(&["-f", seed("s2-1").to_str().unwrap()], "");
    assert_eq!(said.out, "network.atoll.dev/default.net1 unchanged\n", "{}", said.err);
}

#[test]
fn a_dry_run_writes_nothing() {
    let cluster = Cluster::start();
    let network = seed("s4-4");
    let arguments = ["-f", network.to_str().unwrap()];
    let said = cluster.apply(&[&arguments[..], &["--dry-run"]].concat(), "");
    assert_eq!(said.out, "network.atoll.dev/acme.vpc-1 created (dry run)\n", "{}", said.err);
    assert!(cluster.get(NETWORK, "", "acme.vpc-1").is_none());
    cluster.apply(&arguments, "");
    let said = cluster.apply(&[&arguments[..], &["--dry-run"]].concat(), "");
    assert_eq!(said.out, "network.atoll.dev/acme.vpc-1 unchanged (dry run)\n", "{}", said.err);
}

#[test]
fn one_that_is_refused_does_not_keep_the_others_away() {
    let cluster = Cluster::start();
    let file = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: empty}}}}\n---\n\
         {{apiVersion: none.dev/v1, kind: Thing, metadata: {{name: t}}}}\n---{SHOP}"
    );
    let said = cluster.apply(&["-f", "-"], &file);
    assert!(!said.ok);
    assert!(said.err.contains("cannot apply pod/empty"), "{}", said.err);
    assert!(said.err.contains("does not know Thing of none.dev/v1"), "{}", said.err);
    assert!(said.out.ends_with("pod/web created\n"), "{}", said.out);
}

#[test]
fn objects_that_name_no_namespace_go_where_they_are_told() {
    let cluster = Cluster::start();
    cluster.apply(&["-f", "-"], SHOP);
    let file = seed("s0-4");
    let said = cluster.apply(&["-n", "shop", "-f", file.to_str().unwrap()], "");
    assert!(said.ok, "{}", said.err);
    assert!(cluster.get(POD, "shop", "nginx").is_some());
}
