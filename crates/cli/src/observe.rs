//! `atoll observe`: drops, and connections that come and go, as they happen on one node or on
//! every node of a lab.
//!
//! The rule of this file: the agent tells for as long as this process listens and no longer. Its
//! end, however it comes, closes the sockets, and with the last listener the kernel falls silent.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use atoll_cni::wire::{Listen, Word};
use atoll_cni::{EventFilter, EventKind, EventReport, PacketEnd};
use atoll_datapath::DropReason;
use atoll_types::PodRef;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::agents::Agents;
use crate::cluster;
use crate::output::{self, Format};

/// What to listen to.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  atoll observe                                    everything on a node of a cluster
  atoll observe --lab demo --kind dropped          what is dropped in a lab, and why
  atoll observe --pod acme/web                     what a pod sends, gets and loses
  atoll observe --reason spoofed-address           who lies about its address
  atoll observe --network acme.default -o json | jq .reason

It goes on until Ctrl-C. While nobody observes, the datapath tells nothing and pays nothing for it.
SENDER is the pod behind the interface where a packet came in, whatever the packet says.")]
pub(crate) struct ObserveArgs {
    /// Only of this network, by its object name <tenant>.<network>.
    #[arg(long)]
    network: Option<String>,
    /// Only of packets that this pod sends or that are for it.
    #[arg(long, value_name = "NAMESPACE/POD", value_parser = output::pod)]
    pod: Option<PodRef>,
    /// Only packets dropped for this reason.
    #[arg(long, value_parser = reason)]
    reason: Option<String>,
    /// Only this: dropped, opened or closed.
    #[arg(long)]
    kind: Option<EventKind>,
    #[command(flatten)]
    agents: Agents,
    /// How to print: lines for people, or one JSON object a line.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

fn reason(text: &str) -> Result<String, String> {
    let mut names = DropReason::ALL.iter().map(|reason| reason.name());
    if names.any(|name| name == text) {
        return Ok(text.to_owned());
    }
    let all: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
    Err(format!("it is one of {}", all.join(", ")))
}

/// A word of one node's agent.
type Heard = (String, Word);

pub(crate) fn run(args: &ObserveArgs) -> Result<ExitCode> {
    let sockets = args.agents.sockets()?;
    let filter = EventFilter {
        network: args.network.clone(),
        pod: args.pod.clone(),
        reason: args.reason.clone(),
        kind: args.kind,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let words = listen_to_all(sockets, &filter).await?;
        eprintln!("observing; Ctrl-C ends it");
        tokio::select! {
            ended = print(words, args.output) => ended,
            () = cluster::shutdown()? => Ok(ExitCode::SUCCESS),
        }
    })
}

async fn listen_to_all(
    sockets: Vec<(String, PathBuf)>,
    filter: &EventFilter,
) -> Result<Receiver<Heard>> {
    let (sender, words) = channel(1024);
    for (node, socket) in sockets {
        let lines = listen(&socket, filter).await.with_context(|| {
            format!("cannot observe at {}; is the agent running?", socket.display())
        })?;
        tokio::spawn(hear(node, lines, sender.clone()));
    }
    Ok(words)
}

type AgentLines = Lines<BufReader<UnixStream>>;

/// Comes back when the kernel tells.
async fn listen(socket: &PathBuf, filter: &EventFilter) -> Result<AgentLines> {
    let mut stream = UnixStream::connect(socket).await?;
    let mut line = serde_json::to_vec(&Listen { observe: filter.clone() })?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next_line().await?.context("the agent said nothing")?;
    match serde_json::from_str(&first)? {
        Word::Listening => Ok(lines),
        Word::Failed(error) => bail!("{error}: {}", error.details),
        Word::Happened(_) | Word::Missed(_) => bail!("the agent speaks another version"),
    }
}

/// Passes on what an agent says until it ends.
async fn hear(node: String, mut lines: AgentLines, words: Sender<Heard>) -> Result<()> {
    while let Some(line) = lines.next_line().await? {
        words.send((node.clone(), serde_json::from_str(&line)?)).await?;
    }
    Ok(())
}

/// Prints until no agent is left to say anything, or nobody reads.
async fn print(mut words: Receiver<Heard>, format: Format) -> Result<ExitCode> {
    while let Some((node, word)) = words.recv().await {
        if let Word::Failed(error) = &word {
            bail!("{node}: {error}: {}", error.details);
        }
        let line = match format {
            Format::Table => text(&node, &word),
            Format::Json => json(&node, &word)?,
        };
        let mut out = std::io::stdout().lock();
        match line.map_or(Ok(()), |line| writeln!(out, "{line}").and_then(|()| out.flush())) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                return Ok(ExitCode::from(output::NOBODY_READS));
            }
            said => said?,
        }
    }
    bail!("the agent ended; observe again once it runs")
}

