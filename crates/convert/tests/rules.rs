//! What is decided, what is refused, and what is left alone.

#![allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "a test that cannot go on fails; its inputs are written in place"
)]

use std::collections::BTreeMap;

use atoll_convert::{Settings, convert};
use serde_json::{Value, json};

fn settings() -> Settings {
    let owned = |(namespace, tenant): (&str, Option<&str>)| {
        (namespace.to_owned(), tenant.map(str::to_owned))
    };
    let namespaces = [("shop", Some("acme")), ("kube-system", None)].map(owned);
    Settings { namespaces: BTreeMap::from(namespaces), ..Settings::default() }
}

/// The objects of a file, with the notes.
fn converted(file: &str) -> (Vec<Value>, Vec<String>) {
    let converted = convert(file, &settings()).unwrap();
    (converted.objects(), converted.notes.iter().map(ToString::to_string).collect())
}

fn one(object: &Value) -> (Value, Vec<String>) {
    let (mut objects, notes) = converted(&object.to_string());
    assert_eq!(objects.len(), 1);
    (objects.remove(0), notes)
}

fn refusal(file: &str) -> String {
    convert(file, &settings()).unwrap_err().to_string()
}

fn network(metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Network", "metadata": metadata, "spec": spec})
}

fn pod(metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

#[test]
fn a_manifest_belongs_to_the_tenant_it_names_before_the_one_asked_for() {
    let asked = Settings { tenant: Some("globex".parse().unwrap()), ..settings() };
    let name = |metadata: Value| {
        let file = network(metadata, json!({"type": "flat"})).to_string();
        convert(&file, &asked).unwrap().objects()[0]["metadata"]["name"].clone()
    };
    assert_eq!(name(json!({"name": "a", "tenant": "acme"})), "acme.a");
    assert_eq!(name(json!({"name": "a"})), "globex.a");
    assert_eq!(name(json!({"name": "a", "namespace": "shop"})), "globex.a");
}

#[test]
fn a_network_that_names_no_tenant_belongs_to_that_of_its_namespace_or_to_default() {
    let (inside, notes) = one(&network(json!({"name": "a", "namespace": "shop"}), json!(null)));
    assert_eq!(inside["metadata"], json!({"name": "acme.a"}));
    assert_eq!(
        notes[0],
        "document 1, Network a: becomes acme.a, of tenant acme (the tenant of namespace shop)"
    );
    let (outside, _) = one(&network(json!({"name": "a", "namespace": "kube-system"}), json!(null)));
    assert_eq!(outside["metadata"]["name"], "default.a");
}

#[test]
fn a_namespace_of_the_same_file_tells_its_tenant() {
    let file = "
apiVersion: v1
kind: Network
metadata: {name: a, namespace: later}
---
apiVersion: v1
kind: Namespace
metadata: {name: later, tenant: initech}
";
    let (objects, _) = converted(file);
    assert_eq!(objects[0]["metadata"]["name"], "initech.a");
    assert_eq!(objects[1]["metadata"]["labels"], json!({"atoll.dev/tenant": "initech"}));
}

#[test]
fn a_network_may_bring_its_ranges_and_only_vpc_networks_need_any() {
    let (own, notes) =
        one(&network(json!({"name": "a"}), json!({"type": "vpc", "cidrs": ["10.9.0.0/16"]})));
    assert_eq!(own["spec"]["cidrs"], json!(["10.9.0.0/16"]));
    assert_eq!(notes.len(), 1);
    let (other, _) = one(&network(json!({"name": "a"}), json!({"type": "mizar"})));
    assert_eq!(other["spec"], json!({"tenant": "default", "type": "mizar"}));
}

#[test]
fn a_network_that_exists_keeps_its_ranges() {
    let ranges = vec!["10.1.0.0/16".to_owned(), "10.2.0.0/16".to_owned()];
    let networks = BTreeMap::from([("default.a".to_owned(), ranges.clone())]);
    let settings = Settings { networks, ..settings() };
    let file = network(json!({"name": "a"}), json!({"type": "vpc"})).to_string();
    let converted = convert(&file, &settings).unwrap();
    assert_eq!(converted.objects()[0]["spec"]["cidrs"], json!(ranges));
    assert_eq!(converted.notes.len(), 1);
}

#[test]
fn both_spellings_of_the_vpc_are_taken_and_must_agree() {
    let spec = json!({"type": "vpc", "cidrs": ["10.0.0.0/8"], "vpc-id": "v", "vpcID": "v"});
    assert_eq!(one(&network(json!({"name": "a"}), spec)).0["spec"]["vpcID"], "v");
    let spec = json!({"type": "vpc", "vpc-id": "v", "vpcID": "w"});
    assert_eq!(
        refusal(&network(json!({"name": "a"}), spec).to_string()),
        "document 1, Network a: spec.vpc-id: is v, but spec.vpcID is w; leave one of them out"
    );
}

#[test]
fn what_is_wrong_with_a_network_is_said_with_document_kind_name_and_field() {
    let said = |metadata: Value, spec: Value| refusal(&network(metadata, spec).to_string());
    let named = json!({"name": "a"});
    let starts = |text: String, start: &str| assert!(text.starts_with(start), "{text}");
    starts(
        said(named.clone(), json!({"colour": 1})),
        "document 1, Network a: spec.colour: no such",
    );
    starts(
        said(named.clone(), json!({"type": 7})),
        "document 1, Network a: spec.type: 7 is no type",
    );
    starts(said(named.clone(), json!({"vpcID": "<id>"})), "document 1, Network a: spec.vpcID: ");
    starts(said(named.clone(), json!([1])), "document 1, Network a: spec: must hold fields");
    starts(said(named, json!({"cidrs": ["10.0.0.1/8"]})), "document 1, Network a: spec.cidrs[0]: ");
    starts(said(json!({"name": "A b"}), json!({})), "document 1, Network A b: metadata.name: ");
    starts(said(json!({}), json!({})), "document 1, Network: metadata.name: is missing");
    starts(
        refusal("{apiVersion: v1, kind: Network, metadata: {name: on}}"),
        "document 1, Network: metadata.name: true is not a name; put it in quotes",
    );
    starts(
        said(json!({"name": "acme.a", "tenant": "globex"}), json!({})),
        "document 1, Network acme.a: metadata.name: acme.a is a network of acme, but",
    );
    let second = "kind: ConfigMap\napiVersion: v1\n---\nkind: Network\napiVersion: v1\nextra: 1\n";
    starts(refusal(second), "document 2, Network: extra: no such field");
}

#[test]
fn templates_of_workloads_are_pods_too() {
    let spec = json!({"network": "n", "nics": [{"ip": "10.0.0.5"}], "extraNetworks": ["m"]});
    let template = json!({"metadata": {"tenant": "acme"}, "spec": spec});
    let marked = json!({
        "metadata": {"labels": {"atoll.dev/network": "n"}, "annotations": {
            "atoll.dev/nics": r#"[{"ip":"10.0.0.5"}]"#, "atoll.dev/extra-networks": r#"["m"]"#}},
        "spec": {},
    });
    let metadata = json!({"name": "w", "namespace": "shop"});
    for (version, kind) in [
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "ReplicaSet"),
        ("batch/v1", "Job"),
        ("v1", "ReplicationController"),
    ] {
        let workload = json!({"apiVersion": version, "kind": kind, "metadata": metadata,
            "spec": {"template": template}});
        assert_eq!(one(&workload).0["spec"]["template"], marked, "{kind}");
    }
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata,
        "spec": {"jobTemplate": {"spec": {"template": template}}}});
    assert_eq!(one(&cron).0["spec"]["jobTemplate"]["spec"]["template"], marked);
}

