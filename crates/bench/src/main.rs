//! `bench`: what Atoll costs beside its peers, measured in one run on one machine.
//!
//! The rule of this crate: nothing is claimed that was not measured beside its limit in the same
//! run. Rounds of all contestants are interleaved, each round's ratio is taken to the limit of the
//! same round, and the median is shown with its spread. This file wires, and nothing else.

mod api;
mod cni;
mod control;
mod counted;
mod curve;
mod datapath;
mod dns;
mod document;
mod faults;
mod goal;
mod machine;
mod node;
mod nodes;
mod page;
mod paths;
mod pinned;
mod plot;
mod policy;
mod real;
mod sample;
mod services;
mod table;
mod traffic;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::document::{Report, Section};
use crate::traffic::Ask;

/// What Atoll costs beside its peers, measured in one run on one machine.
#[derive(Parser)]
#[command(name = "bench")]
struct Bench {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, print the tables and write the document
    Run(Run),
    /// The answering end of a measured path; it ends with its standard input
    #[command(hide = true)]
    Answer,
    /// The asking end of a measured path
    #[command(hide = true)]
    Ask(Ask),
    /// Count instructions, inside a machine whose clock counts them
    #[command(hide = true)]
    Count {
        what: counted::What,
        /// How many rounds
        #[arg(long)]
        rounds: usize,
    },
    /// The embedded API that is measured; it ends with its standard input
    #[command(hide = true)]
    Serve(api::Serve),
}

#[derive(Args)]
struct Run {
    /// Fewer and shorter rounds
    #[arg(long)]
    quick: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',', default_values_t = Part::EVERY)]
    only: Vec<Part>,
    /// How many rounds, instead of the usual number
    #[arg(long)]
    rounds: Option<usize>,
    /// The atoll program that is measured
    #[arg(long, default_value = "target/release/atoll")]
    atoll: PathBuf,
    /// The resolver that is measured, with names made up for it
    #[arg(long, default_value = "target/release/examples/serve")]
    resolver: PathBuf,
    /// Write what was measured into this page; parts that were not measured stay as they are
    #[arg(long)]
    document: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Packets: Atoll beside a bare veth pair, bridges, routing and VXLAN
    Datapath,
    /// The same paths counted in instructions, in a machine that no load disturbs
    Counted,
    /// Our own paths counted, held to what they cost before; what CI runs
    Guard,
    /// The CNI plugin beside Debian's
    Cni,
    /// The round trip, memory and the agent as networks grow
    Curve,
    /// Services: a packet to one, ten thousand of them, a change, the spread of connections
    Services,
    /// A thousand policies: compile, load, memory, and what a packet notices
    Policy,
    /// The controller: addresses a second, its start and its memory as clusters grow
    Control,
    /// A thousand simulated nodes against a real kube-apiserver
    Nodes,
    /// What pods notice when the agent dies or is replaced
    Faults,
    /// The resolver beside Debian's DNS servers and CoreDNS, and how soon it answers a change
    Dns,
    /// The embedded API beside a real kube-apiserver with etcd
    Api,
    /// Three real nodes: pods until they are Ready, beside the bridge plugin, and memory
    Real,
}

impl Part {
    /// What a whole run measures, in its order.
    const EVERY: [Part; 12] = [
        Part::Datapath,
        Part::Services,
        Part::Policy,
        Part::Cni,
        Part::Curve,
        Part::Control,
        Part::Nodes,
        Part::Faults,
        Part::Dns,
        Part::Api,
        Part::Real,
        Part::Counted,
    ];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.to_possible_value().expect("no part is hidden");
        f.write_str(name.get_name())
    }
}

fn main() -> Result<ExitCode> {
    match Bench::parse().command {
        Command::Serve(arguments) => api::serve(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Count { what, rounds } => {
            counted::inside(what, rounds).map(|()| ExitCode::SUCCESS)
        }
        Command::Answer => traffic::answer().map(|()| ExitCode::SUCCESS),
        Command::Ask(ask) => {
            println!("{}", ask.run()?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Run(run) => run.measure(),
    }
}

impl Run {
    fn measure(&self) -> Result<ExitCode> {
        ensure!(nix::unistd::geteuid().is_root(), "namespaces and BPF need root: run this as root");
        let start = Instant::now();
        let (machine, command) = (machine::Machine::look()?, self.command());
        let mut report = Report { machine, command, sections: vec![], failed: vec![] };
        for part in &self.only {
            match self.section(*part) {
                Ok(section) => {
                    println!("{section}");
                    report.sections.push(section);
                }
                Err(error) => {
                    eprintln!("{part}: {error:#}; going on with the other parts");
                    report.failed.push((part.to_string(), format!("{error:#}")));
                }
            }
        }
        if let Some(path) = &self.document {
            report.write(path)?;
        }
        println!("measured in {} s", start.elapsed().as_secs());
        Ok(report.verdict())
    }

    /// The command that measures the same again.
    fn command(&self) -> String {
        let whole =
            self.rounds.is_none() && Part::EVERY.iter().all(|part| self.only.contains(part));
        match (whole, self.quick) {
            (true, false) => "make bench".into(),
            (true, true) => "make bench-quick".into(),
            (false, _) => {
                let parts: Vec<_> = self.only.iter().map(ToString::to_string).collect();
                let quick = if self.quick { " --quick" } else { "" };
                let rounds = self.rounds.map(|it| format!(" --rounds {it}")).unwrap_or_default();
                format!("bench run{quick}{rounds} --only {}", parts.join(","))
            }
        }
    }

    fn section(&self, part: Part) -> Result<Section> {
        let rounds = |full, quick| self.rounds.unwrap_or(if self.quick { quick } else { full });
        match part {
            Part::Datapath => datapath::measure(rounds(31, 9)),
            Part::Counted => counted::measure(rounds(5, 3)),
            Part::Guard => counted::guard(rounds(3, 2)),
            Part::Cni => cni::measure(&self.atoll, rounds(5, 2)),
            Part::Control => control::measure(&self.atoll, self.quick),
            Part::Curve => curve::measure(&self.atoll, rounds(15, 5), self.quick),
            Part::Services => services::measure(rounds(15, 5)),
            Part::Policy => policy::measure(rounds(15, 5), self.quick),
            Part::Nodes => nodes::measure(self.quick),
            Part::Faults => faults::measure(&self.atoll, rounds(5, 2)),
            Part::Dns => dns::measure(&self.atoll, &self.resolver, rounds(7, 3), self.quick),
            Part::Api => api::measure(rounds(3, 1)),
            Part::Real => real::measure(&self.atoll, self.quick),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_of(arguments: &[&str]) -> String {
        let arguments = ["bench", "run"].iter().chain(arguments);
        match Bench::parse_from(arguments).command {
            Command::Run(run) => run.command(),
            _ => unreachable!("it was told to run"),
        }
    }

    #[test]
    fn the_page_names_the_command_that_wrote_it() {
        assert_eq!(command_of(&[]), "make bench");
        assert_eq!(command_of(&["--quick"]), "make bench-quick");
        let part = ["--only", "dns,cni", "--rounds", "3"];
        assert_eq!(command_of(&part), "bench run --rounds 3 --only dns,cni");
    }
}
