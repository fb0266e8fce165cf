//! A thousand policies over a thousand pods: how long they take to compile and to load, what they
//! weigh in the kernel, and what a packet notices of them.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use atoll_policy::{Compiler, Event, Interface, Labels, Pod};
use atoll_types::{Label, NetworkId, PodRef};
use serde_json::json;

use crate::datapath::{cell, round, start_servers};
use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::paths::{Cluster, Place, Setting};
use crate::rounds::{Length, Rounds};
use crate::sample::Sample;
use crate::table::Table;
use crate::traffic::Kind;

const NETWORK: u32 = 100;
const KINDS: [Kind; 3] = [Kind::RoundTrip, Kind::Connect, Kind::Bulk];
const PLACES: [Place; 2] = [Place::SameNode, Place::AcrossNodes];
/// How many applications share a namespace.
const TEAM: u32 = 50;

const NOTES: &str = "\
Each application is a pod with labels of its own and a policy with two rules of ingress and three of \
egress: a neighbour, a team by a range of ports, DNS, and a block of addresses with an exception. The \
measured pods are three of them, and a policy allows what is measured. *Compile*: from facts to \
tables, in one process. *Load*: all tables written and put into force. Bytes are what the kernel \
says of the maps of policy beyond what they have when empty. Ratios are to nodes without a policy in \
the same round; both ends are on one CPU, as in the first table.";

/// What it took to get the policies into the kernel.
struct Loaded {
    applications: u32,
    compile: Duration,
    load: Duration,
    entries: usize,
    bytes: u64,
}

/// One contestant: its cluster, and for each place and kind a value for each round.
struct Contestant {
    cluster: Cluster,
    rounds: [[Vec<f64>; KINDS.len()]; PLACES.len()],
}

/// Measures all of it.
pub(crate) fn measure(rounds: Rounds, quick: bool) -> Result<Section> {
    let sizes: &[u32] = if quick { &[100, 1000] } else { &[100, 1000, 4000] };
    let mut loads = Vec::new();
    for applications in sizes {
        loads.push(load(&without_policy()?, *applications)?);
    }
    let mut contestants = [Contestant::new()?, Contestant::new()?];
    load(&contestants[1].cluster, 1000)?;
    let ends = contestants.iter().flat_map(|it| PLACES.map(|place| it.cluster.ends(place)));
    let ends: Vec<_> = ends.flatten().collect();
    let servers = start_servers(ends.iter())?;
    let mut going = rounds.begin("policy");
    while going.next(|| judged_ratios(&contestants)).is_some() {
        contestants.iter_mut().try_for_each(|it| it.add_round(rounds.length))?;
    }
    drop(servers);
    Ok(Section {
        title: "Policy",
        notes: format!("{NOTES}\n\n{}", going.told()),
        tables: vec![
            ("Compile and load".into(), loaded_table(&loads)),
            ("With 1,000 policies beside none".into(), packets_table(&contestants)),
        ],
        plots: vec![],
        judged: judge(&contestants),
    })
}

impl Contestant {
    fn new() -> Result<Self> {
        Ok(Contestant { cluster: without_policy()?, rounds: Default::default() })
    }

    fn add_round(&mut self, length: Length) -> Result<()> {
        for (place, rounds) in PLACES.into_iter().zip(&mut self.rounds) {
            for (kind, values) in KINDS.into_iter().zip(rounds) {
                values.push(round(&self.cluster.ends(place)[0], kind, length)?);
            }
        }
        Ok(())
    }
}

fn without_policy() -> Result<Cluster> {
    Cluster::new(&Setting { policy: false, ..Setting::everything(&[NETWORK]) })
}

/// Puts the policies of so many applications into force.
pub(crate) fn enforce(cluster: &Cluster, applications: u32) -> Result<()> {
    load(cluster, applications).map(drop)
}

fn load(cluster: &Cluster, applications: u32) -> Result<Loaded> {
    let events = crowd(applications)?;
    let mut compiler = Compiler::new();
    let begun = Instant::now();
    for event in events {
        compiler.apply(event);
    }
    let compile = begun.elapsed();
    let empty = policy_memory(cluster)?;
    let load = cluster.write_policy(compiler.tables())?;
    let tables = compiler.tables();
    Ok(Loaded {
        applications,
        compile,
        load,
        entries: tables.len() - tables.rules.len(),
        bytes: policy_memory(cluster)? - empty,
    })
}

fn policy_memory(cluster: &Cluster) -> Result<u64> {
    let maps = cluster.map_memory()?;
    Ok(maps.iter().filter(|(name, _)| name.starts_with("policy_")).map(|(_, bytes)| bytes).sum())
}

