//! The layer of VPCs lies below tenants: nothing of it rests on them.

use std::fs;
use std::path::Path;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Words of the layers above.
const ABOVE: [&str; 4] = ["tenant", "namespace", "pod", "kubernetes"];

#[test]
fn the_layer_of_vpcs_rests_on_values_alone() {
    let manifest = fs::read_to_string(Path::new(CRATE).join("Cargo.toml")).unwrap();
    let (_, rest) = manifest.split_once("[dependencies]\n").unwrap();
    let names = rest.lines().take_while(|line| !line.is_empty());
    let names: Vec<_> = names.filter_map(|line| line.split(['.', ' ']).next()).collect();
    assert_eq!(names, ["atoll-types", "thiserror"]);
}

#[test]
fn nothing_of_a_tenant_has_a_name_in_the_layer_of_vpcs() {
    for file in fs::read_dir(Path::new(CRATE).join("src")).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap().to_lowercase();
        let code = text.lines().filter(|line| !line.starts_with("//!"));
        for word in code.flat_map(|line| line.split(|it: char| !it.is_ascii_alphabetic())) {
            let singular = word.strip_suffix('s').unwrap_or(word);
            assert!(!ABOVE.contains(&singular), "{} says {word}", path.display());
        }
    }
}
