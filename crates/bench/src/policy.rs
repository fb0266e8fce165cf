//! A thousand policies over a thousand pods: how long they take to compile and to load, what they
//! weigh in the kernel, and what a packet notices of them as they grow: nothing.

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
use crate::plot::{Line, Plot};
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
the same round; both ends are on one CPU, as in the first table. *As entries grow*: about a hundred, a \
thousand and ten thousand entries, and what a thousand policies have; the least is what the three \
measured pods need.";

/// How many applications make about a hundred, a thousand and ten thousand entries, and the thousand
/// policies that are compared with none.
const SIZES: [u32; 4] = [3, 18, 117, 1_000];
/// So many are loaded, too, in a full run.
const MOST: u32 = 4_000;

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
    entries: usize,
    /// All of them, or the round trip alone.
    kinds: &'static [Kind],
    rounds: [[Vec<f64>; KINDS.len()]; PLACES.len()],
}

/// Measures all of it.
pub(crate) fn measure(rounds: Rounds, quick: bool) -> Result<Section> {
    let (mut contestants, mut loads) = (vec![Contestant::without()?], vec![]);
    for applications in SIZES {
        let (contestant, loaded) = Contestant::with(applications)?;
        contestants.push(contestant);
        loads.push(loaded);
    }
    if !quick {
        loads.push(load(&without_policy()?, MOST)?);
    }
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
            ("With 1,000 policies beside none".into(), packets_table(ends_of(&contestants))),
            ("As entries grow, round trip µs".into(), growth_table(&contestants)),
        ],
        plots: vec![plot(&contestants)],
        judged: judge(&contestants),
    })
}

impl Contestant {
    fn without() -> Result<Self> {
        let cluster = without_policy()?;
        Ok(Contestant { cluster, entries: 0, kinds: &KINDS, rounds: Default::default() })
    }

    /// Only the most policies are measured by everything.
    fn with(applications: u32) -> Result<(Self, Loaded)> {
        let kinds = if Some(&applications) == SIZES.last() { &KINDS[..] } else { &KINDS[..1] };
        let cluster = without_policy()?;
        let loaded = load(&cluster, applications)?;
        let (entries, rounds) = (loaded.entries, Default::default());
        Ok((Contestant { cluster, entries, kinds, rounds }, loaded))
    }

    fn add_round(&mut self, length: Length) -> Result<()> {
        for (place, rounds) in PLACES.into_iter().zip(&mut self.rounds) {
            for (kind, values) in self.kinds.iter().zip(rounds) {
                values.push(round(&self.cluster.ends(place)[0], *kind, length)?);
            }
        }
        Ok(())
    }

    /// The round trips of a place.
    fn round_trips(&self, place: usize) -> &[f64] {
        &self.rounds[place][0]
    }
}

/// Who has none, and who has the most.
fn ends_of(contestants: &[Contestant]) -> [&Contestant; 2] {
    [&contestants[0], &contestants[contestants.len() - 1]]
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

fn packets_table([without, with]: [&Contestant; 2]) -> Table {
    let kinds = KINDS.map(Kind::heading);
    let mut table = Table::new(["place"].into_iter().chain(kinds));
    for (place, (with, without)) in PLACES.iter().zip(with.rounds.iter().zip(&without.rounds)) {
        let cells = with.iter().zip(without);
        let cells = cells.map(|(values, limits)| cell(values, &Sample::ratios(values, limits)));
        table.row([place.to_string()].into_iter().chain(cells));
    }
    table
}

/// A row for each number of entries; ratios are to the least.
fn growth_table(contestants: &[Contestant]) -> Table {
    let mut table =
        Table::new(["entries".to_owned()].into_iter().chain(PLACES.map(|it| it.to_string())));
    let least = &contestants[1];
    for it in &contestants[1..] {
        let cells = (0..PLACES.len()).map(|place| {
            let values = it.round_trips(place);
            cell(values, &Sample::ratios(values, least.round_trips(place)))
        });
        table.row([it.entries.to_string()].into_iter().chain(cells));
    }
    table
}

fn plot(contestants: &[Contestant]) -> Plot {
    let line = |(at, place): (usize, Place)| {
        let point = |it: &Contestant| {
            (it.entries as f64, Sample::new(it.round_trips(at).iter().copied()).median())
        };
        Line { name: place.to_string(), points: contestants[1..].iter().map(point).collect() }
    };
    Plot {
        file: "policy.svg",
        title: "A round trip, as entries of policy grow".into(),
        across: "entries",
        up: "µs",
        lines: PLACES.into_iter().enumerate().map(line).collect(),
    }
}

/// The ratios of round trips, by place: of the most policies to none, and of the most entries to the
/// least.
fn judged_ratios(contestants: &[Contestant]) -> Vec<Sample> {
    let [without, most] = ends_of(contestants);
    let against = |other: &Contestant| {
        [0, 1].map(|place| Sample::ratios(most.round_trips(place), other.round_trips(place)))
    };
    [against(without), against(&contestants[1])].concat()
}

/// An open connection notices at most 2 %.
fn judge(contestants: &[Contestant]) -> Vec<Judged> {
    let [_, most] = ends_of(contestants);
    let grown =
        format!("round trip with {} entries against {}", most.entries, contestants[1].entries);
    let what = ["round trip with 1,000 policies against none", &grown];
    let what = what.iter().flat_map(|what| PLACES.map(|place| format!("{place}, {what}")));
    let judged = what.zip(judged_ratios(contestants));
    judged.map(|(what, ratios)| Judged::new(what, Goal::AtMost(1.02), &ratios)).collect()
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
