//! What was seen, and what follows from it for the node.

use atoll_model::export::Export;
use atoll_plan::Infra;
use atoll_policy::Labels;
use atoll_zones::Service;

use super::*;

/// A node of which nothing else is known.
impl From<[u8; 4]> for SeenNode {
    fn from(underlay: [u8; 4]) -> Self {
        let (underlay, facts) = (underlay.into(), atoll_policy::Node::default());
        SeenNode { underlay, facts, internal: Vec::new(), pod_ranges: Vec::new() }
    }
}

/// A namespace of which nothing else is known.
impl From<Tenancy> for SeenNamespace {
    fn from(tenancy: Tenancy) -> Self {
        SeenNamespace { tenancy, labels: Labels::new(), is_ending: false }
    }
}

fn id() -> NetworkId {
    1.try_into().unwrap()
}

fn own_port(pod: &str, network: &str) -> (PortKey, Joined) {
    (("acme".into(), pod.into()), Joined { network: id(), name: network.into() })
}

/// Ports of two networks of one VPC, and namespaces of three networks and of nobody.
fn seen() -> Seen {
    let mut seen = Seen::default();
    let own = [own_port("web", "acme.default"), own_port("db", "acme.data")];
    seen.absorb(Change::OwnPorts(Delta::All(own.into())));
    let tenants = [
        ("shop", "acme.default"),
        ("front", "acme.default"),
        ("back", "acme.data"),
        ("far", "globex.default"),
    ];
    let tenants = tenants.map(|(name, network)| (name, Tenancy::Tenant(network.into())));
    let all = tenants.into_iter().chain([("kube-system", Tenancy::Nobody)]);
    let all = all.map(|(name, tenancy)| (name.to_owned(), tenancy.into())).collect();
    seen.absorb(Change::Namespaces(Delta::All(all)));
    seen
}

fn quarters(scope: &Scope) -> Vec<String> {
    let quarters = scope.quarters();
    quarters.iter().map(|(network, namespace)| format!("{network}/{namespace}")).collect()
}

#[test]
fn a_node_follows_the_namespaces_of_the_networks_it_has_and_no_others() {
    let mut seen = seen();
    let scope = seen.scope();
    let all = ["acme.data/back", "acme.default/front", "acme.default/shop"];
    assert_eq!(quarters(&scope), all);
    seen.absorb(Change::OwnPorts(Delta::Gone(own_port("db", "acme.data").0)));
    assert_eq!(quarters(&seen.scope()), all[1..]);
}

fn sibling(number: u32, is_shared: bool) -> Sibling {
    Sibling { id: number.try_into().unwrap(), is_shared }
}

fn siblings(tenant: &str, all: &[(&str, Sibling)]) -> Change {
    let all = all.iter().map(|(name, it)| ((*name).to_owned(), *it)).collect();
    Change::Siblings(tenant.parse().unwrap(), Delta::All(all))
}

#[test]
fn the_other_networks_of_a_tenant_are_followed_while_it_has_one_here_that_is_its_own() {
    let mut seen = seen();
    let (own, far) = (sibling(1, false), sibling(2, false));
    assert!(seen.scope().unlisted.contains(&"acme".parse().unwrap()));
    assert!(!seen.scope().knows_kin_of("acme.default"));
    let all = [("acme.default", own), ("acme.data", own), ("acme.far", far)];
    seen.absorb(siblings("acme", &all));
    seen.absorb(siblings("globex", &[("globex.default", sibling(3, false))]));
    let scope = seen.scope();
    assert!(scope.knows_kin_of("acme.default"));
    assert_eq!(scope.kin.keys().collect::<Vec<_>>(), ["acme.far"], "and none of globex");
    assert!(seen.ports_of(far.id).is_none(), "not listed yet");
    assert!(seen.networks.contains_key(&far.id) && seen.networks.len() == 2);
    seen.absorb(Change::OwnPorts(Delta::All([].into())));
    assert!(seen.scope().kin.is_empty() && seen.networks.is_empty());
}

#[test]
fn a_network_that_is_shared_with_other_tenants_has_no_kin_and_is_none() {
    let mut seen = seen();
    let shared = sibling(1, true);
    let all = [("acme.default", shared), ("acme.data", shared), ("acme.far", sibling(2, false))];
    seen.absorb(siblings("acme", &all));
    assert!(seen.scope().kin.is_empty(), "nothing leads there from here");
    let all = [("acme.default", sibling(1, false)), ("acme.far", sibling(2, true))];
    seen.absorb(siblings("acme", &all));
    assert!(seen.scope().kin.is_empty(), "nothing leads there at all");
}

