//! What policy needs to know of a cluster, read from its API at one moment.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use atoll_api::{Port, marks};
use atoll_model::compile::PlacedPort;
use atoll_policy::{ClusterNetworkPolicy, Compiler, Event, Interface, read_node, read_pod};
use atoll_types::{Label, NetworkName, PodRef};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

/// The cluster's tenants with what they have, compiled.
pub(super) struct World {
    /// Whose each namespace is.
    pub(super) tenants: BTreeMap<String, Label>,
    pub(super) compiler: Compiler,
    pub(super) policies: Vec<(Label, NetworkPolicy)>,
    pub(super) cluster_policies: Vec<ClusterNetworkPolicy>,
}

impl World {
    /// Reads namespaces, nodes and policies of the whole cluster.
    pub(super) async fn of_policies(client: &Client) -> Result<World> {
        let mut world = World {
            tenants: BTreeMap::new(),
            compiler: Compiler::new(),
            policies: Vec::new(),
            cluster_policies: all(Api::all(client.clone()), "cluster network policies").await?,
        };
        let namespaces: Vec<Namespace> = all(Api::all(client.clone()), "namespaces").await?;
        for namespace in namespaces {
            world.add_namespace(&namespace);
        }
        let policies: Vec<NetworkPolicy> =
            all(Api::all(client.clone()), "network policies").await?;
        for policy in policies {
            world.add_policy(policy);
        }
        for policy in &world.cluster_policies {
            world.compiler.apply(Event::cluster_policy(policy));
        }
        Ok(world)
    }

    /// Reads the pods of these tenants, too.
    pub(super) async fn with_pods(mut self, client: &Client, tenants: &[Label]) -> Result<World> {
        let nodes: Vec<Node> = all(Api::all(client.clone()), "nodes").await?;
        for node in nodes {
            self.compiler.apply(Event::Node(node.name_any(), Some(read_node(&node))));
        }
        let homes = self.tenants.clone().into_iter();
        for (namespace, tenant) in homes.filter(|(_, tenant)| tenants.contains(tenant)) {
            self.add_pods(client, &namespace, &tenant).await?;
        }
        Ok(self)
    }

    fn add_namespace(&mut self, namespace: &Namespace) {
        let tenant = namespace.labels().get(marks::TENANT).and_then(|text| text.parse().ok());
        let Some(tenant): Option<Label> = tenant else { return };
        let (name, labels) = (namespace.name_any(), Some(namespace.labels().clone()));
        self.tenants.insert(name.clone(), tenant.clone());
        self.compiler.apply(Event::Namespace(tenant, name, labels));
    }

    fn add_policy(&mut self, policy: NetworkPolicy) {
        let namespace = policy.namespace().unwrap_or_default();
        if let Some(tenant) = self.tenants.get(&namespace) {
            self.compiler.apply(Event::network_policy(tenant, &policy));
            self.policies.push((tenant.clone(), policy));
        }
    }

    async fn add_pods(&mut self, client: &Client, namespace: &str, tenant: &Label) -> Result<()> {
        let pods: Vec<Pod> = all(Api::namespaced(client.clone(), namespace), "pods").await?;
        let ports: Vec<Port> = all(Api::namespaced(client.clone(), namespace), "ports").await?;
        let ports: Vec<PlacedPort> =
            ports.iter().filter_map(|port| PlacedPort::try_from(port).ok()).collect();
        for pod in pods {
            let name = PodRef::new(namespace, pod.name_any());
            let uid = pod.uid().unwrap_or_default();
            let own = ports.iter().filter(|port| port.pod == name && port.pod_uid == uid);
            let mut facts = read_pod(&pod);
            facts.interfaces = own.filter_map(interface).collect();
            self.compiler.apply(Event::Pod(tenant.clone(), name, Some(facts)));
        }
        Ok(())
    }
}

fn interface(port: &PlacedPort) -> Option<Interface> {
    let network = port.network_name.parse::<NetworkName>().ok()?.network;
    Some(Interface { network, id: port.network, ips: port.ips.iter().copied().collect() })
}

/// Lists objects, or says which could not be.
pub(super) async fn list<K>(api: Api<K>, selected: &ListParams, what: &str) -> Result<Vec<K>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let listed = api.list(selected).await;
    Ok(listed.with_context(|| format!("cannot list {what}"))?.items)
}

async fn all<K>(api: Api<K>, what: &str) -> Result<Vec<K>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    list(api, &ListParams::default(), what).await
}
