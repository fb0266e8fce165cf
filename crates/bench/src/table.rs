//! A table that reads the same on a terminal and in a document.

use std::fmt;

/// Rows under named columns; the first column is text, the others are numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Table { columns: columns.into_iter().map(Into::into).collect(), rows: vec![] }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it has more or fewer cells than there are columns.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(cells.len(), self.columns.len(), "a row fills its table");
        self.rows.push(cells);
    }

    fn widths(&self) -> Vec<usize> {
        let all = || self.rows.iter().chain([&self.columns]);
        let width = |column: usize| all().map(|row| row[column].chars().count()).max();
        (0..self.columns.len()).map(|column| width(column).unwrap_or(0).max(3)).collect()
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let cell = |(place, (text, width)): (usize, (&String, &usize))| match place {
        0 => format!("{text:width$}"),
        _ => format!("{text:>width$}"),
    };
    let cells: Vec<_> = cells.iter().zip(widths).enumerate().map(cell).collect();
    format!("| {} |", cells.join(" | "))
}

fn rule(widths: &[usize]) -> String {
    let dashes = |(place, width): (usize, &usize)| match place {
        0 => format!(":{}", "-".repeat(width + 1)),
        _ => format!("{}:", "-".repeat(width + 1)),
    };
    format!("|{}|", widths.iter().enumerate().map(dashes).collect::<Vec<_>>().join("|"))
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        writeln!(f, "{}", line(&self.columns, &widths))?;
        writeln!(f, "{}", rule(&widths))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{}", line(row, &widths)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_are_markdown() {
        let mut table = Table::new(["path", "ratio"]);
        table.row(["direct veth pair", "1.00"]);
        table.row(["bridge", "1.2"]);
        let expected = "\
| path             | ratio |
|:-----------------|------:|
| direct veth pair |  1.00 |
| bridge           |   1.2 |
";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    #[should_panic(expected = "a row fills its table")]
    fn a_row_that_does_not_fit_is_refused() {
        Table::new(["one"]).row(["1", "2"]);
    }
}
