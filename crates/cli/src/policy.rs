//! `atoll policy`: what the policies of a cluster are, and what new ones would change.

mod held;
mod world;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use atoll_api::marks;
use atoll_policy::{
    Changed, ClusterNetworkPolicy, Difference, Event, Read, read_cluster_policy,
    read_network_policy, what_if,
};
use atoll_types::Label;
use comfy_table::{Table, presets};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use serde_json::{Value, json};

use self::held::Held;
use self::world::World;
use crate::cluster::ClusterArgs;
use crate::output::Format;

/// What can be asked about policies.
#[derive(clap::Subcommand)]
pub(crate) enum PolicyCommand {
    /// Every policy, and what of it cannot be enforced as it is written
    List(ListArgs),
    /// What would change if these policies were applied: who would reach whom, and who would not
    Test(TestArgs),
}

/// Of which cluster.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  atoll policy list
  KUBECONFIG=$(atoll lab kubeconfig) atoll policy list -o json")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Which policies, on which cluster.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  atoll policy test -f new.yaml
  atoll policy test -f new.yaml -n shop -o json")]
pub(crate) struct TestArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Manifests with NetworkPolicy and ClusterNetworkPolicy objects; other kinds are an error.
    #[arg(short, long, required = true)]
    file: Vec<PathBuf>,
    /// The namespace of policies that name none; by default that of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// A policy in a manifest.
enum Written {
    Network(Box<NetworkPolicy>),
    Cluster(Box<ClusterNetworkPolicy>),
}

pub(crate) fn run(command: PolicyCommand) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        match command {
            PolicyCommand::List(args) => list(&args).await,
            PolicyCommand::Test(args) => test(&args).await,
        }
    })
}

async fn list(args: &ListArgs) -> Result<ExitCode> {
    let client = args.cluster.client().await?;
    let (world, held) = (World::of_policies(&client).await?, Held::read(&client).await?);
    let network = world.policies.iter();
    let network = network.map(|(tenant, policy)| read_network_policy(tenant, policy));
    let all: Vec<Read> =
        world.cluster_policies.iter().map(read_cluster_policy).chain(network).collect();
    match args.output {
        Format::Table => {
            println!("{}", table(&all, &held));
            held.of_nodes().iter().for_each(|complaint| println!("{complaint}"));
        }
        Format::Json => {
            println!("{}", all.iter().map(|read| told(read, &held)).collect::<Value>());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(all: &[Read], held: &Held) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["TENANT", "POLICY", "TIER", "NOT AS WRITTEN"]);
    for Read { policy, reports } in all {
        let tenant = policy.key.tenant.as_ref().map_or("-".to_owned(), ToString::to_string);
        let reports = reports.iter().map(|it| format!("{}: {}", it.field, it.message));
        let held = held.of_policy(&policy.key).into_iter().map(ToOwned::to_owned);
        let reports = reports.chain(held).collect::<Vec<_>>().join("\n");
        table.add_row([tenant, policy.key.to_string(), policy.tier.to_string(), reports]);
    }
    table.trim_fmt()
}

fn told(read: &Read, held: &Held) -> Value {
    let Read { policy, reports } = read;
    let reports = reports.iter().map(|report| {
        json!({ "field": report.field, "message": report.message,
                "instead": report.instead.to_string() })
    });
    json!({
        "tenant": policy.key.tenant.as_ref().map(Label::as_str),
        "policy": policy.key.to_string(),
        "tier": policy.tier.to_string(),
        "reports": reports.collect::<Value>(),
        "held": held.of_policy(&policy.key),
    })
}

/// Prints what would change in each tenant that the policies are about.
async fn test(args: &TestArgs) -> Result<ExitCode> {
    let client = args.cluster.client().await?;
    let namespace = args.namespace.as_deref().unwrap_or(client.default_namespace()).to_owned();
    let mut written = Vec::new();
    for file in &args.file {
        written.extend(read_manifest(file, &namespace)?);
    }
    let world = World::of_policies(&client).await?;
    let (events, tenants) = events(&world, &written)?;
    let tenants: Vec<Label> = tenants.into_iter().collect();
    let world = world.with_pods(&client, &tenants).await?;
    let differences: Vec<(Label, Difference)> = tenants
        .into_iter()
        .map(|tenant| (tenant.clone(), what_if(&world.compiler, &tenant, &events)))
        .collect();
    match args.output {
        Format::Table => differences.iter().for_each(|(tenant, difference)| {
            print!("tenant {tenant}: {difference}");
        }),
        Format::Json => println!("{}", differences.iter().map(difference_told).collect::<Value>()),
    }
    Ok(ExitCode::SUCCESS)
}

fn read_manifest(file: &Path, namespace: &str) -> Result<Vec<Written>> {
    let text = match file.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin())?,
        _ => std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?,
    };
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    let objects = documents
        .map(|document| -> Result<Value> { Ok(serde::Deserialize::deserialize(document)?) });
    let objects = objects.filter(|object| !matches!(object, Ok(Value::Null)));
    let read = objects.map(|object| policy(object?, namespace));
    read.collect::<Result<_>>().with_context(|| format!("in {}", file.display()))
}

