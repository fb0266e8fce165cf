//! `atoll lab status`: the nodes, their agents, the pods and where the API is.

use std::process::ExitCode;

use comfy_table::{Table, presets};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde::Serialize;

use crate::args::{Output, StatusArgs};
use crate::cluster;
use crate::home::Home;
use crate::process::Process;

/// Everything that is shown.
#[derive(Debug, Serialize)]
struct Report {
    name: String,
    api: String,
    kubeconfig: String,
    supervisor: RunningProcess,
    nodes: Vec<NodeReport>,
    pods: Vec<PodReport>,
}

#[derive(Debug, Serialize)]
struct RunningProcess {
    /// None when it does not run.
    pid: Option<i32>,
}

#[derive(Debug, Serialize)]
struct NodeReport {
    name: String,
    address: String,
    ready: bool,
    agent: RunningProcess,
}

#[derive(Debug, Serialize)]
struct PodReport {
    namespace: String,
    name: String,
    node: String,
    ip: String,
    phase: String,
}

/// Shows the lab.
pub(crate) async fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let home = Home::of(&args.lab.name);
    home.require_up()?;
    let report = gather(&home, &cluster::client(&home).await?).await?;
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        Output::Table => println!("{}", text(&report)),
    }
    Ok(ExitCode::SUCCESS)
}

async fn gather(home: &Home, client: &Client) -> anyhow::Result<Report> {
    let all = ListParams::default();
    let nodes = Api::<Node>::all(client.clone()).list(&all).await?;
    let pods = Api::<Pod>::all(client.clone()).list(&all).await?;
    let settings = home.settings()?;
    Ok(Report {
        name: home.name().to_string(),
        api: format!("https://127.0.0.1:{}", settings.port),
        kubeconfig: home.kubeconfig().display().to_string(),
        supervisor: running(Process::read(&home.supervisor_record())),
        nodes: nodes.iter().map(|node| node_report(home, node)).collect(),
        pods: pods.iter().map(pod_report).collect(),
    })
}

fn running(process: Option<Process>) -> RunningProcess {
    let alive = process.filter(Process::is_alive);
    RunningProcess { pid: alive.map(|process| process.pid()) }
}

fn node_report(home: &Home, node: &Node) -> NodeReport {
    let name = node.name_any();
    let status = node.status.clone().unwrap_or_default();
    let mut addresses = status.addresses.into_iter().flatten();
    let internal = addresses.find(|address| address.type_ == "InternalIP");
    let mut conditions = status.conditions.into_iter().flatten();
    let ready = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
    NodeReport {
        address: internal.map(|address| address.address).unwrap_or_default(),
        ready,
        agent: running(Process::read(&home.node(&name).agent_record())),
        name,
    }
}

fn pod_report(pod: &Pod) -> PodReport {
    let status = pod.status.clone().unwrap_or_default();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    PodReport {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        node: node.unwrap_or_default(),
        ip: status.pod_ip.unwrap_or_default(),
        phase: status.phase.unwrap_or_default(),
    }
}

fn text(report: &Report) -> String {
    let head = format!("Lab {} at {}\nKUBECONFIG={}", report.name, report.api, report.kubeconfig);
    let nodes = report.nodes.iter().map(|node| {
        let ready = if node.ready { "Ready" } else { "NotReady" };
        let agent = node.agent.pid.map_or("down".to_owned(), |pid| format!("pid {pid}"));
        [node.name.clone(), node.address.clone(), ready.to_owned(), agent]
    });
    let nodes = table(["NODE", "ADDRESS", "STATUS", "AGENT"], nodes);
    if report.pods.is_empty() {
        return format!("{head}\n\n{nodes}\n\nNo pods yet.");
    }
    let pods = report
        .pods
        .iter()
        .map(|pod| [&pod.namespace, &pod.name, &pod.node, &pod.ip, &pod.phase].map(Clone::clone));
    let pods = table(["NAMESPACE", "POD", "NODE", "IP", "PHASE"], pods);
    format!("{head}\n\n{nodes}\n\n{pods}")
}

fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header).add_rows(rows);
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            name: "demo".into(),
            api: "https://127.0.0.1:6443".into(),
            kubeconfig: "/run/atoll/lab/demo/kubeconfig".into(),
            supervisor: RunningProcess { pid: Some(7) },
            nodes: vec![NodeReport {
                name: "node1".into(),
                address: "172.30.0.11".into(),
                ready: true,
                agent: RunningProcess { pid: Some(42) },
            }],
            pods: vec![],
        }
    }

    #[test]
    fn the_table_names_every_node_with_its_agent() {
        let text = text(&report());
        let row = text.lines().find(|line| line.contains("node1")).unwrap();
        for part in ["172.30.0.11", "Ready", "pid 42"] {
            assert!(row.contains(part), "{row}");
        }
        assert!(text.ends_with("No pods yet."));
    }

    #[test]
    fn programs_find_the_processes_by_number() {
        let json = serde_json::json!(report());
        assert_eq!(json["supervisor"]["pid"], 7);
        assert_eq!(json["nodes"][0]["agent"]["pid"], 42);
    }
}
