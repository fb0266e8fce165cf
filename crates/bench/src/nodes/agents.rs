//! The agents of all nodes in this process, each with a kernel made of maps, and what they are told.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use atoll_agent::AgentConfig;
use clap::Parser;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::Measured;
use super::cluster::{Cluster, NODES_OF_TENANT, PODS_ON_NODE, node_name};
use super::kernel::{Counts, MapKernel};
use super::relay::Relay;
use crate::control::resident;
use crate::sample::Sample;

/// Agents that start at once.
const AT_ONCE: usize = 25;
/// The addresses that an agent programs: those of its tenant's pods on other nodes.
const OTHERS: usize = (NODES_OF_TENANT - 1) * PODS_ON_NODE;
/// Changes at once.
const BURST: usize = 300;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long agents are given to be at rest, and then are listened to at rest.
const REST: Duration = Duration::from_secs(10);
/// How long after a change all that is sent for it has come.
const TAIL: Duration = Duration::from_millis(300);

/// The agents of all nodes. They end with this value.
pub(super) struct Agents {
    counts: Arc<Counts>,
    relay: Relay,
    running: JoinSet<Result<()>>,
    folder: TempDir,
    config: Config,
    /// How many were started.
    count: usize,
    started: Instant,
    resident_before: u64,
}

impl Agents {
    /// Starts so many, a group after the one before is ready.
    pub(super) async fn start(kubeconfig: &str, count: usize) -> Result<Self> {
        let mut agents = Agents::none(kubeconfig).await?;
        while agents.count < count {
            agents.start_group(AT_ONCE.min(count - agents.count))?;
            agents.wait_for(agents.count * OTHERS).await?;
        }
        Ok(agents)
    }

    async fn none(kubeconfig: &str) -> Result<Self> {
        let folder = tempfile::tempdir_in("/run").context("cannot make a folder")?;
        let config = Kubeconfig::from_yaml(kubeconfig)?;
        let mut config =
            Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        let target = format!("127.0.0.1:{}", config.cluster_url.port_u16().unwrap_or(443));
        let relay = Relay::to(target.parse()?).await?;
        config.cluster_url = through(relay.address)?;
        let (counts, resident_before) =
            (Arc::new(Counts::default()), resident(std::process::id())?);
        let (running, started) = (JoinSet::new(), Instant::now());
        Ok(Agents { counts, relay, running, folder, config, count: 0, started, resident_before })
    }

    fn start_group(&mut self, size: usize) -> Result<()> {
        for number in self.count..self.count + size {
            let client = atoll_agent::connect(self.config.clone())?;
            let config = agent_config(number, self.folder.path())?;
            std::fs::create_dir_all(&config.state_dir)?;
            let kernel = MapKernel::new(&self.counts);
            self.running.spawn(async move { atoll_agent::run_with(client, &config, kernel).await });
        }
        self.count += size;
        Ok(())
    }

    fn programmed(&self) -> usize {
        self.counts.endpoints.load(Ordering::Relaxed)
    }

    pub(super) async fn measure(mut self, cluster: &Cluster, count: usize) -> Result<Measured> {
        let start = self.started.elapsed();
        tokio::time::sleep(REST).await;
        let each = |sum: u64| sum as f64 / self.count as f64;
        let connections = each(self.relay.counted.connections());
        let start_kib = each(self.relay.counted.told()) / 1024.0;
        let grown = resident(std::process::id())?.saturating_sub(self.resident_before);
        let resident_kib = each(grown) / 1024.0;
        let at_rest = self.told_at_rest().await;
        let mut changes = vec![];
        for number in 0..count {
            changes.push(self.change(cluster, number, at_rest).await?);
        }
        let programmed_each_second = self.burst(cluster, count).await?;
        Ok(Measured {
            nodes: self.count,
            start,
            connections,
            start_kib,
            resident_kib,
            at_rest: at_rest / self.count as f64,
            change_bytes: Sample::new(changes.iter().map(|(bytes, _)| *bytes)),
            change_ms: Sample::new(changes.iter().map(|(_, time)| time.as_secs_f64() * 1e3)),
            programmed_each_second,
        })
    }

    /// The bytes that all agents are told in a second when nothing changes: marks of how far the
    /// server is, in each watch.
    async fn told_at_rest(&self) -> f64 {
        let (told, begun) = (self.relay.counted.told(), Instant::now());
        tokio::time::sleep(REST).await;
        (self.relay.counted.told() - told) as f64 / begun.elapsed().as_secs_f64()
    }

    /// One more port; gives the bytes that the agents were told beyond those at rest, and how long
    /// it took.
    async fn change(
        &mut self,
        cluster: &Cluster,
        number: usize,
        at_rest: f64,
    ) -> Result<(f64, Duration)> {
        let (programmed, told) = (self.programmed(), self.relay.counted.told());
        let (tenant, begun) = (number % cluster.tenants(), Instant::now());
        let pod = NODES_OF_TENANT * PODS_ON_NODE + number;
        cluster.make_port(tenant, pod).await?;
        self.wait_for(programmed + NODES_OF_TENANT - 1).await?;
        let took = begun.elapsed();
        tokio::time::sleep(TAIL).await;
        let told = (self.relay.counted.told() - told) as f64;
        Ok((told - at_rest * begun.elapsed().as_secs_f64(), took))
    }

    /// Many more ports at once, after so many; gives the addresses that were programmed in a second.
    async fn burst(&mut self, cluster: &Cluster, before: usize) -> Result<f64> {
        let (programmed, begun) = (self.programmed(), Instant::now());
        let first = NODES_OF_TENANT * PODS_ON_NODE + before;
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
