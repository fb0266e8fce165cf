//! A pinned longest-prefix map, typed.

use std::path::Path;

use aya::maps::lpm_trie::Key;
use aya::maps::{LpmTrie, MapData, MapError};
use bytemuck::Pod;

use crate::error::{Attempt, DatapathError};
use crate::maps::{Raw, is_full, is_missing, pinned};

/// A key: how many bits of it are compared, and the bits.
pub(crate) type Prefix<K> = (u32, K);

/// A pinned longest-prefix map.
pub(crate) struct Trie<K: Pod, V: Pod> {
    name: &'static str,
    map: LpmTrie<MapData, Raw<K>, Raw<V>>,
}

impl<K: Pod, V: Pod> Trie<K, V> {
    pub(crate) fn open(dir: &Path, name: &'static str) -> Result<Self, DatapathError> {
        let map =
            LpmTrie::try_from(pinned(dir, name)?).attempt(|| format!("use the map {name}"))?;
        Ok(Trie { name, map })
    }

    pub(crate) fn put(&mut self, (bits, key): Prefix<K>, value: V) -> Result<(), DatapathError> {
        match self.map.insert(&Key::new(bits, Raw(key)), Raw(value), 0) {
            Err(MapError::SyscallError(error)) if is_full(&error.io_error) => {
                Err(DatapathError::MapFull(self.name))
            }
            done => done.attempt(|| format!("write the map {}", self.name)),
        }
    }

    pub(crate) fn remove(&mut self, (bits, key): Prefix<K>) -> Result<(), DatapathError> {
        match self.map.remove(&Key::new(bits, Raw(key))) {
            done if is_missing(&done) => Ok(()),
            done => done.attempt(|| format!("remove from the map {}", self.name)),
        }
    }

    /// All keys. One that is removed meanwhile may or may not be among them.
    pub(crate) fn keys(&self) -> Result<Vec<Prefix<K>>, DatapathError> {
        let keys: Result<Vec<_>, _> = self.map.keys().filter(|key| !is_missing(key)).collect();
        let keys = keys.attempt(|| format!("read the map {}", self.name))?;
        Ok(keys.into_iter().map(|key| (key.prefix_len(), key.data().0)).collect())
    }

    /// All entries. One that is removed meanwhile may or may not be among them.
    pub(crate) fn entries(&self) -> Result<Vec<(Prefix<K>, V)>, DatapathError> {
        let entries = self.map.iter().filter(|entry| !is_missing(entry));
        let entries: Result<Vec<_>, _> = entries.collect();
        let entries = entries.attempt(|| format!("read the map {}", self.name))?;
        let plain =
            |(key, value): (Key<Raw<K>>, Raw<V>)| ((key.prefix_len(), key.data().0), value.0);
        Ok(entries.into_iter().map(plain).collect())
    }

    pub(crate) fn remove_where(
        &mut self,
        unwanted: impl Fn(&K) -> bool,
    ) -> Result<(), DatapathError> {
        let keys = self.keys()?.into_iter().filter(|(_, key)| unwanted(key));
        keys.collect::<Vec<_>>().into_iter().try_for_each(|key| self.remove(key))
    }
}
