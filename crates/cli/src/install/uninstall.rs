//! `atoll uninstall`: the agents end, each node is cleaned by the image that ran there, and then
//! the rest goes.
//!
//! The rule of this file: what is deleted last is what a second run needs to finish a first that
//! was broken off.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use atoll_api::marks;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};

use super::inventory::Inventory;
use super::manifests::{self, NAMESPACE, is_definition, kind};
use super::progress::{Patience, daemons, late_pods};
use super::settings::Settings;
use super::{Installed, definitions, made, prune};
use crate::cluster::ClusterArgs;
use crate::target::{FIELD_MANAGER, Target, shown};

/// How many pods are named in a refusal.
const NAMED: usize = 5;

/// What to remove, and how.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  atoll uninstall --dry-run        what it would remove
  atoll uninstall                  everything but tenants, networks and their definitions
  atoll uninstall --purge          those too

It can be run again after it was broken off.")]
pub(crate) struct UninstallArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Remove our objects and their definitions too: tenants, networks, subnets, ports, claims,
    /// pools of addresses and the roles of tenants. Namespaces and what is in them stay.
    #[arg(long)]
    purge: bool,
    /// Also while pods would lose their network; and also where no installation is found, to clean
    /// its nodes.
    #[arg(long)]
    force: bool,
    /// The image that cleans nodes; by default the one that the agents have.
    #[arg(long)]
    image: Option<String>,
    /// Only tell what would be removed.
    #[arg(long)]
    dry_run: bool,
    /// How many seconds to wait at most for each step.
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    timeout: u64,
}

