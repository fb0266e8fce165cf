//! `atoll install`, `upgrade` and `uninstall`: what `deploy/` says, brought to a cluster, told step
//! by step. All three are repeatable.

mod definitions;
mod inventory;
mod made;
mod manifests;
mod progress;
mod prune;
mod settings;
mod uninstall;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DynamicObject, PatchParams};
use kube::{Api, Client, ResourceExt};

use self::inventory::Inventory;
use self::manifests::{NAMESPACE, SETTINGS, SETTINGS_FIELD, VERSION, VERSION_FIELD, is_definition};
use self::settings::Settings;
use crate::cluster::ClusterArgs;
use crate::target::{FIELD_MANAGER, Outcome, Target, told};

pub(crate) use self::uninstall::{UninstallArgs, run as uninstall};

/// The oldest Kubernetes 1.x that has what the manifests use.
const OLDEST_MINOR: u32 = 32;

/// What to install, and how.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  atoll install --dry-run                      what it would change
  atoll install --api-server 192.0.2.10:6443   on a cluster without kube-proxy
  atoll install -o yaml > atoll.yaml           to be applied by other means
  atoll upgrade                                this version, with the settings as they were

The image must be on the nodes, or where they can pull it from.")]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Only ask the cluster what would change.
    #[arg(long)]
    dry_run: bool,
    /// Print the manifests and do nothing.
    #[arg(short, long, value_enum, conflicts_with = "dry_run")]
    output: Option<Written>,
    /// Do not wait until everything runs.
    #[arg(long)]
    no_wait: bool,
    /// How many seconds to wait at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

/// How manifests are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Written {
    /// YAML.
    Yaml,
    /// JSON, a list.
    Json,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Install,
    Upgrade,
}

