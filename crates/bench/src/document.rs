//! What a run says: sections of tables, a verdict on the goals, and the page that keeps them.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::goal::{Goal, Verdict};
use crate::machine::Machine;
use crate::plot::Plot;
use crate::table::Table;

/// Where plots lie, beside the document.
const PLOTS: &str = "plots";

/// One part of a run.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) title: &'static str,
    /// How it was measured and what is not in it.
    pub(crate) notes: String,
    pub(crate) tables: Vec<(String, Table)>,
    /// Curves of the tables above.
    pub(crate) plots: Vec<Plot>,
    pub(crate) judged: Vec<Judged>,
}

/// A goal, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) what: String,
    pub(crate) goal: Goal,
    pub(crate) verdict: Verdict,
    pub(crate) median: f64,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n\n{}\n", self.title, self.notes)?;
        for (title, table) in &self.tables {
            writeln!(f, "### {title}\n\n{table}")?;
        }
        for plot in &self.plots {
            writeln!(f, "{}\n", plot.markdown(PLOTS))?;
        }
        match self.judged.as_slice() {
            [] => Ok(()),
            judged => writeln!(f, "### Goals\n\n{}", goals(judged)),
        }
    }
}

fn goals(judged: &[Judged]) -> Table {
    let mut table = Table::new(["what", "goal", "ratio", "verdict"]);
    for Judged { what, goal, verdict, median } in judged {
        table.row([what.clone(), goal.to_string(), format!("{median:.2}"), verdict.to_string()]);
    }
    table
}

/// What a run gave: what it was asked for, the parts that were measured, and those that were not.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// The command that gives it again.
    pub(crate) command: String,
    pub(crate) sections: Vec<Section>,
    /// The names of the parts that failed, and why.
    pub(crate) failed: Vec<(String, String)>,
}

impl Report {
    /// Writes the page, and its plots beside it.
    pub(crate) fn write(&self, path: &Path, machine: &Machine) -> Result<()> {
        let folder = path.parent().context("a document lies in a folder")?.join(PLOTS);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let plots = self.sections.iter().flat_map(|section| &section.plots);
        plots.into_iter().try_for_each(|plot| plot.draw(&folder))?;
        std::fs::write(path, self.page(machine))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn page(&self, machine: &Machine) -> String {
        let sections: Vec<_> = self.sections.iter().map(ToString::to_string).collect();
        format!(
            "# Benchmarks\n\n\
             Written by `{}`; do not edit. Run it to get the numbers of your own machine.\n\n\
             Measured on: {machine}.\n\n\
             The times belong to this machine and this hour; the ratios are what travels. All \
             contestants ran in the same run, in turns.\n\n\
             {}{}{}",
            self.command,
            self.not_measured(),
            self.not_kept(),
            sections.join("\n")
        )
    }

    fn not_measured(&self) -> String {
        let failed = self.failed.iter();
        failed.map(|(part, why)| format!("**Not measured:** {part}: {why}\n\n")).collect()
    }

    /// The goals that were not met, before everything else: nobody should have to look for them.
    fn not_kept(&self) -> String {
        let judged = self.sections.iter().flat_map(|section| &section.judged);
        let not: Vec<_> = judged.filter(|it| it.verdict != Verdict::Met).cloned().collect();
        match not.as_slice() {
            [] => "Every goal below was met.\n\n".into(),
            not => format!("## Goals not met\n\n{}\n", goals(not)),
        }
    }

    /// Failure when a part was not measured, or a goal was missed by more than the noise.
    pub(crate) fn verdict(&self) -> ExitCode {
        for (part, why) in &self.failed {
            eprintln!("not measured: {part}: {why}");
        }
        let judged = self.sections.iter().flat_map(|section| &section.judged);
        let missed: Vec<_> = judged.filter(|it| it.verdict == Verdict::Missed).collect();
        for Judged { what, goal, median, .. } in &missed {
            eprintln!("goal missed: {what}: {median:.2}, not {goal}");
        }
        match missed.is_empty() && self.failed.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Line;

    fn section(verdict: Verdict) -> Section {
        let mut table = Table::new(["path", "cost"]);
        table.row(["a", "1"]);
        let goal = Goal::AtMost(1.08);
        let judged = Judged { what: "round trip".into(), goal, verdict, median: 1.2 };
        let tables = vec![("Same node".into(), table)];
        let line = Line { name: "Atoll".into(), points: vec![(1.0, 1.2)] };
        let plot = Plot {
            file: "path.svg",
            title: "The path".into(),
            across: "pods",
            up: "cost",
            lines: vec![line],
        };
        let (notes, plots, judged) = ("In turns.".into(), vec![plot], vec![judged]);
        Section { title: "Datapath", notes, tables, plots, judged }
    }

    fn machine() -> Machine {
        Machine {
            processor: "A Processor".into(),
            cores: 2,
            kernel: "6.18.0".into(),
            date: "2026-11-15".into(),
            commit: "c0ffee".into(),
        }
    }

    fn report(verdict: Verdict) -> Report {
        Report { command: "make bench".into(), sections: vec![section(verdict)], failed: vec![] }
    }

    #[test]
    fn the_page_says_where_when_and_what_was_measured() {
        let page = report(Verdict::Met).page(&machine());
        for part in [
            "`make bench`",
            "A Processor, 2 cores, Linux 6.18.0, 2026-11-15, commit c0ffee",
            "Every goal below was met",
            "## Datapath",
            "### Same node",
            "| a    |",
            "![The path](plots/path.svg)",
            "| round trip | ≤ 1.08 |  1.20 |     met |",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
    }

    #[test]
    fn the_plots_of_a_page_lie_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("benchmarks.md");
        report(Verdict::Met).write(&path, &machine()).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("`make bench`"));
        assert!(folder.path().join("plots/path.svg").exists());
    }

    #[test]
    fn a_missed_goal_stands_before_everything_that_was_measured() {
        let page = report(Verdict::Missed).page(&machine());
        let (missed, measured) = (page.find("## Goals not met"), page.find("## Datapath"));
        assert!(missed.unwrap() < measured.unwrap(), "{page}");
        assert!(!page.contains("Every goal"), "{page}");
    }

    #[test]
    fn a_missed_goal_fails_the_run_and_noise_does_not() {
        let code = |verdict| report(verdict).verdict();
        assert_eq!(code(Verdict::Met), ExitCode::SUCCESS);
        assert_eq!(code(Verdict::Unclear), ExitCode::SUCCESS);
        assert_eq!(code(Verdict::Missed), ExitCode::FAILURE);
    }

    #[test]
    fn a_part_that_failed_fails_the_run_and_is_named_on_the_page() {
        let failed = vec![("dns".into(), "dnsperf is not here".into())];
        let report = Report { failed, ..report(Verdict::Met) };
        assert_eq!(report.verdict(), ExitCode::FAILURE);
        let page = report.page(&machine());
        assert!(page.contains("**Not measured:** dns: dnsperf is not here"), "{page}");
        assert!(page.contains("## Datapath"), "{page}");
    }
}
