//! `SPECIFICATION.md`: every test that it names must exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Fails where the specification names a test that no Rust file has.
pub(crate) fn check(root: &Path) -> Result<()> {
    let specification = std::fs::read_to_string(root.join("SPECIFICATION.md"))
        .context("cannot read SPECIFICATION.md")?;
    let functions = functions_under(&root.join("crates"))?;
    let missing: Vec<_> = tests_named_in(&specification)
        .into_iter()
        .filter(|name| !functions.contains(name))
        .collect();
    ensure!(
        missing.is_empty(),
        "SPECIFICATION.md names tests that do not exist: {}",
        missing.join(", ")
    );
    Ok(())
}

/// The words between backticks in the last column of every table row.
fn tests_named_in(specification: &str) -> BTreeSet<String> {
    let rows = specification.lines().filter(|line| line.starts_with('|'));
    let last_columns = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    last_columns
        .flat_map(|column| column.split('`').skip(1).step_by(2))
        .map(ToOwned::to_owned)
        .collect()
}

fn functions_under(folder: &Path) -> Result<BTreeSet<String>> {
    let mut functions = BTreeSet::new();
    for file in rust_files(folder)? {
        let text = std::fs::read_to_string(&file)?;
        let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
        functions.extend(names.map(ToOwned::to_owned));
    }
    Ok(functions)
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_that_the_specification_names_exists() {
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    }

    #[test]
    fn tests_are_read_from_the_last_column_only() {
        let named = tests_named_in("`not_this`\n| a promise about `that` | `one` `two` |\n");
        assert_eq!(named, ["one".to_owned(), "two".to_owned()].into());
    }
}
