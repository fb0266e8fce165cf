//! The program itself, with one round: every path carries every kind of traffic. Needs root.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::process::Command;

#[test]
fn one_round_over_every_path_gives_tables_goals_and_a_document() {
    let folder = tempfile::tempdir().unwrap();
    let document = folder.path().join("benchmarks.md");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["run", "--quick", "--only", "datapath", "--rounds", "1", "--document"])
        .arg(&document)
        .output()
        .unwrap();
    let page = std::fs::read_to_string(&document)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    for row in [
        "direct veth pair",
        "bridge with nft",
        "VXLAN as flannel's",
        "**Atoll**",
        "8 streams",
        "Goals",
    ] {
        assert!(page.contains(row), "{row} is missing in {page}");
    }
}
