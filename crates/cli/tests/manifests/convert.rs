//! `atoll convert`.

use crate::{atoll, seed};
use serde_json::Value;

const NETWORK: &str = "{apiVersion: v1, kind: Network, metadata: {name: net1}}\n";

#[test]
fn manifests_go_to_standard_output_and_decisions_to_standard_error() {
    let said = atoll(&["convert", "-f", "-"], NETWORK);
    assert!(said.ok, "{}", said.err);
    assert!(said.out.contains("name: default.net1\n"), "{}", said.out);
    let notes: Vec<&str> = said.err.lines().collect();
    let expected = "note: document 1, Network net1: becomes default.net1, of tenant default";
    assert!(notes[0].starts_with(expected), "{notes:?}");
    assert_eq!(notes[2], "note: document 1, Network net1: names no addresses: cidrs 10.0.0.0/16");
}

#[test]
fn tenant_range_and_format_can_be_chosen() {
    let options = ["--tenant", "acme", "--default-cidr", "fd00::/64", "-o", "json"];
    let said = atoll(&[&["convert", "-f", "-"], &options[..]].concat(), NETWORK);
    let network: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(network["metadata"]["name"], "acme.net1");
    assert_eq!(network["spec"]["cidrs"], serde_json::json!(["fd00::/64"]));
}

#[test]
fn several_files_are_printed_as_one() {
    let (network, pod) = (seed("s0-2"), seed("s0-4"));
    let files = ["-f", network.to_str().unwrap(), "-f", pod.to_str().unwrap()];
    let said = atoll(&[&["convert"], &files[..]].concat(), "");
    assert_eq!(said.out.matches("---\n").count(), 1, "{}", said.out);
    let again = atoll(&["convert", "-f", "-"], &said.out);
    assert_eq!(again.out, said.out);
    assert_eq!(again.err, "");
}

#[test]
fn what_is_wrong_is_told_with_file_document_and_field() {
    let wrong = format!("{NETWORK}---\n{}", NETWORK.replace("metadata", "color: 1, metadata"));
    let said = atoll(&["convert", "-f", "-"], &wrong);
    assert!(!said.ok);
    assert_eq!(said.out, "");
    let expected = "atoll: cannot convert -: document 2, Network net1: color: no such field";
    assert!(said.err.contains(expected), "{}", said.err);
    assert!(atoll(&["convert", "-f", "/none.yaml"], "").err.contains("cannot read /none.yaml"));
    assert!(atoll(&["convert", "-f", "-"], "# nothing\n").err.contains("no manifests"));
    assert!(!atoll(&["convert", "-f", "-", "--tenant", "A.B"], NETWORK).ok);
    assert!(!atoll(&["convert", "-f", "-", "--default-cidr", "10.0.0.1/8"], NETWORK).ok);
}
