//! The tests of the lab, run here: the same test program, told which cluster to use. All of them, but
//! those that a page of ours excuses by name and with a reason.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::install;
use crate::stage::{Stage, archive};

/// Where it stands which tests need the lab itself, and why.
const PAGE: &str =
    include_str!("../../../../docs/adr/0051-the-tests-of-the-lab-run-on-real-nodes-as-they-are.md");

/// Every second test.
pub(crate) fn one_half_holds(stage: &Stage) -> Result<()> {
    half_holds(stage, 0)
}

/// And every test between those.
pub(crate) fn other_half_holds(stage: &Stage) -> Result<()> {
    half_holds(stage, 1)
}

/// Installed anew, because the cluster is without Atoll here and is to be afterwards.
fn half_holds(stage: &Stage, first: usize) -> Result<()> {
    let cluster = stage.own_cluster().context("these nodes are not ours")?;
    let program = stage.lab_tests().context("give --lab-tests")?;
    let chosen = half(chosen(&listed(program)?, &excused(PAGE))?, first);
    cluster.load(&archive("tools"))?;
    install::apply_as_the_lab(stage)?;
    let passed = run(stage, program, &chosen)?;
    ensure!(passed == chosen.len(), "{passed} of {} tests of the lab passed", chosen.len());
    stage.atoll(&["uninstall", "--purge"]).map(drop)
}

/// The tests that are named in the last column of the page's table.
fn excused(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let last = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    last.flat_map(|column| column.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Every test that the program has.
fn listed(program: &Path) -> Result<BTreeSet<String>> {
    let output = Command::new(program).args(["--list", "--format=terse"]).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Those that are not excused. Who is excused must exist, or the page is not true.
fn chosen(listed: &BTreeSet<String>, excused: &BTreeSet<String>) -> Result<Vec<String>> {
    let unknown: Vec<_> = excused.difference(listed).collect();
    ensure!(unknown.is_empty(), "excused are tests that do not exist: {unknown:?}");
    Ok(listed.difference(excused).cloned().collect())
}

/// Neighbours are about the same and take as long, so that each half has one of them.
fn half(all: Vec<String>, first: usize) -> Vec<String> {
    all.into_iter().skip(first).step_by(2).collect()
}

/// One after the other, because there is one cluster. Gives how many passed, and shows the rest.
fn run(stage: &Stage, program: &Path, chosen: &[String]) -> Result<usize> {
    let mut tests = Command::new(program);
    tests.args(["--exact", "--test-threads=1"]).args(chosen);
    tests.env("ATOLL_TEST_CLUSTER", stage.name());
    let mut child = tests.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let child = child.as_mut().map_err(|error| anyhow::anyhow!("cannot run the tests: {error}"))?;
    let lines = BufReader::new(child.stdout.take().context("the tests say nothing")?).lines();
    let mut passed = 0;
    for line in lines {
        let line = line?;
        stage.tell(&format!("     {line}"));
        passed += usize::from(line.starts_with("test ") && line.ends_with(" ok"));
    }
    child.wait()?;
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::in_tree;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_test_of_the_lab_runs_here_unless_it_is_excused_by_a_name_that_exists() {
        let page = "`a::not_this`\n| why `not` | `a::one` `a::two` |\n";
        assert_eq!(excused(page), set(&["a::one", "a::two"]));
        let listed = set(&["a::new", "a::one", "a::two"]);
        assert_eq!(chosen(&listed, &excused(page)).unwrap(), ["a::new"]);
        assert!(chosen(&set(&["a::one"]), &excused(page)).is_err());
    }

    #[test]
    fn each_test_is_in_one_half() {
        let all = || ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(half(all(), 0), ["a", "c"]);
        assert_eq!(half(all(), 1), ["b"]);
    }

    #[test]
    fn every_test_that_the_page_excuses_is_one_of_the_labs() {
        let names = excused(PAGE);
        assert!(!names.is_empty());
        for name in names {
            let (module, test) = name.rsplit_once("::").unwrap();
            let file = format!("crates/cli/tests/lab/{}.rs", module.replace("::", "/"));
            let text = std::fs::read_to_string(in_tree(&file)).unwrap();
            assert!(text.contains(&format!("#[test]\nfn {test}()")), "{file} has no test {test}");
        }
    }
}
