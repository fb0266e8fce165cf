//! Pods, namespaces and workloads: stored as ours, however often they are applied.

use crate::cluster::{Cluster, seed, with_container};
use serde_json::{Value, json};

/// Applies twice; the second time nothing may change.
fn apply_twice(cluster: &Cluster, namespace: &str, manifest: &str, object: &[&str]) -> Value {
    cluster.apply(namespace, manifest);
    let arguments = [&["-n", namespace], object].concat();
    let first = as_written(cluster.get(&arguments));
    cluster.apply(namespace, manifest);
    let second = as_written(cluster.get(&arguments));
    assert_eq!(second, first, "applying again changed {object:?}");
    second
}

/// Without what controllers write at their own time.
fn as_written(mut object: Value) -> Value {
    object.as_object_mut().unwrap().remove("status");
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("deployment.kubernetes.io/revision");
    }
    object
}

#[test]
fn a_plain_pod_is_left_as_it_is() {
    let cluster = Cluster::start();
    cluster.namespace("shop", "acme");
    for name in ["s0-3", "s4-3"] {
        let manifest = with_container(&seed(name));
        let said = cluster.apply("shop", &manifest);
        assert_eq!(said.err, "");
        assert!(cluster.apply("shop", &manifest).out.ends_with(" unchanged\n"));
    }
    let pod = cluster.get(&["-n", "shop", "pod", "nginx"]);
    assert_eq!(pod["metadata"]["labels"], Value::Null);
    let pod = cluster.get(&["-n", "shop", "pod", "web"]);
    assert_eq!(pod["metadata"]["annotations"]["mizar.com/vpc"], "vpc-acme");
}

#[test]
fn a_pods_network_and_interfaces_become_marks() {
    let cluster = Cluster::start();
    cluster.namespace("shop", "acme");
    let pod = apply_twice(&cluster, "shop", &seed("s0-4"), &["pod", "nginx"]);
    assert_eq!(pod["metadata"]["labels"], json!({"atoll.dev/network": "vpc-1"}));
    assert_eq!(pod["spec"]["network"], Value::Null);
    cluster.kubectl(&["delete", "pod", "nginx", "-n", "shop"]);
    let pod = apply_twice(&cluster, "shop", &seed("s0-5"), &["pod", "nginx"]);
    let nics = pod["metadata"]["annotations"]["atoll.dev/nics"].as_str().unwrap();
    let nics: Value = serde_json::from_str(nics).unwrap();
    assert_eq!(nics, json!([{"subnet": "subnet-1", "ip": "192.168.0.12"}]));
}

