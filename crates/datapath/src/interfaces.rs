//! The pods' interfaces as the kernel programs know them: all in one map, and most of them once
//! more where a packet finds them without a search.
//!
//! The rule: what is near is also among all, and the same. It leaves before the other changes and
//! comes after it, so that a program never goes by what does not hold any more.

use std::path::Path;

use atoll_abi::{Interface, InterfaceKey, MAX_INTERFACES, NearInterface};
use aya::maps::{Array, MapData};
use bytemuck::Zeroable;

use crate::error::{Attempt, DatapathError};
use crate::maps::{Raw, Table, check_shape, pinned};

const NEAR: &str = "near_interfaces";

/// All interfaces of a node.
pub(crate) struct Interfaces {
    all: Table<InterfaceKey, Interface>,
    near: Array<MapData, Raw<NearInterface>>,
}

/// Refuses pinned maps whose entries have other sizes than ours.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    check_shape::<InterfaceKey, Interface>(&dir.join("interfaces"))?;
    check_shape::<u32, NearInterface>(&dir.join(NEAR))
}

/// The only place at which an interface can be near.
fn place(key: InterfaceKey) -> u32 {
    key.ifindex % u32::from(MAX_INTERFACES)
}

impl Interfaces {
    /// Opens the maps pinned in `dir`, and makes near what must be: an earlier run may have been cut
    /// short, or one of the maps may be new.
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        let near = pinned(dir, NEAR)?;
        let near = Array::try_from(near).attempt(|| format!("use the map {NEAR}"))?;
        let mut interfaces = Interfaces { all: Table::open(dir, "interfaces")?, near };
        interfaces.clear_places()?;
        for (key, entry) in interfaces.entries()? {
            interfaces.draw_near(key, entry)?;
        }
        Ok(interfaces)
    }

    /// Draws away whatever is not, as it is, among all.
    fn clear_places(&mut self) -> Result<(), DatapathError> {
        for place in 0..u32::from(MAX_INTERFACES) {
            let known = self.near_at(InterfaceKey { ifindex: place })?;
            let key = InterfaceKey { ifindex: known.ifindex };
            if key.ifindex != 0 && self.get(key)? != Some(known.interface) {
                self.write(InterfaceKey { ifindex: place }, NearInterface { ifindex: 0, ..known })?;
            }
        }
        Ok(())
    }

    /// The interface with this index.
    pub(crate) fn get(&self, key: InterfaceKey) -> Result<Option<Interface>, DatapathError> {
        self.all.get(key)
    }

    /// All interfaces.
    pub(crate) fn entries(&self) -> Result<Vec<(InterfaceKey, Interface)>, DatapathError> {
        self.all.entries()
    }

    /// Puts an interface in, in place of what was there.
    pub(crate) fn put(&mut self, key: InterfaceKey, entry: Interface) -> Result<(), DatapathError> {
        self.draw_away(key)?;
        self.all.put(key, entry)?;
        self.draw_near(key, entry)
    }

    /// Takes an interface out; one that is gone already is as good.
    pub(crate) fn remove(&mut self, key: InterfaceKey) -> Result<(), DatapathError> {
        self.draw_away(key)?;
        self.all.remove(key)
    }

    /// Unless another has the place. The index is written last: a program that looks meanwhile finds
    /// the whole or none.
    fn draw_near(&mut self, key: InterfaceKey, interface: Interface) -> Result<(), DatapathError> {
        if self.near_at(key)?.ifindex != 0 {
            return Ok(());
        }
        let nobodys = NearInterface { interface, ..NearInterface::zeroed() };
        self.write(key, nobodys)?;
        self.write(key, NearInterface { ifindex: key.ifindex, ..nobodys })
    }

    fn draw_away(&mut self, key: InterfaceKey) -> Result<(), DatapathError> {
        let known = self.near_at(key)?;
        if known.ifindex != key.ifindex {
            return Ok(());
        }
        self.write(key, NearInterface { ifindex: 0, ..known })
    }

    fn near_at(&self, key: InterfaceKey) -> Result<NearInterface, DatapathError> {
        let found = self.near.get(&place(key), 0);
        Ok(found.attempt(|| format!("read the map {NEAR}"))?.0)
    }

    fn write(&mut self, key: InterfaceKey, entry: NearInterface) -> Result<(), DatapathError> {
        self.near.set(place(key), Raw(entry), 0).attempt(|| format!("write the map {NEAR}"))
    }
}
