//! `bench`: what Atoll costs beside its peers, measured in one run on one machine.
//!
//! The rule of this crate: nothing is claimed that was not measured beside its limit in the same
//! run. Rounds of all contestants are interleaved, each round's ratio is taken to the limit of the
//! same round, and the median is shown with its spread. This file wires, and nothing else.

mod api;
mod causes;
mod changes;
mod clock;
mod cni;
mod control;
mod counted;
mod curve;
mod datapath;
mod dns;
mod document;
mod faults;
mod goal;
mod interrupted;
mod lab;
mod machine;
mod node;
mod nodes;
mod page;
mod paths;
mod pinned;
mod plot;
mod policy;
mod profile;
mod real;
mod rounds;
mod sample;
mod services;
mod table;
mod traffic;
mod volley;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::clock::{Clock, Extent};
use crate::document::{Part as Measured, Report, Section};
use crate::rounds::{Length, Rounds};
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
    /// Fewer and shorter rounds, without the parts that cannot be quick
    #[arg(long)]
    quick: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',', default_values_t = Part::EVERY)]
    only: Vec<Part>,
    /// How many rounds, instead of the usual number
    #[arg(long)]
    rounds: Option<usize>,
    /// When the building of what is measured began, in seconds of the epoch: it counts
    #[arg(long, value_name = "SECONDS")]
    begun: Option<u64>,
    /// The atoll program that is measured, instead of the one beside this program
    #[arg(long)]
    atoll: Option<PathBuf>,
    /// The resolver that is measured, with names made up for it, instead of the one beside this program
    #[arg(long)]
    resolver: Option<PathBuf>,
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
    /// From a request to a packet: pods, networks, policies, endpoints
    Changes,
    /// A thousand simulated nodes against a real kube-apiserver
    Nodes,
    /// What pods notice when the agent dies or is replaced, and when a node dies
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
    const EVERY: [Part; 13] = [
        Part::Datapath,
        Part::Services,
        Part::Policy,
        Part::Cni,
        Part::Curve,
        Part::Control,
        Part::Changes,
        Part::Nodes,
        Part::Faults,
        Part::Dns,
        Part::Api,
        Part::Real,
        Part::Counted,
    ];

    /// What it may take, in a whole run and in a quick one. The first, with ten minutes of building,
    /// make 45 minutes; of the second those that a quick run has make five.
    fn budget(self, quick: bool) -> Duration {
        let [whole, brief] = match self {
            Part::Datapath => [170, 45],
            Part::Services => [130, 35],
            Part::Policy => [110, 25],
            Part::Cni => [70, 20],
            Part::Curve => [160, 35],
            Part::Control => [380, 25],
            Part::Changes => [100, 25],
            Part::Nodes => [200, 60],
            Part::Faults => [90, 30],
            Part::Dns => [160, 35],
            Part::Api => [90, 25],
            Part::Real => [190, 150],
            Part::Counted | Part::Guard => [240, 240],
        };
        Duration::from_secs(if quick { brief } else { whole })
    }

    /// Why a quick run has no time for it, where that is so.
    fn takes_long(self) -> Option<&'static str> {
        match self {
            Part::Nodes => Some("a thousand agents against a real kube-apiserver take minutes"),
            Part::Real => Some("three real nodes take minutes to come and to go"),
            Part::Counted => {
                Some("an emulated machine takes minutes; `make guard` counts our own paths")
            }
            _ => None,
        }
    }
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
            println!("{}", ask.run()?.told());
            Ok(ExitCode::SUCCESS)
        }
        Command::Run(run) => run.measure(),
    }
}

/// What is measured.
struct Programs {
    atoll: PathBuf,
    resolver: PathBuf,
}

impl Run {
    fn measure(&self) -> Result<ExitCode> {
        ensure!(nix::unistd::geteuid().is_root(), "namespaces and BPF need root: run this as root");
        interrupted::watch()?;
        let (mut clock, programs) = (Clock::start(self.extent(), self.begun), self.programs()?);
        let (machine, command) = (machine::Machine::look()?, self.command());
        let left_out = self.left_out();
        let mut report = Report {
            machine,
            command,
            parts: vec![],
            failed: vec![],
            left_out: vec![],
            time: String::new(),
        };
        for (part, why) in &left_out {
            println!("{part}: left out of a quick run: {why}");
            report.left_out.push((part.to_string(), (*why).to_owned()));
        }
        for part in self.only.iter().filter(|part| left_out.iter().all(|(it, _)| it != *part)) {
            let begun = Instant::now();
            let measured = self.section(*part, &programs);
            interrupted::hold();
            let took = begun.elapsed();
            eprintln!("{part}: {} s", took.as_secs());
            clock.note(part.to_string(), took, part.budget(self.quick));
            report.time = clock.told(&report.command);
            match measured {
                Ok(section) => {
                    println!("{section}");
                    report.parts.push(Measured { section, took });
                }
                Err(error) => {
                    eprintln!("{part}: {error:#}; going on with the other parts");
                    report.failed.push((part.to_string(), format!("{error:#}")));
                }
            }
            self.keep(&report)?;
        }
        println!("{}", clock.table());
        Ok(report.verdict())
    }

    /// Writes what was measured so far: a run that is stopped keeps it.
    fn keep(&self, report: &Report) -> Result<()> {
        self.document.as_ref().map_or(Ok(()), |path| report.write(path))
    }

    fn extent(&self) -> Extent {
        match (self.is_whole() && self.rounds.is_none(), self.quick) {
            (true, false) => Extent::Whole,
            (true, true) => Extent::Quick,
            (false, _) => Extent::Some,
        }
    }

