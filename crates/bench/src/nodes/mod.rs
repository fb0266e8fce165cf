//! A cluster of a thousand nodes: as many agents as it has, each with a kernel made of maps, against
//! a real kube-apiserver. What one change costs, and how that grows with the nodes.

mod kernel;
mod relay;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use atoll_agent::AgentConfig;
use atoll_api::{Network, Port, PortSpec};
use atoll_types::MacAddr;
use clap::Parser;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use self::kernel::{Counts, MapKernel};
use self::relay::Relay;
use crate::control::{Plane, Whose, resident};
use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::plot::{Line, Plot};
use crate::sample::Sample;
use crate::table::Table;

/// How many nodes the tenants' pods are spread over.
const NODES_OF_TENANT: usize = 10;
/// Pods of a tenant on each of its nodes.
const PODS_ON_NODE: usize = 2;
/// Changes one after the other, and changes at once.
const CHANGES: usize = 30;
const BURST: usize = 300;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long bytes must have stopped to be all of them.
const QUIET: Duration = Duration::from_millis(300);

const NOTES: &str = "\
Agents in one process, each as on a node but with a kernel made of maps, against a real kube-apiserver \
with etcd on the same machine. Every tenant has a network with two pods on each of ten nodes; there \
are as many tenants as tenths of nodes. *One change*: a pod's port is made, until the nine other nodes \
of its tenant have programmed its address; bytes are all that the API server sends to all agents for \
it, with encryption. *At once*: ports made all at once over all tenants, by address programmed.";

/// What was measured with so many nodes.
struct Measured {
    nodes: usize,
    start: Duration,
    connections: f64,
    start_kib: f64,
    resident_kib: f64,
    change_bytes: Sample,
    change_ms: Sample,
    programmed_each_second: f64,
}

/// Measures with ever more nodes.
pub(crate) fn measure(quick: bool) -> Result<Section> {
    let sizes: &[usize] = if quick { &[10, 100] } else { &[10, 100, 1000] };
    let measured = sizes.iter().map(|nodes| measure_size(*nodes));
    let measured: Vec<Measured> = measured.collect::<Result<_>>()?;
    Ok(Section {
        title: "Simulated nodes",
        notes: NOTES.into(),
        tables: vec![
            ("Agents as they start".into(), starts(&measured)),
            ("Changes".into(), changes(&measured)),
        ],
        plots: vec![plot(&measured)],
        judged: judge(&measured),
    })
}

fn starts(measured: &[Measured]) -> Table {
    let columns =
        ["nodes", "all started s", "connections each", "KiB read each", "resident KiB each"];
    let mut table = Table::new(columns);
    for it in measured {
        table.row([
            it.nodes.to_string(),
            format!("{:.1}", it.start.as_secs_f64()),
            format!("{:.1}", it.connections),
            format!("{:.0}", it.start_kib),
            format!("{:.0}", it.resident_kib),
        ]);
    }
    table
}

fn changes(measured: &[Measured]) -> Table {
    let columns = [
        "nodes",
        "bytes of one change",
        "one change p50 ms",
        "p99 ms",
        "at once: addresses programmed a second",
    ];
    let mut table = Table::new(columns);
    for it in measured {
        table.row([
            it.nodes.to_string(),
            format!("{:.0}", it.change_bytes.median()),
            format!("{:.1}", it.change_ms.median()),
            format!("{:.1}", it.change_ms.quantile(0.99)),
            format!("{:.0}", it.programmed_each_second),
        ]);
    }
    table
}

fn plot(measured: &[Measured]) -> Plot {
    let points = measured.iter().map(|it| (it.nodes as f64, it.change_bytes.median() / 1024.0));
    Plot {
        file: "nodes.svg",
        title: "What the API sends to all agents for one change".into(),
        across: "nodes",
        up: "KiB",
        lines: vec![Line { name: "one new port".into(), points: points.collect() }],
    }
}

