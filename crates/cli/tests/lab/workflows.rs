//! The workflows of the design that tenants on VPCs come from, by its own manifests, and the template
//! for default networks.

use std::path::Path;

use serde_json::{Value, json};

use crate::documents::yaml;
use crate::fixture::Lab;
use crate::several_networks::{answer, server};
use crate::tenants::{address, field, namespace, said};

/// A manifest of the design for another tenant. The lab pulls no images, so that a pod says what
/// to run.
fn seed(name: &str, tenant: &str, changes: &[(&str, &str)]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../convert/tests/seeds");
    let text = std::fs::read_to_string(folder.join(name)).unwrap().replace("acme", tenant);
    let text = changes.iter().fold(text, |text, (from, to)| text.replace(from, to));
    let mut object: Value = serde_yaml_ng::from_str(&text).unwrap();
    if object["kind"] == "Pod" {
        let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        object["spec"]["containers"] = json!([{"name": "main", "image": "none",
            "command": ["atoll", "toolbox", "serve"],
            "env": [field("POD_NAME", "metadata.name"),
                    field("POD_NAMESPACE", "metadata.namespace")]}]);
    }
    object.to_string()
}

/// Sends manifests of the design to the lab's API.
fn send(lab: &Lab, home: &str, manifest: &str) {
    let file = lab.manifest(manifest);
    let args = ["apply", "-n", home, "-f", file.to_str().unwrap()];
    lab.atoll(&args).good();
}

fn tenant(name: &str, range: &str) -> Value {
    json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
           "spec": {"defaultNetwork": {"type": "vpc", "cidrs": [range]}}})
}

const PLAIN: &str = "s0-3-pod-on-the-default-network.yaml";
const NETWORK: &str = "s4-4-arktos-network.yaml";
const POD: &str = "s4-5-arktos-pod.yaml";

fn phase(lab: &Lab, network: &str, phase: &str) {
    field(lab, &["network", network], "{.status.phase}", |it| it == phase);
}

#[test]
fn workflow_1_on_the_lab_a_pod_made_too_early_waits_for_its_tenants_network_and_is_attached() {
    let lab = Lab::shared();
    lab.apply(&namespace("flow-one", "flow-one").to_string()).good();
    send(&lab, "flow-one", &seed(PLAIN, "flow-one", &[]));
    said(&lab, "flow-one", "nginx", "network flow-one.default does not exist");
    lab.apply(&tenant("flow-one", "10.0.0.0/16").to_string()).good();
    phase(&lab, "flow-one.default", "Active");
    field(&lab, &["tenant", "flow-one"], "{.status.phase}", |it| it == "Active");
    let subnet = ["subnet", "flow-one.default.10-0-0-0-16"];
    field(&lab, &subnet, "{.status.phase}", |it| it == "Active");
    lab.wait_for_pods_of("flow-one");
    let nginx = address(&lab, "flow-one", "nginx");
    assert!(nginx.starts_with("10.0.0."), "{nginx}");
    let marks = ["get", "pod", "-n", "flow-one", "nginx", "-o", "jsonpath={.metadata.labels}"];
    assert_eq!(lab.kubectl(&marks).good(), "", "nothing had to be said");
    send(&lab, "flow-one", &seed(PLAIN, "flow-one", &[("name: nginx\nspec", "name: peer\nspec")]));
    lab.wait_for_pods_of("flow-one");
    let said = answer(&lab, "flow-one/peer", &nginx);
    assert_eq!(said, ("flow-one/nginx".into(), address(&lab, "flow-one", "peer")));
}

#[test]
fn workflow_2_on_the_lab_pods_that_name_a_second_network_live_there_and_are_apart_from_the_first() {
    let lab = Lab::shared();
    let home = namespace("flow-two", "flow-two");
    lab.apply(&yaml(&[tenant("flow-two", "10.5.0.0/16"), home])).good();
    send(&lab, "flow-two", &seed(NETWORK, "flow-two", &[]));
    phase(&lab, "flow-two.vpc-1", "Active");
    send(&lab, "flow-two", &seed(PLAIN, "flow-two", &[]));
    for name in ["web", "db"] {
        send(&lab, "flow-two", &seed(POD, "flow-two", &[("name: web", &format!("name: {name}"))]));
    }
    lab.wait_for_pods_of("flow-two");
    let at = |pod: &str| address(&lab, "flow-two", pod);
    assert!(at("nginx").starts_with("10.5.0.") && at("web").starts_with("10.0.0."));
    let ids = "{.items[?(@.spec.tenant=='flow-two')].status.id}";
    let ids = field(&lab, &["networks"], ids, |ids| ids.split(' ').count() == 2);
    let (first, second) = ids.split_once(' ').unwrap();
    assert_ne!(first, second, "a VPC of its own");
    assert_eq!(answer(&lab, "flow-two/web", &at("db")), ("flow-two/db".into(), at("web")));
    lab.connect("flow-two/nginx", "tcp", &server(&at("web"))).bad();
    lab.connect("flow-two/web", "tcp", &server(&at("nginx"))).bad();
}

