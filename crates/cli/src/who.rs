//! `atoll who`: who has an address, in every network that has it.

use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::{Context, Result};
use atoll_api::{Network, Port};
use comfy_table::{Table, presets};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::cluster::ClusterArgs;
use crate::output::Format;

/// Which address.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  atoll who 10.0.0.5                      the pod of every network that has it
  atoll who 10.0.0.5 --network acme.default -o json
  KUBECONFIG=$(atoll lab kubeconfig) atoll who fd00::5

It ends with 1 where nobody has the address.")]
pub(crate) struct WhoArgs {
    /// The address.
    address: IpAddr,
    /// Only in this network, by its object name <tenant>.<network>.
    #[arg(long)]
    network: Option<String>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// One who has the address.
#[derive(Debug, PartialEq)]
struct Holder {
    network: String,
    tenant: String,
    namespace: String,
    port: String,
    pod: Option<String>,
    node: Option<String>,
    mac: String,
    phase: String,
}

pub(crate) fn run(args: &WhoArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new()?;
    let ports = runtime.block_on(ports(args))?;
    let holders = holders(&ports, args.address, args.network.as_deref());
    match args.output {
        Format::Table if holders.is_empty() => println!("nobody has {}", args.address),
        Format::Table => println!("{}", table(&holders)),
        Format::Json => println!("{}", json(&holders)),
    }
    Ok(if holders.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn ports(args: &WhoArgs) -> Result<Vec<Port>> {
    let client = args.cluster.client().await?;
    if let Some(network) = &args.network {
        let networks = Api::<Network>::all(client.clone());
        let found = networks.get_opt(network).await.context("cannot read networks")?;
        found.with_context(|| {
            format!("network {network} does not exist: `kubectl get networks` lists all")
        })?;
    }
    let ports = Api::<Port>::all(client).list(&ListParams::default()).await;
    Ok(ports.context("cannot list ports; was `kubectl apply -k deploy` done?")?.items)
}

/// Who has the address, by network.
fn holders(ports: &[Port], address: IpAddr, network: Option<&str>) -> Vec<Holder> {
    let has = |port: &&Port| {
        let mut ips = port.spec.ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok());
        port.spec.network_id != 0 && ips.any(|ip| ip.to_canonical() == address.to_canonical())
    };
    let inside = |port: &&Port| network.is_none_or(|network| port.spec.network == network);
    let mut holders: Vec<Holder> =
        ports.iter().filter(has).filter(inside).map(Holder::from).collect();
    holders.sort_by(|one, other| (&one.network, &one.port).cmp(&(&other.network, &other.port)));
    holders
}

impl From<&Port> for Holder {
    fn from(port: &Port) -> Self {
        let spec = &port.spec;
        let phase = port.status.as_ref().map(|status| status.phase).unwrap_or_default();
        Holder {
            network: spec.network.clone(),
            tenant: spec.network.split('.').next().unwrap_or_default().to_owned(),
            namespace: port.metadata.namespace.clone().unwrap_or_default(),
            port: port.metadata.name.clone().unwrap_or_default(),
            pod: Some(spec.pod.clone()).filter(|pod| !pod.is_empty()),
            node: spec.node.clone(),
            mac: spec.mac.clone(),
            phase: format!("{phase:?}"),
        }
    }
}

fn table(holders: &[Holder]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["NETWORK", "TENANT", "NAMESPACE", "POD", "NODE", "MAC", "PHASE", "PORT"]);
    for holder in holders {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        table.add_row([
            holder.network.clone(),
            holder.tenant.clone(),
            holder.namespace.clone(),
            text(&holder.pod),
            text(&holder.node),
            holder.mac.clone(),
            holder.phase.clone(),
            holder.port.clone(),
        ]);
    }
    table.trim_fmt()
}

fn json(holders: &[Holder]) -> Value {
    let one = |holder: &Holder| {
        json!({
            "network": holder.network, "tenant": holder.tenant, "namespace": holder.namespace,
            "pod": holder.pod, "node": holder.node, "mac": holder.mac, "phase": holder.phase,
            "port": holder.port,
        })
    };
    holders.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use atoll_api::PortSpec;

    use super::*;

    fn port(name: &str, network: &str, ip: &str, pod: &str) -> Port {
        let spec = PortSpec {
            network: network.into(),
            network_id: 7,
            ips: vec!["192.0.2.1".into(), ip.into()],
            pod: pod.into(),
            ..PortSpec::default()
        };
        Port::new(name, spec)
    }

    #[test]
    fn every_network_that_has_the_address_is_there_and_no_other() {
        let ports = [
            port("web.eth0", "globex.default", "10.0.0.5", "web"),
            port("db.eth0", "acme.default", "10.0.0.5", "db"),
            port("else.eth0", "acme.default", "10.0.0.50", "else"),
        ];
        let address = "10.0.0.5".parse().unwrap();
        let all = holders(&ports, address, None);
        let networks: Vec<&str> = all.iter().map(|holder| holder.network.as_str()).collect();
        assert_eq!(networks, ["acme.default", "globex.default"]);
        assert_eq!(holders(&ports, address, Some("globex.default")).len(), 1);
    }

    #[test]
    fn an_address_that_is_asked_for_and_not_given_yet_is_nobodys() {
        let mut waiting = port("mine", "acme.default", "10.0.0.5", "");
        waiting.spec.network_id = 0;
        assert!(holders(&[waiting], "10.0.0.5".parse().unwrap(), None).is_empty());
    }

    #[test]
    fn a_port_without_a_pod_shows_a_dash_and_null() {
        let kept = [port("mine", "acme.default", "fd00::5", "")];
        let found = holders(&kept, "fd00:0::5".parse().unwrap(), None);
        let row = table(&found).lines().nth(1).unwrap().to_owned();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells[..2], ["acme.default", "acme"]);
        assert!(cells.contains(&"-") && cells.contains(&"mine"), "{row}");
        assert_eq!(json(&found)[0]["pod"], Value::Null);
    }
}
