//! What policy tells the kernel, and above all when.

use std::collections::{BTreeMap, BTreeSet};

use atoll_datapath::{DropCount, Tended};
use atoll_model::compile::PlacedPort;
use atoll_plan::{HostInterface, Observed, Step};
use atoll_policy::{Protocol, Tables, read_network_policy};
use atoll_types::{MacAddr, NetAddr};
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use super::*;
use crate::seen::{Joined, PortKey, SeenNamespace, Tenancy};

/// A kernel that takes policy, or refuses to, and knows nothing else.
#[derive(Debug, Default)]
struct PolicyKernel {
    refuses: bool,
    replaced: usize,
    changed: usize,
    decided_anew: BTreeSet<NetworkId>,
}

impl PolicyKernel {
    fn answer(&self) -> anyhow::Result<()> {
        if self.refuses { anyhow::bail!("told to fail") } else { Ok(()) }
    }
}

impl Kernel for PolicyKernel {
    fn pod_mtu(&self) -> u32 {
        1450
    }

    async fn observe(&self) -> anyhow::Result<Observed> {
        Ok(Observed::default())
    }

    async fn apply(&mut self, _: &Step) -> anyhow::Result<()> {
        Ok(())
    }

    fn replace_policy(&mut self, _: &Tables) -> anyhow::Result<()> {
        self.replaced += 1;
        self.answer()
    }

    fn change_policy(&mut self, _: &Changes) -> anyhow::Result<()> {
        self.changed += 1;
        self.answer()
    }

    fn policy_rule(&self, number: u32) -> anyhow::Result<Option<u32>> {
        Ok(Some(number))
    }

    fn decide_anew(&mut self, networks: &BTreeSet<NetworkId>) -> anyhow::Result<()> {
        self.decided_anew = networks.clone();
        self.answer()
    }

    fn drops(&self) -> anyhow::Result<Vec<DropCount>> {
        Ok(vec![])
    }

    fn askers(&self) -> anyhow::Result<BTreeMap<u32, HostInterface>> {
        Ok(BTreeMap::new())
    }

    async fn tend(&mut self) -> anyhow::Result<Tended> {
        Ok(Tended::InOrder)
    }

    fn news(&self) -> anyhow::Result<Receiver<()>> {
        Ok(tokio::sync::mpsc::channel(1).1)
    }

    fn events(&self) -> anyhow::Result<Receiver<Vec<atoll_datapath::Event>>> {
        Ok(tokio::sync::mpsc::channel(1).1)
    }
}

/// A node's policy with what it has seen, for tenants that have one network each.
#[derive(Default)]
struct Node {
    seen: Seen,
    policies: Policies,
    kernel: PolicyKernel,
}

fn network(number: u32) -> NetworkId {
    number.try_into().unwrap()
}

fn ward(tenant: &str) -> Ward {
    (tenant.parse().unwrap(), format!("{tenant}-shop"))
}

fn address(number: u32, last: u8) -> NetAddr {
    NetAddr::new(network(number), [10, 0, 0, last].into())
}

fn port(tenant: &str, number: u32, pod: &str, last: u8) -> (PortKey, PlacedPort) {
    let ip = [10, 0, 0, last].into();
    let namespace = ward(tenant).1;
    let placed = PlacedPort {
        network: network(number),
        network_name: format!("{tenant}.default"),
        ips: vec![ip],
        mac: MacAddr::for_ip(ip),
        pod: PodRef::new(&namespace, pod),
        pod_uid: format!("uid-of-{pod}"),
        interface: "eth0".into(),
        node: Some("node1".into()),
        others: BTreeSet::new(),
        routes: BTreeSet::new(),
        device: atoll_plan::Device::Veth,
    };
    ((namespace, pod.into()), placed)
}

fn pod(name: &str) -> (String, SeenPod) {
    let labels = BTreeMap::from([("app".to_owned(), name.to_owned())]);
    let facts = atoll_policy::Pod { labels, ..atoll_policy::Pod::default() };
    (name.to_owned(), SeenPod { uid: format!("uid-of-{name}"), pod: facts })
}

fn closed(tenant: &str) -> (String, Box<Read>) {
    let object = json!({ "metadata": { "namespace": ward(tenant).1, "name": "closed" },
                         "spec": { "podSelector": {}, "policyTypes": ["Ingress"] } });
    let object = serde_json::from_value(object).unwrap();
    ("closed".to_owned(), Box::new(read_network_policy(&ward(tenant).0, &object)))
}

fn namespace(tenant: &str) -> SeenNamespace {
    Tenancy::Tenant(format!("{tenant}.default")).into()
}

