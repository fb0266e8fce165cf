//! Addresses that the outside knows: who gets one, which node answers for it, and where it goes when
//! that node does not.

use std::process::Command;

use crate::fixture::{Lab, Said, await_condition, state_dir};

const POOL: &str = "
apiVersion: atoll.dev/v1alpha1
kind: AddressPool
metadata: {name: edge}
spec: {cidrs: [172.30.0.200/30]}
---
apiVersion: v1
kind: Service
metadata: {name: edge, namespace: acme}
spec: {type: LoadBalancer, selector: {app.kubernetes.io/name: toolbox}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: edge, namespace: globex}
spec: {type: LoadBalancer, selector: {app.kubernetes.io/name: toolbox}, ports: [{port: 80, targetPort: 8080}]}
";

impl Lab {
    /// The address that a load balancer says that it has, once it does.
    fn outside_address(&self, namespace: &str) -> String {
        let path = "jsonpath={.status.loadBalancer.ingress[0].ip}";
        self.eventually(&["get", "service", "edge", "-n", namespace, "-o", path], |said| {
            said.starts_with("172.30.0.")
        })
    }

    /// The node that answers for an address, once it is one that `wanted` accepts.
    fn holder(&self, ip: &str, wanted: impl Fn(&str) -> bool) -> String {
        let claim = format!("outside.{ip}");
        let get = ["get", "claim", claim.as_str(), "-o", "jsonpath={.spec.node}"];
        self.eventually(&get, |node| node.starts_with("node") && wanted(node))
    }

    fn has_address(&self, node: &str, ip: &str) -> bool {
        self.node(node, &["ip", "-o", "address", "show", "dev", "eth0"])
            .good()
            .contains(&format!(" {ip}/32 "))
    }

    /// Runs a command on the wires between the nodes: outside.
    fn outside(&self, command: &[&str]) -> Said {
        let fabric = format!("--net={}", state_dir(&self.name).join("netns/fabric").display());
        Command::new("nsenter").arg(fabric).args(command).output().unwrap().into()
    }

    /// Whether the outside finds an address at a node, once it has something to say to it.
    fn is_found_at(&self, ip: &str, node: &str) -> bool {
        self.outside(&["bash", "-c", &format!("echo > /dev/udp/{ip}/9")]);
        self.outside(&["ip", "neigh", "show", ip]).good().contains(&self.mac(node))
    }

    fn mac(&self, node: &str) -> String {
        let link = self.node(node, &["ip", "-o", "link", "show", "eth0"]).good();
        let mut words = link.split_whitespace().skip_while(|word| *word != "link/ether");
        words.nth(1).unwrap().to_owned()
    }
}

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn an_address_of_the_outside_is_found_at_one_node_and_moves_when_that_node_fails() {
    let lab = Lab::with_two_tenants();
    lab.apply(POOL).good();
    let (ip, others) = (lab.outside_address("acme"), lab.outside_address("globex"));
    assert_ne!(ip, others, "there is one outside for all tenants");
    let first = lab.holder(&ip, |_| true);
    await_condition(|| lab.has_address(&first, &ip)).expect("its node has it");
    await_condition(|| lab.is_found_at(&ip, &first)).expect("the outside finds it there");
    let at = format!("{ip}:80");
    let (own, other) = (format!("{at} from acme/db"), format!("{at} from globex/db"));
    await_condition(|| lab.connect("acme/db", "tcp", &at).ok).expect(&own);
    assert!(!lab.connect("globex/db", "tcp", &at).ok, "{other}");
    let agent = lab.agent_pid(&first).unwrap();
    signal(agent, "-STOP");
    let second = lab.holder(&ip, |node| node != first);
    await_condition(|| lab.has_address(&second, &ip)).expect("the next node takes it");
    signal(agent, "-CONT");
    await_condition(|| lab.holder(&ip, |_| true) == first && !lab.has_address(&second, &ip))
        .expect("it comes back with its node, and the other lets it go");
    await_condition(|| lab.is_found_at(&ip, &first)).expect("neighbours hear it");
    lab.kubectl(&["delete", "service", "edge", "-n", "acme"]).good();
    let nodes = ["node1", "node2", "node3"];
    await_condition(|| nodes.iter().all(|node| !lab.has_address(node, &ip)))
        .expect("nothing of it is left");
    let holder = lab.holder(&others, |_| true);
    await_condition(|| lab.has_address(&holder, &others)).expect("the other tenant's stays");
}
