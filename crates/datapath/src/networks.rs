//! The networks that have a pod on this node, or something to do with the outside here, each at its
//! place, and the generation of what was decided about their connections.
//!
//! The rule: a network's entry is there before a packet of it can pass, and its generation is raised
//! after every change that a decision hangs on. A generation never goes back, also not when another
//! network takes the place.

use std::collections::BTreeMap;
use std::path::Path;

use atoll_abi::{Interface, MAX_CONNECTIONS, MAX_INTERFACES, Network};
use aya::maps::{Array, MapData};

use crate::connections::Census;
use crate::error::{Attempt, DatapathError};
use crate::maps::{Raw, pinned};
use crate::seat::Guests;

/// However few networks there are, none has more than one part in so many.
const SHARERS: u32 = 16;

/// How many connections each of so many networks may have. The shares of all fit into half of the
/// table: when one more network makes them smaller, the others keep what they have until it is
/// collected, and the newcomer must have room at once. Where no share can become smaller, they fit
/// into the whole.
fn share(networks: usize) -> u32 {
    let sharers = u32::try_from(networks).unwrap_or(u32::MAX / 4).next_power_of_two() * 2;
    MAX_CONNECTIONS / sharers.clamp(SHARERS, MAX_INTERFACES.into())
}

/// All networks of a node.
pub(crate) struct Networks {
    map: Array<MapData, Raw<Network>>,
    places: BTreeMap<u32, u16>,
}

impl Networks {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        let map = pinned(dir, "networks")?;
        let map = Array::try_from(map).attempt(|| "use the map networks".into())?;
        Ok(Networks { map, places: BTreeMap::new() })
    }

    /// Learns which networks there are, from the interfaces and the guests, and forgets those that are
    /// gone.
    pub(crate) fn learn(
        &mut self,
        interfaces: &[Interface],
        guests: &Guests,
    ) -> Result<(), DatapathError> {
        let before = share(self.places.len());
        let of_pods = interfaces.iter().map(|it| (it.network, it.table));
        let here: BTreeMap<u32, u16> =
            guests.iter().map(|(network, place)| (*network, *place)).chain(of_pods).collect();
        self.places.retain(|network, _| here.contains_key(network));
        for (network, place) in here {
            self.seat(network, place)?;
        }
        if share(self.places.len()) == before { Ok(()) } else { self.raise_all() }
    }

    /// Gives a network its place.
    pub(crate) fn seat(&mut self, network: u32, place: u16) -> Result<(), DatapathError> {
        if self.places.get(&network) == Some(&place) {
            return Ok(());
        }
        let before = share(self.places.len());
        self.places.insert(network, place);
        if share(self.places.len()) == before {
            return self.write(network, place);
        }
        self.raise_all()
    }

    /// Has every connection of a network decided anew with its next packet. A network that has no
    /// place here has none.
    pub(crate) fn raise(&mut self, network: u32) -> Result<(), DatapathError> {
        match self.places.get(&network).copied() {
            Some(place) => self.write(network, place),
            None => Ok(()),
        }
    }

    /// The same for all networks.
    pub(crate) fn raise_all(&mut self) -> Result<(), DatapathError> {
        let all = self.places.clone();
        all.into_iter().try_for_each(|(network, place)| self.write(network, place))
    }

    /// The place of a network.
    pub(crate) fn place(&self, network: u32) -> Option<u16> {
        self.places.get(&network).copied()
    }

    /// Which networks are where.
    pub(crate) fn census(&self, at: u64) -> Census {
        Census { at, places: self.places.clone(), share: share(self.places.len()) }
    }

    fn write(&mut self, network: u32, place: u16) -> Result<(), DatapathError> {
        let attempt = || format!("write the entry of network {network}");
        let Raw(known) = self.map.get(&place.into(), 0).attempt(attempt)?;
        let entry = Network {
            generation: known.generation.wrapping_add(1).max(1),
            network,
            share: share(self.places.len()),
            reserved: 0,
        };
        self.map.set(place.into(), Raw(entry), 0).attempt(attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_all_networks_fit_together() {
        for networks in [0_usize, 1, 15, 16, 17, 100, 1000, 4096] {
            let together = u64::from(share(networks)) * networks as u64;
            assert!(together <= u64::from(MAX_CONNECTIONS), "{networks}");
            assert!(share(networks) >= 64, "{networks}");
        }
        assert_eq!((share(1), share(8), share(9)), (16_384, 16_384, 8192));
    }

    #[test]
    fn a_network_that_comes_has_its_share_while_all_others_still_fill_what_they_had() {
        for networks in 1..usize::from(MAX_INTERFACES) {
            let theirs = u64::from(share(networks)) * networks as u64;
            let own = u64::from(share(networks + 1));
            assert!(theirs + own <= u64::from(MAX_CONNECTIONS), "{networks}");
        }
    }
}
