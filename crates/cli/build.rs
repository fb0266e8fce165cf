//! Puts the manifests of `deploy/` into the program, in the order of its kustomization, so that
//! `atoll install` brings what `kubectl apply -k deploy/` would.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

/// The manifest that `atoll uninstall` brings for a while; it is no part of an installation.
const REMOVER: &str = "remover.yaml";

fn main() -> io::Result<()> {
    let deploy =
        Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../deploy");
    let kustomization = deploy.join("kustomization.yaml");
    println!("cargo::rerun-if-changed={}", kustomization.display());
    let list = fs::read_to_string(kustomization)?;
    let files = list.lines().filter_map(|line| line.trim().strip_prefix("- "));
    let mut code = "const INSTALLED: &[&str] = &[\n".to_owned();
    for file in files {
        let _ = writeln!(code, "    {},", included(&deploy.join(file)));
    }
    let _ = writeln!(code, "];\nconst REMOVER: &str = {};", included(&deploy.join(REMOVER)));
    fs::write(Path::new(&env::var("OUT_DIR").unwrap_or_default()).join("manifests.rs"), code)
}

fn included(file: &Path) -> String {
    format!("include_str!({file:?})")
}