#[test]
fn workflow_3_on_the_lab_a_network_of_an_existing_vpc_makes_only_a_subnet_that_the_others_reach() {
    let lab = Lab::shared();
    let home = namespace("flow-three", "flow-three");
    lab.apply(&yaml(&[tenant("flow-three", "10.5.0.0/16"), home])).good();
    send(&lab, "flow-three", &seed(NETWORK, "flow-three", &[]));
    phase(&lab, "flow-three.vpc-1", "Active");
    let vpcs = || {
        let held = "{.items[?(@.spec.holder.kind=='VPC')].spec.holder.name}";
        let claims = field(&lab, &["claims"], held, |it| it.contains("flow-three.vpc-flow-three"));
        claims.split(' ').filter(|name| name.starts_with("flow-three.")).count()
    };
    let before = vpcs();
    let changes = [("name: vpc-1", "name: vpc-2"), ("spec:\n", "spec:\n  cidrs: [10.1.0.0/16]\n")];
    send(&lab, "flow-three", &seed(NETWORK, "flow-three", &changes));
    phase(&lab, "flow-three.vpc-2", "Active");
    assert_eq!(vpcs(), before, "no VPC was made");
    let subnet = ["subnet", "flow-three.vpc-2.10-1-0-0-16"];
    field(&lab, &subnet, "{.status.phase}", |it| it == "Active");
    send(&lab, "flow-three", &seed(POD, "flow-three", &[]));
    let named = [("name: web", "name: db"), ("network: vpc-1", "network: vpc-2")];
    send(&lab, "flow-three", &seed(POD, "flow-three", &named));
    lab.wait_for_pods_of("flow-three");
    let at = |pod: &str| address(&lab, "flow-three", pod);
    assert!(at("web").starts_with("10.0.0.") && at("db").starts_with("10.1.0."));
    for [from, to] in [["web", "db"], ["db", "web"]] {
        let said = answer(&lab, &format!("flow-three/{from}"), &at(to));
        assert_eq!(said, (format!("flow-three/{to}"), at(from)), "without translation");
    }
}

#[test]
fn a_new_tenant_gets_its_default_network_once_from_the_controllers_template() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("network.yaml");
    std::fs::write(&file, "kind: Network\nspec: {").unwrap();
    let option = ["--default-network-template-path", file.to_str().unwrap()];
    let lab = Lab::up_with(1, &option);
    let bare = |name: &str| {
        let tenant = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant",
                            "metadata": {"name": name}, "spec": {}});
        lab.apply(&yaml(&[tenant, namespace(name, name)])).good();
    };
    bare("acme");
    said(&lab, "default", "acme", "the template for default networks is no Network manifest");

    let text = "kind: Network\nmetadata: {name: default, tenant: mallory}\n\
                spec: {type: vpc, tenant: mallory, vpcID: \"vpc-{{tenant}}\", cidrs: [10.8.0.0/16]}";
    std::fs::write(&file, text).unwrap();
    phase(&lab, "acme.default", "Active");
    let told = "{.spec.tenant} {.spec.vpcID} {.spec.cidrs[0]}";
    field(&lab, &["network", "acme.default"], told, |it| it == "acme vpc-acme 10.8.0.0/16");
    send(&lab, "acme", &seed(PLAIN, "acme", &[]));
    lab.wait_for_pods_of("acme");
    assert_eq!(address(&lab, "acme", "nginx"), "10.8.0.2");

    lab.kubectl(&["delete", "pod", "-n", "acme", "nginx"]).good();
    lab.kubectl(&["delete", "network", "acme.default", "--timeout=90s"]).good();
    std::fs::write(&file, "kind: Network\nspec: {type: flat}").unwrap();
    let is_flat = |name: &String| {
        bare(name);
        let network = format!("{name}.default");
        phase(&lab, &network, "Active");
        let kind = ["get", "network", &network, "-o", "jsonpath={.spec.type}"];
        lab.kubectl(&kind).good() == "flat"
    };
    let mut newcomers = (0..100).map(|number| format!("globex{number}"));
    assert!(newcomers.any(|name| is_flat(&name)), "the controller looks at the file now and then");
    let networks = lab.kubectl(&["get", "networks", "-o", "name"]).good();
    assert!(!networks.contains("acme.default"), "it is made once: {networks}");
}
