//! The supervisor: one process with the API, the controller, the scheduler and every node's
//! kubelet, and the agents as its children.
//!
//! The rule: it only ever starts things. Taking down is `down`'s work, whether the supervisor still
//! lives or not, so there is one way to do it.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use atoll_apiserver::{ApiConfig, ApiServer};
use atoll_controller::ControllerConfig;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use nix::mount::{MsFlags, mount};
use tokio::sync::watch;

use crate::agent_keeper::Keeper;
use crate::args::{Underlay, UpArgs};
use crate::fabric::NodeAddresses;
use crate::home::{Home, NodeHome, Settings, write_json};
use crate::kubelet::{self, NodeContext, PLUGIN};
use crate::node::{self, Readiness};
use crate::progress::Progress;
use crate::{cluster, fabric, scheduler};

/// How long the nodes may take to become ready.
const PATIENCE: Duration = Duration::from_secs(90);
const CONTROLLER_PAUSE: Duration = Duration::from_secs(1);
/// Who writes objects, in server-side apply.
const FIELD_MANAGER: &str = "atoll-lab";

/// Runs a lab until it is told to end.
pub(crate) fn run(args: &UpArgs) -> anyhow::Result<ExitCode> {
    log_to_standard_error();
    nix::unistd::setsid().context("cannot leave the session of the shell")?;
    let home = Home::of(&args.lab.name);
    let runtime = tokio::runtime::Runtime::new()?;
    let result = runtime.block_on(supervise(&home, args));
    // Whoever is in the middle of something is not waited for: nothing here needs an end.
    runtime.shutdown_background();
    if let Err(error) = &result {
        tracing::error!("{error:#}");
        Progress::Failed(format!("{error:#}")).tell();
    }
    result.map(|()| ExitCode::SUCCESS)
}

fn log_to_standard_error() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}

async fn supervise(home: &Home, args: &UpArgs) -> anyhow::Result<()> {
    let mut told_to_end =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let work = async {
        let api = start(home, args).await?;
        Progress::Ready.tell();
        tracing::info!(lab = %home.name(), "the lab is ready");
        api.await.context("the API ended")?.context("the API failed")
    };
    tokio::select! {
        ended = work => ended,
        _ = told_to_end.recv() => Ok(()),
    }
}

type Serving = tokio::task::JoinHandle<anyhow::Result<()>>;

/// Starts everything; returns the API's task when all nodes are ready.
async fn start(home: &Home, args: &UpArgs) -> anyhow::Result<Serving> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let listener = listen_on_loopback(args.port)?;
    let nodes = lay_out(home, args, &program)?;
    Progress::Step(format!("network of {} nodes", nodes.len())).tell();

    let (api, client) = start_api(home, args.nodes, listener).await?;
    apply_crds(&client).await?;
    tell_where_the_api_is(&client).await?;
    Progress::Step("Kubernetes API".into()).tell();

    let template = args.default_network_template_path.clone();
    tokio::spawn(keep_controller(client.clone(), template));
    tokio::spawn(scheduler::run(client.clone()));
    Progress::Step("controller and scheduler".into()).tell();

    let mut waiting = Vec::new();
    for (node, addresses) in nodes {
        let keeper = Keeper::new(home, &node, &program, &args.agents);
        waiting.push((node.clone(), start_node(home, node, addresses, keeper, &client).await?));
    }
    for (node, readiness) in waiting {
        wait_until_ready(&node, readiness).await?;
        Progress::Step(node.name.clone()).tell();
    }
    Ok(api)
}

fn listen_on_loopback(port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "port {port} of 127.0.0.1 is in use: give another with --port, or leave it out and a \
             free one is picked"
        ),
        _ => anyhow::anyhow!("cannot listen on port {port} of 127.0.0.1: {error}"),
    })
}

/// A node, and its addresses on the fabric.
type Plugged = (NodeHome, NodeAddresses);

/// Makes the namespaces, wires, mounts and directories.
fn lay_out(home: &Home, args: &UpArgs, program: &Path) -> anyhow::Result<Vec<Plugged>> {
    let bpf = home.bpf();
    mount(Some("bpf"), &bpf, Some("bpf"), MsFlags::empty(), None::<&str>)
        .with_context(|| format!("cannot mount a BPF file system at {}", bpf.display()))?;
    std::os::unix::fs::symlink(program, home.plugins().join(PLUGIN))?;
    fabric::create(home)?;
    (1..=args.nodes).map(|number| lay_out_node(home, number, args.underlay)).collect()
}