    /// Whether everything is asked for.
    fn is_whole(&self) -> bool {
        Part::EVERY.iter().all(|part| self.only.contains(part))
    }

    /// What a quick run of everything leaves out, and why. What was asked for by name is measured.
    fn left_out(&self) -> Vec<(Part, &'static str)> {
        match self.quick && self.is_whole() {
            true => self.only.iter().filter_map(|it| Some((*it, it.takes_long()?))).collect(),
            false => vec![],
        }
    }

    /// The command that measures the same again.
    fn command(&self) -> String {
        match self.extent() {
            Extent::Whole => "make bench".into(),
            Extent::Quick => "make bench-quick".into(),
            Extent::Some => {
                let parts: Vec<_> = self.only.iter().map(ToString::to_string).collect();
                let quick = if self.quick { " --quick" } else { "" };
                let rounds = self.rounds.map(|it| format!(" --rounds {it}")).unwrap_or_default();
                format!("bench run{quick}{rounds} --only {}", parts.join(","))
            }
        }
    }

    fn programs(&self) -> Result<Programs> {
        let this = std::env::current_exe().context("cannot find this program")?;
        let beside = |name: &str| this.with_file_name(name);
        Ok(Programs {
            atoll: self.atoll.clone().unwrap_or_else(|| beside("atoll")),
            resolver: self.resolver.clone().unwrap_or_else(|| beside("examples/serve")),
        })
    }

    fn section(&self, part: Part, programs: &Programs) -> Result<Section> {
        let Programs { atoll, resolver } = programs;
        let times = |full, quick| self.rounds.unwrap_or(if self.quick { quick } else { full });
        match part {
            Part::Datapath => datapath::measure(self.rounds(31, 140)),
            Part::Counted => counted::measure(times(2, 2)),
            Part::Guard => counted::guard(times(3, 2)),
            Part::Cni => cni::measure(atoll, times(5, 2)),
            Part::Control => control::measure(atoll, self.quick),
            Part::Curve => curve::measure(atoll, self.rounds(15, 60), self.quick),
            Part::Services => services::measure(self.rounds(15, 40), self.quick),
            Part::Policy => policy::measure(self.rounds(15, 40), self.quick),
            Part::Changes => changes::measure(atoll, self.quick),
            Part::Nodes => nodes::measure(self.quick),
            Part::Faults => faults::measure(atoll, times(5, 1)),
            Part::Dns => dns::measure(atoll, resolver, times(4, 2), self.quick),
            Part::Api => api::measure(times(3, 1)),
            Part::Real => real::measure(atoll, self.quick),
        }
    }

    /// At most so many rounds in at most so many seconds; a quick run has a sixth of the time.
    fn rounds(&self, most: usize, seconds: u64) -> Rounds {
        let time = Duration::from_secs(seconds);
        let length = if self.quick { Length::Brief } else { Length::Whole };
        match (self.rounds, self.quick) {
            (Some(count), _) => Rounds::exactly(count, length),
            (None, false) => Rounds { least: 7, most, time, length },
            (None, true) => Rounds { least: 3, most: most / 2, time: time / 6, length },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(arguments: &[&str]) -> Run {
        let arguments = ["bench", "run"].iter().chain(arguments);
        match Bench::parse_from(arguments).command {
            Command::Run(run) => run,
            _ => unreachable!("it was told to run"),
        }
    }

    fn command_of(arguments: &[&str]) -> String {
        run_of(arguments).command()
    }

    #[test]
    fn a_quick_run_leaves_out_what_takes_minutes_unless_it_was_asked_for_by_name() {
        let left_out = |arguments: &[&str]| -> Vec<String> {
            run_of(arguments).left_out().iter().map(|(part, _)| part.to_string()).collect()
        };
        assert_eq!(left_out(&["--quick"]), ["nodes", "real", "counted"]);
        assert!(left_out(&[]).is_empty());
        assert!(left_out(&["--quick", "--only", "counted"]).is_empty());
    }

    #[test]
    fn a_quick_run_has_fewer_and_shorter_rounds_and_less_time() {
        let [whole, quick] = [run_of(&[]), run_of(&["--quick"])].map(|run| run.rounds(31, 60));
        assert!(quick.most < whole.most && quick.least < whole.least && quick.time < whole.time);
        assert_eq!((whole.length, quick.length), (Length::Whole, Length::Brief));
        let exact = run_of(&["--rounds", "2"]).rounds(31, 60);
        assert_eq!((exact.least, exact.most), (2, 2));
    }

    #[test]
    fn what_parts_may_take_leaves_ten_minutes_to_build_and_makes_five_of_a_quick_run() {
        let whole: Duration = Part::EVERY.iter().map(|part| part.budget(false)).sum();
        assert!(whole <= Duration::from_secs(35 * 60), "{whole:?}");
        let quick = Part::EVERY.iter().filter(|part| part.takes_long().is_none());
        let quick: Duration = quick.map(|part| part.budget(true)).sum();
        assert!(quick <= Duration::from_secs(5 * 60), "{quick:?}");
    }

    #[test]
    fn the_page_names_the_command_that_wrote_it() {
        assert_eq!(command_of(&[]), "make bench");
        assert_eq!(command_of(&["--quick"]), "make bench-quick");
        let part = ["--only", "dns,cni", "--rounds", "3"];
        assert_eq!(command_of(&part), "bench run --rounds 3 --only dns,cni");
    }
}