#[test]
fn what_is_wrong_with_a_pod_is_said_with_its_field() {
    let said = |spec: Value| refusal(&pod(json!({"name": "p"}), spec).to_string());
    let place = "document 1, Pod p: spec.";
    for (spec, why) in [
        (json!({"network": "a.b"}), "network: \"a.b\" is not a name"),
        (json!({"network": ["a"]}), "network: [\"a\"] is not a name"),
        (json!({"nics": "eth0"}), "nics: \"eth0\" is no list of interfaces"),
        (json!({"nics": [{"ip": "10.0"}]}), "nics[0].ip: \"10.0\" is not an IP address"),
        (json!({"nics": [{}, {"adress": "x"}]}), "nics[1].adress: no such field"),
        (json!({"extraNetworks": ["a", ""]}), "extraNetworks[1]: names no network"),
        (json!({"extraNetworks": "a"}), "extraNetworks: \"a\" is no list of networks"),
    ] {
        let text = said(spec);
        assert!(text.starts_with(&format!("{place}{why}")), "{text}");
    }
}

#[test]
fn a_pod_that_says_two_things_is_refused() {
    let ours = json!({"name": "p", "labels": {"atoll.dev/network": "a"}});
    assert_eq!(
        refusal(&pod(ours.clone(), json!({"network": "b"})).to_string()),
        "document 1, Pod p: spec.network: says b, but atoll.dev/network says a"
    );
    assert_eq!(one(&pod(ours.clone(), json!({"network": "a"}))).0, pod(ours, json!({})));
    let arktos = json!({"name": "p", "labels": {"arktos.futurewei.com/network": "a"}});
    assert!(refusal(&pod(arktos, json!({"network": "b"})).to_string()).contains("is b, but"));
}