pub(crate) fn run(args: &UninstallArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let client = args.cluster.client().await?;
        if !args.force {
            refuse_while_in_use(&client).await?;
        }
        let target = Target {
            client: client.clone(),
            namespace: NAMESPACE.into(),
            params: PatchParams::apply(FIELD_MANAGER).force(),
        };
        let limit = Duration::from_secs(args.timeout);
        Uninstall { args, target, limit }.run().await
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn refuse_while_in_use(client: &Client) -> Result<()> {
    let there = Installed::find(client).await?;
    let is_only_network = there.is_some_and(|there| !there.settings.plain_network.is_empty());
    let using = match is_only_network {
        true => pods_of_everybody(client).await?,
        false => pods_of_tenants(client).await?,
    };
    ensure!(using.is_empty(), "{}", in_use(&using));
    Ok(())
}

/// DNS pods go with us, and serve nobody but the others.
async fn pods_of_everybody(client: &Client) -> Result<Vec<String>> {
    let of_dns = namespaces(client, marks::DNS_OF).await?;
    let mut using = pods_in(Api::all(client.clone())).await?;
    using.retain(|pod| !is_in(pod, &of_dns));
    Ok(using)
}

async fn pods_of_tenants(client: &Client) -> Result<Vec<String>> {
    let others = format!("{},!{}", marks::TENANT, marks::DNS_OF);
    let mut using = Vec::new();
    for namespace in namespaces(client, &others).await? {
        using.extend(pods_in(Api::namespaced(client.clone(), &namespace)).await?);
    }
    Ok(using)
}

/// The names of those with these labels.
async fn namespaces(client: &Client, labels: &str) -> Result<BTreeSet<String>> {
    let all: Api<Namespace> = Api::all(client.clone());
    let found = all.list_metadata(&ListParams::default().labels(labels)).await;
    let found = found.with_context(|| format!("cannot list namespaces with {labels}"))?;
    Ok(found.iter().map(ResourceExt::name_any).collect())
}

/// Whether a pod, by its full name, is in one of these namespaces.
fn is_in(pod: &str, namespaces: &BTreeSet<String>) -> bool {
    pod.split_once('/').is_some_and(|(namespace, _)| namespaces.contains(namespace))
}

/// Those that would lose their network.
async fn pods_in(api: Api<Pod>) -> Result<Vec<String>> {
    let pods = api.list(&ListParams::default()).await.context("cannot list pods")?;
    Ok(pods.iter().filter(|pod| has_network(pod)).map(full_name).collect())
}

/// Whether a pod has, or will have, an interface.
fn has_network(pod: &Pod) -> bool {
    let on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !on_host && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

fn in_use(pods: &[String]) -> String {
    let named = pods.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = match pods.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("pods would lose their network: {named}{more}; delete them, or use --force")
}

/// An uninstallation under way.
struct Uninstall<'a> {
    args: &'a UninstallArgs,
    target: Target,
    limit: Duration,
}

impl Uninstall<'_> {
    async fn run(&self) -> Result<()> {
        let foreign = definitions::of_others(&self.target.client).await?;
        let objects = self.objects(&foreign).await?;
        if self.is_installed().await? || self.args.force {
            let image = self.image().await?;
            self.end_workloads(&objects).await?;
            self.clean_nodes(image.as_deref()).await?;
        } else {
            println!("there is no namespace {NAMESPACE}: nodes are taken to be clean");
        }
        if self.args.purge {
            self.purge(&foreign).await?;
        }
        let is_rest = |object: &&DynamicObject| {
            !is_workload(object) && (self.args.purge || !is_definition(object))
        };
        self.delete_all(objects.iter().rev().filter(is_rest)).await?;
        println!("{}", if self.args.dry_run { "nothing was changed" } else { "Atoll is removed" });
        Ok(())
    }

    /// What this version has, and what the installed one has beside it, but nothing of others.
    async fn objects(&self, foreign: &BTreeSet<String>) -> Result<Vec<DynamicObject>> {
        let mut objects = manifests::installation(&Settings::default())?;
        let there = match Installed::find(&self.target.client).await {
            Err(error) if self.args.force => {
                println!("only what this version has is removed: {error:#}");
                None
            }
            found => found?,
        };
        let listed = there.map(|there| there.objects).unwrap_or_default();
        objects.extend(listed.without(&Inventory::of(&objects)));
        objects.retain(|object| !(is_definition(object) && foreign.contains(&object.name_any())));
        Ok(objects)
    }

    /// DNS pods end while nobody makes them again, and agents are there to take their network down.
    async fn end_workloads(&self, objects: &[DynamicObject]) -> Result<()> {
        self.delete_all(objects.iter().filter(|it| kind(it) == "Deployment")).await?;
        self.delete_all(made::resolvers(&self.target.client).await?.iter()).await?;
        self.delete_all(objects.iter().filter(|it| is_workload(it))).await
    }

    async fn is_installed(&self) -> Result<bool> {
        let namespaces: Api<Namespace> = Api::all(self.target.client.clone());
        Ok(namespaces.get_opt(NAMESPACE).await?.is_some())
    }

    /// The image that is on the nodes.
    async fn image(&self) -> Result<Option<String>> {
        if self.args.image.is_some() {
            return Ok(self.args.image.clone());
        }
        let sets: Api<DaemonSet> = Api::namespaced(self.target.client.clone(), NAMESPACE);
        for name in ["atoll-agent", "atoll-remover"] {
            if let Some(set) = sets.get_opt(name).await? {
                return Ok(image_of(&set));
            }
        }
        Ok(None)
    }

    async fn delete_all(&self, objects: impl Iterator<Item = &DynamicObject>) -> Result<()> {
        for object in objects {
            self.delete(object).await?;
        }
        Ok(())
    }

    async fn delete(&self, object: &DynamicObject) -> Result<()> {
        prune::delete_one(&self.target, object, self.limit, self.args.dry_run).await
    }

    /// Runs the remover on every node, until nothing is left there.
    async fn clean_nodes(&self, image: Option<&str>) -> Result<()> {
        if self.args.dry_run {
            println!("every node would be cleaned");
            return Ok(());
        }
        let remover = manifests::remover(image)?;
        self.ensure_home().await?;
        self.target.apply(&remover).await?;
        let patience = Patience::new(self.limit);
        let mut said = String::new();
        loop {
            let clean = daemons(&self.target.client, &remover.name_any()).await?;
            if let Some(clean) = clean {
                patience.tell(&mut said, &format!("clean nodes {clean}"));
            }
            // A cluster without nodes has none to clean.
            if clean.is_some_and(|clean| clean.ready >= clean.wanted) {
                break;
            }
            if patience.is_over() {
                let late = late_pods(&self.target.client).await?;
                bail!("nodes are not clean after {:?}; run this again{late}", self.limit);
            }
            patience.pause().await;
        }
        self.delete(&remover).await
    }

    /// The remover's namespace, where somebody deleted it before.
    async fn ensure_home(&self) -> Result<()> {
        let objects = manifests::installation(&Settings::default())?;
        let home = objects.iter().find(|object| kind(object) == "Namespace");
        self.target.apply(home.context("the manifests have no namespace")?).await.map(drop)
    }

    /// Our objects lose what holds them, because nobody is there to let them go; they go with
    /// their definitions. What has the definition of somebody else stays with it.
    async fn purge(&self, foreign: &BTreeSet<String>) -> Result<()> {
        for name in foreign {
            println!("{name} is not Atoll's: it stays, with all that is written in it");
        }
        let all = atoll_api::crds().into_iter();
        for crd in all.filter(|crd| !foreign.contains(&crd.name_any())) {
            let version = crd.spec.versions.first().map(|it| it.name.clone()).unwrap_or_default();
            let kind = GroupVersionKind::gvk(&crd.spec.group, &version, &crd.spec.names.kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural);
            self.let_go(&resource).await?;
        }
        self.delete_all(made::rest(&self.target.client).await?.iter()).await
    }

    async fn let_go(&self, resource: &ApiResource) -> Result<()> {
        let all: Api<DynamicObject> = Api::all_with(self.target.client.clone(), resource);
        let found = match all.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            found => found.with_context(|| format!("cannot list {}", resource.plural))?,
        };
        if self.args.dry_run {
            println!("{} {} would be deleted", found.items.len(), resource.plural);
            return Ok(());
        }
        let free = Patch::Merge(serde_json::json!({"metadata": {"finalizers": null}}));
        for object in found.items.iter().filter(|object| !object.finalizers().is_empty()) {
            let api = match object.namespace() {
                Some(namespace) => {
                    Api::namespaced_with(self.target.client.clone(), &namespace, resource)
                }
                None => all.clone(),
            };
            let freed: kube::Result<DynamicObject> =
                api.patch(&object.name_any(), &PatchParams::default(), &free).await;
            match freed {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                done => drop(done.with_context(|| format!("cannot free {}", shown(object)))?),
            }
        }
        println!("{} {} go with their definition", found.items.len(), resource.plural);
        Ok(())
    }
}

