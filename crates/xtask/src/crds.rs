//! `deploy/crds/`: one file for each kind, written from the Rust types.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;

const FOLDER: &str = "deploy/crds";

/// Writes every file and removes those of kinds that are gone.
pub(crate) fn write(root: &Path) -> Result<()> {
    let folder = root.join(FOLDER);
    std::fs::create_dir_all(&folder)?;
    let wanted = files()?;
    for stale in present(&folder)?.keys().filter(|name| !wanted.contains_key(*name)) {
        std::fs::remove_file(folder.join(stale))?;
    }
    for (name, text) in wanted {
        std::fs::write(folder.join(&name), text).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(())
}

/// Fails where a file differs from what [`write`] would leave.
pub(crate) fn check(root: &Path) -> Result<()> {
    let fresh = files()? == present(&root.join(FOLDER))?;
    ensure!(fresh, "{FOLDER} is stale: run `cargo xtask crds` and commit the result");
    Ok(())
}

fn files() -> Result<BTreeMap<String, String>> {
    let file = |crd: CustomResourceDefinition| {
        Ok((format!("{}.yaml", crd.name_any()), serde_yaml_ng::to_string(&crd)?))
    };
    atoll_api::crds().into_iter().map(file).collect()
}

fn present(folder: &Path) -> Result<BTreeMap<String, String>> {
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("cannot read {FOLDER}: run `cargo xtask crds`"))?;
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        Ok((name, std::fs::read_to_string(entry.path())?))
    };
    entries.map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_in_deploy_are_fresh() {
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    }
}
