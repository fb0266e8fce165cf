//! Addresses that the outside knows: who gets one, which node answers for it, and where it goes when
//! that node does not.

use std::process::Command;
use std::time::Instant;

use crate::fixture::{Lab, Said, await_condition};
use crate::outside::{WIRE, entered};

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
    pub(crate) fn outside_address(&self, namespace: &str) -> String {
        let path = "jsonpath={.status.loadBalancer.ingress[0].ip}";
        self.eventually(&["get", "service", "edge", "-n", namespace, "-o", path], |said| {
            said.starts_with("172.30.0.")
        })
    }

    /// The node that answers for an address, once it is one that `wanted` accepts.
    pub(crate) fn holder(&self, ip: &str, wanted: impl Fn(&str) -> bool) -> String {
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
    pub(crate) fn outside(&self, command: &[&str]) -> Said {
        let fabric = format!("--net={}", self.place("fabric").display());
        Command::new("nsenter").arg(fabric).args(command).output().unwrap().into()
    }

    /// Whether the outside finds an address at a node, once it has something to say to it.
    fn is_found_at(&self, ip: &str, node: &str) -> bool {
        self.outside(&["bash", "-c", &format!("echo > /dev/udp/{ip}/9")]);
        self.outside(&["ip", "neigh", "show", ip]).good().contains(&self.mac(node))
    }

    /// Whether the outside knows an address to be at a node without having asked for it.
    fn is_known_at(&self, ip: &str, node: &str) -> bool {
        self.outside(&["ip", "neigh", "show", ip]).good().contains(&self.mac(node))
    }

    /// Says whether a node is well, as Kubernetes would.
    fn say_ready(&self, node: &str, status: &str) {
        let condition = format!(r#"{{"type":"Ready","status":"{status}","reason":"Said"}}"#);
        let patch = format!(r#"{{"status":{{"conditions":[{condition}]}}}}"#);
        let patch = ["patch", "node", node, "--subresource=status", "-p", &patch];
        self.kubectl(&patch).good();
    }

    fn mac(&self, node: &str) -> String {
        let link = self.node(node, &["ip", "-o", "link", "show", "eth0"]).good();
        let mut words = link.split_whitespace().skip_while(|word| *word != "link/ether");
        words.nth(1).unwrap().to_owned()
    }
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
    lab.signal_node(&first, "-STOP");
    let second = lab.holder(&ip, |node| node != first);
    await_condition(|| lab.has_address(&second, &ip)).expect("the next node takes it");
    lab.signal_node(&first, "-CONT");
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

/// Nobody outside speaks to the address before the end: who asks for it anew would find it anyhow.
#[test]
fn the_neighbours_are_told_of_an_address_that_was_at_another_node_while_its_own_stood_still() {
    let lab = Lab::with_two_tenants();
    lab.apply(POOL).good();
    let ip = lab.outside_address("acme");
    let first = lab.holder(&ip, |_| true);
    await_condition(|| lab.is_found_at(&ip, &first)).expect("the outside finds it");
    lab.signal_agent(&first, "-STOP");
    lab.say_ready(&first, "Unknown");
    let second = lab.holder(&ip, |node| node != first);
    await_condition(|| lab.is_known_at(&ip, &second)).expect("neighbours hear of the next node");
    lab.say_ready(&first, "True");
    lab.holder(&ip, |node| node == first);
    await_condition(|| !lab.has_address(&second, &ip)).expect("the other lets it go");
    assert!(lab.has_address(&first, &ip) && lab.is_known_at(&ip, &second));
    lab.signal_agent(&first, "-CONT");
    await_condition(|| lab.is_known_at(&ip, &first)).expect("neighbours hear that it is back");
    await_answer(&lab, &ip, "acme");
}

/// Waits until the outside is answered at an address by a pod of `tenant`, which sees who it is; says
/// how often it was not.
fn await_answer(lab: &Lab, ip: &str, tenant: &str) -> u32 {
    await_answer_as(lab, ip, tenant, WIRE)
}

/// The same where the pod sees the client as `seen`.
pub(crate) fn await_answer_as(lab: &Lab, ip: &str, tenant: &str, seen: &str) -> u32 {
    let (mut last, mut failed) = (None, 0);
    await_condition(|| {
        last = entered(lab, ip, 80);
        let is_answered = last
            .as_ref()
            .is_some_and(|(pod, peer)| pod.starts_with(&format!("{tenant}/")) && peer == seen);
        failed += u32::from(!is_answered);
        is_answered
    })
    .unwrap_or_else(|()| panic!("{ip} of {tenant} answers {last:?}"));
    failed
}

fn patch(lab: &Lab, tenant: &str, spec: &str) {
    let patch = format!(r#"{{"spec":{spec}}}"#);
    lab.kubectl(&["patch", "service", "edge", "-n", tenant, "--type=merge", "-p", &patch]).good();
}

/// A lab whose two tenants have a load balancer each, by their names and addresses; both answer.
pub(crate) fn with_two_edges() -> (Lab, [(&'static str, String); 2]) {
    let lab = Lab::with_two_tenants();
    lab.apply(POOL).good();
    let edges = ["acme", "globex"].map(|tenant| (tenant, lab.outside_address(tenant)));
    for (tenant, ip) in &edges {
        await_answer(&lab, ip, tenant);
    }
    (lab, edges)
}

#[test]
fn the_outside_reaches_the_load_balancers_of_two_tenants_and_nothing_else_at_their_addresses() {
    let (lab, edges) = with_two_edges();
    let (_, ip) = &edges[0];
    let holder = lab.holder(ip, |_| true);
    let refused = || lab.drops(Some("acme.default"), "not-served");
    let before = refused();
    for port in ["22", "4789", "10250", "8080"] {
        let knock = format!("exec 3<>/dev/tcp/{ip}/{port}");
        let said = lab.outside(&["timeout", "1", "bash", "-c", &knock]);
        assert!(!said.ok, "{ip}:{port} of {holder} answered");
    }
    assert!(refused() > before);
    patch(&lab, "acme", r#"{"loadBalancerSourceRanges":["203.0.113.0/24"]}"#);
    await_condition(|| entered(&lab, ip, 80).is_none()).expect("it is not for everybody");
    assert!(lab.drops(Some("acme.default"), "source-refused") > 0);
    await_answer(&lab, &edges[1].1, "globex");
    patch(&lab, "acme", r#"{"loadBalancerSourceRanges":null}"#);
    await_answer(&lab, ip, "acme");
    patch(&lab, "acme", r#"{"selector":{"app.kubernetes.io/name":"nobody"}}"#);
    let is_refused = || {
        let said =
            lab.outside(&["timeout", "5", "bash", "-c", &format!("exec 3<>/dev/tcp/{ip}/80")]);
        said.err.contains("refused")
    };
    await_condition(is_refused).expect("where nobody is left, it says so at once");
    await_answer(&lab, &edges[1].1, "globex");
}

#[test]
fn a_load_balancer_is_reached_again_when_its_node_is_cut_off() {
    let (lab, edges) = with_two_edges();
    let (_, ip) = &edges[0];
    let first = lab.holder(ip, |_| true);
    lab.signal_agent(&first, "-STOP");
    lab.outside(&["ip", "link", "set", &first, "down"]).good();
    let since = Instant::now();
    let second = lab.holder(ip, |node| node != first);
    let moved = since.elapsed();
    let failed = await_answer(&lab, ip, "acme");
    println!(
        "{ip} moved from {first} to {second} after {moved:?} and answered after {:?}; {failed} \
         connections failed after the move",
        since.elapsed()
    );
    await_answer(&lab, &edges[1].1, "globex");
    lab.outside(&["ip", "link", "set", &first, "up"]).good();
    lab.signal_agent(&first, "-CONT");
    await_condition(|| lab.holder(ip, |_| true) == first && !lab.has_address(&second, ip))
        .expect("it comes back with its node");
    for (tenant, ip) in &edges {
        await_answer(&lab, ip, tenant);
    }
}

#[test]
fn a_proxy_behind_a_load_balancer_leads_the_outside_by_name_in_two_tenants_at_once() {
    let lab = Lab::with_two_tenants();
    lab.apply(POOL.split("---").next().unwrap()).good();
    let example = std::fs::read_to_string(crate::fixture::example("ingress.yaml")).unwrap();
    for tenant in ["acme", "globex"] {
        lab.apply(&example.replace("acme", tenant)).good();
    }
    lab.wait_for_pods();
    for tenant in ["acme", "globex"] {
        let url = format!("http://{}/", lab.outside_address(tenant));
        for name in ["shop", "blog"] {
            let (host, wanted) = (format!("Host: {name}.example"), format!("{tenant}/{name}"));
            let mut last = String::new();
            await_condition(|| {
                last = lab.outside(&["curl", "-s", "-m", "5", "-H", &host, &url]).out;
                last.contains(&format!("\"pod\":\"{wanted}\""))
            })
            .unwrap_or_else(|()| panic!("{wanted}: {last}"));
        }
        let nobody = ["curl", "-s", "-m", "5", "-H", "Host: other.example", &url];
        assert!(lab.outside(&nobody).out.contains("503"), "the proxy itself answers");
    }
}
