//! What a tenant has: networks that its namespaces share, addresses of its services, and a quota.

use serde_json::{Value, json};

use crate::documents::{pod, tenant, yaml};
use crate::fixture::{Lab, await_condition};
use crate::several_networks::{answer, server};

pub(crate) fn namespace(name: &str, tenant: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace",
           "metadata": {"name": name, "labels": {"atoll.dev/tenant": tenant}}})
}

pub(crate) fn network(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Network", "metadata": {"name": name},
           "spec": spec})
}

pub(crate) fn service(namespace: &str, name: &str, vip: Option<&str>) -> Value {
    let annotations = vip.map(|vip| json!({"atoll.dev/vip": vip})).unwrap_or_default();
    json!({"apiVersion": "v1", "kind": "Service",
           "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
           "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]}})
}

/// A field of an object, once it is what `wanted` accepts.
pub(crate) fn field(
    lab: &Lab,
    object: &[&str],
    path: &str,
    wanted: impl Fn(&str) -> bool,
) -> String {
    let path = format!("jsonpath={path}");
    lab.eventually(&[&["get"], object, &["-o", &path]].concat(), wanted)
}

pub(crate) fn address(lab: &Lab, namespace: &str, pod: &str) -> String {
    field(lab, &["pod", "-n", namespace, pod], "{.status.podIP}", |ip| !ip.is_empty())
}

#[test]
fn pods_of_two_namespaces_and_of_two_networks_of_a_vpc_meet_and_another_vpc_is_apart() {
    let lab = Lab::up(2);
    lab.apply(&tenant("acme")).good();
    let more =
        json!({"tenant": "acme", "type": "vpc", "vpcID": "default", "cidrs": ["10.2.0.0/16"]});
    let arktos = json!({"arktos.futurewei.com/network": "more"});
    let b = json!({"atoll.dev/network": "b"});
    let none = json!({});
    lab.apply(&yaml(&[
        namespace("second", "acme"),
        network("acme.more", &more),
        pod("acme/web", "node1", &none, &none),
        pod("second/db", "node2", &none, &none),
        pod("second/more", "node2", &arktos, &none),
        pod("acme/apart", "node1", &b, &none),
        pod("second/near", "node2", &b, &none),
    ]))
    .good();
    lab.wait_for_pods();
    let at = |pod: &str| {
        let (namespace, name) = pod.split_once('/').unwrap();
        address(&lab, namespace, name)
    };
    assert!(at("second/more").starts_with("10.2."), "the label of Arktos is honoured");
    for pair in
        [["acme/web", "second/db"], ["acme/web", "second/more"], ["acme/apart", "second/near"]]
    {
        for [from, to] in [pair, [pair[1], pair[0]]] {
            assert_eq!(answer(&lab, from, &at(to)), (to.to_owned(), at(from)));
        }
    }
    for (from, to) in [("acme/web", "acme/apart"), ("acme/apart", "second/more")] {
        lab.connect(from, "tcp", &server(&at(to))).bad();
    }
    assert_deletion_waits_for_pods_and_leaves_nothing(&lab);
}

/// Network `b`, which pods of both namespaces use.
fn assert_deletion_waits_for_pods_and_leaves_nothing(lab: &Lab) {
    let links = |node: &str| {
        let listed = lab.node(node, &["ip", "-o", "link"]).good();
        listed.lines().filter(|line| line.contains(": atl")).count()
    };
    assert_eq!((links("node1"), links("node2")), (2, 3));
    lab.kubectl(&["delete", "network", "acme.b", "--wait=false"]).good();
    let ready = "{.status.conditions[?(@.type=='Ready')].message}";
    field(lab, &["network", "acme.b"], ready, |said| {
        said.contains("acme/apart") && said.contains("second/near")
    });
    lab.kubectl(&["delete", "pod", "-n", "acme", "apart"]).good();
    lab.kubectl(&["delete", "pod", "-n", "second", "near"]).good();
    lab.kubectl(&["wait", "--for=delete", "network/acme.b", "--timeout=90s"]).good();
    await_condition(|| (links("node1"), links("node2")) == (1, 2)).expect("its links are gone");
    let left = lab.kubectl(&["get", "subnets,claims,ports", "-A", "-o", "name"]).good();
    let of_b = |line: &&str| line.contains("acme.b") || line.contains("apart");
    assert_eq!(left.lines().find(of_b), None);
}

#[test]
fn services_of_two_tenants_have_one_vip_and_no_tenant_has_more_than_its_quota() {
    let lab = Lab::up(1);
    for name in ["acme", "globex"] {
        let web = pod(&format!("{name}/web"), "node1", &json!({}), &json!({}));
        let shop = service(name, "shop", Some("198.18.3.7"));
        lab.apply(&(tenant(name) + &yaml(&[web, shop, service(name, "plain", None)]))).good();
    }
    lab.wait_for_pods();
    for name in ["acme", "globex"] {
        let given = vip(&lab, name, "plain");
        assert!(given.starts_with("198.18.") && given != "198.18.3.7", "{given}");
        for (service, vip) in [("shop", "198.18.3.7"), ("plain", given.as_str())] {
            let dig = ["dig", "+search", "+nocookie", "+short", service];
            await_answer(&lab, &format!("{name}/web"), &dig, vip);
        }
    }
    lab.apply(&service("acme", "late", Some("198.18.3.7")).to_string()).good();
    said(&lab, "acme", "late", "198.18.3.7");
    assert_quota_is_kept(&lab);
}

/// The address that a service was given.
pub(crate) fn vip(lab: &Lab, namespace: &str, name: &str) -> String {
    let path = r"{.metadata.annotations.atoll\.dev/vip}";
    field(lab, &["service", "-n", namespace, name], path, |vip| !vip.is_empty())
}

fn await_answer(lab: &Lab, pod: &str, dig: &[&str], wanted: &str) {
    await_condition(|| lab.exec(pod, dig).good().trim() == wanted)
        .unwrap_or_else(|()| panic!("{pod} {dig:?}: never {wanted}"));
}

/// Waits for an event about an object with these words.
pub(crate) fn said(lab: &Lab, namespace: &str, about: &str, words: &str) {
    let path = format!("{{.items[?(@.involvedObject.name=='{about}')].message}}");
    field(lab, &["events", "-n", namespace], &path, |said| said.contains(words));
}

/// A tenant that may have one of everything: what is too many waits, says so, and comes when there
/// is room.
fn assert_quota_is_kept(lab: &Lab) {
    let small = |quota: &Value| {
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "small"},
               "spec": {"quota": quota,
                        "defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/16"]}}})
    };
    let server = |name: &str| pod(&format!("small/{name}"), "node1", &json!({}), &json!({}));
    let one = json!({"networks": 1, "ports": 1, "vips": 1});
    let first =
        [small(&one), namespace("small", "small"), server("one"), service("small", "one", None)];
    lab.apply(&yaml(&first)).good();
    lab.wait_for_pods();
    vip(lab, "small", "one");
    let more = network("small.more", &json!({"tenant": "small", "type": "flat"}));
    lab.apply(&yaml(&[more, server("two"), service("small", "two", None)])).good();
    said(lab, "small", "two", "tenant small may have 1 ports and has 1");
    said(lab, "small", "two", "tenant small may have 1 VIPs and has 1");
    let ready = "{.status.conditions[?(@.type=='Ready')].message}";
    field(lab, &["network", "small.more"], ready, |said| said.contains("may have 1 networks"));
    let room = "{.status.conditions[?(@.type=='HasRoom')].message}";
    let full = |said: &str| {
        ["networks", "ports", "VIPs"].iter().all(|what| said.contains(&format!(" of 1 {what}")))
    };
    field(lab, &["tenant", "small"], room, full);

    lab.kubectl(&["delete", "pod", "-n", "small", "one"]).good();
    field(lab, &["pod", "-n", "small", "two"], "{.status.phase}", |phase| phase == "Running");
    lab.apply(&small(&json!({"networks": 2, "ports": 2, "vips": 2})).to_string()).good();
    field(lab, &["network", "small.more"], "{.status.phase}", |phase| phase == "Active");
    vip(lab, "small", "two");
}
