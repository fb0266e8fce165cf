//! The agent may die; the pods' packets do not notice.

use crate::fixture::{Lab, kill_agent_and_await_the_next};
use crate::policy::{steady_flow, tally};

#[test]
fn an_agent_killed_and_restarted_under_traffic_loses_no_packet() {
    let lab = Lab::with_two_tenants();
    lab.reach("acme/web", "udp", "10.0.0.6:8080").good();
    let flow = steady_flow(&lab, "acme/web", "10.0.0.6:8080", 1000);
    for node in ["node1", "node2", "node3"] {
        kill_agent_and_await_the_next(&lab, node);
    }
    let tally = tally(flow);
    assert_eq!(tally["sent"], 10_000, "{tally}");
    assert_eq!(tally["lost"], 0, "{tally}");
    lab.reach("acme/web", "tcp", "10.0.0.6:8080").good();
    lab.connect("acme/web", "tcp", "10.0.0.22:8080").bad();
}

#[test]
fn pods_made_after_an_agent_restart_are_attached() {
    let lab = Lab::with_two_tenants();
    kill_agent_and_await_the_next(&lab, "node1");
    let pod = "
apiVersion: v1
kind: Pod
metadata: {name: late, namespace: acme}
spec:
  nodeName: node1
  containers: [{name: main, image: none, command: [atoll, toolbox, serve]}]
";
    lab.apply(pod).good();
    lab.wait_for_pods();
    lab.reach("acme/late", "tcp", "10.0.0.6:8080").good();
}
