//! Policy's tables in the kernel: written whole into the bank that does not count, or changed entry
//! by entry in the one that does.
//!
//! The rule: at no moment does an entry point at nothing, and a whole set of tables is exchanged by
//! writing one word. So a restarted agent, whose numbers are others, leaves no gap and no mixture.

mod encode;

use std::path::Path;

use atoll_abi::{
    NO_BANK, PolicyColumnKey, PolicyEndKey, PolicyIdentity, PolicyOutside, PolicyPort,
    PolicyVerdict,
};
use atoll_policy::{Changes, Room, Tables};
use aya::maps::{Array, MapData, MapInfo};
use bytemuck::Pod;

use self::encode::{Bank, wrote_prefix};
use crate::error::{Attempt, DatapathError};
use crate::maps::{Table, check_shape, pinned};
use crate::trie::Trie;

/// The maps of policy.
pub(crate) struct PolicyMaps {
    bank: Array<MapData, u32>,
    ends: Table<PolicyEndKey, u32>,
    outside: Trie<PolicyOutside, u32>,
    identities: Table<u32, PolicyIdentity>,
    columns: Table<PolicyColumnKey, u32>,
    ports: Trie<PolicyPort, PolicyVerdict>,
    room: Room,
}

/// Refuses pinned maps whose entries have other sizes than ours.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    check_shape::<u32, u32>(&dir.join("policy_bank"))?;
    check_shape::<PolicyEndKey, u32>(&dir.join("policy_ends"))?;
    check_shape::<(u32, PolicyOutside), u32>(&dir.join("policy_outside"))?;
    check_shape::<u32, PolicyIdentity>(&dir.join("policy_identities"))?;
    check_shape::<PolicyColumnKey, u32>(&dir.join("policy_columns"))?;
    check_shape::<(u32, PolicyPort), PolicyVerdict>(&dir.join("policy_ports"))
}

impl PolicyMaps {
    /// Opens the maps pinned in `dir`.
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        let bank = pinned(dir, "policy_bank")?;
        Ok(PolicyMaps {
            bank: bank.try_into().attempt(|| "use the map policy_bank".into())?,
            ends: Table::open(dir, "policy_ends")?,
            outside: Trie::open(dir, "policy_outside")?,
            identities: Table::open(dir, "policy_identities")?,
            columns: Table::open(dir, "policy_columns")?,
            ports: Trie::open(dir, "policy_ports")?,
            room: room(dir)?,
        })
    }

    /// How much one bank can hold while the other holds as much.
    pub(crate) fn room(&self) -> Room {
        self.room
    }

    /// Writes whole tables beside those in force, exchanges them at once, and sweeps the others
    /// out.
    pub(crate) fn replace(&mut self, tables: &Tables) -> Result<(), DatapathError> {
        let former = self.in_force()?;
        let bank = former.map_or(Bank::First, Bank::other);
        self.sweep(bank)?;
        self.write(bank, tables)?;
        let switch = self.bank.set(0, bank.number(), 0);
        switch.attempt(|| "put new tables of policy into force".into())?;
        former.map_or(Ok(()), |former| self.sweep(former))
    }

    /// Changes the tables in force: first all that is new, then, the other way round, all that is
    /// gone.
    pub(crate) fn change(&mut self, changes: &Changes) -> Result<(), DatapathError> {
        let bank = self.in_force()?.ok_or(DatapathError::NoPolicyYet)?;
        for (key, verdict) in &changes.ports.put {
            self.ports.put(bank.port(*key), bank.verdict(*verdict))?;
        }
        for (key, column) in &changes.peers.put {
            self.columns.put(bank.row(*key), bank.column(*column))?;
        }
        for (identity, entry) in &changes.identities.put {
            self.identities.put(bank.identity(*identity), bank.subject_to(entry))?;
        }
        for (key, identity) in &changes.outside.put {
            self.outside.put(bank.outside(key), bank.identity(*identity))?;
        }
        for (address, identity) in &changes.endpoints.put {
            self.ends.put(bank.end(*address), bank.identity(*identity))?;
        }
        self.remove(bank, changes)
    }

    /// The compiler's number of the rule that a packet's verdict named, where its tables are still
    /// in force.
    pub(crate) fn rule(&self, number: u32) -> Result<Option<u32>, DatapathError> {
        Ok(self.in_force()?.and_then(|bank| encode::rule(bank, number)))
    }

    fn remove(&mut self, bank: Bank, changes: &Changes) -> Result<(), DatapathError> {
        for address in &changes.endpoints.removed {
            self.ends.remove(bank.end(*address))?;
        }
        for key in &changes.outside.removed {
            self.outside.remove(bank.outside(key))?;
        }
        for identity in &changes.identities.removed {
            self.identities.remove(bank.identity(*identity))?;
        }
        for key in &changes.peers.removed {
            self.columns.remove(bank.row(*key))?;
        }
        for key in &changes.ports.removed {
            self.ports.remove(bank.port(*key))?;
        }
        Ok(())
    }

    fn write(&mut self, bank: Bank, tables: &Tables) -> Result<(), DatapathError> {
        for (key, verdict) in tables.ports.iter() {
            self.ports.put(bank.port(*key), bank.verdict(*verdict))?;
        }
        for (key, column) in tables.peers.iter() {
            self.columns.put(bank.row(*key), bank.column(*column))?;
        }
        for (identity, entry) in tables.identities.iter() {
            self.identities.put(bank.identity(*identity), bank.subject_to(entry))?;
        }
        for (key, identity) in tables.outside.iter() {
            self.outside.put(bank.outside(key), bank.identity(*identity))?;
        }
        for (address, identity) in tables.endpoints.iter() {
            self.ends.put(bank.end(*address), bank.identity(*identity))?;
        }
        Ok(())
    }

    fn in_force(&self) -> Result<Option<Bank>, DatapathError> {
        let number = self.bank.get(&0, 0).attempt(|| "read the map policy_bank".into())?;
        debug_assert!(number == NO_BANK || Bank::from_number(number).is_some());
        Ok(Bank::from_number(number))
    }

    /// Removes what a bank holds, what points first.
    fn sweep(&mut self, bank: Bank) -> Result<(), DatapathError> {
        self.ends.remove_where(|key| key.bank == bank.number())?;
        self.outside.remove_where(|key| wrote_prefix(bank, key.tenant))?;
        self.identities.remove_where(|identity| bank.wrote(*identity))?;
        self.columns.remove_where(|key| bank.wrote(key.set))?;
        self.ports.remove_where(|key| wrote_prefix(bank, key.column))
    }
}

/// Half of what the pinned maps hold, whichever version made them.
fn room(dir: &Path) -> Result<Room, DatapathError> {
    let half = |name: &str| {
        let info = MapInfo::from_pin(dir.join(name)).attempt(|| format!("look at the map {name}"));
        Ok::<_, DatapathError>(info?.max_entries() as usize / 2)
    };
    Ok(Room {
        endpoints: half("policy_ends")?,
        outside: half("policy_outside")?,
        identities: half("policy_identities")?,
        peers: half("policy_columns")?,
        ports: half("policy_ports")?,
    })
}

impl<K: Pod, V: Pod> Table<K, V> {
    fn remove_where(&mut self, unwanted: impl Fn(&K) -> bool) -> Result<(), DatapathError> {
        let entries = self.entries()?.into_iter().map(|(key, _)| key);
        entries.filter(unwanted).try_for_each(|key| self.remove(key))
    }
}
