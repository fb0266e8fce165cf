//! What a run says: sections of tables, and a verdict on the goals.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::causes;
use crate::goal::{Goal, Verdict};
use crate::machine::Machine;
use crate::page::Page;
use crate::plot::Plot;
use crate::sample::Sample;
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
    /// Between which the middle half of the rounds lies, where there were several.
    noise: Option<(f64, f64)>,
    /// Between which the median surely is, likewise.
    confidence: Option<(f64, f64)>,
}

impl Judged {
    /// Judges what was measured by its goal.
    pub(crate) fn new(what: impl Into<String>, goal: Goal, measured: &Sample) -> Self {
        Judged {
            what: what.into(),
            goal,
            verdict: goal.judge(measured),
            median: measured.median(),
            noise: (measured.len() > 1).then(|| measured.spread()),
            confidence: (measured.len() > 1).then(|| measured.confidence()),
        }
    }

    fn noise(&self) -> String {
        between(self.noise)
    }

    fn confidence(&self) -> String {
        between(self.confidence)
    }
}

fn between(ends: Option<(f64, f64)>) -> String {
    let shown = |(low, high): (f64, f64)| format!("{low:.2}–{high:.2}");
    ends.map_or_else(|| "one value".into(), shown)
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "## {}\n\n{}", self.title, self.body())
    }
}

impl Section {
    /// Everything under the title.
    fn body(&self) -> String {
        let mut text = format!("{}\n\n", self.notes);
        for (title, table) in &self.tables {
            text += &format!("### {title}\n\n{table}\n");
        }
        for plot in &self.plots {
            text += &format!("{}\n\n", plot.markdown(PLOTS));
        }
        if !self.judged.is_empty() {
            text += &format!("### Goals\n\n{}", goals(&self.judged));
        }
        text
    }
}

fn goals(judged: &[Judged]) -> Table {
    let mut table = Table::new(["what", "goal", "ratio", "noise", "confidence", "verdict"]);
    for it in judged {
        table.row([
            it.what.clone(),
            it.goal.to_string(),
            format!("{:.2}", it.median),
            it.noise(),
            it.confidence(),
            it.verdict.to_string(),
        ]);
    }
    table
}

/// What a run gave: where and by what it was made, the parts that were measured, and those that were
/// not.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// The command that gives it again.
    pub(crate) command: String,
    pub(crate) parts: Vec<Part>,
    /// The names of the parts that failed, and why.
    pub(crate) failed: Vec<(String, String)>,
    /// The names of the parts that a quick run leaves out, and why.
    pub(crate) left_out: Vec<(String, String)>,
    /// How long it took until now.
    pub(crate) time: String,
}

/// A part that was measured, and how long that took.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) section: Section,
    pub(crate) took: Duration,
}

/// A missed goal in one line, with its cause where it is known.
fn told(judged: &Judged) -> String {
    let Judged { what, goal, median, .. } = judged;
    let cause = causes::known(what).map(|cause| format!("; known cause: {cause}"));
    let sure = judged.confidence();
    format!("goal missed: {what}: {median:.2} ({sure}), not {goal}{}", cause.unwrap_or_default())
}

impl Report {
    /// Writes what was measured into the page, and its plots beside it.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let folder = path.parent().context("a document lies in a folder")?.join(PLOTS);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let mut plots = self.parts.iter().flat_map(|part| &part.section.plots);
        plots.try_for_each(|plot| plot.draw(&folder))?;
        let page =
            std::fs::read_to_string(path).map_or_else(|_| Page::default(), |it| Page::read(&it));
        std::fs::write(path, self.put_into(page))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn put_into(&self, mut page: Page) -> String {
        for Part { section, took } in &self.parts {
            let took = took.as_secs();
            let measured =
                format!("*Measured by `{}` on {}, in {took} s.*", self.command, self.machine);
            page.put(section.title, &format!("{measured}\n\n{}", section.body()));
        }
        let failed = self.failed.iter();
        let failed = failed.map(|(part, why)| {
            format!("**Not measured:** {part}: {}", why.lines().next().unwrap_or_default())
        });
        let left_out = self.left_out.iter();
        let left_out =
            left_out.map(|(part, why)| format!("**Left out of a quick run:** {part}: {why}"));
        let notes: Vec<String> =
            [self.time.clone()].into_iter().chain(failed).chain(left_out).collect();
        page.text(&notes, &self.machine.commit)
    }