#[test]
fn the_namespaces_of_other_networks_are_seen_from_networks_of_the_same_tenant_alone() {
    let mut seen = seen();
    let own = sibling(1, false);
    seen.absorb(siblings("acme", &[("acme.default", own), ("acme.data", own)]));
    let scope = seen.scope();
    let names = |network: &str| {
        let quarters = scope.quarters_seen_from(network).into_iter();
        quarters.map(|(_, namespace)| namespace).collect::<Vec<_>>()
    };
    assert_eq!(names("acme.default"), ["back"]);
    assert_eq!(names("acme.data"), ["front", "shop"]);
    assert_eq!(names("globex.default"), Vec::<String>::new());
}

#[test]
fn nodes_and_the_addresses_they_answer_for_are_the_clusters_own() {
    let mut seen = seen();
    let node = ("node1".to_owned(), [192, 0, 2, 1].into());
    seen.absorb(Change::Nodes(Delta::All([node].into())));
    assert_eq!(seen.closed(), None, "pools were not seen yet");
    let pool: Cidr = "192.0.2.16/28".parse().unwrap();
    seen.absorb(Change::Pools(Delta::All([("edge".to_owned(), vec![pool])].into())));
    let own: Vec<String> = seen.own_of_cluster().iter().map(ToString::to_string).collect();
    assert_eq!(own, ["192.0.2.1/32", "192.0.2.16/28"]);
    let closed = seen.closed().unwrap();
    assert!(closed.contains(&pool) && closed.contains(&"127.0.0.0/8".parse().unwrap()));
}

#[test]
fn infra_is_this_node_and_others_by_what_they_have_themselves_and_their_pods() {
    let mut seen = seen();
    let node = |last: u8, pods: &str| {
        let (internal, pod_ranges) = (vec![[192, 0, 2, last].into()], vec![pods.parse().unwrap()]);
        let mut node = SeenNode { internal, pod_ranges, ..SeenNode::from([192, 0, 2, last]) };
        node.facts.ips.insert([203, 0, 113, last].into());
        node
    };
    let nodes = [("node1", node(1, "10.244.1.0/24")), ("node2", node(2, "10.244.2.0/24"))];
    let nodes = nodes.map(|(name, node)| (name.to_owned(), node));
    seen.absorb(Change::Nodes(Delta::All(nodes.into())));
    let infra = seen.infra("node1");
    let infra: Vec<_> = infra.iter().map(|(range, it)| (range.to_string(), *it)).collect();
    let expected = [
        ("10.244.1.0/24", Infra::PodsHere),
        ("10.244.2.0/24", Infra::PodsThere),
        ("192.0.2.1/32", Infra::ThisNode),
        ("192.0.2.2/32", Infra::OtherNode),
    ];
    assert_eq!(infra, expected.map(|(range, it)| (range.to_owned(), it)));
}

#[test]
fn a_namespace_that_moves_to_another_network_is_followed_there() {
    let mut seen = seen();
    let moved = Tenancy::Tenant("acme.data".into());
    seen.absorb(Change::Namespaces(Delta::Put("shop".into(), moved.into())));
    let after = ["acme.data/back", "acme.data/shop", "acme.default/front"];
    assert_eq!(quarters(&seen.scope()), after);
}

fn exported(namespace: &str) -> (ServiceName, Exported) {
    let service = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "registry", "namespace": namespace},
        "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}]},
    }));
    let service = service.unwrap();
    let (export, named) = (Export::api(&service).unwrap(), Service::read(&service).unwrap());
    ((namespace.into(), "registry".into()), Exported { export, named })
}

#[test]
fn a_service_of_a_tenants_namespace_is_exported_to_nobody() {
    let mut seen = seen();
    let all = ["kube-system", "shop", "unknown"].map(exported);
    seen.absorb(Change::Exports(Delta::All(all.into())));
    let [infra, of_tenant, _] = ["kube-system", "shop", "unknown"].map(|it| exported(it).0);
    assert_eq!(seen.scope().exports, [infra.clone()].into());
    assert_eq!(seen.backed().into_keys().collect::<Vec<_>>(), std::slice::from_ref(&infra));
    seen.absorb(Change::Targets(infra.clone(), Delta::All(BTreeMap::new())));
    seen.absorb(Change::Targets(of_tenant, Delta::All(BTreeMap::new())));
    assert_eq!(seen.targets.keys().collect::<Vec<_>>(), [&infra], "late words are forgotten");
}

#[test]
fn a_node_follows_every_namespace_of_the_tenants_it_has_whatever_their_network() {
    let mut seen = seen();
    seen.absorb(Change::OwnPorts(Delta::Gone(own_port("db", "acme.data").0)));
    let wards: Vec<String> =
        seen.scope().wards.iter().map(|(tenant, name)| format!("{tenant}/{name}")).collect();
    assert_eq!(wards, ["acme/back", "acme/front", "acme/shop"]);
}

#[test]
fn a_scope_is_whole_once_the_namespaces_were_listed() {
    let mut unlisted = Seen::default();
    let own = [own_port("web", "acme.default")];
    unlisted.absorb(Change::OwnPorts(Delta::All(own.into())));
    assert!(!unlisted.scope().is_whole);
    assert!(seen().scope().is_whole);
}