/// What is sent for a change hangs on who needs it, not on how many nodes there are.
fn judge(measured: &[Measured]) -> Vec<Judged> {
    let (Some(least), Some(most)) = (measured.first(), measured.last()) else { return vec![] };
    let goal = Goal::AtMost(1.5);
    let ratio = Sample::new([most.change_bytes.median() / least.change_bytes.median()]);
    let what = format!("bytes of one change, {} nodes against {}", most.nodes, least.nodes);
    vec![Judged { what, goal, verdict: goal.judge(&ratio), median: ratio.median() }]
}

fn measure_size(nodes: usize) -> Result<Measured> {
    eprintln!("nodes: {nodes} agents against kube-apiserver");
    let plane = Plane::start(Whose::Real)?;
    let kubeconfig = plane.kubeconfig()?;
    plane.block_on(async {
        let cluster = Cluster { client: plane.client.clone(), nodes };
        cluster.fill().await?;
        let agents = Agents::start(&kubeconfig, nodes).await?;
        agents.measure(&cluster).await
    })
}

/// The objects of the cluster.
struct Cluster {
    client: Client,
    nodes: usize,
}

fn node_name(number: usize) -> String {
    format!("node-{number}")
}

impl Cluster {
    fn tenants(&self) -> usize {
        self.nodes / NODES_OF_TENANT
    }