#[test]
fn a_namespaces_network_becomes_a_label_and_its_pods_may_have_more() {
    let cluster = Cluster::start();
    let namespace = apply_twice(&cluster, "default", &seed("s2-2"), &["namespace", "testing"]);
    let labels = &namespace["metadata"]["labels"];
    assert_eq!(labels["atoll.dev/network"], "net1");
    assert_eq!(labels["atoll.dev/tenant"], "default");
    let manifest = with_container(&seed("s2-3"));
    let pod = apply_twice(&cluster, "testing", &manifest, &["pod", "webserver"]);
    assert_eq!(pod["metadata"]["annotations"]["atoll.dev/extra-networks"], r#"["net2"]"#);
}

#[test]
fn what_was_decided_is_told_as_a_warning() {
    let cluster = Cluster::start();
    let said = cluster.apply("default", &seed("s2-2"));
    assert_eq!(said.err, "Warning: belongs to tenant default (nothing names a tenant)\n");
}

#[test]
fn a_pod_of_arktos_needs_a_namespace_of_its_tenant() {
    let cluster = Cluster::start();
    cluster.namespace("shop", "acme");
    // kubectl itself does not send a manifest without apiVersion.
    let manifest = with_container(&seed("s4-5")).replace("piVersion", "apiVersion");
    let pod = apply_twice(&cluster, "shop", &manifest, &["pod", "web"]);
    assert_eq!(pod["metadata"]["labels"], json!({"arktos.futurewei.com/network": "vpc-1"}));
    assert_eq!(pod["metadata"]["tenant"], Value::Null);
    let elsewhere = cluster.say(&["apply", "-n", "default", "-f", "-"], &manifest);
    assert!(!elsewhere.ok, "a pod of acme was taken in a namespace of nobody");
    assert!(elsewhere.err.contains("namespace default belongs to no tenant"), "{}", elsewhere.err);
}

#[test]
fn what_is_taken_out_of_a_manifest_goes_and_what_others_wrote_stays() {
    let cluster = Cluster::start();
    cluster.namespace("shop", "acme");
    cluster.apply("shop", &seed("s0-5"));
    cluster.kubectl(&["label", "pod", "nginx", "-n", "shop", "tier=front"]);
    cluster.apply("shop", &seed("s0-5").replace("vpc-1", "vpc-2"));
    let labels = |cluster: &Cluster| {
        cluster.get(&["-n", "shop", "pod", "nginx"])["metadata"]["labels"].clone()
    };
    assert_eq!(labels(&cluster), json!({"atoll.dev/network": "vpc-2", "tier": "front"}));
    cluster.apply("shop", &seed("s0-3"));
    assert_eq!(labels(&cluster), json!({"tier": "front"}));
    let pod = cluster.get(&["-n", "shop", "pod", "nginx"]);
    assert_eq!(pod["metadata"]["annotations"]["atoll.dev/nics"], Value::Null);
}

#[test]
fn a_namespace_that_was_given_away_stays_so() {
    let cluster = Cluster::start();
    cluster.apply("default", &seed("s2-2"));
    cluster.kubectl(&["label", "--overwrite", "namespace", "testing", "atoll.dev/tenant=acme"]);
    cluster.apply("default", &seed("s2-2"));
    let namespace = cluster.get(&["namespace", "testing"]);
    assert_eq!(namespace["metadata"]["labels"]["atoll.dev/tenant"], "acme");
    assert_eq!(namespace["metadata"]["labels"]["atoll.dev/network"], "net1");
}

#[test]
fn the_template_of_a_deployment_is_a_pod_too() {
    let cluster = Cluster::start();
    cluster.namespace("shop", "acme");
    let manifest = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "tenant": "acme"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"network": "vpc-1", "nics": [{"subnet": "a"}],
                "containers": [{"name": "main", "image": "none:1"}]}}},
    });
    let deployment = apply_twice(&cluster, "shop", &manifest.to_string(), &["deployment", "web"]);
    let metadata = &deployment["spec"]["template"]["metadata"];
    assert_eq!(metadata["labels"], json!({"app": "web", "atoll.dev/network": "vpc-1"}));
    assert_eq!(metadata["annotations"]["atoll.dev/nics"], r#"[{"subnet":"a"}]"#);
}

#[test]
fn server_side_apply_takes_them_too() {
    let cluster = Cluster::start();
    cluster.namespace("shop", "acme");
    let apply = ["apply", "--server-side", "-n", "shop", "-f", "-"];
    for name in ["s0-2", "s0-5", "s2-1", "s2-2", "s4-4"] {
        for _ in 0..2 {
            let said = cluster.say(&apply, &seed(name));
            assert!(said.ok, "{name}: {}", said.err);
        }
    }
    let pod = cluster.get(&["-n", "shop", "pod", "nginx"]);
    assert_eq!(pod["metadata"]["labels"], json!({"atoll.dev/network": "vpc-1"}));
    let names = cluster.kubectl(&["get", "networks.atoll.dev", "-o", "name"]);
    assert_eq!(
        names,
        "network.atoll.dev/acme.vpc-1\nnetwork.atoll.dev/default.net1\n\
         network.atoll.dev/default.vpc-1\n"
    );
}

#[test]
fn nonsense_is_refused_with_its_field() {
    let cluster = Cluster::start();
    let wrong = seed("s0-5").replace("192.168.0.12", "192.168.0");
    let said = cluster.say(&["apply", "-f", "-"], &wrong);
    assert!(!said.ok);
    assert!(said.err.contains("Pod nginx: spec.nics[0].ip: \"192.168.0\" is not"), "{}", said.err);
}

#[test]
fn objects_of_mizar_are_left_as_they_are() {
    let cluster = Cluster::start();
    for (kind, plural) in [("Vpc", "vpcs"), ("Subnet", "subnets")] {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.mizar.com")},
            "spec": {"group": "mizar.com", "scope": "Cluster",
                "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema}}]},
        });
        cluster.apply("default", &definition.to_string());
    }
    for name in ["s4-1", "s4-2"] {
        assert_eq!(cluster.apply("default", &seed(name)).err, "");
        assert!(cluster.apply("default", &seed(name)).out.ends_with(" unchanged\n"));
    }
    let vpc = cluster.get(&["vpcs.mizar.com", "vpc-acme"]);
    assert_eq!(vpc["spec"]["ip"], "10.20.0.0");
}
