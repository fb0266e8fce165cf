//! The page that keeps what was measured.
//!
//! The rule of this file: a part that is measured again takes the place of what stood there, and the
//! others stay as they are; so each says itself when, where and by what command it was measured.

use crate::causes;

/// What a line of a table of goals ends with where the goal was met.
const MET: &str = " met |";
/// The same where it cannot be told.
const WITHIN_NOISE: &str = " within noise |";
/// How many columns a table of goals has. Those of parts that were measured long ago had one less:
/// they told no confidence.
const COLUMNS: usize = 6;
/// What stands over a table of goals.
const GOALS: &str = "### Goals\n";
/// What stands over a part that is older than the newest.
const OLDER: &str = "**Older than the newest part:** this was measured at another commit.";
/// What stands over the parts: not a part itself.
const NOT_MET: &str = "Goals not met";

/// A page, part by part: the title of each, and what is under it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    parts: Vec<(String, String)>,
}

impl Page {
    /// Reads a page that was written before.
    pub(crate) fn read(text: &str) -> Self {
        let parts = text.split("\n## ").skip(1);
        let parts = parts.filter_map(|part| part.split_once('\n'));
        let parts = parts.filter(|(title, _)| *title != NOT_MET);
        let own = |text: &str| text.trim().trim_start_matches(OLDER).trim().to_owned();
        Page { parts: parts.map(|(title, text)| (title.into(), own(text))).collect() }
    }

    /// Puts a part where the one with its title stands, or behind all.
    pub(crate) fn put(&mut self, title: &str, text: &str) {
        let text = text.trim().to_owned();
        match self.parts.iter_mut().find(|(there, _)| there == title) {
            Some((_, there)) => *there = text,
            None => self.parts.push((title.to_owned(), text)),
        }
    }

    /// The whole page; `notes` stand before everything that was measured. What was not measured at
    /// the newest commit is marked.
    pub(crate) fn text(&self, notes: &[String], newest: &str) -> String {
        let mut text = String::from(
            "# Benchmarks\n\n\
             Written by `make bench`; do not edit. Run it to get the numbers of your own machine.\n\n\
             The times belong to the machine and the hour that stand with each part; the ratios are \
             what travels. All contestants of a part ran in the same run, in turns. Programs are built as \
             cargo builds a release by default; what is released has link-time optimization, too.\n\n\
             Rounds go on until their ratios are known to a fifth of a percent, or their time is over. \
             *Noise* is between which ratios the middle half of the rounds lies. *Confidence* is between \
             which the true median is in 95 of 100 cases, by the order of the values alone; of fewer \
             than six values, it is between all of them. A goal is missed when all of the confidence \
             misses it, and cannot be told where a part of it does.\n",
        );
        for note in notes {
            text += &format!("\n{note}\n");
        }
        text += &self.not_met();
        for (title, part) in &self.parts {
            let mark = if is_of(part, newest) { String::new() } else { format!("{OLDER}\n\n") };
            text += &format!("\n## {title}\n\n{mark}{part}\n");
        }
        text
    }

    /// The goals that were not met, before everything else: nobody should have to look for them.
    fn not_met(&self) -> String {
        let goals = self.parts.iter().filter_map(|(_, part)| part.split_once(GOALS));
        let mut rows = goals.flat_map(|(_, goals)| {
            let rows = goals.lines().filter(|line| line.starts_with('|')).skip(2);
            rows.filter(|row| !row.ends_with(MET)).filter_map(with_cause)
        });
        match rows.next() {
            None => "\nEvery goal below was met.\n".into(),
            Some(first) => {
                let rows: String = rows.map(|row| format!("{row}\n")).collect();
                let head = "| what | goal | ratio | noise | confidence | verdict | known cause |\n\
                            |:---|---:|---:|---:|---:|---:|:---|";
                format!("\n## {NOT_MET}\n\n{head}\n{first}\n{rows}")
            }
        }
    }
}

/// Whether a part says that it was measured at this commit.
fn is_of(part: &str, commit: &str) -> bool {
    let first = part.lines().next().unwrap_or_default();
    [", ", "."].iter().any(|end| first.contains(&format!("commit {commit}{end}")))
}