fn is_workload(object: &DynamicObject) -> bool {
    matches!(kind(object).as_str(), "DaemonSet" | "Deployment")
}

fn image_of(set: &DaemonSet) -> Option<String> {
    set.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: &serde_json::Value, phase: &str) -> Pod {
        let pod = serde_json::json!({
            "metadata": {"name": "web", "namespace": "acme"},
            "spec": spec,
            "status": {"phase": phase},
        });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn pods_that_ended_or_use_the_hosts_network_are_in_nobodys_way() {
        let own = serde_json::json!({"containers": []});
        let on_host = serde_json::json!({"containers": [], "hostNetwork": true});
        assert!(has_network(&pod(&own, "Running")));
        assert!(has_network(&pod(&own, "Pending")));
        assert!(!has_network(&pod(&own, "Succeeded")));
        assert!(!has_network(&pod(&on_host, "Running")));
    }

    #[test]
    fn dns_pods_are_told_from_others_by_their_namespace() {
        let of_dns = ["atoll-dns-4".to_owned()].into();
        assert!(is_in("atoll-dns-4/dns-1", &of_dns));
        assert!(!is_in("acme/atoll-dns-4", &of_dns));
        assert!(!is_in("atoll-dns-44/dns-1", &of_dns));
    }

    #[test]
    fn a_refusal_names_some_pods_and_says_what_to_do() {
        let pods: Vec<_> = (0..7).map(|number| format!("acme/web-{number}")).collect();
        let said = in_use(&pods);
        assert!(said.contains("acme/web-0, acme/web-1"), "{said}");
        assert!(said.contains("web-4 and 2 more; delete them, or use --force"), "{said}");
        assert!(in_use(&pods[..1]).contains("acme/web-0; delete"));
    }
}
