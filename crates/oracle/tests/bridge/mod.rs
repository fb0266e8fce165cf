//! Between the oracle's world and the compiler's events.
//!
//! The rule kept here: nothing is decided here. The bridge only says the same facts in the other's
//! words.
// Each test file uses a part of the bridge; what it cannot say ends the test.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_oracle::{Side, World};
use atoll_policy::{
    ClusterNetworkPolicy, Compiler, Decision, Event, Explanation, Interface, NamedPort, Node, Pod,
    PolicyKey, Protocol,
};
use atoll_types::{Label, NetAddr, NetworkId, PodRef};

/// What tells facts apart, in an order of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fact {
    Node(String),
    Namespace(String, String),
    Pod(String, String, String),
    Policy(String, String, String),
    ClusterPolicy(Option<String>, String),
}

/// Every fact of a world, as the event that tells it.
pub(crate) fn facts(world: &World) -> BTreeMap<Fact, Event> {
    let nodes = world.nodes.iter().map(|node| {
        let ips = node.ips.iter().copied().collect();
        let told = Node { labels: node.labels.clone(), ips };
        (Fact::Node(node.name.clone()), Event::Node(node.name.clone(), Some(told)))
    });
    let namespaces = world.namespaces.iter().map(|namespace| {
        let fact = Fact::Namespace(namespace.tenant.clone(), namespace.name.clone());
        let labels = Some(namespace.labels.clone());
        (fact, Event::Namespace(label(&namespace.tenant), namespace.name.clone(), labels))
    });
    let pods = world.pods.iter().map(|pod| {
        let fact = Fact::Pod(pod.tenant.clone(), pod.namespace.clone(), pod.name.clone());
        let name = PodRef::new(&pod.namespace, &pod.name);
        (fact, Event::Pod(label(&pod.tenant), name, Some(told(pod))))
    });
    let policies = world.policies.iter().map(|(tenant, policy)| {
        let (namespace, name) = (&policy.metadata.namespace, &policy.metadata.name);
        let (namespace, name) = (namespace.clone().unwrap(), name.clone().unwrap());
        let fact = Fact::Policy(tenant.clone(), namespace, name);
        (fact, Event::network_policy(&label(tenant), policy))
    });
    let cluster = world.cluster_policies.iter().map(|written| {
        let tenant = written["metadata"]["labels"]["atoll.dev/tenant"].as_str();
        let name = written["metadata"]["name"].as_str().unwrap();
        let fact = Fact::ClusterPolicy(tenant.map(ToOwned::to_owned), name.to_owned());
        let object: ClusterNetworkPolicy = serde_json::from_value(written.clone()).unwrap();
        (fact, Event::cluster_policy(&object))
    });
    nodes.chain(namespaces).chain(pods).chain(policies).chain(cluster).collect()
}

/// The event that ends a fact.
pub(crate) fn ended(fact: &Fact) -> Event {
    match fact.clone() {
        Fact::Node(name) => Event::Node(name, None),
        Fact::Namespace(tenant, name) => Event::Namespace(label(&tenant), name, None),
        Fact::Pod(tenant, namespace, name) => {
            Event::Pod(label(&tenant), PodRef::new(namespace, name), None)
        }
        Fact::Policy(tenant, namespace, name) => {
            Event::Policy(PolicyKey::namespaced(label(&tenant), &namespace, &name), None)
        }
        Fact::ClusterPolicy(tenant, name) => {
            Event::Policy(PolicyKey::cluster(tenant.map(|t| label(&t)), &name), None)
        }
    }
}

/// The events that lead from one world to another.
pub(crate) fn steps(before: &World, after: &World) -> Vec<Event> {
    let (before, after) = (facts(before), facts(after));
    let gone = before.keys().filter(|fact| !after.contains_key(fact)).map(ended);
    let new = after.iter().filter(|(fact, event)| before.get(fact) != Some(event));
    gone.chain(new.map(|(_, event)| event.clone())).collect()
}

/// A compiler that learned a world from nothing.
pub(crate) fn compiled(world: &World) -> Compiler {
    let mut compiler = Compiler::new();
    for event in facts(world).into_values() {
        compiler.apply(event);
    }
    compiler
}

/// Every address that tables ask about: those of pods, and a few that are no pod's, seen from each
/// network.
pub(crate) fn addresses(world: &World) -> BTreeSet<NetAddr> {
    let pods = world.pods.iter().flat_map(|pod| pod.addresses.iter().map(|(_, address)| *address));
    let mut all: BTreeSet<NetAddr> = pods.collect();
    let networks: BTreeSet<NetworkId> = all.iter().map(|address| address.network).collect();
    let nodes = world.nodes.iter().flat_map(|node| node.ips.iter().copied());
    let outside: Vec<IpAddr> = nodes.chain(["198.51.100.7".parse().unwrap()]).collect();
    for network in networks {
        all.extend(outside.iter().map(|ip| NetAddr::new(network, *ip)));
    }
    all
}

/// What the compiler says, in the oracle's words.
pub(crate) fn in_words(explanation: &Explanation) -> (Side, Side) {
    (side(&explanation.egress), side(&explanation.ingress))
}

fn side(decision: &Decision) -> Side {
    let reason = |tier: &str| Side {
        passes: decision.accepts(),
        tier: tier.to_owned(),
        policy: String::new(),
        rule: None,
    };
    match decision {
        Decision::Ruled { by, .. } => Side {
            policy: by.policy.to_string(),
            rule: by.rule.as_ref().map(|place| usize::from(place.index)),
            ..reason(&by.tier.to_string())
        },
        Decision::NoPolicy => reason("NoPolicy"),
        Decision::Itself => reason("Itself"),
        Decision::OwnNode => reason("OwnNode"),
        Decision::AnotherTenant => reason("AnotherTenant"),
        Decision::Unknown => reason("Unknown"),
    }
}

/// The compiler's word for a protocol.
pub(crate) fn protocol(name: &str) -> Protocol {
    Protocol::named(name).unwrap_or(Protocol::Other)
}

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn told(pod: &atoll_oracle::Pod) -> Pod {
    let ports = pod.ports.iter().map(|(name, by, port)| NamedPort {
        name: name.clone(),
        protocol: protocol(by),
        port: *port,
    });
    let mut interfaces: BTreeMap<(String, _), BTreeSet<_>> = BTreeMap::new();
    for (network, address) in &pod.addresses {
        interfaces.entry((network.clone(), address.network)).or_default().insert(address.ip);
    }
    let interfaces = interfaces.into_iter().map(|((network, id), ips)| Interface {
        network: label(&network),
        id,
        ips,
    });
    Pod {
        labels: pod.labels.clone(),
        ports: ports.collect(),
        interfaces: interfaces.collect(),
        node: Some(pod.node.clone()),
        host_network: pod.host_network,
    }
}
