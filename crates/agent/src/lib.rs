//! The agent of a node: it watches, compiles a plan, compares and applies.
//!
//! One actor ([`reconcile`]) owns everything that changes, and takes messages one at a time from
//! two sides: the API ([`watch`]) and the container runtime ([`serve`]). What pods ask for by name
//! is answered by threads of their own ([`names`]), which it keeps up to date. The rules of this crate:
//! nothing is taken away before everything has been seen once; what a pod was given survives the
//! agent; and no request of the runtime is answered before the kernel has what was promised.

mod alone;
mod attachments;
mod config;
mod descriptors;
mod directory;
mod gauges;
mod health_ports;
mod infra;
mod kernel;
mod lanes;
mod leave;
mod names;
mod plain;
mod plain_services;
mod plugin;
mod policy;
mod probe;
mod reconcile;
mod report;
mod seen;
mod serve;
mod services;
mod watch;

pub use config::{AgentConfig, NamesConfig};
pub use kernel::Kernel;
pub use lanes::connect;
pub use leave::{LeaveConfig, leave, left_on_node};
pub use plugin::PluginPlaces;

use std::future::Future;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result};
use atoll_datapath::{Datapath, DatapathConfig, OutsideConfig};
use atoll_metrics::Page;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::alone::Alone;
use crate::attachments::AttachmentStore;
use crate::descriptors::Budget;
use crate::gauges::Gauges;
use crate::health_ports::{HealthPorts, Visitors};
use crate::infra::Infra;
use crate::names::Names;
use crate::plain::Plain;
use crate::plain_services::MadeLinks;
use crate::probe::Probes;
use crate::reconcile::{Attendants, Reconciler, Timing};

/// How many messages may wait for the actor. Senders wait when there are more.
const MAILBOX: usize = 1024;

/// Runs the agent of one node until `shutdown`. Pods keep their network when it ends.
pub async fn run(
    client: Client,
    config: AgentConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    descriptors::raise();
    Datapath::preflight()?;
    let _alone = Alone::on(&config.state_dir)?;
    let underlay = match config.underlay {
        Some(given) => given,
        None => underlay_of(&client, &config.node_name).await?,
    };
    let config = AgentConfig { underlay: Some(underlay), ..config };
    let datapath = Datapath::open(&DatapathConfig {
        bpf_root: config.bpf_root.clone(),
        underlay,
        overlay_port: config.tunnel_port,
        pod_questions: config.names.limits.pod_questions_at_door(),
    })
    .await?;
    tokio::select! {
        ended = run_with(client, &config, datapath) => ended,
        () = shutdown => Ok(()),
    }
}

/// Runs the agent on any kernel, real or not, for as long as it is polled.
pub async fn run_with(client: Client, config: &AgentConfig, kernel: impl Kernel) -> Result<()> {
    let store = AttachmentStore::open(&config.state_dir)?;
    let (changes, changes_seen) = mpsc::channel(MAILBOX);
    let (requests, requests_seen) = mpsc::channel(MAILBOX);
    let (audience, audience_seen) = mpsc::channel(MAILBOX);
    let mut watches = watch::Watches::start(&client, &config.node_name, config.underlay, changes);
    let follow = move |scope: &_| watches.follow(scope);
    let budget = Budget::of_process();
    let names = Names::start(&config.names, budget).await?;
    let gauges = Gauges::default();
    let _metrics = serve_metrics(config, names.as_ref(), gauges.clone()).await?;
    let probes = Some(Probes::start());
    let policies = Some(policy::Policies::within(kernel.policy_room()));
    let infra = Some(Infra::new(budget.calls));
    let reports = report::start(client.clone(), &config.node_name);
    let visitors = Visitors::default();
    let health_ports =
        || HealthPorts::within(budget.health_ports / 2, visitors.clone(), reports.clone());
    let (health, plain_health) = (Some(health_ports()), health_ports());
    let attendants = Attendants { names, infra, policies, probes, health };
    let server = serve::Server::bind(&config.socket)?;
    let plain = Plain::find(&client, &config.node_name, &config.plugin.plain_network).await?;
    config.plugin.install(Path::new("/proc/self/exe"), &config.socket, plain.as_ref())?;
    let reconciler = Reconciler::new(
        &config.node_name,
        kernel,
        store,
        attendants,
        follow,
        reports,
        Timing::default(),
    )
    .denying(&config.egress_deny)
    .with_infra(config.infra_mode)
    .counted_by(gauges);
    let (made, plain_services) = lead_plain(client.clone(), config, plain.as_ref(), plain_health);
    let actor = serve::Actor { requests, audience, plain: made };
    tracing::info!(node = config.node_name, socket = %config.socket.display(), "agent started");
    tokio::select! {
        ended = reconciler.run(changes_seen, requests_seen, audience_seen) => ended,
        () = server.run(actor) => Ok(()),
        ended = plain_services => ended,
        ended = plain::keep_routes(client, &config.node_name), if plain.is_some() => ended,
    }
}

/// Leads the services of plain pods where they are ours to lead, and has a mailbox for their links.
fn lead_plain<'a>(
    client: Client,
    config: &'a AgentConfig,
    plain: Option<&'a Plain>,
    health: HealthPorts,
) -> (Option<mpsc::Sender<MadeLinks>>, impl Future<Output = Result<()>> + 'a) {
    let overlay_port = config.tunnel_port;
    let outside = config.underlay.map(|underlay| OutsideConfig { underlay, overlay_port });
    let led = plain.filter(|_| config.plugin.plain_services).zip(outside);
    let (made, made_seen) = mpsc::channel(MAILBOX);
    let at = (config.node_name.as_str(), config.bpf_root.as_path());
    (led.map(|_| made), plain_services::keep(client, at, led, (made_seen, health)))
}

/// Serves what was counted, where the agent was told to; until the result is dropped.
async fn serve_metrics(
    config: &AgentConfig,
    names: Option<&Names>,
    gauges: Gauges,
) -> Result<JoinSet<()>> {
    let mut serving = JoinSet::new();
    if let Some(address) = config.metrics_address {
        let (listener, names) = (atoll_metrics::listen(address).await?, names.map(Names::metrics));
        serving.spawn(atoll_metrics::serve(listener, move || {
            let mut page = Page::default();
            names.iter().for_each(|names| names.write(&mut page));
            gauges.write(&mut page);
            page.text()
        }));
    }
    Ok(serving)
}

/// This node's tunnel address, as the cluster knows it.
async fn underlay_of(client: &Client, node: &str) -> Result<IpAddr> {
    let node_object = Api::<Node>::all(client.clone())
        .get(node)
        .await
        .with_context(|| format!("cannot read node {node}; does --node-name name this node?"))?;
    watch::internal_ip(&node_object, None)
        .with_context(|| format!("node {node} has no InternalIP in its status; give --underlay"))
}