    async fn fill(&self) -> Result<()> {
        for number in 0..self.nodes {
            self.make_node(number).await?;
        }
        for tenant in 0..self.tenants() {
            self.make_tenant(tenant).await?;
        }
        Ok(())
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
        let api = Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(
            self.client.clone(),
            namespace,
        );
        let account = serde_json::from_value(json!({ "metadata": { "name": "default" } }))?;
        match api.create(&PostParams::default(), &account).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            made => Ok(made.map(drop)?),
        }
    }

    /// A pod of a tenant and its port, as scheduler and controller would have left them.
    async fn make_port(&self, tenant: usize, number: usize) -> Result<()> {
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

/// The agents of all nodes. They end with this value.
struct Agents {
    counts: Arc<Counts>,
    relay: Relay,
    running: JoinSet<Result<()>>,
    _folder: TempDir,
    count: usize,
    started: Instant,
    resident_before: u64,
}

impl Agents {
    async fn start(kubeconfig: &str, count: usize) -> Result<Self> {
        let folder = tempfile::tempdir_in("/run").context("cannot make a folder")?;
        let config = Kubeconfig::from_yaml(kubeconfig)?;
        let mut config =
            Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        let target = format!("127.0.0.1:{}", config.cluster_url.port_u16().unwrap_or(443));
        let relay = Relay::to(target.parse()?).await?;
        config.cluster_url = through(relay.address)?;
        let (counts, resident_before) =
            (Arc::new(Counts::default()), resident(std::process::id())?);
        let (mut running, started) = (JoinSet::new(), Instant::now());
        for number in 0..count {
            let client = atoll_agent::connect(config.clone())?;
            let config = agent_config(number, folder.path())?;
            std::fs::create_dir_all(&config.state_dir)?;
            let kernel = MapKernel::new(&counts);
            running.spawn(async move { atoll_agent::run_with(client, &config, kernel).await });
        }
        Ok(Agents { counts, relay, running, _folder: folder, count, started, resident_before })
    }

    fn programmed(&self) -> usize {
        self.counts.endpoints.load(Ordering::Relaxed)
    }

    async fn measure(mut self, cluster: &Cluster) -> Result<Measured> {
        let others = (NODES_OF_TENANT - 1) * PODS_ON_NODE;
        self.wait_for(self.count * others).await?;
        let start = self.started.elapsed();
        self.wait_for_quiet().await?;
        let each = |sum: u64| sum as f64 / self.count as f64;
        let connections = each(self.relay.counted.connections());
        let start_kib = each(self.relay.counted.told()) / 1024.0;
        let grown = resident(std::process::id())?.saturating_sub(self.resident_before);
        let resident_kib = each(grown) / 1024.0;
        let mut changes = vec![];
        for number in 0..CHANGES {
            changes.push(self.change(cluster, number).await?);
        }
        let programmed_each_second = self.burst(cluster).await?;
        Ok(Measured {
            nodes: self.count,
            start,
            connections,
            start_kib,
            resident_kib,
            change_bytes: Sample::new(changes.iter().map(|(bytes, _)| *bytes as f64)),
            change_ms: Sample::new(changes.iter().map(|(_, time)| time.as_secs_f64() * 1e3)),
            programmed_each_second,
        })
    }

    /// One more port; gives the bytes that the agents were told, and how long it took.
    async fn change(&mut self, cluster: &Cluster, number: usize) -> Result<(u64, Duration)> {
        let (programmed, told) = (self.programmed(), self.relay.counted.told());
        let (tenant, begun) = (number % cluster.tenants(), Instant::now());
        let pod = NODES_OF_TENANT * PODS_ON_NODE + number;
        cluster.make_port(tenant, pod).await?;
        self.wait_for(programmed + NODES_OF_TENANT - 1).await?;
        let took = begun.elapsed();
        self.wait_for_quiet().await?;
        Ok((self.relay.counted.told() - told, took))
    }

    /// Many more ports at once; gives the addresses that were programmed in a second.
    async fn burst(&mut self, cluster: &Cluster) -> Result<f64> {
        let (programmed, begun) = (self.programmed(), Instant::now());
        let first = NODES_OF_TENANT * PODS_ON_NODE + CHANGES;
        let made =
            (0..BURST).map(|number| cluster.make_port(number % cluster.tenants(), first + number));
        futures::future::try_join_all(made).await?;
        let more = BURST * (NODES_OF_TENANT - 1);
        self.wait_for(programmed + more).await?;
        Ok(more as f64 / begun.elapsed().as_secs_f64())
    }

    /// Waits until the kernels have so many addresses.
    async fn wait_for(&mut self, programmed: usize) -> Result<()> {
        let begun = Instant::now();
        while self.programmed() < programmed {
            if let Some(ended) = self.running.try_join_next() {
                ended??;
            }
            let there = self.programmed();
            ensure!(
                begun.elapsed() < PATIENCE,
                "{there} of {programmed} addresses were programmed"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Waits until nothing more is told.
    async fn wait_for_quiet(&self) -> Result<()> {
        let (begun, mut since, mut last) = (Instant::now(), Instant::now(), 0);
        while since.elapsed() < QUIET {
            ensure!(begun.elapsed() < PATIENCE, "the API server does not stop talking");
            let told = self.relay.counted.told();
            if told != last {
                (since, last) = (Instant::now(), told);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

fn through(relay: SocketAddr) -> Result<http::Uri> {
    Ok(format!("https://{relay}").parse()?)
}

/// An agent's settings as its command line has them.
#[derive(Parser)]
struct AgentLine {
    #[command(flatten)]
    config: AgentConfig,
}

fn agent_config(number: usize, folder: &Path) -> Result<AgentConfig> {
    let own = folder.join(number.to_string());
    let at = |name: &str| own.join(name).display().to_string();
    let underlay = Ipv4Addr::from_bits(0xc0a8_0001 + u32::try_from(number)?).to_string();
    let settings = [
        ("--node-name", node_name(number)),
        ("--socket", at("agent.sock")),
        ("--state-dir", at("state")),
        ("--bpf-root", at("bpf")),
        ("--underlay", underlay),
    ];
    let words = settings.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    Ok(AgentLine::try_parse_from(["agent".to_owned()].into_iter().chain(words))?.config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Verdict;

    fn measured(nodes: usize, bytes: f64) -> Measured {
        Measured {
            nodes,
            start: Duration::ZERO,
            connections: 1.0,
            start_kib: 1.0,
            resident_kib: 1.0,
            change_bytes: Sample::new([bytes]),
            change_ms: Sample::new([1.0]),
            programmed_each_second: 1.0,
        }
    }

    #[test]
    fn a_change_that_is_told_to_every_node_is_a_missed_goal() {
        let verdict = |bytes| judge(&[measured(10, 1000.0), measured(1000, bytes)])[0].verdict;
        assert_eq!(verdict(1100.0), Verdict::Met);
        assert_eq!(verdict(100_000.0), Verdict::Missed);
    }
}