fn lay_out_node(home: &Home, number: u8, underlay: Underlay) -> anyhow::Result<Plugged> {
    let node = home.node(&fabric::node_name(number));
    let addresses = NodeAddresses::of(number, underlay);
    node.create()?;
    std::fs::create_dir(&node.bpf)?;
    fabric::plug(home, &node, addresses)?;
    Ok((node, addresses))
}

async fn start_api(
    home: &Home,
    nodes: u8,
    loopback: TcpListener,
) -> anyhow::Result<(Serving, Client)> {
    let port = loopback.local_addr()?.port();
    let fabric_host = fabric::API_ADDRESS.to_string();
    let service = fabric::API_SERVICE.to_string();
    let of_service = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", &service];
    let names = ["localhost", "127.0.0.1", &fabric_host].into_iter().chain(of_service);
    let names = names.map(str::to_owned).collect();
    let config = ApiConfig { store: home.store(), tls_dir: home.tls(), names };
    let server = ApiServer::open(&config).context("cannot open the API's store")?;
    let on_loopback = format!("https://127.0.0.1:{port}");
    let on_fabric = format!("https://{fabric_host}:{}", fabric::API_PORT);
    std::fs::write(home.kubeconfig(), server.kubeconfig(&on_loopback))?;
    std::fs::write(home.node_kubeconfig(), server.kubeconfig(&on_fabric))?;
    write_json(&home.settings_file(), &Settings { nodes, port })?;
    let listeners = vec![loopback, fabric::listen(home)?];
    let serving =
        tokio::spawn(async move { Ok(server.serve(listeners, std::future::pending()).await?) });
    Ok((serving, cluster::client(home).await?))
}

/// Puts the API behind the service `kubernetes`, as the real one does for itself.
async fn tell_where_the_api_is(client: &Client) -> anyhow::Result<()> {
    let slice = serde_json::json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes", "namespace": "default",
                     "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [fabric::API_ADDRESS.to_string()],
                       "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": fabric::API_PORT, "protocol": "TCP"}],
    });
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), "default");
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let told = slices.patch("kubernetes", &params, &Patch::Apply(slice)).await;
    told.context("cannot put the API behind its service")?;
    Ok(())
}

async fn apply_crds(client: &Client) -> anyhow::Result<()> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let params = PatchParams::apply(FIELD_MANAGER).force();
    for definition in atoll_api::crds() {
        let name = definition.name_any();
        let applied = definitions.patch(&name, &params, &Patch::Apply(&definition)).await;
        applied.with_context(|| format!("cannot apply the definition of {name}"))?;
        let established =
            await_condition(definitions.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(PATIENCE, established)
            .await
            .with_context(|| format!("{name} was not served within {} s", PATIENCE.as_secs()))??;
    }
    Ok(())
}

/// The controller must always run: one that fails is started again.
async fn keep_controller(client: Client, default_network_template: Option<PathBuf>) {
    let config = ControllerConfig { default_network_template, ..ControllerConfig::default() };
    loop {
        let config = config.clone();
        match atoll_controller::run(client.clone(), config, std::future::pending()).await {
            Ok(()) => tracing::error!("the controller ended and is started again"),
            Err(error) => tracing::error!("the controller failed and is started again: {error:#}"),
        }
        tokio::time::sleep(CONTROLLER_PAUSE).await;
    }
}

async fn start_node(
    home: &Home,
    node: NodeHome,
    addresses: NodeAddresses,
    keeper: Keeper,
    client: &Client,
) -> anyhow::Result<watch::Receiver<Readiness>> {
    node::register(client, &node.name, addresses)
        .await
        .with_context(|| format!("cannot make the Node object of {}", node.name))?;
    let (sender, readiness) = watch::channel(Readiness::unknown());
    let context = NodeContext::new(home, &node, addresses.first, keeper.program(), client);
    tokio::spawn(keeper.run());
    tokio::spawn(node::keep_true(client.clone(), node, sender));
    tokio::spawn(kubelet::run(Arc::new(context)));
    Ok(readiness)
}

async fn wait_until_ready(
    node: &NodeHome,
    mut readiness: watch::Receiver<Readiness>,
) -> anyhow::Result<()> {
    let ready = readiness.wait_for(|readiness| readiness.ready);
    if tokio::time::timeout(PATIENCE, ready).await.is_ok_and(|ended| ended.is_ok()) {
        return Ok(());
    }
    let message = readiness.borrow().message.clone();
    anyhow::bail!(
        "{} was not ready within {} s: {message}{}",
        node.name,
        PATIENCE.as_secs(),
        last_words(&node.agent_log)
    )
}

/// The end of a log, for a message that outlives the log.
fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(5)..].join("\n  ");
    if tail.is_empty() { String::new() } else { format!("; its agent said last:\n  {tail}") }
}