const TENANTS: [(&str, u32); 2] = [("acme", 1), ("globex", 2)];

impl Node {
    /// Takes a change in as the actor does.
    fn take(&mut self, change: Change) {
        self.policies.absorb(&change);
        self.seen.absorb(change);
        self.policies.follow(&self.seen.scope(), &self.seen);
    }

    fn news(&mut self, news: News) {
        self.take(Change::Policy(news));
    }

    /// Two tenants with a pod each at one address, whose namespaces, ports and nodes were listed.
    fn with_two_tenants() -> Node {
        Node::within(None)
    }

    /// The same for a kernel that has so much room.
    fn within(room: Option<Room>) -> Node {
        let mut node = Node { policies: Policies::within(room), ..Node::default() };
        let own = TENANTS.map(|(tenant, number)| {
            let joined = Joined { network: network(number), name: format!("{tenant}.default") };
            (port(tenant, number, "web", 5).0, joined)
        });
        node.take(Change::OwnPorts(Delta::All(own.into())));
        let namespaces = TENANTS.map(|(tenant, _)| (ward(tenant).1, namespace(tenant)));
        node.take(Change::Namespaces(Delta::All(namespaces.into())));
        for (tenant, number) in TENANTS {
            let ports = [port(tenant, number, "web", 5), port(tenant, number, "db", 6)];
            node.take(Change::NetworkPorts(network(number), Delta::All(ports.into())));
        }
        node.take(Change::Nodes(Delta::All([("node1".into(), [192, 0, 2, 1].into())].into())));
        node
    }

    /// The same with everything listed, and one policy in the first tenant.
    fn complete() -> Node {
        Node::complete_within(None)
    }

    fn complete_within(room: Option<Room>) -> Node {
        let mut node = Node::within(room);
        node.news(News::Cluster(Delta::All(BTreeMap::new())));
        for (tenant, _) in TENANTS {
            node.news(News::Pods(ward(tenant), Delta::All([pod("web"), pod("db")].into())));
            let policies = (tenant == "acme").then(|| closed(tenant));
            node.news(News::Policies(ward(tenant), Delta::All(policies.into_iter().collect())));
        }
        assert!(node.policies.is_complete());
        node
    }

    fn publish(&mut self) -> bool {
        self.policies.publish(&mut self.kernel)
    }

    fn knows(&self, address: NetAddr) -> bool {
        self.policies.knows([address].into_iter())
    }

    fn passes(&self, from: NetAddr, to: NetAddr) -> bool {
        self.policies.compiler.explain(from, to, Protocol::Tcp, 80).accepts()
    }
}

#[test]
fn equal_pods_of_two_tenants_are_judged_by_their_own_policies() {
    let node = Node::complete();
    assert!(!node.passes(address(1, 6), address(1, 5)));
    assert!(node.passes(address(2, 6), address(2, 5)));
}

#[test]
fn a_pod_has_no_identity_before_every_policy_that_could_be_about_it_was_listed() {
    let mut node = Node::with_two_tenants();
    let has_identity =
        |node: &Node| node.policies.compiler.tables().endpoints.get(&address(1, 5)).is_some();
    node.news(News::Pods(ward("acme"), Delta::All([pod("web")].into())));
    assert!(!has_identity(&node));
    node.news(News::Cluster(Delta::All(BTreeMap::new())));
    assert!(!has_identity(&node));
    node.news(News::Policies(ward("acme"), Delta::All([closed("acme")].into())));
    assert!(has_identity(&node));
    assert!(!node.policies.is_complete(), "the other tenant was not listed");
}

#[test]
fn a_pod_is_known_once_the_kernel_has_it() {
    let mut node = Node::complete();
    assert!(!node.knows(address(1, 5)));
    assert!(node.publish());
    assert!(node.knows(address(1, 5)));
    assert!(!node.knows(address(1, 7)));
}

#[test]
fn the_kernel_is_written_whole_once_and_then_gets_what_changed() {
    let mut node = Node::complete();
    assert!(node.publish());
    node.news(News::Policies(ward("acme"), Delta::Gone("closed".into())));
    assert!(node.publish());
    assert_eq!((node.kernel.replaced, node.kernel.changed), (1, 1));
    assert!(node.passes(address(1, 6), address(1, 5)));
}

#[test]
fn after_a_failure_the_kernel_is_written_whole_again() {
    let mut node = Node::complete();
    assert!(node.publish());
    node.kernel.refuses = true;
    node.news(News::Policies(ward("globex"), Delta::Put("closed".into(), closed("globex").1)));
    assert!(!node.publish() && !node.knows(address(1, 5)));
    node.kernel.refuses = false;
    assert!(node.publish() && node.knows(address(1, 5)));
    assert_eq!(node.kernel.replaced, 2);
}

