//! Scenes: what one tenant has at one moment, to be played in several tenants at once.
//!
//! The rule kept here: tenants that play one scene have equal names, labels and addresses. Nothing
//! but their networks tells them apart.

use std::collections::BTreeMap;
use std::net::IpAddr;

use atoll_types::{NetAddr, NetworkId};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};

use crate::world::{Namespace, Node, Pod, World};

/// The ports that every pod of a scene serves, and that tables ask for.
pub const PORTS: [u16; 2] = [80, 81];

/// The protocols that tables ask for. ICMP stands for all that have no ports.
pub const PROTOCOLS: [&str; 4] = ["TCP", "UDP", "SCTP", "ICMP"];

/// The number of a network that is open to every tenant that plays. In it, and nowhere else, tenants
/// have addresses of their own: the third byte of those of the second is one higher, and so forth.
pub const OPEN: u32 = 1000;

/// One tenant at one moment. The tenant of its objects is not said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// Namespaces with their labels.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Pods by namespace and name. Their addresses have the network's name, and number 1 on.
    pub pods: BTreeMap<(String, String), Pod>,
    /// Nodes, which tenants share.
    pub nodes: Vec<Node>,
    /// `NetworkPolicy` objects by namespace and name.
    pub policies: BTreeMap<(String, String), NetworkPolicy>,
    /// `ClusterNetworkPolicy` objects by name. The tenant `SELF` is each tenant that plays.
    pub cluster_policies: BTreeMap<String, Value>,
}

/// A named sequence of scenes, with what must be seen in them.
#[derive(Clone, Debug)]
pub struct Case {
    /// A sentence about what is tried.
    pub name: String,
    /// What is true, step after step.
    pub scenes: Vec<Scene>,
    /// What must be seen.
    pub expectations: Vec<Expectation>,
}

/// What must be seen of one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// In which scene.
    pub scene: usize,
    /// The sender, as `namespace/name`.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// The protocol.
    pub protocol: String,
    /// The port.
    pub port: u16,
    /// Whether it passes.
    pub passes: bool,
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

impl Scene {
    /// Three namespaces with three pods each, on two nodes, and no policy.
    pub fn nine_pods() -> Scene {
        let mut scene = Scene::default();
        for (row, namespace) in ["x", "y", "z"].into_iter().enumerate() {
            scene = scene.namespace(namespace, &[("ns", namespace)]);
            for (column, name) in ["a", "b", "c"].into_iter().enumerate() {
                let ip = format!("10.0.{}.{}", row / 2, 1 + 16 * (row % 2) + column);
                scene = scene.pod(namespace, name, &[("pod", name)], &ip);
            }
        }
        scene.node("n1", &[("disk", "fast")], "192.0.2.1").node("n2", &[], "192.0.2.2")
    }

