//! The objects of a cluster of so many nodes, as scheduler and controller would have left them.

use std::net::Ipv4Addr;

use anyhow::Result;
use atoll_api::{Network, Port, PortSpec};
use atoll_types::MacAddr;
use futures::stream::{self, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

/// How many nodes the tenants' pods are spread over.
pub(super) const NODES_OF_TENANT: usize = 10;
/// How many nodes or tenants are made at once.
const AT_ONCE: usize = 32;
/// Pods of a tenant on each of its nodes.
pub(super) const PODS_ON_NODE: usize = 2;

/// The objects of the cluster.
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) nodes: usize,
}

/// The name of a node.
pub(super) fn node_name(number: usize) -> String {
    format!("node-{number}")
}

impl Cluster {
    pub(super) fn tenants(&self) -> usize {
        self.nodes / NODES_OF_TENANT
    }

    pub(super) async fn fill(&self) -> Result<()> {
        let nodes = stream::iter((0..self.nodes).map(anyhow::Ok));
        nodes.try_for_each_concurrent(AT_ONCE, |number| self.make_node(number)).await?;
        let tenants = stream::iter((0..self.tenants()).map(anyhow::Ok));
        tenants.try_for_each_concurrent(AT_ONCE, |tenant| self.make_tenant(tenant)).await
    }

    async fn make_node(&self, number: usize) -> Result<()> {
        let api = Api::<Node>::all(self.client.clone());
        let name = node_name(number);
        let node = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        api.create(&PostParams::default(), &node).await?;
        let ip = Ipv4Addr::from_bits(0xc0a8_0001 + u32::try_from(number)?);
        let address = json!([{ "type": "InternalIP", "address": ip }]);
        let status = Patch::Merge(json!({ "status": { "addresses": address } }));
        api.patch_status(&name, &PatchParams::default(), &status).await?;
        Ok(())
    }

    async fn make_tenant(&self, tenant: usize) -> Result<()> {
        let name = format!("t-{tenant}");
        let labels = json!({ "atoll.dev/tenant": name });
        let metadata = json!({ "name": name, "labels": labels });
        let namespace = serde_json::from_value(json!({ "metadata": metadata }))?;
        Api::<Namespace>::all(self.client.clone())
            .create(&PostParams::default(), &namespace)
            .await?;
        let spec = json!({ "tenant": name, "type": "vpc", "cidrs": ["10.0.0.0/16"] });
        let network = json!({ "metadata": { "name": format!("{name}.default") }, "spec": spec });
        let network: Network = serde_json::from_value(network)?;
        Api::all(self.client.clone()).create(&PostParams::default(), &network).await?;
        self.make_account(&name).await?;
        for pod in 0..NODES_OF_TENANT * PODS_ON_NODE {
            self.make_port(tenant, pod).await?;
        }
        Ok(())
    }

    /// Pods need the account `default`, which somebody else may have made in the meantime.
    async fn make_account(&self, namespace: &str) -> Result<()> {
        let api = Api::<ServiceAccount>::namespaced(self.client.clone(), namespace);
        let account = serde_json::from_value(json!({ "metadata": { "name": "default" } }))?;
        match api.create(&PostParams::default(), &account).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            made => Ok(made.map(drop)?),
        }
    }

    /// A pod of a tenant and its port, as scheduler and controller would have left them.
    pub(super) async fn make_port(&self, tenant: usize, number: usize) -> Result<()> {
        let (namespace, name) = (format!("t-{tenant}"), format!("pod-{number}"));
        let node = node_name(tenant * NODES_OF_TENANT + number % NODES_OF_TENANT);
        let containers = json!([{ "name": "main", "image": "none" }]);
        let pod = json!({ "metadata": { "name": name },
                          "spec": { "nodeName": node, "containers": containers } });
        let pod: Pod = serde_json::from_value(pod)?;
        let pods = Api::<Pod>::namespaced(self.client.clone(), &namespace);
        let made = pods.create(&PostParams::default(), &pod).await?;
        let ip = Ipv4Addr::from_bits(0x0a00_0002 + u32::try_from(number)?);
        let network = format!("{namespace}.default");
        let port = Port::new(
            &name,
            PortSpec {
                subnet: network.clone(),
                network,
                network_id: u32::try_from(tenant + 1)?,
                ips: vec![ip.to_string()],
                mac: MacAddr::for_ip(ip.into()).to_string(),
                pod: name.clone(),
                pod_uid: made.metadata.uid.unwrap_or_default(),
                interface: "eth0".into(),
                node: Some(node),
                ..PortSpec::default()
            },
        );
        Api::<Port>::namespaced(self.client.clone(), &namespace)
            .create(&PostParams::default(), &port)
            .await?;
        Ok(())
    }
}