/// A row of a table of goals, without the spaces that made it as wide as that table, and with the
/// cause of the miss.
fn with_cause(row: &str) -> Option<String> {
    let mut cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
    if cells.len() < COLUMNS {
        cells.insert(cells.len() - 1, "");
    }
    let unknown = if row.ends_with(WITHIN_NOISE) { "perhaps none" } else { "not known yet" };
    let cause = causes::known(cells.first()?).unwrap_or(unknown);
    Some(format!("| {} | {cause} |", cells.join(" | ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MISSED: &str = "By rounds.\n\n### Goals\n\n\
        | what                             |   goal | ratio |     noise | verdict |\n\
        |:---------------------------------|-------:|------:|----------:|--------:|\n\
        | Same node, connect-request-close | ≤ 1.10 |  1.20 | 1.19–1.21 |  missed |\n\
        | another                          | ≤ 1.10 |  1.30 | one value |  missed |\n\
        | stream                           | ≥ 0.97 |  1.00 | 0.99–1.01 |     met |";

    fn page() -> Page {
        let mut page = Page::default();
        page.put("Datapath", MISSED);
        page.put("DNS", "Nothing is promised here.");
        page
    }

    #[test]
    fn a_page_reads_as_it_was_written() {
        assert_eq!(Page::read(&page().text(&["A note.".into()], "c0ffee")), page());
    }

    #[test]
    fn a_part_that_is_measured_again_takes_its_place_and_no_other() {
        let mut again = Page::read(&page().text(&[], "c0ffee"));
        again.put("Datapath", "All is well.");
        let text = again.text(&[], "c0ffee");
        let places = ["All is well.", "## DNS", "Nothing is promised here."];
        let places = places.map(|part| text.find(part).unwrap());
        assert!(places.is_sorted(), "{text}");
        assert!(!text.contains("1.20"), "{text}");
    }

    #[test]
    fn what_is_older_than_the_newest_part_is_marked_until_it_is_measured_again() {
        let mut page = Page::default();
        page.put("DNS", "*Measured on A Processor, commit c0ffee.*\n\nFast.");
        page.put("API", "*Measured on A Processor, commit beef, in 5 s.*\n\nFaster.");
        let text = page.text(&[], "beef");
        assert_eq!(text.matches(OLDER).count(), 1, "{text}");
        assert!(text.contains(&format!("## DNS\n\n{OLDER}\n\n*Measured on")), "{text}");
        let again = Page::read(&text);
        assert_eq!(again, page, "the mark is no part of what was measured");
        assert_eq!(again.text(&[], "c0ffee").matches(OLDER).count(), 1);
    }

    #[test]
    fn a_missed_goal_stands_before_everything_that_was_measured() {
        let text = page().text(&[], "c0ffee");
        let missed = text.find(
            "| another | ≤ 1.10 | 1.30 | one value |  | missed | not known yet |\n\n## Datapath",
        );
        assert!(missed.is_some(), "{text}");
        assert!(!text.contains("| stream | "), "{text}");
    }

    #[test]
    fn a_missed_goal_stands_there_with_its_cause_where_it_is_known() {
        let (text, what) = (page().text(&[], "c0ffee"), "Same node, connect-request-close");
        let cause = causes::known(what).unwrap();
        let row = format!("| {what} | ≤ 1.10 | 1.20 | 1.19–1.21 |  | missed | {cause} |");
        assert!(text.contains(&row), "{text}");
    }

    #[test]
    fn no_miss_goes_without_a_cause_and_a_known_one_not_without_its_own() {
        let mut goals = String::from(
            "### Goals\n\n| what | goal | ratio | noise | confidence | verdict |\n|:--|--:|--:|--:|--:|--:|\n",
        );
        for what in causes::judged() {
            goals += &format!("| {what} | ≤ 1.00 | 2.00 | one value | one value | missed |\n");
        }
        goals += "| perhaps met | ≤ 1.00 | 1.01 | 0.90–1.10 | 0.90–1.10 | within noise |\n";
        let mut page = Page::default();
        page.put("Datapath", &goals);
        let text = page.text(&[], "c0ffee");
        let (_, rows) = text.split_once(NOT_MET).unwrap();
        for what in causes::judged() {
            let cause = causes::known(what).unwrap();
            let row =
                format!("| {what} | ≤ 1.00 | 2.00 | one value | one value | missed | {cause} |");
            assert!(rows.contains(&row), "{what} has lost its cause: {rows}");
        }
        assert!(rows.contains("| within noise | perhaps none |"), "{rows}");
    }

    #[test]
    fn a_page_without_a_miss_says_so() {
        let mut page = page();
        page.put("Datapath", "All is well.");
        assert!(page.text(&[], "c0ffee").contains("Every goal below was met."));
    }
}