/// A line for people.
fn text(node: &str, word: &Word) -> Option<String> {
    match word {
        Word::Listening => None,
        Word::Missed(many) => Some(format!("{node}: {many} events were missed")),
        Word::Failed(error) => Some(error.to_string()),
        Word::Happened(event) => Some(sentence(node, event)),
    }
}

fn sentence(node: &str, event: &EventReport) -> String {
    let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let sender = event.sender.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let mut line = format!(
        "{} {node} {:7} {} {sender} {} {} > {}",
        event.time,
        event.kind.name(),
        dash(&event.network),
        dash(&event.protocol),
        end(event.source.as_ref()),
        end(event.destination.as_ref()),
    );
    if let (Some(reason), Some(meaning)) = (&event.reason, &event.meaning) {
        line += &format!(" {reason}: {meaning}");
    }
    if !event.rules.is_empty() {
        line += &format!(" ({})", event.rules.join("; "));
    }
    line
}

fn end(end: Option<&PacketEnd>) -> String {
    let Some(end) = end else { return "-".to_owned() };
    let address = match (end.address, end.port) {
        (ip, None) => ip.to_string(),
        (ip, Some(port)) => std::net::SocketAddr::new(ip, port).to_string(),
    };
    end.pod.as_ref().map_or(address.clone(), |pod| format!("{address} ({pod})"))
}

/// A line for programs.
fn json(node: &str, word: &Word) -> Result<Option<String>> {
    let mut value = match word {
        Word::Listening => return Ok(None),
        Word::Missed(many) => serde_json::json!({"missed": many}),
        Word::Failed(error) => serde_json::json!({"failed": error}),
        Word::Happened(event) => serde_json::to_value(event)?,
    };
    value["node"] = node.into();
    Ok(Some(value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped() -> EventReport {
        EventReport {
            time: "2026-01-01T00:00:00.000001Z".into(),
            kind: EventKind::Dropped,
            reason: Some("spoofed-address".into()),
            meaning: Some("not its own".into()),
            network: Some("acme.default".into()),
            protocol: Some("udp".into()),
            sender: Some(PodRef::new("acme", "web")),
            source: Some(PacketEnd { address: [10, 0, 0, 9].into(), port: Some(7), pod: None }),
            destination: Some(PacketEnd {
                address: [10, 0, 0, 6].into(),
                port: None,
                pod: Some(PodRef::new("acme", "db")),
            }),
            rules: vec![],
        }
    }

    #[test]
    fn people_read_one_line_with_names_and_the_reason() {
        assert_eq!(
            text("node1", &Word::Happened(Box::new(dropped()))).unwrap(),
            "2026-01-01T00:00:00.000001Z node1 dropped acme.default acme/web udp \
             10.0.0.9:7 > 10.0.0.6 (acme/db) spoofed-address: not its own"
        );
        let rules = vec!["NetworkPolicy acme/closed".to_owned()];
        let refused = EventReport { rules, ..dropped() };
        let line = text("node1", &Word::Happened(Box::new(refused))).unwrap();
        assert!(line.ends_with("not its own (NetworkPolicy acme/closed)"), "{line}");
        let arp = EventReport { source: None, destination: None, protocol: None, ..dropped() };
        let line = text("node1", &Word::Happened(Box::new(arp))).unwrap();
        assert!(line.contains("acme/web - - > - spoofed-address"), "{line}");
    }

    #[test]
    fn programs_read_one_object_a_line_also_of_what_was_missed() {
        let line = json("node1", &Word::Happened(Box::new(dropped()))).unwrap().unwrap();
        assert!(!line.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["node"], "node1");
        assert_eq!(value["destination"]["pod"]["name"], "db");
        let missed = json("node1", &Word::Missed(3)).unwrap().unwrap();
        assert_eq!(missed, r#"{"missed":3,"node":"node1"}"#);
        assert_eq!(json("node1", &Word::Listening).unwrap(), None);
    }

    #[test]
    fn a_reason_that_there_is_not_is_told_which_there_are() {
        assert!(reason("no-endpoint").is_ok());
        assert!(reason("bad-luck").unwrap_err().contains("no-endpoint"));
    }
}