    /// With a namespace, or with other labels of one.
    pub fn namespace(mut self, name: &str, pairs: &[(&str, &str)]) -> Scene {
        let mut labels = labels(pairs);
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.to_owned());
        self.namespaces.insert(name.to_owned(), labels);
        self
    }

    /// With a pod in the network `default`, which serves [`PORTS`] by names like `serve-80-tcp`.
    pub fn pod(mut self, namespace: &str, name: &str, pairs: &[(&str, &str)], ip: &str) -> Scene {
        let node = if self.pods.len().is_multiple_of(2) { "n1" } else { "n2" };
        let named = |port: u16| {
            ["TCP", "UDP", "SCTP"].map(|protocol| {
                let name = format!("serve-{port}-{}", protocol.to_lowercase());
                (name, protocol.to_owned(), port)
            })
        };
        let pod = Pod {
            tenant: String::new(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            labels: labels(pairs),
            ports: PORTS.into_iter().flat_map(named).collect(),
            addresses: Vec::new(),
            node: node.to_owned(),
            host_network: false,
        };
        self.pods.insert((namespace.to_owned(), name.to_owned()), pod);
        self.address(namespace, name, "default", 1, ip)
    }

    /// With one more address of a pod, in a network.
    pub fn address(
        mut self,
        namespace: &str,
        name: &str,
        network: &str,
        id: u32,
        ip: &str,
    ) -> Scene {
        let pod = self.pods.get_mut(&(namespace.to_owned(), name.to_owned()));
        let network_id = NetworkId::try_from(id).ok();
        let ip: Option<IpAddr> = ip.parse().ok();
        if let (Some(pod), Some(id), Some(ip)) = (pod, network_id, ip) {
            pod.addresses.push((network.to_owned(), NetAddr::new(id, ip)));
        }
        self
    }

    /// With other labels of a pod.
    pub fn relabel(mut self, namespace: &str, name: &str, pairs: &[(&str, &str)]) -> Scene {
        if let Some(pod) = self.pods.get_mut(&(namespace.to_owned(), name.to_owned())) {
            pod.labels = labels(pairs);
        }
        self
    }

    /// Without a pod.
    pub fn without_pod(mut self, namespace: &str, name: &str) -> Scene {
        self.pods.remove(&(namespace.to_owned(), name.to_owned()));
        self
    }

    /// Without a namespace and all that is in it.
    pub fn without_namespace(mut self, name: &str) -> Scene {
        self.namespaces.remove(name);
        self.pods.retain(|(namespace, _), _| namespace != name);
        self.policies.retain(|(namespace, _), _| namespace != name);
        self
    }

    /// With a node.
    pub fn node(mut self, name: &str, pairs: &[(&str, &str)], ip: &str) -> Scene {
        let ips = ip.parse().into_iter().collect();
        self.nodes.push(Node { name: name.to_owned(), labels: labels(pairs), ips });
        self
    }

    /// With a `NetworkPolicy`, new or instead of the one with its name.
    pub fn policy(self, namespace: &str, name: &str, spec: Value) -> Scene {
        self.aimed_policy(namespace, name, None, spec)
    }

    /// With a `NetworkPolicy` that is aimed at networks by its annotation.
    pub fn aimed_policy(
        mut self,
        namespace: &str,
        name: &str,
        networks: Option<&str>,
        spec: Value,
    ) -> Scene {
        let annotations = networks.map(|list| json!({ "atoll.dev/policy-networks": list }));
        let metadata = json!({ "namespace": namespace, "name": name, "annotations": annotations });
        let mut object = json!({ "metadata": metadata });
        object["spec"] = spec;
        if let Ok(object) = serde_json::from_value(object) {
            self.policies.insert((namespace.to_owned(), name.to_owned()), object);
        }
        self
    }

    /// Without a `NetworkPolicy`.
    pub fn without_policy(mut self, namespace: &str, name: &str) -> Scene {
        self.policies.remove(&(namespace.to_owned(), name.to_owned()));
        self
    }

    /// With a `ClusterNetworkPolicy` of the cluster's administrators.
    pub fn cluster_policy(mut self, name: &str, spec: Value) -> Scene {
        let mut object = json!({ "metadata": { "name": name } });
        object["spec"] = spec;
        self.cluster_policies.insert(name.to_owned(), object);
        self
    }

    /// With a `ClusterNetworkPolicy` of the tenant's own administrators.
    pub fn tenant_policy(mut self, name: &str, spec: Value) -> Scene {
        let labels = json!({ "atoll.dev/tenant": "SELF" });
        let mut object = json!({ "metadata": { "name": name, "labels": labels } });
        object["spec"] = spec;
        self.cluster_policies.insert(name.to_owned(), object);
        self
    }

    /// The same, with every policy of the cluster's administrators as one of the tenant's own.
    pub fn by_the_tenant(mut self) -> Scene {
        for object in self.cluster_policies.values_mut() {
            object["metadata"]["labels"] = json!({ "atoll.dev/tenant": "SELF" });
        }
        self
    }

    /// The world in which these tenants all play the scene. Networks of the first keep their
    /// numbers, those of the second count from 101 on, and so forth.
    pub fn played_by(&self, tenants: &[&str]) -> World {
        let mut world = World { nodes: self.nodes.clone(), ..World::default() };
        for (position, tenant) in tenants.iter().enumerate() {
            self.play(&mut world, tenant, position as u8);
        }
        let shared = self.cluster_policies.values().filter(|object| !is_own(object));
        world.cluster_policies.extend(shared.cloned());
        world
    }

    fn play(&self, world: &mut World, tenant: &str, position: u8) {
        let namespace = |(name, labels): (&String, &BTreeMap<_, _>)| Namespace {
            tenant: tenant.to_owned(),
            name: name.clone(),
            labels: labels.clone(),
        };
        world.namespaces.extend(self.namespaces.iter().map(namespace));
        world.pods.extend(self.pods.values().map(|pod| owned(pod, tenant, position)));
        let policies = self.policies.values().cloned();
        world.policies.extend(policies.map(|policy| (tenant.to_owned(), policy)));
        for object in self.cluster_policies.values().filter(|object| is_own(object)) {
            let mut object = object.clone();
            object["metadata"]["labels"]["atoll.dev/tenant"] = json!(tenant);
            world.cluster_policies.push(object);
        }
    }
}

fn is_own(object: &Value) -> bool {
    object["metadata"]["labels"]["atoll.dev/tenant"] == "SELF"
}

fn owned(pod: &Pod, tenant: &str, position: u8) -> Pod {
    let addresses = pod.addresses.iter();
    let addresses =
        addresses.filter_map(|(network, at)| Some((network.clone(), moved(*at, position)?)));
    Pod { tenant: tenant.to_owned(), addresses: addresses.collect(), ..pod.clone() }
}

/// An address of a scene as the tenant at this position has it.
fn moved(address: NetAddr, position: u8) -> Option<NetAddr> {
    if address.network.get() != OPEN {
        let id = address.network.get() + u32::from(position) * 100;
        return Some(NetAddr::new(NetworkId::try_from(id).ok()?, address.ip));
    }
    let IpAddr::V4(ip) = address.ip else { return None };
    let [a, b, c, d] = ip.octets();
    Some(NetAddr::new(address.network, [a, b, c + position, d].into()))
}

impl Case {
    /// A case that begins with a scene.
    pub fn new(name: impl Into<String>, scene: Scene) -> Case {
        Case { name: name.into(), scenes: vec![scene], expectations: Vec::new() }
    }

    /// Then the world changes.
    pub fn then(mut self, change: impl FnOnce(Scene) -> Scene) -> Case {
        let last = self.scenes.last().cloned().unwrap_or_default();
        self.scenes.push(change(last));
        self
    }

    /// In the last scene these pass: `x/a > y/b`, or `x/a > y/b UDP 81`; TCP 80 where not said.
    pub fn passes(self, connections: &[&str]) -> Case {
        self.expect(connections, true)
    }

    /// In the last scene these do not pass.
    pub fn fails(self, connections: &[&str]) -> Case {
        self.expect(connections, false)
    }

    fn expect(mut self, connections: &[&str], passes: bool) -> Case {
        let scene = self.scenes.len() - 1;
        self.expectations.extend(connections.iter().map(|written| {
            let mut words = written.split_whitespace();
            let mut word = |instead: &str| words.next().unwrap_or(instead).to_owned();
            let (from, _, to) = (word(""), word(""), word(""));
            let (protocol, port) = (word("TCP"), word("80").parse().unwrap_or_default());
            Expectation { scene, from, to, protocol, port, passes }
        }));
        self
    }
}