#[test]
fn what_got_in_before_a_failure_counts_for_connections_that_are_there() {
    let mut node = Node::complete();
    assert!(node.publish());
    node.kernel.refuses = true;
    node.news(News::Policies(ward("globex"), Delta::Put("closed".into(), closed("globex").1)));
    assert!(!node.publish());
    assert_eq!((node.kernel.changed, &node.kernel.decided_anew), (1, &[network(2)].into()));
}

#[test]
fn only_the_networks_of_the_tenant_that_changed_are_decided_anew() {
    let mut node = Node::complete();
    assert!(node.publish());
    assert_eq!(node.kernel.decided_anew, [network(1), network(2)].into());
    node.news(News::Policies(ward("globex"), Delta::Put("closed".into(), closed("globex").1)));
    assert!(node.publish());
    assert_eq!(node.kernel.decided_anew, [network(2)].into());
}

#[test]
fn a_policy_that_is_deleted_with_its_namespace_stays_until_the_namespace_is_gone() {
    let mut node = Node::complete();
    node.news(News::Ending(ward("acme")));
    node.news(News::Policies(ward("acme"), Delta::Gone("closed".into())));
    assert!(!node.passes(address(1, 6), address(1, 5)));
    node.take(Change::Namespaces(Delta::Gone(ward("acme").1)));
    assert!(!node.passes(address(1, 6), address(1, 5)), "its pods are unknown");
    assert_eq!(node.policies.compiler.counts().rules, 0);
}

#[test]
fn pods_of_a_namespace_that_was_found_half_deleted_stay_unknown() {
    let mut node = Node::with_two_tenants();
    let ending = SeenNamespace { is_ending: true, ..namespace("acme") };
    node.take(Change::Namespaces(Delta::All(BTreeMap::new())));
    node.take(Change::Namespaces(Delta::Put(ward("acme").1, ending)));
    node.news(News::Cluster(Delta::All(BTreeMap::new())));
    node.news(News::Pods(ward("acme"), Delta::All([pod("web")].into())));
    node.news(News::Policies(ward("acme"), Delta::All(BTreeMap::new())));
    assert_eq!(node.policies.compiler.counts().endpoints, 0);
}

#[test]
fn a_pod_with_the_name_of_one_before_it_has_none_of_its_addresses() {
    let mut node = Node::complete();
    let (name, mut successor) = pod("web");
    successor.uid = "another".into();
    node.news(News::Pods(ward("acme"), Delta::Put(name, successor)));
    assert_eq!(node.policies.compiler.tables().endpoints.get(&address(1, 5)), None);
}

#[test]
fn a_tenant_that_leaves_the_node_leaves_nothing() {
    let mut node = Node::complete();
    node.take(Change::OwnPorts(Delta::Gone(port("acme", 1, "web", 5).0)));
    let counts = node.policies.compiler.counts();
    assert_eq!((counts.endpoints, counts.rules), (2, 0));
    assert!(node.policies.is_complete());
    node.take(Change::OwnPorts(Delta::Gone(port("globex", 2, "web", 5).0)));
    assert!(node.policies.compiler.tables().is_empty());
}

#[test]
fn a_list_takes_away_what_it_does_not_name() {
    let mut node = Node::complete();
    node.news(News::Policies(ward("acme"), Delta::All(BTreeMap::new())));
    assert!(node.passes(address(1, 6), address(1, 5)));
    node.news(News::Pods(ward("acme"), Delta::All([pod("web")].into())));
    assert_eq!(node.policies.compiler.tables().endpoints.get(&address(1, 6)), None);
    node.take(Change::Nodes(Delta::All(BTreeMap::new())));
    assert_eq!(node.policies.nodes, Some(BTreeSet::new()));
}

#[test]
fn what_comes_before_a_list_or_of_another_tenants_namespace_is_passed_over() {
    let mut node = Node::with_two_tenants();
    node.news(News::Pods(ward("acme"), Delta::Put("web".into(), pod("web").1)));
    node.news(News::Cluster(Delta::Gone("any".into())));
    let stolen = ("globex".parse().unwrap(), ward("acme").1);
    node.news(News::Policies(stolen, Delta::All([closed("globex")].into())));
    assert!(node.policies.compiler.tables().is_empty());
    assert!(!node.policies.is_complete());
}

/// An address of a pod of globex in acme's network, which is open to it.
fn guest() -> NetAddr {
    address(1, 9)
}

