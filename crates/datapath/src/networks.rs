//! The networks that have a pod on this node, or something to do with the outside here, each at its
//! place, with its share of the connections, and the generation of what was decided about them.
//!
//! The rule: a network's entry is there before a packet of it can pass, and its generation is raised
//! after every change that a decision hangs on. A generation never goes back, also not when another
//! network takes the place.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use atoll_abi::{Interface, Network};
use atoll_types::NetworkId;
use aya::maps::{Array, MapData};

use crate::connections::Census;
use crate::error::{Attempt, DatapathError};
use crate::maps::{Raw, pinned};
use crate::seat::Guests;
use crate::shares::Tenants;

/// All networks of a node.
pub(crate) struct Networks {
    map: Array<MapData, Raw<Network>>,
    places: BTreeMap<u32, u16>,
    tenants: Tenants,
}

/// What was written down of the networks.
struct Written {
    places: BTreeMap<u32, u16>,
    tenants: Tenants,
    shares: BTreeMap<u32, u32>,
}

impl Networks {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        let map = pinned(dir, "networks")?;
        let map = Array::try_from(map).attempt(|| "use the map networks".into())?;
        Ok(Networks { map, places: BTreeMap::new(), tenants: Tenants::default() })
    }

    /// Learns which networks there are, from the interfaces and the guests, and forgets those that are
    /// gone. Whose a network is that nobody told of yet, its entry may say.
    pub(crate) fn learn(
        &mut self,
        interfaces: &[Interface],
        guests: &Guests,
    ) -> Result<(), DatapathError> {
        let before = self.written();
        let of_pods = interfaces.iter().map(|it| (it.network, it.table));
        let here: BTreeMap<u32, u16> =
            guests.iter().map(|(network, place)| (*network, *place)).chain(of_pods).collect();
        for gone in before.places.keys().filter(|network| !here.contains_key(network)) {
            self.tenants.forget(*gone);
        }
        for (network, place) in here.iter().filter(|(it, _)| !before.places.contains_key(it)) {
            let entry = self.entry(*place)?;
            if entry.network == *network {
                self.tenants.recall(*network, entry.tenant);
            }
        }
        self.places = here;
        self.write_changes(&before)
    }

    /// Gives a network its place.
    pub(crate) fn seat(&mut self, network: u32, place: u16) -> Result<(), DatapathError> {
        let before = self.written();
        self.places.insert(network, place);
        self.write_changes(&before)
    }

    /// Divides what there is among these tenants, each the networks that it has here or is about to.
    pub(crate) fn share_among(
        &mut self,
        tenants: &BTreeSet<BTreeSet<NetworkId>>,
    ) -> Result<(), DatapathError> {
        let before = self.written();
        self.tenants = self.tenants.told(tenants, |network| before.places.contains_key(&network));
        self.write_changes(&before)
    }

    /// Whose the networks are.
    pub(crate) fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Has every connection of a network decided anew with its next packet. A network that has no
    /// place here has none.
    pub(crate) fn raise(&mut self, network: u32) -> Result<(), DatapathError> {
        match self.places.get(&network).copied() {
            Some(place) => self.write(network, place, &self.shares(), 1),
            None => Ok(()),
        }
    }

    /// The same for all networks.
    pub(crate) fn raise_all(&mut self) -> Result<(), DatapathError> {
        let (all, shares) = (self.places.clone(), self.shares());
        all.into_iter().try_for_each(|(network, place)| self.write(network, place, &shares, 1))
    }

    /// The place of a network.
    pub(crate) fn place(&self, network: u32) -> Option<u16> {
        self.places.get(&network).copied()
    }

    /// Which networks are where.
    pub(crate) fn census(&self, at: u64) -> Census {
        let shares = self.shares();
        let at_place = |(network, place): (&u32, &u16)| Some((*place, *shares.get(network)?));
        let shares = self.places.iter().filter_map(at_place).collect();
        Census { at, places: self.places.clone(), shares }
    }

    fn shares(&self) -> BTreeMap<u32, u32> {
        self.tenants.connections(self.places.keys().copied())
    }

    fn written(&self) -> Written {
        let (places, tenants) = (self.places.clone(), self.tenants.clone());
        Written { places, tenants, shares: self.shares() }
    }

    /// Writes what is not as it was. No decision hangs on a share, nor on whose a network is; those about
    /// a network that comes to a place are made anew.
    fn write_changes(&mut self, before: &Written) -> Result<(), DatapathError> {
        let shares = self.shares();
        for (network, place) in self.places.clone() {
            let is_new = before.places.get(&network) != Some(&place);
            let is_as_before = before.shares.get(&network) == shares.get(&network)
                && before.tenants.of(network) == self.tenants.of(network);
            if is_new || !is_as_before {
                self.write(network, place, &shares, is_new.into())?;
            }
        }
        Ok(())
    }

    fn entry(&self, place: u16) -> Result<Network, DatapathError> {
        let read = self.map.get(&place.into(), 0);
        Ok(read.attempt(|| format!("read the entry of the network at place {place}"))?.0)
    }

    /// Writes an entry whose generation is so much higher than what stands there.
    fn write(
        &mut self,
        network: u32,
        place: u16,
        shares: &BTreeMap<u32, u32>,
        raise: u32,
    ) -> Result<(), DatapathError> {
        let known = self.entry(place)?;
        let entry = Network {
            generation: known.generation.wrapping_add(raise).max(1),
            network,
            share: shares.get(&network).copied().unwrap_or_default(),
            tenant: self.tenants.of(network),
        };
        let attempt = || format!("write the entry of network {network}");
        self.map.set(place.into(), Raw(entry), 0).attempt(attempt)
    }
}