pub(crate) fn run(args: InstallArgs, intent: Intent) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new()?;
    match (args.output, intent) {
        (Some(written), Intent::Install) => print(written, &args.settings)?,
        _ => runtime.block_on(bring(args, intent))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print(written: Written, settings: &Settings) -> Result<()> {
    let objects = manifests::installation(settings)?;
    match written {
        Written::Json => {
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
            println!("{list:#}");
        }
        Written::Yaml => {
            for object in &objects {
                print!("---\n{}", serde_yaml_ng::to_string(object)?);
            }
        }
    }
    Ok(())
}

async fn bring(args: InstallArgs, intent: Intent) -> Result<()> {
    let client = args.cluster.client().await?;
    check_version(&client).await?;
    let there = Installed::find(&client).await?;
    let before = there.as_ref().map(|there| there.objects.clone()).unwrap_or_default();
    let settings = agree(args.settings, there, intent)?;
    if let Some(written) = args.output {
        return print(written, &settings);
    }
    let objects = ours(&client, manifests::installation(&settings)?).await?;
    replace(&client, objects, &before, args.dry_run).await?;
    if args.dry_run || args.no_wait {
        return Ok(());
    }
    progress::await_everything(&client, Duration::from_secs(args.timeout)).await?;
    println!("Atoll {VERSION} is installed");
    Ok(())
}

/// Without the definitions that the cluster has of somebody else.
async fn ours(client: &Client, mut objects: Vec<DynamicObject>) -> Result<Vec<DynamicObject>> {
    let foreign = definitions::of_others(client).await?;
    definitions::check(client, &foreign).await?;
    for name in &foreign {
        println!(
            "customresourcedefinition.apiextensions.k8s.io/{name} is not Atoll's: left as it is"
        );
    }
    objects.retain(|object| !(is_definition(object) && foreign.contains(&object.name_any())));
    Ok(objects)
}

/// Brings the objects, and takes away what was there before and is not among them. The list of what
/// is there holds both until then, so that a second run finishes a first that was broken off.
async fn replace(
    client: &Client,
    mut objects: Vec<DynamicObject>,
    before: &Inventory,
    dry_run: bool,
) -> Result<()> {
    let now = Inventory::of(&objects);
    let gone = before.without(&now);
    before.and(&now).write_into(&mut objects)?;
    apply(client, &objects, dry_run).await?;
    if gone.is_empty() {
        return Ok(());
    }
    prune::delete(client, &gone, dry_run).await?;
    if dry_run {
        return Ok(());
    }
    now.write_into(&mut objects)?;
    objects.retain(|object| object.name_any() == SETTINGS);
    apply(client, &objects, dry_run).await
}

async fn check_version(client: &Client) -> Result<()> {
    let version = client.apiserver_version().await.context("the cluster does not answer")?;
    let number = |text: &str| text.trim_end_matches('+').parse::<u32>().ok();
    let (major, minor) = (number(&version.major), number(&version.minor));
    let (Some(major), Some(minor)) = (major, minor) else { return Ok(()) };
    ensure!(
        (major, minor) >= (1, OLDEST_MINOR),
        "Atoll needs Kubernetes 1.{OLDEST_MINOR} or newer, and this is {}",
        version.git_version
    );
    Ok(())
}

/// An installation that was found.
#[derive(Debug, PartialEq)]
struct Installed {
    version: String,
    settings: Settings,
    objects: Inventory,
}

impl Installed {
    async fn find(client: &Client) -> Result<Option<Self>> {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        let found = maps.get_opt(SETTINGS).await.context("cannot look for an installation")?;
        found.map(|map| Self::read(&map)).transpose()
    }

    fn read(map: &ConfigMap) -> Result<Self> {
        let field = |name: &str| {
            let data = map.data.as_ref().and_then(|data| data.get(name));
            data.with_context(|| format!("configmap {NAMESPACE}/{SETTINGS} has no {name}"))
        };
        let settings = serde_json::from_str(field(SETTINGS_FIELD)?).with_context(|| {
            format!("configmap {NAMESPACE}/{SETTINGS}: {SETTINGS_FIELD} cannot be read")
        })?;
        // A version that kept no list has none to be compared with.
        let objects = field(inventory::FIELD).map(|text| Inventory::read(text));
        let objects = objects.unwrap_or_else(|_| Ok(Inventory::default())).with_context(|| {
            format!("configmap {NAMESPACE}/{SETTINGS}: {} cannot be read", inventory::FIELD)
        })?;
        Ok(Installed { version: field(VERSION_FIELD)?.clone(), settings, objects })
    }
}

/// The settings to use, or why that cannot be.
fn agree(given: Settings, there: Option<Installed>, intent: Intent) -> Result<Settings> {
    match (intent, there) {
        (Intent::Install, None) => Ok(given),
        (Intent::Install, Some(there)) => {
            let version = &there.version;
            ensure!(version == VERSION, "Atoll {version} is installed; use `atoll upgrade`");
            Ok(given)
        }
        (Intent::Upgrade, Some(there)) => {
            println!("from Atoll {} to {VERSION}", there.version);
            Ok(given.over(there.settings))
        }
        (Intent::Upgrade, None) => bail!(
            "no installation by `atoll install` was found: there is no configmap {SETTINGS} in \
             namespace {NAMESPACE}"
        ),
    }
}

/// In order; the first that is refused ends it, because those after it build on it.
async fn apply(client: &Client, objects: &[DynamicObject], dry_run: bool) -> Result<()> {
    let mut params = PatchParams::apply(FIELD_MANAGER).force();
    params.dry_run = dry_run;
    let target = Target { client: client.clone(), namespace: NAMESPACE.into(), params };
    let has_home = Api::<Namespace>::all(client.clone()).get_opt(NAMESPACE).await?.is_some();
    for object in objects {
        let homeless = dry_run && !has_home && object.namespace().is_some();
        let outcome = if homeless { Outcome::Created } else { target.apply(object).await? };
        println!("{}", told(object, outcome, dry_run));
        if is_definition(object) && !dry_run {
            progress::await_definition(client, &object.name_any()).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(version: &str) -> Option<Installed> {
        let settings = Settings { tunnel_port: Some(4790), ..Settings::default() };
        Some(Installed { version: version.into(), settings, objects: Inventory::default() })
    }

    #[test]
    fn another_version_is_upgraded_and_not_installed_over() {
        let none = Settings::default;
        assert!(agree(none(), None, Intent::Install).is_ok());
        assert_eq!(agree(none(), installed(VERSION), Intent::Install).unwrap(), none());
        let refused = agree(none(), installed("0.0.1"), Intent::Install).unwrap_err();
        assert_eq!(refused.to_string(), "Atoll 0.0.1 is installed; use `atoll upgrade`");
        let settings = agree(none(), installed("0.0.1"), Intent::Upgrade).unwrap();
        assert_eq!(settings.tunnel_port, Some(4790));
    }

    #[test]
    fn there_is_nothing_to_upgrade_where_nothing_is_installed() {
        let refused = agree(Settings::default(), None, Intent::Upgrade).unwrap_err();
        assert!(refused.to_string().starts_with("no installation by `atoll install`"), "{refused}");
    }

    #[test]
    fn an_installation_whose_settings_cannot_be_read_is_named() {
        let map = |data| serde_json::from_value::<ConfigMap>(serde_json::json!({"data": data}));
        let read = |data| Installed::read(&map(data).unwrap());
        let half = read(serde_json::json!({"version": "0.1.0"})).unwrap_err();
        assert!(half.to_string().ends_with("has no settings"), "{half}");
        let odd = serde_json::json!({"version": "0.1.0", "settings": "{\"color\": 1}"});
        let odd = read(odd).unwrap_err();
        assert!(odd.to_string().ends_with("settings cannot be read"), "{odd}");
        let odd = serde_json::json!({"version": "0.1.0", "settings": "{}", "objects": "none"});
        let odd = read(odd).unwrap_err();
        assert!(odd.to_string().ends_with("objects cannot be read"), "{odd}");
        let old = serde_json::json!({"version": "0.1.0", "settings": "{}"});
        assert_eq!(read(old).unwrap().objects, Inventory::default());
    }
}
