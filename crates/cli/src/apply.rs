//! `atoll apply`: manifests, ours or of the designs that Atoll grew from, sent to a cluster by
//! server-side apply. One that is refused does not keep the others from being sent.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use atoll_api::{Network, marks};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, ResourceExt};

use crate::cluster::ClusterArgs;
use crate::convert::ManifestArgs;

/// Who owns the fields that are applied.
const FIELD_MANAGER: &str = "atoll";

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

/// What applying did to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Created,
    Configured,
    Unchanged,
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

/// Where objects go.
struct Target {
    client: Client,
    /// The namespace of objects that name none.
    namespace: String,
    params: PatchParams,
}

impl Target {
    async fn apply(&self, object: &DynamicObject) -> Result<Outcome> {
        let shown = shown(object);
        let name = object.metadata.name.as_deref();
        let name = name.ok_or_else(|| anyhow!("{shown}: metadata.name is missing"))?;
        let api = self.api(object).await?;
        let context = || format!("cannot apply {shown}");
        let before = api.get_opt(name).await.with_context(context)?;
        let patch = Patch::Apply(object);
        let after = api.patch(name, &self.params, &patch).await.with_context(context)?;
        Ok(outcome(before, after))
    }

    async fn api(&self, object: &DynamicObject) -> Result<Api<DynamicObject>> {
        let (resource, scope) = self.resource(object).await?;
        Ok(match scope {
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            Scope::Namespaced => {
                let namespace = object.metadata.namespace.as_ref().unwrap_or(&self.namespace);
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
        })
    }

    async fn resource(&self, object: &DynamicObject) -> Result<(ApiResource, Scope)> {
        let types = object.types.as_ref().context("an object names no kind")?;
        let kind = GroupVersionKind::try_from(types)?;
        let found = pinned_kind(&self.client, &kind).await;
        let (resource, capabilities) = found.with_context(|| {
            format!("the cluster does not know {} of {}", types.kind, types.api_version)
        })?;
        Ok((resource, capabilities.scope))
    }
}

/// What changed, apart from who owns which field.
fn outcome(before: Option<DynamicObject>, after: DynamicObject) -> Outcome {
    let content = |mut object: DynamicObject| {
        object.metadata.managed_fields = None;
        object.metadata.resource_version = None;
        object
    };
    match before {
        None => Outcome::Created,
        Some(before) if content(before.clone()) == content(after) => Outcome::Unchanged,
        Some(_) => Outcome::Configured,
    }
}

/// `network.atoll.dev/acme.vpc-1`
fn shown(object: &DynamicObject) -> String {
    let types = object.types.clone().unwrap_or_default();
    let kind = types.kind.to_lowercase();
    match types.api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", object.name_any()),
        None => format!("{kind}/{}", object.name_any()),
    }
}

fn told(object: &DynamicObject, outcome: Outcome, dry_run: bool) -> String {
    let verb = match outcome {
        Outcome::Created => "created",
        Outcome::Configured => "configured",
        Outcome::Unchanged => "unchanged",
    };
    format!("{} {verb}{}", shown(object), if dry_run { " (dry run)" } else { "" })
}
