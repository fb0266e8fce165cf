//! The store of a cluster, kept as it is and brought back later, as people do with a backup of etcd.
//!
//! The rule: nobody reads or writes it meanwhile, and whoever remembers what it does not know any
//! more is started again, as Kubernetes' own documentation wants it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::control_plane::{
    API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER, api_server, controller_manager, etcd,
    scheduler,
};
use crate::fabric::CONTROL;
use crate::home::Home;
use crate::{processes, up};

/// Keeps it as it is now. The API is away meanwhile.
pub(crate) fn save(home: &Home) -> Result<()> {
    end(home, &[API_SERVER, ETCD])?;
    let copied = replace(&home.saved_store(), &home.store());
    start_api(home)?;
    copied
}

/// Brings it back as it was kept, under a control plane that is started again.
pub(crate) fn restore(home: &Home) -> Result<()> {
    let saved = home.saved_store();
    ensure!(saved.exists(), "no store was kept: there is no {}", saved.display());
    end(home, &[SCHEDULER, CONTROLLER_MANAGER, API_SERVER, ETCD])?;
    replace(&home.store(), &saved)?;
    start_api(home)?;
    controller_manager(home).start(home)?;
    scheduler(home).start(home).map(drop)
}

fn end(home: &Home, programs: &[&str]) -> Result<()> {
    let place = home.namespace(CONTROL);
    programs.iter().try_for_each(|program| processes::end_named(&place, program))
}

fn start_api(home: &Home) -> Result<()> {
    let mut started = [etcd(home).start(home)?, api_server(home).start(home)?];
    up::await_api(home, &mut started)
}

/// Makes one folder a copy of another.
fn replace(folder: &Path, source: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let copied = Command::new("cp").arg("--archive").args([source, folder]).output()?;
    let said = String::from_utf8_lossy(&copied.stderr);
    ensure!(copied.status.success(), "cannot copy {}: {}", source.display(), said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_brought_back_has_what_was_kept_and_nothing_of_later() {
        let folder = tempfile::tempdir().unwrap();
        let [store, saved] = ["store", "saved"].map(|name| folder.path().join(name));
        fs::create_dir_all(store.join("member")).unwrap();
        fs::write(store.join("member/db"), "early").unwrap();
        replace(&saved, &store).unwrap();
        fs::write(store.join("member/db"), "late").unwrap();
        fs::write(store.join("member/wal"), "late").unwrap();
        replace(&store, &saved).unwrap();
        assert_eq!(fs::read_to_string(store.join("member/db")).unwrap(), "early");
        assert!(!store.join("member/wal").exists());
    }

    #[test]
    fn what_cannot_be_copied_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let said = replace(&folder.path().join("to"), &folder.path().join("nothing")).unwrap_err();
        assert!(said.to_string().contains("nothing"), "{said}");
    }
}
