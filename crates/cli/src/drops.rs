//! `atoll drops`: the drop counters of one node, or of every node of a lab.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use atoll_cni::wire::{AgentReply, AgentRequest, DropReport, ask};
use comfy_table::{Table, presets};

use crate::agents::Agents;
use crate::output::Format;

/// Which counters.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  atoll drops                    on a node of a cluster
  atoll drops --lab demo -o json
  kubectl exec -n atoll-system POD -- atoll drops

POD is the agent of the node; `kubectl get pods -n atoll-system -o wide` lists all.")]
pub(crate) struct DropsArgs {
    #[command(flatten)]
    agents: Agents,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// The counters of one node.
type NodeDrops = (String, Vec<DropReport>);

pub(crate) fn run(args: &DropsArgs) -> Result<ExitCode> {
    let read = |(node, socket): (String, PathBuf)| Ok((node, read(&socket)?));
    let drops: Vec<NodeDrops> =
        args.agents.sockets()?.into_iter().map(read).collect::<Result<_>>()?;
    match args.output {
        Format::Table => println!("{}", table(&drops)),
        Format::Json => println!("{}", json(&drops)),
    }
    Ok(ExitCode::SUCCESS)
}

fn read(socket: &std::path::Path) -> Result<Vec<DropReport>> {
    match ask(socket, &AgentRequest::Drops)? {
        AgentReply::Drops(drops) => Ok(drops),
        AgentReply::Failed(error) => bail!("{error}: {}", error.details),
        AgentReply::Attached(_)
        | AgentReply::Done
        | AgentReply::NotOurs
        | AgentReply::Traffic(_)
        | AgentReply::Name(_) => bail!("the agent gave no counters"),
    }
}

fn table(drops: &[NodeDrops]) -> String {
    if drops.iter().all(|(_, drops)| drops.is_empty()) {
        return "nothing was dropped".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["NODE", "NETWORK", "REASON", "PACKETS", "MEANING"]);
    for (node, drops) in drops {
        for drop in drops {
            table.add_row([
                node.clone(),
                drop.network.clone().unwrap_or_else(|| "-".to_owned()),
                drop.reason.clone(),
                drop.packets.to_string(),
                drop.meaning.clone(),
            ]);
        }
    }
    table.trim_fmt()
}

fn json(drops: &[NodeDrops]) -> serde_json::Value {
    let nodes = drops.iter().map(|(node, drops)| serde_json::json!({"node": node, "drops": drops}));
    nodes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drops() -> Vec<NodeDrops> {
        let report = DropReport {
            network: Some("acme.default".into()),
            reason: "no-endpoint".into(),
            meaning: "nobody has that address".into(),
            packets: 3,
            bytes: 126,
        };
        vec![("node1".into(), vec![report]), ("node2".into(), vec![])]
    }

    #[test]
    fn the_table_names_node_network_and_reason() {
        let table = table(&drops());
        let row = table.lines().nth(1).unwrap();
        for cell in ["node1", "acme.default", "no-endpoint", "3"] {
            assert!(row.contains(cell), "{row}");
        }
    }

    #[test]
    fn without_drops_it_says_so() {
        assert_eq!(table(&[("node1".into(), vec![])]), "nothing was dropped");
    }

    #[test]
    fn json_has_every_node_also_those_without_drops() {
        let json = json(&drops());
        assert_eq!(json[0]["drops"][0]["packets"], 3);
        assert_eq!(json[1]["drops"], serde_json::json!([]));
    }
}