    /// Failure when a part was not measured, or a goal was missed by more than the noise.
    pub(crate) fn verdict(&self) -> ExitCode {
        for (part, why) in &self.failed {
            eprintln!("not measured: {part}: {why}");
        }
        let judged = self.parts.iter().flat_map(|part| &part.section.judged);
        let missed: Vec<_> = judged.filter(|it| it.verdict == Verdict::Missed).collect();
        for judged in &missed {
            eprintln!("{}", told(judged));
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
        let measured = match verdict {
            Verdict::Met => [1.0, 1.02, 1.04],
            Verdict::Unclear => [1.0, 1.09, 1.2],
            Verdict::Missed => [1.1, 1.2, 1.3],
        };
        let judged = Judged::new("round trip", goal, &Sample::new(measured));
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

    fn part(section: Section) -> Part {
        Part { section, took: Duration::from_secs(70) }
    }

    fn report(verdict: Verdict) -> Report {
        let (command, parts) = ("make bench".into(), vec![part(section(verdict))]);
        let time = "It took 30 minutes.".into();
        Report { machine: machine(), command, parts, failed: vec![], left_out: vec![], time }
    }

    #[test]
    fn each_part_of_the_page_says_where_when_and_what_was_measured() {
        let page = report(Verdict::Met).put_into(Page::default());
        for part in [
            "## Datapath\n\n*Measured by `make bench` on A Processor, 2 cores, Linux 6.18.0, \
             2026-11-15, commit c0ffee, in 70 s.*",
            "It took 30 minutes.",
            "### Same node",
            "| a    |",
            "![The path](plots/path.svg)",
            "| round trip | ≤ 1.08 |  1.02 | 1.00–1.04 |  1.00–1.04 |     met |",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
    }

    #[test]
    fn a_run_of_one_part_leaves_the_others_on_the_page_and_its_plots_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("benchmarks.md");
        let before = Section { title: "DNS", ..section(Verdict::Met) };
        Report { parts: vec![part(before)], ..report(Verdict::Met) }.write(&path).unwrap();
        report(Verdict::Met).write(&path).unwrap();
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page.contains("## DNS") && page.contains("## Datapath"), "{page}");
        assert!(folder.path().join("plots/path.svg").exists());
    }

    #[test]
    fn a_missed_goal_fails_the_run_and_noise_does_not() {
        let code = |verdict| report(verdict).verdict();
        assert_eq!(code(Verdict::Met), ExitCode::SUCCESS);
        assert_eq!(code(Verdict::Unclear), ExitCode::SUCCESS);
        assert_eq!(code(Verdict::Missed), ExitCode::FAILURE);
    }

    #[test]
    fn a_part_that_failed_fails_the_run_and_is_named_on_the_page_in_one_line() {
        let failed = vec![("dns".into(), "dnsperf is not here\nand said a lot".into())];
        let report = Report { failed, ..report(Verdict::Met) };
        assert_eq!(report.verdict(), ExitCode::FAILURE);
        let page = report.put_into(Page::default());
        assert!(page.contains("**Not measured:** dns: dnsperf is not here\n"), "{page}");
        assert!(!page.contains("said a lot"), "{page}");
        assert!(page.contains("## Datapath"), "{page}");
    }

    #[test]
    fn a_part_that_a_quick_run_leaves_out_is_named_and_fails_nothing() {
        let left_out = vec![("counted".into(), "it takes minutes".into())];
        let report = Report { left_out, ..report(Verdict::Met) };
        assert_eq!(report.verdict(), ExitCode::SUCCESS);
        let page = report.put_into(Page::default());
        assert!(page.contains("**Left out of a quick run:** counted: it takes minutes"), "{page}");
    }

    #[test]
    fn a_missed_goal_is_told_with_how_sure_it_is_and_its_cause_where_it_is_known() {
        let missed = |what: &str| {
            told(&Judged::new(what, Goal::AtMost(1.1), &Sample::new([1.14, 1.15, 1.17])))
        };
        let unknown = missed("nobody looked into this");
        assert_eq!(unknown, "goal missed: nobody looked into this: 1.15 (1.14–1.17), not ≤ 1.10");
        let known = missed("Same node, connect-request-close");
        assert!(known.contains("not ≤ 1.10; known cause: "), "{known}");
    }

    #[test]
    fn what_was_measured_once_says_so_instead_of_showing_no_noise() {
        let once = Judged::new("start", Goal::AtMost(1.0), &Sample::new([0.6]));
        assert_eq!(once.noise(), "one value");
    }
}