fn loaded_table(loads: &[Loaded]) -> Table {
    let mut table =
        Table::new(["policies and pods", "compile ms", "load ms", "entries", "bytes per entry"]);
    for it in loads {
        let milliseconds = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1000.0);
        table.row([
            it.applications.to_string(),
            milliseconds(it.compile),
            milliseconds(it.load),
            it.entries.to_string(),
            format!("{:.0}", it.bytes as f64 / it.entries as f64),
        ]);
    }
    table
}

fn packets_table([without, with]: &[Contestant; 2]) -> Table {
    let kinds = KINDS.map(Kind::heading);
    let mut table = Table::new(["place"].into_iter().chain(kinds));
    for (place, (with, without)) in PLACES.iter().zip(with.rounds.iter().zip(&without.rounds)) {
        let cells = with.iter().zip(without);
        let cells = cells.map(|(values, limits)| cell(values, &Sample::ratios(values, limits)));
        table.row([place.to_string()].into_iter().chain(cells));
    }
    table
}

/// The ratios of round trips, by place.
fn judged_ratios([without, with]: &[Contestant; 2]) -> Vec<Sample> {
    let places = with.rounds.iter().zip(&without.rounds);
    places.map(|(with, without)| Sample::ratios(&with[0], &without[0])).collect()
}

/// An open connection notices at most 2 %.
fn judge(contestants: &[Contestant; 2]) -> Vec<Judged> {
    let judged = PLACES.into_iter().zip(judged_ratios(contestants));
    judged
        .map(|(place, ratios)| {
            let what = format!("{place}, round trip with 1,000 policies against none");
            Judged::new(what, Goal::AtMost(1.02), &ratios)
        })
        .collect()
}

/// So many applications of one tenant. The first three are at the measured addresses.
fn crowd(applications: u32) -> Result<Vec<Event>> {
    let tenant: Label = format!("tenant-{NETWORK}").parse()?;
    let mut events = Vec::new();
    for team in 0..applications.div_ceil(TEAM) {
        let labels = Labels::from([("team".to_owned(), team.to_string())]);
        events.push(Event::Namespace(tenant.clone(), format!("team-{team}"), Some(labels)));
    }
    for application in 0..applications {
        let name = PodRef::new(namespace_of(application), format!("app-{application}"));
        events.push(Event::Pod(tenant.clone(), name, Some(pod(application)?)));
        events.push(policy(&tenant, application)?);
    }
    Ok(events)
}

fn namespace_of(application: u32) -> String {
    format!("team-{}", application / TEAM)
}

fn pod(application: u32) -> Result<Pod> {
    let address = Ipv4Addr::from_bits(0x0a00_0001 + application);
    let interface = Interface {
        network: "default".parse()?,
        id: NetworkId::try_from(NETWORK)?,
        ips: [address.into()].into(),
    };
    let labels = Labels::from([("app".to_owned(), format!("app-{application}"))]);
    Ok(Pod { labels, interfaces: vec![interface], ..Pod::default() })
}

/// From the neighbours and a team, to the neighbours, DNS and a block.
fn policy(tenant: &Label, application: u32) -> Result<Event> {
    let app = |number: u32| json!({ "matchLabels": { "app": format!("app-{number}") } });
    let near = |number: u32| json!({ "podSelector": app(number) });
    let neighbours: Vec<_> = (application.saturating_sub(2)..=application + 2).map(near).collect();
    let team = json!({ "namespaceSelector": { "matchLabels": { "team": "0" } } });
    let block = json!({ "ipBlock": { "cidr": "203.0.113.0/24", "except": ["203.0.113.128/25"] } });
    let spec = json!({
        "podSelector": app(application),
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            { "from": neighbours, "ports": [{ "port": 7000, "endPort": 7010 }] },
            { "from": [team], "ports": [{ "port": 9000, "endPort": 9100 }] }
        ],
        "egress": [
            { "to": neighbours },
            { "ports": [{ "port": 53, "protocol": "UDP" }] },
            { "to": [block] }
        ]
    });
    let metadata =
        json!({ "name": format!("app-{application}"), "namespace": namespace_of(application) });
    let object = serde_json::from_value(json!({ "metadata": metadata, "spec": spec }));
    Ok(Event::network_policy(tenant, &object.context("the policy is one")?))
}

#[cfg(test)]
mod tests {
    use atoll_policy::Protocol;
    use atoll_types::NetAddr;

    use super::*;

    #[test]
    fn what_is_measured_is_allowed_by_a_policy_and_other_ports_are_not() {
        let mut compiler = Compiler::new();
        for event in crowd(100).unwrap() {
            compiler.apply(event);
        }
        assert_eq!(compiler.reports().count(), 0);
        let at =
            |last: u8| NetAddr::new(NetworkId::try_from(NETWORK).unwrap(), [10, 0, 0, last].into());
        for server in [2, 3] {
            let asked = |port| compiler.explain(at(1), at(server), Protocol::Tcp, port);
            assert!(asked(7001).accepts() && asked(7001).ingress.rule().is_some());
            assert!(!asked(80).accepts());
        }
    }
}
