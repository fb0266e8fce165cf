//! What is wrong is refused or waits, and says why.

use crate::fixture::Lab;

const TENANT: &str = "
apiVersion: atoll.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {defaultNetwork: {type: vpc, cidrs: [10.0.0.0/16]}}
---
apiVersion: v1
kind: Namespace
metadata: {name: acme, labels: {atoll.dev/tenant: acme}}
";

fn network(name: &str, vpc: &str, cidr: &str) -> String {
    format!(
        "
apiVersion: atoll.dev/v1alpha1
kind: Network
metadata: {{name: {name}}}
spec: {{tenant: acme, type: vpc, vpcID: {vpc}, cidrs: [{cidr}]}}
"
    )
}

#[test]
fn ranges_that_cannot_be_are_refused_with_the_reason() {
    let lab = Lab::up(1);
    lab.apply(TENANT).good();
    for cidr in ["10.0.0.5/16", "10.0.0.0/40", "ten"] {
        let complaint = lab.apply(&network("acme.bad", "one", cidr)).bad();
        assert!(complaint.contains("each range must be a CIDR like 10.0.0.0/16"), "{complaint}");
    }
    let complaint = lab.apply(&network("globex.bad", "one", "10.0.0.0/16")).bad();
    assert!(complaint.contains("a network's name begins with its tenant"), "{complaint}");
}

#[test]
fn an_overlap_inside_a_vpc_is_named_and_one_between_vpcs_is_fine() {
    let lab = Lab::up(1);
    lab.apply(TENANT).good();
    lab.apply(&network("acme.first", "one", "10.1.0.0/16")).good();
    lab.apply(&network("acme.elsewhere", "two", "10.1.0.0/16")).good();
    for name in ["acme.first", "acme.elsewhere"] {
        let phase = ["get", "network", name, "-o", "jsonpath={.status.phase}"];
        lab.eventually(&phase, |said| said == "Active");
    }
    lab.apply(&network("acme.second", "one", "10.1.2.0/24")).good();
    let ready = "jsonpath={.status.conditions[?(@.type=='Ready')]}";
    lab.eventually(&["get", "network", "acme.second", "-o", ready], |said| {
        said.contains("CidrOverlap") && said.contains("10.1.2.0/24") && said.contains("10.1.0.0/16")
    });
}

#[test]
fn a_pod_of_a_network_that_does_not_exist_waits_and_then_starts() {
    let lab = Lab::up(1);
    lab.apply(TENANT).good();
    let pod = "
apiVersion: v1
kind: Pod
metadata: {name: early, namespace: acme, labels: {atoll.dev/network: later}}
spec:
  containers: [{name: main, image: none, command: [atoll, toolbox, serve]}]
";
    lab.apply(pod).good();
    let events = ["get", "events", "-n", "acme", "-o", "jsonpath={.items[*].message}"];
    lab.eventually(&events, |said| said.contains("acme.later"));
    let phase = ["get", "pod", "early", "-n", "acme", "-o", "jsonpath={.status.phase}"];
    assert_eq!(lab.kubectl(&phase).good(), "Pending");
    lab.apply(&network("acme.later", "later", "10.7.0.0/16")).good();
    lab.eventually(&phase, |said| said == "Running");
}
