//! Where an interface counts, and the place of its network. Pure: no map is touched
//! here.
//!
//! The rule: two interfaces never share a slot, and two networks never share a place. The entries
//! of the interfaces are the only memory of who has which.

use std::collections::BTreeSet;

use atoll_abi::{Endpoint, Interface, MAX_INTERFACES};

use crate::error::DatapathError;

/// The places of an interface in the maps that are arrays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seat {
    /// Of its counters in `traffic`.
    pub(crate) slot: u16,
    /// Of its network in `networks`.
    pub(crate) table: u16,
}

impl Seat {
    /// A seat for a new interface of `network` beside those that are there, at the lowest places
    /// that are free.
    pub(crate) fn beside(others: &[Interface], network: u32) -> Result<Self, DatapathError> {
        let neighbour = others.iter().find(|other| other.network == network);
        let slots = others.iter().map(|other| other.slot).collect();
        let tables = others.iter().map(|other| other.table).collect();
        let (slot, table) = (lowest_free(&slots), lowest_free(&tables));
        let table = neighbour.map(|neighbour| neighbour.table).or(table);
        let seat = slot.zip(table).map(|(slot, table)| Seat { slot, table });
        seat.ok_or(DatapathError::MapFull("interfaces"))
    }
}

impl From<&Interface> for Seat {
    fn from(entry: &Interface) -> Self {
        Seat { slot: entry.slot, table: entry.table }
    }
}

impl From<&Endpoint> for Seat {
    fn from(entry: &Endpoint) -> Self {
        Seat { slot: entry.slot, table: entry.table }
    }
}

fn lowest_free(taken: &BTreeSet<u16>) -> Option<u16> {
    (0..MAX_INTERFACES).find(|place| !taken.contains(place))
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;

    use super::*;

    fn seated(network: u32, slot: u16, table: u16) -> Interface {
        Interface { network, slot, table, ..Interface::zeroed() }
    }

    #[test]
    fn neighbours_share_a_place_and_nobody_shares_a_slot() {
        let others = [seated(100, 0, 0), seated(200, 1, 1)];
        let seat = |network| Seat::beside(&others, network).unwrap();
        assert_eq!(seat(200), Seat { slot: 2, table: 1 });
        assert_eq!(seat(300), Seat { slot: 2, table: 2 });
    }

    #[test]
    fn places_that_were_left_are_taken_again() {
        let others = [seated(100, 1, 1)];
        assert_eq!(Seat::beside(&others, 200).unwrap(), Seat { slot: 0, table: 0 });
        assert_eq!(Seat::beside(&[], 7).unwrap(), Seat::default());
    }

    #[test]
    fn a_full_node_says_so() {
        let full: Vec<_> = (0..MAX_INTERFACES).map(|n| seated(u32::from(n), n, n)).collect();
        let error = Seat::beside(&full, 9999).unwrap_err();
        assert!(error.to_string().starts_with("the map interfaces is full"), "{error}");
    }
}
