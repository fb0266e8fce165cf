//! `atoll apply`: manifests, ours or of the designs that Atoll grew from, sent to a cluster by
//! server-side apply. One that is refused does not keep the others from being sent.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result};
use atoll_api::{Network, marks};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, ListParams, PatchParams};
use kube::{Client, ResourceExt};

use crate::cluster::ClusterArgs;
use crate::convert::ManifestArgs;
use crate::target::{FIELD_MANAGER, Target, told};

/// What to apply, and where.
#[derive(clap::Args)]
#[command(
    long_about = "Converts manifests as `atoll convert` does and sends them to a cluster by \
        server-side apply. The tenants of namespaces are read from the cluster.",
    after_help = "Examples:
  atoll apply -f network.yaml --tenant acme
  atoll apply -f pods.yaml -n shop --dry-run
  atoll convert -f old.yaml | atoll apply -f - --kubeconfig lab.kubeconfig"
)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    manifests: ManifestArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The namespace of objects that name none; by default that of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only ask the cluster what it would do.
    #[arg(long)]
    dry_run: bool,
    /// Take over fields that others own.
    #[arg(long)]
    force_conflicts: bool,
}

pub(crate) fn run(args: &ApplyArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(apply_all(args))
}

async fn apply_all(args: &ApplyArgs) -> Result<ExitCode> {
    let client = args.cluster.client().await?;
    let namespace = args.namespace.as_deref().unwrap_or(client.default_namespace()).to_owned();
    let mut settings = args.manifests.settings();
    settings.namespaces = tenants_of_namespaces(&client).await?;
    settings.networks = ranges_of_networks(&client).await?;
    settings.namespace = Some(namespace.clone());
    let converted = args.manifests.convert(&settings)?;
    let target = Target { client, namespace, params: args.params() };
    let mut code = ExitCode::SUCCESS;
    for object in converted.objects() {
        let object: DynamicObject = serde_json::from_value(object)?;
        match target.apply(&object).await {
            Ok(outcome) => println!("{}", told(&object, outcome, args.dry_run)),
            Err(error) => {
                eprintln!("atoll: {error:#}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

impl ApplyArgs {
    fn params(&self) -> PatchParams {
        let mut params = PatchParams::apply(FIELD_MANAGER).validation_strict();
        params.dry_run = self.dry_run;
        params.force = self.force_conflicts;
        params
    }
}

/// Whose the namespaces of the cluster are. Who may not list them goes without.
async fn tenants_of_namespaces(client: &Client) -> Result<BTreeMap<String, Option<String>>> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let listed = match namespaces.list_metadata(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            eprintln!("note: namespaces may not be listed; their tenants are not known");
            return Ok(BTreeMap::new());
        }
        other => other.context("cannot list the namespaces of the cluster")?,
    };
    let tenant = |labels: &BTreeMap<String, String>| labels.get(marks::TENANT).cloned();
    Ok(listed.iter().map(|namespace| (namespace.name_any(), tenant(namespace.labels()))).collect())
}

/// The ranges that networks have. Who may not list networks, or has none yet, goes without.
async fn ranges_of_networks(client: &Client) -> Result<BTreeMap<String, Vec<String>>> {
    let networks: Api<Network> = Api::all(client.clone());
    let listed = match networks.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            return Ok(BTreeMap::new());
        }
        other => other.context("cannot list the networks of the cluster")?,
    };
    let ranges = |network: Network| (network.name_any(), network.spec.cidrs);
    Ok(listed.into_iter().map(ranges).collect())
}
