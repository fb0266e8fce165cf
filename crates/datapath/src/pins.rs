//! Where maps and program links are pinned: `<root>/v<layout>/maps` and `<root>/v<layout>/links`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use atoll_abi::LAYOUT_VERSION;
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::error::{Attempt, DatapathError, Remains};
use crate::migrate::FORMER_LAYOUT;

/// The directories of one node's pins.
#[derive(Clone, Debug)]
pub(crate) struct Pins {
    root: PathBuf,
}

impl Pins {
    pub(crate) fn new(root: &Path) -> Self {
        Pins { root: root.to_owned() }
    }

    /// Where maps are pinned by name.
    pub(crate) fn maps(&self) -> PathBuf {
        self.layout().join("maps")
    }

    /// Where program links are pinned by the name of the interface.
    pub(crate) fn links(&self) -> PathBuf {
        self.layout().join("links")
    }

    /// Where the pins of a layout are.
    pub(crate) fn of_layout(&self, version: u32) -> PathBuf {
        self.root.join(format!("v{version}"))
    }

    fn layout(&self) -> PathBuf {
        self.of_layout(LAYOUT_VERSION)
    }

    /// Makes the directories, unless the place is wrong or holds pins of a layout that we can
    /// neither use nor take over.
    pub(crate) fn prepare(&self) -> Result<(), DatapathError> {
        self.check_file_system()?;
        let make = |dir: PathBuf| {
            fs::create_dir_all(&dir).attempt(|| format!("make the directory {}", dir.display()))
        };
        make(self.root.clone())?;
        let usable = [self.layout(), self.of_layout(FORMER_LAYOUT)];
        if let Some(other) = self.layouts()?.into_iter().find(|dir| !usable.contains(dir)) {
            return Err(DatapathError::OtherLayout(other));
        }
        make(self.maps())?;
        make(self.links())
    }

    fn check_file_system(&self) -> Result<(), DatapathError> {
        let existing = self.root.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
        let facts = statfs(existing).attempt(|| format!("look at {}", existing.display()))?;
        if facts.filesystem_type() == BPF_FS_MAGIC {
            return Ok(());
        }
        Err(DatapathError::NotBpfFileSystem(self.root.clone()))
    }

    /// The directories of all layouts, ours and others'.
    pub(crate) fn layouts(&self) -> Result<Vec<PathBuf>, DatapathError> {
        let is_layout = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            let number = name.and_then(|name| name.strip_prefix('v'));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        Ok(entries(&self.root)?.into_iter().filter(is_layout).collect())
    }

    /// The names of the interfaces whose program link is pinned.
    pub(crate) fn pinned_links(&self) -> Result<Vec<String>, DatapathError> {
        let name = |path: PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        Ok(entries(&self.links())?.into_iter().filter_map(name).collect())
    }

    /// Removes every pin of every layout and the directories, going on after errors.
    pub(crate) fn remove(&self) -> Vec<DatapathError> {
        let mut errors = vec![];
        match self.layouts() {
            Ok(layouts) => layouts.iter().for_each(|dir| remove_tree(dir, &mut errors)),
            Err(error) => errors.push(error),
        }
        match fs::remove_dir(&self.root) {
            Err(error) if is_kept(&error) => {}
            done => errors.extend(done.attempt(|| format!("remove {}", self.root.display())).err()),
        }
        errors
    }
}

/// The root may be absent, a mount point, or hold what others put there.
fn is_kept(error: &io::Error) -> bool {
    use io::ErrorKind::{DirectoryNotEmpty, NotFound, ResourceBusy};
    matches!(error.kind(), NotFound | ResourceBusy | DirectoryNotEmpty)
}

/// What is in a directory; nothing where it is not there.
pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>, DatapathError> {
    let list = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        list => list.attempt(|| format!("read the directory {}", dir.display()))?,
    };
    list.map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()
        .attempt(|| format!("read the directory {}", dir.display()))
}

/// Removes a pin; one that is gone already is as good.
pub(crate) fn unpin(path: &Path) -> Result<(), DatapathError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.attempt(|| format!("remove the pin {}", path.display())),
    }
}

/// Removes every pin in a directory, and the directory.
pub(crate) fn remove_all(dir: &Path) -> Result<(), DatapathError> {
    let mut errors = vec![];
    remove_tree(dir, &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(DatapathError::Remains(Remains(errors))) }
}

fn remove_tree(dir: &Path, errors: &mut Vec<DatapathError>) {
    match entries(dir) {
        Ok(found) => found.iter().for_each(|path| {
            if path.is_dir() { remove_tree(path, errors) } else { errors.extend(unpin(path).err()) }
        }),
        Err(error) => errors.push(error),
    }
    errors.extend(fs::remove_dir(dir).attempt(|| format!("remove {}", dir.display())).err());
}