#[test]
fn a_pods_tenant_is_dropped_where_its_namespace_agrees_and_refused_where_not() {
    let of = |namespace: &str| {
        pod(json!({"name": "p", "namespace": namespace, "tenant": "acme"}), json!({}))
    };
    let (object, notes) = one(&of("shop"));
    assert_eq!(object["metadata"], json!({"name": "p", "namespace": "shop"}));
    assert!(notes[0].ends_with("is dropped: it owns namespace shop already"), "{notes:?}");
    let (_, notes) = one(&of("elsewhere"));
    assert!(notes[0].contains("must carry the label atoll.dev/tenant=acme"), "{notes:?}");
    assert!(refusal(&of("kube-system").to_string()).contains("belongs to no tenant"));
    let globex = pod(json!({"name": "p", "namespace": "shop", "tenant": "globex"}), json!({}));
    assert!(refusal(&globex.to_string()).contains("belongs to tenant acme"));
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "s", "namespace": "shop", "tenant": "acme"}});
    assert_eq!(one(&service).0["metadata"], json!({"name": "s", "namespace": "shop"}));
}

#[test]
fn a_namespace_asks_for_one_network_in_either_spelling() {
    let namespace = |spec: Value| {
        json!({"apiVersion": "v1", "kind": "Namespace", "spec": spec,
            "metadata": {"name": "n", "tenant": "acme"}})
    };
    for spec in [
        json!({"network": "a"}),
        json!({"defaultNetwork": "a"}),
        json!({"network": "a", "defaultNetwork": "a"}),
    ] {
        let (object, _) = one(&namespace(spec));
        let labels = json!({"atoll.dev/network": "a", "atoll.dev/tenant": "acme"});
        assert_eq!(object["metadata"]["labels"], labels);
        assert_eq!(object["spec"], Value::Null);
    }
    let kept = one(&namespace(json!({"network": "a", "finalizers": ["kubernetes"]}))).0;
    assert_eq!(kept["spec"], json!({"finalizers": ["kubernetes"]}));
    let two = namespace(json!({"network": "a", "defaultNetwork": "b"})).to_string();
    assert!(refusal(&two).starts_with("document 1, Namespace n: spec.defaultNetwork: is b, but"));
}

