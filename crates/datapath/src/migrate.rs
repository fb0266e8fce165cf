//! What an earlier version left, taken over: its maps and its program links.
//!
//! The rule: nothing is lost and nothing is taken away before it is in its new place. Cut short
//! anywhere, it is done again from the beginning.

use std::fs;
use std::path::{Path, PathBuf};

use atoll_abi::ConnectionKey;
use aya::maps::MapData;
use bytemuck::{Pod, Zeroable};

use crate::error::{Attempt, DatapathError};
use crate::maps::{Maps, Table, check_as_before, check_shape};
use crate::pins::{Pins, entries};

/// The layout that this version takes over.
pub(crate) const FORMER_LAYOUT: u32 = 4;

/// The only map whose entries have changed since: each place of a ring had one of its own.
const CHANGED: &str = "turns";

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct FormerTurn {
    table: u32,
    turn: u32,
}

/// The pins of an earlier version.
pub(crate) struct Former {
    root: PathBuf,
}

impl Former {
    /// What an earlier version left, if it did.
    pub(crate) fn find(pins: &Pins) -> Option<Self> {
        let root = pins.of_layout(FORMER_LAYOUT);
        root.is_dir().then_some(Former { root })
    }

    /// Refuses maps that are not what that version made.
    pub(crate) fn check(&self) -> Result<(), DatapathError> {
        check_shape::<FormerTurn, ConnectionKey>(&self.maps().join(CHANGED))?;
        check_as_before(&self.maps())
    }

    /// Pins the maps whose entries are the same in both layouts where this version looks for them.
    /// Its programs and ours use them together until its own are replaced.
    pub(crate) fn share_maps(&self, to: &Path) -> Result<(), DatapathError> {
        for from in entries(&self.maps())? {
            let Some(name) = from.file_name() else { continue };
            let to = to.join(name);
            if name == CHANGED || to.exists() {
                continue;
            }
            let attempt = || format!("take over the map {}", from.display());
            MapData::from_pin(&from).attempt(attempt)?.pin(&to).attempt(attempt)?;
        }
        Ok(())
    }

    /// Puts the places that connections have in its rings into those of `maps`. Its programs go on
    /// with its own until they are replaced; what they open meanwhile is in no ring of ours, and goes
    /// when it is over.
    pub(crate) fn copy_turns(&self, maps: &mut Maps) -> Result<(), DatapathError> {
        if !self.maps().join(CHANGED).exists() {
            return Ok(());
        }
        let former = Table::<FormerTurn, ConnectionKey>::open(&self.maps(), CHANGED)?;
        let turns = former.entries()?.into_iter();
        maps.connections.line_up(turns.map(|(at, key)| ((at.table, at.turn), key)))
    }

    /// Moves its program links to where this version looks for them; they stay in force.
    pub(crate) fn move_links(&self, to: &Path) -> Result<(), DatapathError> {
        let attempt = || format!("move the program links of {}", self.root.display());
        for link in entries(&self.root.join("links"))? {
            let Some(name) = link.file_name() else { continue };
            fs::rename(&link, to.join(name)).attempt(attempt)?;
        }
        Ok(())
    }

    /// The directory that is no longer needed.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn maps(&self) -> PathBuf {
        self.root.join("maps")
    }
}
