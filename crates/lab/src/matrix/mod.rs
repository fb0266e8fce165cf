//! `atoll lab matrix`: every pod asks every other over TCP, UDP and ICMP, from inside, and the
//! answers are held against what isolation promises.

mod discover;
mod judge;
mod table;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use atoll_toolbox::{Protocol, Report, Target};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ListParams};
use serde::Serialize;
use tokio::process::Command;

use crate::args::{Expectation, MatrixArgs, Output};
use crate::cluster;
use crate::home::Home;
use discover::Participant;
use judge::{Member, Verdict};

/// Clients that probe at the same time.
const AT_ONCE: usize = 4;

/// One probe and its verdict.
#[derive(Clone, Debug, Serialize)]
struct Try {
    client: String,
    server: String,
    protocol: Protocol,
    #[serde(flatten)]
    verdict: Verdict,
}

/// Probes, prints, and compares with what was expected.
pub(crate) async fn run(args: &MatrixArgs) -> anyhow::Result<ExitCode> {
    let home = Home::of(&args.lab.name);
    home.require_up()?;
    let participants = find(&home).await?;
    let members: Vec<_> = participants.iter().map(|one| one.member.clone()).collect();
    let tries = try_all(&home, &participants, args.timeout_ms).await?;
    let violations = violations(&members, &tries);
    match args.output {
        Output::Json => print_json(&members, &tries, &violations)?,
        Output::Table => print_table(&members, &tries, &violations),
    }
    Ok(match args.expect {
        None => ExitCode::SUCCESS,
        Some(Expectation::Isolated) => held_against_isolation(&members, &violations),
    })
}

fn held_against_isolation(members: &[Member], violations: &[String]) -> ExitCode {
    if let Some(why) = judge::proves_nothing(members) {
        eprintln!("atoll: {why}");
        return ExitCode::FAILURE;
    }
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn find(home: &Home) -> anyhow::Result<Vec<Participant>> {
    let client = cluster::client(home).await?;
    let all = ListParams::default();
    let pods = Api::<Pod>::all(client.clone()).list(&all).await?;
    let namespaces = Api::<Namespace>::all(client).list(&all).await?;
    Ok(discover::participants(&pods.items, &namespaces.items))
}

async fn try_all(
    home: &Home,
    participants: &[Participant],
    timeout_ms: u32,
) -> anyhow::Result<Vec<Try>> {
    let clients = futures::stream::iter(participants);
    let probed = clients.map(|client| try_from(home, client, participants, timeout_ms));
    let tries: Vec<Vec<Try>> = probed.buffered(AT_ONCE).try_collect().await?;
    Ok(tries.into_iter().flatten().collect())
}

/// All probes of one client.
async fn try_from(
    home: &Home,
    client: &Participant,
    all: &[Participant],
    timeout_ms: u32,
) -> anyhow::Result<Vec<Try>> {
    let servers = all.iter().filter(|server| server.uid != client.uid);
    let wanted: Vec<_> = servers
        .flat_map(|server| Protocol::ALL.map(|protocol| (server, target(server, protocol))))
        .collect();
    let targets = wanted.iter().map(|(_, target)| *target).collect();
    let reports = probe(home, client, targets, timeout_ms).await?;
    let members: Vec<_> = all.iter().map(|one| one.member.clone()).collect();
    let judged = wanted.into_iter().map(|(server, target)| {
        let report = reports.get(&target).with_context(|| format!("{target} was not probed"))?;
        Ok(Try {
            client: client.member.pod.clone(),
            server: server.member.pod.clone(),
            protocol: target.protocol,
            verdict: judge::judge(&client.member, &server.member, &members, &report.outcome),
        })
    });
    judged.collect()
}

fn target(server: &Participant, protocol: Protocol) -> Target {
    Target { protocol, address: (server.member.ip, server.port).into() }
}

/// Runs the prober in the client's network. Servers with the same address are asked once.
async fn probe(
    home: &Home,
    client: &Participant,
    mut targets: Vec<Target>,
    timeout_ms: u32,
) -> anyhow::Result<HashMap<Target, Report>> {
    targets.sort();
    targets.dedup();
    if targets.is_empty() {
        return Ok(HashMap::new());
    }
    let program = std::env::current_exe()?;
    let output = Command::new(&program)
        .args(["lab", "enter", "--netns"])
        .arg(home.pod_namespace(&client.uid))
        .arg("--")
        .arg(&program)
        .args(["toolbox", "probe", "--timeout", &format!("{timeout_ms}ms")])
        .args(targets.iter().map(ToString::to_string))
        .kill_on_drop(true)
        .output()
        .await?;
    anyhow::ensure!(
        output.status.success(),
        "cannot probe from {}: {}",
        client.member.pod,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let lines = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Report>();
    let reports =
        lines.map(|report| report.map(|report| (with_port(report.target, &targets), report)));
    Ok(reports.collect::<Result<_, _>>()?)
}

/// An ICMP target is printed without its port; this is the one that was asked for.
fn with_port(reported: Target, asked: &[Target]) -> Target {
    let same = |one: &&Target| one.to_string() == reported.to_string();
    asked.iter().find(same).copied().unwrap_or(reported)
}

fn violations(members: &[Member], tries: &[Try]) -> Vec<String> {
    let by_pod: HashMap<_, _> = members.iter().map(|one| (one.pod.as_str(), one)).collect();
    let violated = |one: &Try| {
        let (client, server) = (by_pod.get(&*one.client)?, by_pod.get(&*one.server)?);
        let sentence = judge::violation(client, server, &one.verdict)?;
        Some(format!("{} {sentence}", one.protocol.name()))
    };
    tries.iter().filter_map(violated).collect()
}

fn print_json(members: &[Member], tries: &[Try], violations: &[String]) -> anyhow::Result<()> {
    let all = serde_json::json!({
        "pods": members, "tries": tries, "violations": violations,
    });
    println!("{}", serde_json::to_string_pretty(&all)?);
    Ok(())
}

fn print_table(members: &[Member], tries: &[Try], violations: &[String]) {
    if members.is_empty() {
        println!("No pod runs the toolbox: apply some, such as examples/two-tenants.yaml.");
        return;
    }
    println!("{}", table::render(members, tries, std::io::stdout().is_terminal()));
    println!("{}", table::LEGEND);
    println!("{} probes, {} against isolation", tries.len(), violations.len());
    for violation in violations {
        println!("  ✗ {violation}");
    }
}