/// A node with acme's pods in an open network, in which globex has a pod elsewhere.
fn with_guest() -> Node {
    let mut node = Node::complete();
    node.take(Change::OwnPorts(Delta::Gone(port("globex", 2, "web", 5).0)));
    let (key, placed) = port("globex", 1, "guest", 9);
    node.take(Change::NetworkPorts(network(1), Delta::Put(key, placed)));
    node
}

fn identity(node: &Node, address: NetAddr) -> Option<u32> {
    node.policies.compiler.tables().endpoints.get(&address).copied()
}

#[test]
fn a_pod_of_a_tenant_that_is_not_here_is_known_by_its_address_and_no_more() {
    let mut node = with_guest();
    assert!(identity(&node, guest()).is_some());
    assert!(!node.passes(guest(), address(1, 5)), "a policy is about the server");
    assert!(node.publish());
    node.news(News::Policies(ward("acme"), Delta::Gone("closed".into())));
    assert!(node.passes(guest(), address(1, 5)));
    assert!(node.publish());
    let (key, _) = port("globex", 1, "guest", 9);
    node.take(Change::NetworkPorts(network(1), Delta::Gone(key)));
    assert_eq!(identity(&node, guest()), None);
    assert!(node.publish());
    assert_eq!(node.kernel.decided_anew, [network(1)].into(), "where it was, it is decided anew");
}

#[test]
fn a_guest_whose_tenant_comes_to_the_node_is_unknown_until_its_pods_were_listed() {
    let mut node = with_guest();
    let joined = Joined { network: network(2), name: "globex.default".into() };
    node.take(Change::OwnPorts(Delta::Put(port("globex", 2, "web", 5).0, joined)));
    assert_eq!(identity(&node, guest()), None);
    node.news(News::Pods(ward("globex"), Delta::All([pod("guest")].into())));
    node.news(News::Policies(ward("globex"), Delta::All(BTreeMap::new())));
    assert!(identity(&node, guest()).is_some());
    node.take(Change::OwnPorts(Delta::Gone(port("globex", 2, "web", 5).0)));
    assert!(identity(&node, guest()).is_some(), "it is a guest again");
}

#[test]
fn a_pod_in_no_tenants_namespace_is_nobodys_guest() {
    let mut node = with_guest();
    node.take(Change::Namespaces(Delta::Put(ward("globex").1, Tenancy::Nobody.into())));
    assert_eq!(identity(&node, guest()), None);
    node.take(Change::Namespaces(Delta::Put(ward("globex").1, namespace("globex"))));
    assert!(identity(&node, guest()).is_some());
}

#[test]
fn a_policy_that_has_no_room_is_told_when_it_begins_and_when_it_is_over() {
    let room = Room { endpoints: 100, outside: 100, identities: 100, peers: 3, ports: 100 };
    let mut node = Node::complete_within(Some(room));
    assert_eq!(node.policies.untold(), []);
    let (tenant, namespace) = ward("acme");
    let open = json!({ "metadata": { "namespace": namespace, "name": "open" },
                       "spec": { "podSelector": {}, "ingress": [{ "from": [{ "podSelector": {} }] }] } });
    let open = read_network_policy(&tenant, &serde_json::from_value(open).unwrap());
    node.news(News::Policies(ward("acme"), Delta::Put("open".into(), Box::new(open))));
    let told = node.policies.untold();
    let [held] = &told[..] else { panic!("one policy is held: {told:?}") };
    let key = PolicyKey::namespaced(tenant, &namespace, "open");
    assert_eq!(held.subject, held::Subject::Policy(key));
    let complaint = held.complaint.as_deref().unwrap();
    assert!(complaint.starts_with("spec: the tenant would need 3 rows"), "{complaint}");
    assert_eq!(node.policies.untold(), [], "once is enough for a while");
    node.news(News::Policies(ward("acme"), Delta::Gone("open".into())));
    let over = node.policies.untold();
    assert_eq!((over.len(), &over[0].complaint), (1, &None));
}

#[test]
fn a_node_whose_tables_cannot_be_written_says_so_until_they_are() {
    let mut node = Node::complete();
    node.kernel.refuses = true;
    assert!(!node.publish() && !node.publish());
    let told = node.policies.untold();
    assert_eq!((told.len(), &told[0].subject), (1, &held::Subject::Node));
    assert_eq!(told[0].complaint.as_deref(), Some("told to fail"));
    node.kernel.refuses = false;
    assert!(node.publish());
    assert_eq!(node.policies.untold()[0].complaint, None);
}