fn policy(mut object: Value, namespace: &str) -> Result<Written> {
    match object["kind"].as_str() {
        Some("NetworkPolicy") => {
            if object["metadata"]["namespace"].is_null() {
                object["metadata"]["namespace"] = json!(namespace);
            }
            Ok(Written::Network(serde_json::from_value(object)?))
        }
        Some("ClusterNetworkPolicy") => Ok(Written::Cluster(serde_json::from_value(object)?)),
        kind => bail!(
            "kind {} is no policy: NetworkPolicy and ClusterNetworkPolicy are",
            kind.unwrap_or("(none)")
        ),
    }
}

/// What the policies would tell the compiler, and the tenants they are about.
fn events(world: &World, written: &[Written]) -> Result<(Vec<Event>, BTreeSet<Label>)> {
    let (mut events, mut tenants) = (Vec::new(), BTreeSet::new());
    for policy in written {
        match policy {
            Written::Network(policy) => {
                let namespace = policy.namespace().unwrap_or_default();
                let tenant = world.tenants.get(&namespace).with_context(|| {
                    format!("{}: namespace {namespace} is no tenant's", policy.name_any())
                })?;
                events.push(Event::network_policy(tenant, policy));
                tenants.insert(tenant.clone());
            }
            Written::Cluster(policy) => {
                events.push(Event::cluster_policy(policy));
                let labels = policy.metadata.labels.iter().flatten();
                let owner = labels.into_iter().find(|(key, _)| *key == marks::TENANT);
                match owner.and_then(|(_, name)| name.parse().ok()) {
                    Some(tenant) => drop(tenants.insert(tenant)),
                    None => tenants.extend(world.tenants.values().cloned()),
                }
            }
        }
    }
    Ok((events, tenants))
}

fn difference_told((tenant, difference): &(Label, Difference)) -> Value {
    let one = |changed: &Changed| {
        let cell = &changed.cell;
        json!({
            "from": difference.name(cell.from), "to": difference.name(cell.to),
            "fromAddress": cell.from.ip, "toAddress": cell.to.ip,
            "protocol": cell.probe.protocol.name(), "port": cell.probe.port,
            "passes": changed.after.accepts(),
            "because": changed.after.decision().to_string(),
            "now": changed.before.decision().to_string(),
        })
    };
    json!({
        "tenant": tenant.as_str(),
        "changes": difference.changed.iter().map(one).collect::<Value>(),
        "notAsWritten":
            difference.reports.iter().map(|it| json!(it.to_string())).collect::<Value>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 0}]}]}
";

    fn read(text: &str) -> Result<Vec<Written>> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.yaml");
        std::fs::write(&file, text).unwrap();
        read_manifest(&file, "elsewhere")
    }

    #[test]
    fn a_manifest_has_policies_of_both_kinds_and_nothing_else() {
        let both = format!("{POLICY}---\nkind: ClusterNetworkPolicy\nmetadata: {{name: all}}\n");
        assert_eq!(read(&both).unwrap().len(), 2);
        let wrong = read("kind: Pod\nmetadata: {name: web}\n").err().unwrap();
        let wrong = format!("{wrong:#}");
        assert!(wrong.contains("kind Pod is no policy"), "{wrong}");
    }

    #[test]
    fn a_policy_without_a_namespace_is_in_the_one_at_hand() {
        let Written::Network(policy) = &read(&POLICY.replace(", namespace: shop", "")).unwrap()[0]
        else {
            panic!("it is a NetworkPolicy");
        };
        assert_eq!(policy.namespace().as_deref(), Some("elsewhere"));
    }

    #[test]
    fn the_table_says_what_is_not_enforced_as_written() {
        let tenant: Label = "acme".parse().unwrap();
        let Written::Network(policy) = &read(POLICY).unwrap()[0] else { panic!() };
        let table = table(&[read_network_policy(&tenant, policy)], &Held::default());
        for cell in ["acme", "shop/closed", "NetworkPolicy", "spec.ingress[0].ports[0].port"] {
            assert!(table.contains(cell), "{table}");
        }
    }
}