#[test]
fn a_namespace_keeps_the_tenant_that_its_label_names() {
    let namespace = |tenant: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "tenant": tenant,
            "labels": {"atoll.dev/tenant": "acme"}}})
    };
    assert_eq!(
        one(&namespace("acme")).0["metadata"]["labels"],
        json!({"atoll.dev/tenant": "acme"})
    );
    assert!(refusal(&namespace("globex").to_string()).contains("metadata.tenant: is globex, but"));
}

#[test]
fn lists_are_converted_item_by_item() {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        network(json!({"name": "a"}), json!({"type": "flat"})),
        pod(json!({"name": "p"}), json!({"network": "a"})),
    ]});
    let (objects, notes) = converted(&list.to_string());
    assert_eq!(objects[0]["metadata"]["name"], "default.a");
    assert_eq!(objects[1]["metadata"]["labels"]["atoll.dev/network"], "a");
    assert!(notes[0].starts_with("document 1, item 1, Network a: "), "{notes:?}");
    let typed = json!({"apiVersion": "v1", "kind": "NetworkList",
        "items": [{"metadata": {"name": "a"}, "spec": {"type": "flat"}}]});
    let converted = convert(&typed.to_string(), &settings()).unwrap();
    let printed: Value = serde_json::from_str(&converted.json()).unwrap();
    assert_eq!(printed["kind"], "List");
    assert_eq!(printed["items"][0]["kind"], "Network");
    assert_eq!(printed["items"][0]["apiVersion"], "atoll.dev/v1alpha1");
}

#[test]
fn what_needs_no_change_keeps_its_comments_and_its_look() {
    let plain = "# why\nkind:   Deployment # odd\napiVersion: apps/v1\nspec: {replicas: 0o3}\n";
    let file =
        format!("---\n{plain}---\n\n---\nkind: Pod\napiVersion: v1 # gone\nspec: {{network: a}}\n");
    let printed = convert(&file, &settings()).unwrap().yaml();
    assert_eq!(
        printed,
        format!(
            "{plain}---\nkind: Pod\napiVersion: v1\nspec: {{}}\nmetadata:\n  labels:\n    atoll.dev/network: a\n"
        )
    );
}

#[test]
fn values_are_read_as_kubernetes_reads_them() {
    let file = "kind: Pod\napiVersion: v1\nspec: {network: a, mode: 0644, flag: yes, text: '0644', word: 'yes'}\n";
    let converted = convert(file, &settings()).unwrap();
    let spec = json!({"mode": 420, "flag": true, "text": "0644", "word": "yes"});
    assert_eq!(converted.objects()[0]["spec"], spec);
    let again = convert(&converted.yaml(), &settings()).unwrap();
    assert_eq!(again.objects(), converted.objects());
}

#[test]
fn several_json_documents_are_printed_as_one_list() {
    let file = format!(
        "{}\n{}",
        pod(json!({"name": "a"}), json!({})),
        pod(json!({"name": "b"}), json!({}))
    );
    let printed: Value =
        serde_json::from_str(&convert(&file, &settings()).unwrap().json()).unwrap();
    assert_eq!(printed["kind"], "List");
    assert_eq!(printed["items"][1]["metadata"]["name"], "b");
}

#[test]
fn what_cannot_be_read_is_told_with_its_document_and_line() {
    let file = "kind: Pod\napiVersion: v1\n---\nkind: Pod\n  bad: [\n";
    let said = refusal(file);
    assert!(said.starts_with("document 2: cannot be read as YAML: "), "{said}");
    assert!(said.contains("line 5"), "{said}");
    assert!(refusal("- a\n").contains("document 1: an object with apiVersion and kind"));
    assert!(refusal("kind: Pod\nkind: Node\n").contains("uplicate"));
    assert!(refusal("kind: Pod\n").contains("apiVersion: is missing"));
    assert!(refusal("just text").contains("an object"));
    assert!(refusal("{\"kind\": ").starts_with("document 1: cannot be read"));
}
