//! `atoll convert`, `atoll apply` and `atoll who`, as they are typed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cluster;

mod apply;
mod convert;
mod who;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What the program said.
pub(crate) struct Said {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the program with standard input.
pub(crate) fn atoll(arguments: &[&str], input: &str) -> Said {
    let mut child = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its arguments does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { ok: output.status.success(), out: text(output.stdout), err: text(output.stderr) }
}

/// The manifests of the designs that Atoll grew from, by the beginning of their names.
pub(crate) fn seed(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../convert/tests/seeds");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .into_iter()
        .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(name))
        .unwrap()
}
