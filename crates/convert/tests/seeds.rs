//! Every manifest of the seeds, and what becomes of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use atoll_convert::{Settings, convert};

/// The manifests with their names, in order.
fn seeds() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    let named = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    files.into_iter().map(named).collect()
}

/// The converted manifest with the notes above it.
fn told(manifest: &str, settings: &Settings) -> String {
    let converted = convert(manifest, settings).unwrap();
    let notes = converted.notes.iter().map(|note| format!("# {note}\n"));
    notes.collect::<String>() + &converted.yaml()
}

#[test]
fn every_manifest_of_the_seeds_becomes_ours() {
    let seeds = seeds();
    assert_eq!(seeds.len(), 13);
    for (name, manifest) in seeds {
        insta::assert_snapshot!(name, told(&manifest, &Settings::default()));
    }
}

#[test]
fn all_seeds_in_one_file_for_one_tenant() {
    let manifests: Vec<String> = seeds().into_iter().map(|(_, manifest)| manifest).collect();
    let settings = Settings { tenant: Some("acme".parse().unwrap()), ..Settings::default() };
    insta::assert_snapshot!(told(&manifests.join("---\n"), &settings));
}

#[test]
fn converting_a_seed_twice_is_converting_it_once() {
    for (name, manifest) in seeds() {
        let once = convert(&manifest, &Settings::default()).unwrap();
        let twice = convert(&once.yaml(), &Settings::default()).unwrap();
        assert_eq!(twice.yaml(), once.yaml(), "{name}");
        assert_eq!(twice.notes, [], "{name}");
        assert_eq!(convert(&once.json(), &Settings::default()).unwrap().json(), once.json());
    }
}

#[test]
fn what_belongs_to_others_is_printed_to_the_byte() {
    for (name, manifest) in seeds() {
        if ["s0-3", "s4-1", "s4-2", "s4-3"].iter().any(|other| name.starts_with(other)) {
            assert_eq!(
                convert(&manifest, &Settings::default()).unwrap().yaml(),
                manifest,
                "{name}"
            );
        }
    }
}
