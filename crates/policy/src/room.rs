//! Room: how much the kernel's tables hold, and how much of it is one tenant's.
//!
//! The rule kept here: a tenant grows only while it has no more than it leaves free. So whatever one
//! tenant takes, as much again is there for the others, and nobody has to know how many there are.

use std::fmt;
use std::ops::{AddAssign, SubAssign};

/// Entries of each table: as many as there can be, or as many as somebody has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Addresses of pods.
    pub endpoints: usize,
    /// Ranges outside of pods.
    pub outside: usize,
    /// Identities.
    pub identities: usize,
    /// Rows of sets.
    pub peers: usize,
    /// Verdicts of columns.
    pub ports: usize,
}

/// A table in which a tenant has no room for what it would need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    table: usize,
    needed: usize,
    may_have: usize,
}

/// What people call the tables, in the order of [`Room::each`].
const NAMES: [&str; 5] = ["addresses", "ranges", "identities", "rows", "verdicts"];

impl Room {
    fn each(self) -> [usize; 5] {
        [self.endpoints, self.outside, self.identities, self.peers, self.ports]
    }

    /// The first table in which a tenant that grew from `before` to `own` has more than it leaves
    /// free, where `all` is what everybody has.
    pub(crate) fn lack(self, all: Room, before: Room, own: Room) -> Option<Lack> {
        let (all, before, own) = (all.each(), before.each(), own.each());
        let free = self.each().into_iter().zip(all).map(|(room, all)| room.saturating_sub(all));
        let mut tables = free.zip(before.into_iter().zip(own)).enumerate();
        tables.find_map(|(table, (free, (before, own)))| {
            let may_have = (free + own) / 2;
            (own > before && own > free).then_some(Lack { table, needed: own, may_have })
        })
    }

    /// How much more than before a tenant may have in the table that it lacked: what is free beside
    /// what is its own.
    pub(crate) fn slack(self, all: Room, own: Room, lack: Lack) -> isize {
        let of = |room: Room| room.each()[lack.table] as isize;
        of(self) - of(all) - of(own)
    }
}

impl AddAssign for Room {
    fn add_assign(&mut self, more: Room) {
        self.endpoints += more.endpoints;
        self.outside += more.outside;
        self.identities += more.identities;
        self.peers += more.peers;
        self.ports += more.ports;
    }
}

impl SubAssign for Room {
    fn sub_assign(&mut self, less: Room) {
        self.endpoints -= less.endpoints;
        self.outside -= less.outside;
        self.identities -= less.identities;
        self.peers -= less.peers;
        self.ports -= less.ports;
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lack { table, needed, may_have } = self;
        let name = NAMES[*table];
        write!(f, "the tenant would need {needed} {name} on this node and may have {may_have}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(peers: usize) -> Room {
        Room { peers, ..Room::default() }
    }

    const WHOLE: Room =
        Room { endpoints: 100, outside: 100, identities: 100, peers: 100, ports: 100 };

    #[test]
    fn a_tenant_grows_while_it_has_no_more_than_it_leaves_free() {
        let alone = |rows_: usize| WHOLE.lack(rows(rows_), rows(0), rows(rows_));
        assert_eq!(alone(50), None);
        let lack = alone(51).unwrap();
        assert_eq!(lack.to_string(), "the tenant would need 51 rows on this node and may have 50");
    }

    #[test]
    fn whatever_others_took_somebody_new_has_room() {
        assert_eq!(WHOLE.lack(rows(50 + 25), rows(0), rows(25)), None);
        assert!(WHOLE.lack(rows(50 + 26), rows(0), rows(26)).is_some());
    }

    #[test]
    fn what_does_not_grow_is_never_refused() {
        assert_eq!(WHOLE.lack(rows(100), rows(60), rows(60)), None);
        assert!(WHOLE.lack(rows(100), rows(59), rows(60)).is_some());
    }
}
