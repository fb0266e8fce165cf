//! `atoll traffic`: what the pods of one node have sent, received and lost, or those of every node of a
//! lab.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use atoll_cni::wire::{AgentReply, AgentRequest, TrafficReport, Volume, ask};
use comfy_table::{Table, presets};

use crate::agents::Agents;
use crate::output::Format;

/// Which counters.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  atoll traffic                    on a node of a cluster
  atoll traffic --lab demo -o json
  kubectl exec -n atoll-system POD -- atoll traffic

POD is the agent of the node; `kubectl get pods -n atoll-system -o wide` lists all.
Counted from when the pod's interface was made. SENT is what was let through, DROPPED what was not;
`atoll drops` says why.")]
pub(crate) struct TrafficArgs {
    #[command(flatten)]
    agents: Agents,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// The counters of one node.
type NodeTraffic = (String, Vec<TrafficReport>);

pub(crate) fn run(args: &TrafficArgs) -> Result<ExitCode> {
    let read = |(node, socket): (String, PathBuf)| Ok((node, read(&socket)?));
    let traffic: Vec<NodeTraffic> =
        args.agents.sockets()?.into_iter().map(read).collect::<Result<_>>()?;
    match args.output {
        Format::Table => println!("{}", table(&traffic)),
        Format::Json => println!("{}", json(&traffic)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Sorted by who people look for.
fn read(socket: &Path) -> Result<Vec<TrafficReport>> {
    match ask(socket, &AgentRequest::Traffic)? {
        AgentReply::Traffic(mut traffic) => {
            traffic.sort_by_key(|it| (it.pod.clone(), it.network.clone(), it.interface.clone()));
            Ok(traffic)
        }
        AgentReply::Failed(error) => bail!("{error}: {}", error.details),
        AgentReply::Attached(_)
        | AgentReply::Done
        | AgentReply::NotOurs
        | AgentReply::Drops(_)
        | AgentReply::Name(_) => bail!("the agent gave no counters"),
    }
}

fn table(traffic: &[NodeTraffic]) -> String {
    if traffic.iter().all(|(_, traffic)| traffic.is_empty()) {
        return "no pod of a tenant is here".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "NODE", "POD", "NETWORK", "SENT", "BYTES", "RECEIVED", "BYTES", "DROPPED", "BYTES",
    ]);
    for (node, traffic) in traffic {
        for it in traffic {
            let pod = it.pod.as_ref().map_or_else(|| it.interface.clone(), ToString::to_string);
            let counts = [it.sent, it.received, it.dropped].into_iter().flat_map(cells);
            table.add_row([node.clone(), pod, it.network.clone()].into_iter().chain(counts));
        }
    }
    table.trim_fmt()
}

fn cells(volume: Volume) -> [String; 2] {
    [volume.packets, volume.bytes].map(|number| number.to_string())
}

fn json(traffic: &[NodeTraffic]) -> serde_json::Value {
    let nodes = traffic.iter();
    let nodes = nodes.map(|(node, pods)| serde_json::json!({"node": node, "pods": pods}));
    nodes.collect()
}

#[cfg(test)]
mod tests {
    use atoll_types::PodRef;

    use super::*;

    fn traffic() -> Vec<NodeTraffic> {
        let report = TrafficReport {
            pod: Some(PodRef::new("acme", "web")),
            interface: "atl0123456789".into(),
            network: "acme.default".into(),
            sent: Volume { packets: 3, bytes: 126 },
            received: Volume { packets: 2, bytes: 84 },
            dropped: Volume { packets: 1, bytes: 42 },
        };
        vec![("node1".into(), vec![report]), ("node2".into(), vec![])]
    }

    #[test]
    fn the_table_names_node_pod_and_network() {
        let table = table(&traffic());
        let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["node1", "acme/web", "acme.default", "3", "126", "2", "84", "1", "42"]);
    }

    #[test]
    fn a_pod_that_is_not_known_is_named_by_its_interface() {
        let mut traffic = traffic();
        traffic[0].1[0].pod = None;
        assert!(table(&traffic).contains("atl0123456789"));
        assert_eq!(json(&traffic)[0]["pods"][0]["pod"], serde_json::Value::Null);
    }

    #[test]
    fn without_pods_it_says_so() {
        assert_eq!(table(&[("node1".into(), vec![])]), "no pod of a tenant is here");
    }

    #[test]
    fn json_has_every_node_also_those_without_pods() {
        let json = json(&traffic());
        assert_eq!(json[0]["pods"][0]["received"], serde_json::json!({"packets": 2, "bytes": 84}));
        assert_eq!(json[1]["pods"], serde_json::json!([]));
    }
}
