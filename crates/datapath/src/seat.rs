//! Where an interface counts, and the place of its network. Pure: no map is touched
//! here.
//!
//! The rule: two interfaces never share a slot, and two networks never share a place. The entries
//! of the interfaces, and those of networks that have none here and something to do with the outside
//! (guests), are the only memory of who has which.

use std::collections::{BTreeMap, BTreeSet};

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
    pub(crate) fn beside(
        others: &[Interface],
        guests: &Guests,
        network: u32,
    ) -> Result<Self, DatapathError> {
        let slots = others.iter().map(|other| other.slot).collect();
        let slot = lowest_free(&slots).ok_or(DatapathError::MapFull("interfaces"))?;
        Ok(Seat { slot, table: place_beside(others, guests, network)? })
    }
}

/// The places of networks that have something to do with the outside here.
pub(crate) type Guests = BTreeMap<u32, u16>;

/// The place of a network beside those that are there: the one that it has, or the lowest that is
/// free.
pub(crate) fn place_beside(
    others: &[Interface],
    guests: &Guests,
    network: u32,
) -> Result<u16, DatapathError> {
    let neighbour = others.iter().find(|other| other.network == network);
    let known = neighbour.map(|neighbour| neighbour.table).or(guests.get(&network).copied());
    let taken = others.iter().map(|other| other.table).chain(guests.values().copied()).collect();
    known.or(lowest_free(&taken)).ok_or(DatapathError::MapFull("networks"))
}

/// Those of these guests that have a place which is theirs.
pub(crate) fn rightful(others: &[Interface], written: &[(u32, u32)]) -> Guests {
    let mut guests = Guests::new();
    for (network, place) in written {
        let Some(place) = u16::try_from(*place).ok().filter(|it| *it < MAX_INTERFACES) else {
            continue;
        };
        let is_anothers = |other: &Interface| (other.table == place) != (other.network == *network);
        let is_guests = guests.iter().any(|(guest, it)| guest != network && *it == place);
        if !others.iter().any(is_anothers) && !is_guests {
            guests.entry(*network).or_insert(place);
        }
    }
    guests
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
        let seat = |network| Seat::beside(&others, &Guests::new(), network).unwrap();
        assert_eq!(seat(200), Seat { slot: 2, table: 1 });
        assert_eq!(seat(300), Seat { slot: 2, table: 2 });
    }

    #[test]
    fn places_that_were_left_are_taken_again() {
        let others = [seated(100, 1, 1)];
        let guests = Guests::new();
        assert_eq!(Seat::beside(&others, &guests, 200).unwrap(), Seat { slot: 0, table: 0 });
        assert_eq!(Seat::beside(&[], &guests, 7).unwrap(), Seat::default());
    }

    #[test]
    fn a_guest_has_a_place_of_its_own_and_its_first_pod_comes_there() {
        let others = [seated(100, 0, 0)];
        let guests = Guests::from([(300, 1)]);
        assert_eq!(place_beside(&others, &guests, 400).unwrap(), 2);
        assert_eq!(place_beside(&others, &guests, 300).unwrap(), 1);
        assert_eq!(Seat::beside(&others, &guests, 300).unwrap(), Seat { slot: 1, table: 1 });
        assert_eq!(place_beside(&others, &guests, 100).unwrap(), 0, "it is where its pods are");
    }

    #[test]
    fn a_place_that_is_anothers_or_none_is_no_guests() {
        let others = [seated(100, 0, 0), seated(200, 1, 1)];
        let written = [(100, 0), (200, 7), (300, 0), (400, 2), (500, 2), (600, u32::MAX)];
        assert_eq!(rightful(&others, &written), Guests::from([(100, 0), (400, 2)]));
    }

    #[test]
    fn a_full_node_says_so() {
        let full: Vec<_> = (0..MAX_INTERFACES).map(|n| seated(u32::from(n), n, n)).collect();
        let error = Seat::beside(&full, &Guests::new(), 9999).unwrap_err();
        assert!(error.to_string().starts_with("the map interfaces is full"), "{error}");
    }
}
