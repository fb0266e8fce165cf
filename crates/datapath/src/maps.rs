//! The kernel's maps, typed. Entries go in and come out as they are; meaning is `encode`'s matter.

use std::io;
use std::path::Path;

use atoll_abi::{
    Connection as ConnectionEntry, ConnectionKey, DoorKey, Doors, DropCounter, DropKey, DropReason,
    Endpoint, EndpointKey, Interface, NO_NETWORK, Network, Peer, PeerKey, ServiceDoor,
    ServiceDoorKey, ServiceFront, ServiceFrontKey, Traffic, Turns, TurnsKey,
};
use atoll_types::NetworkId;
use aya::maps::{HashMap, Map, MapData, MapError, MapInfo, PerCpuHashMap, PerCpuValues};
use bytemuck::Pod;
use nix::errno::Errno;

use crate::connections::Connections;
use crate::error::{Attempt, DatapathError};
use crate::held::{self, Held};
use crate::infra::{self, Infra};
use crate::interfaces::{self, Interfaces};
use crate::networks::Networks;
use crate::node_ports::{self, NodePorts};
use crate::openings::{self, Openings};
use crate::outside::{self, Outside};
use crate::policy::{self, PolicyMaps};
use crate::seat::{Guests, Seat, place_beside, rightful};
use crate::services::{self, Services};
use crate::traffic::TrafficCounters;

/// How much was dropped for one reason in one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropCount {
    /// The network, or none for packets that could not be put to one.
    pub network: Option<NetworkId>,
    /// Why.
    pub reason: DropReason,
    /// How many packets since the maps were made; a batch that was not yet cut counts as one.
    pub packets: u64,
    /// How many bytes, from the Ethernet header on.
    pub bytes: u64,
}

/// A map entry as aya wants it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<T>(pub(crate) T);

// SAFETY: `Raw` is transparent over a type that is plain bytes without padding.
#[allow(unsafe_code, reason = "aya asks for its own marker of plain bytes")]
unsafe impl<T: Pod> aya::Pod for Raw<T> {}

/// A pinned hash map.
pub(crate) struct Table<K: Pod, V: Pod> {
    name: &'static str,
    map: HashMap<MapData, Raw<K>, Raw<V>>,
}

/// All maps of a node.
pub(crate) struct Maps {
    pub(crate) interfaces: Interfaces,
    pub(crate) endpoints: Table<EndpointKey, Endpoint>,
    pub(crate) peers: Table<PeerKey, Peer>,
    pub(crate) doors: Table<DoorKey, Doors>,
    pub(crate) service_doors: Table<ServiceDoorKey, ServiceDoor>,
    pub(crate) service_fronts: Table<ServiceFrontKey, ServiceFront>,
    pub(crate) networks: Networks,
    pub(crate) connections: Connections,
    pub(crate) services: Services,
    pub(crate) policy: PolicyMaps,
    pub(crate) outside: Outside,
    pub(crate) node_ports: NodePorts,
    pub(crate) held: Held,
    pub(crate) infra: Infra,
    pub(crate) openings: Openings,
    pub(crate) traffic: TrafficCounters,
    drops: PerCpuHashMap<MapData, Raw<DropKey>, Raw<DropCounter>>,
}

/// Refuses pinned maps whose entries have other sizes than ours: a program that trusted them would
/// read one field as another.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    check_shape::<TurnsKey, Turns>(&dir.join("turns"))?;
    check_as_before(dir)
}

/// The same for the maps that are as they were in the layout before.
pub(crate) fn check_as_before(dir: &Path) -> Result<(), DatapathError> {
    interfaces::check_pinned(dir)?;
    check_shape::<EndpointKey, Endpoint>(&dir.join("endpoints"))?;
    check_shape::<PeerKey, Peer>(&dir.join("peers"))?;
    check_shape::<DoorKey, Doors>(&dir.join("doors"))?;
    check_shape::<ServiceDoorKey, ServiceDoor>(&dir.join("service_doors"))?;
    check_shape::<ServiceFrontKey, ServiceFront>(&dir.join("service_fronts"))?;
    check_shape::<DropKey, DropCounter>(&dir.join("drops"))?;
    check_shape::<u32, Traffic>(&dir.join("traffic"))?;
    check_shape::<u32, Network>(&dir.join("networks"))?;
    check_shape::<ConnectionKey, ConnectionEntry>(&dir.join("connections"))?;
    check_shape::<u32, u32>(&dir.join("rings"))?;
    check_shape::<(), ()>(&dir.join("events"))?;
    check_shape::<u32, u32>(&dir.join("watchers"))?;
    services::check_pinned(dir)?;
    outside::check_pinned(dir)?;
    node_ports::check_pinned(dir)?;
    held::check_pinned(dir)?;
    infra::check_pinned(dir)?;
    openings::check_pinned(dir)?;
    policy::check_pinned(dir)
}

/// Refuses a pinned map whose entries have other sizes; one that is not there is as good.
pub(crate) fn check_shape<K, V>(path: &Path) -> Result<(), DatapathError> {
    if !path.exists() {
        return Ok(());
    }
    let info = MapInfo::from_pin(path).attempt(|| format!("look at the map {}", path.display()))?;
    let shape = |key, value| format!("keys of {key} and values of {value} bytes");
    let found = shape(info.key_size() as usize, info.value_size() as usize);
    let expected = shape(size_of::<K>(), size_of::<V>());
    if found == expected {
        return Ok(());
    }
    Err(DatapathError::WrongMap { path: path.to_owned(), found, expected })
}

impl Maps {
    /// Has every connection that hangs on what happens in a network decided anew with its next packet.
    pub(crate) fn raise(&mut self, network: u32) -> Result<(), DatapathError> {
        let concerned = self.services.concerned(network);
        concerned.into_iter().try_for_each(|network| self.networks.raise(network))
    }

    /// Opens the maps pinned in `dir`.
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        let drops = pinned(dir, "drops")?;
        let mut maps = Maps {
            interfaces: Interfaces::open(dir)?,
            endpoints: Table::open(dir, "endpoints")?,
            peers: Table::open(dir, "peers")?,
            doors: Table::open(dir, "doors")?,
            service_doors: Table::open(dir, "service_doors")?,
            service_fronts: Table::open(dir, "service_fronts")?,
            networks: Networks::open(dir)?,
            connections: Connections::open(dir)?,
            services: Services::open(dir)?,
            policy: PolicyMaps::open(dir)?,
            outside: Outside::open(dir)?,
            node_ports: NodePorts::open(dir)?,
            held: Held::open(dir)?,
            infra: Infra::open(dir)?,
            openings: Openings::open(dir)?,
            traffic: TrafficCounters::open(dir)?,
            drops: PerCpuHashMap::try_from(drops).attempt(|| "use the map drops".into())?,
        };
        maps.make_counters_of_no_network()?;
        Ok(maps)
    }

    /// Learns which networks are here: those of the interfaces, and those that have to do with the
    /// outside.
    pub(crate) fn learn_networks(&mut self) -> Result<(), DatapathError> {
        let (interfaces, guests) = (self.seated()?, self.guests()?);
        self.networks.learn(&interfaces, &guests)
    }

    /// The same after somebody else wrote them, who may have known less: guests that have no place of
    /// their own get one.
    pub(crate) fn learn_anew(&mut self) -> Result<(), DatapathError> {
        let (interfaces, mut guests) = (self.seated()?, self.guests()?);
        for (network, written) in self.node_ports.places()? {
            let place = place_beside(&interfaces, &guests, network)?;
            guests.insert(network, place);
            if u32::from(place) != written {
                self.node_ports.let_in(network, place)?;
            }
        }
        self.networks.learn(&interfaces, &guests)
    }

    fn seated(&self) -> Result<Vec<Interface>, DatapathError> {
        Ok(self.interfaces.entries()?.into_iter().map(|(_, entry)| entry).collect())
    }

    fn guests(&self) -> Result<Guests, DatapathError> {
        let written = [self.node_ports.places()?, self.outside.places()?].concat();
        Ok(rightful(&self.seated()?, &written))
    }

    /// A seat for a new interface of `network`, ready to be taken.
    pub(crate) fn new_seat(&mut self, network: u32) -> Result<Seat, DatapathError> {
        let seat = Seat::beside(&self.seated()?, &self.guests()?, network)?;
        self.networks.seat(network, seat.table)?;
        self.traffic.reset(seat.slot)?;
        Ok(seat)
    }

    /// The place of a network that has to do with the outside, ready to be written down.
    pub(crate) fn guest_place(&mut self, network: u32) -> Result<u16, DatapathError> {
        if let Some(place) = self.networks.place(network) {
            return Ok(place);
        }
        let place = place_beside(&self.seated()?, &self.guests()?, network)?;
        self.networks.seat(network, place)?;
        Ok(place)
    }

    /// Forgets the drop counters of networks that have no place here any more, and the fronts
    /// of services whose door is gone.
    pub(crate) fn collect(&mut self) -> Result<(), DatapathError> {
        self.collect_service_fronts()?;
        self.collect_drops()
    }

    fn collect_drops(&mut self) -> Result<(), DatapathError> {
        let is_here =
            |network: u32| network == NO_NETWORK || self.networks.place(network).is_some();
        let keys = self.drops.keys().filter(|key| !is_missing(key));
        let keys: Vec<_> =
            keys.collect::<Result<_, _>>().attempt(|| "list the drop counters".into())?;
        let gone: Vec<_> = keys.into_iter().filter(|key| !is_here(key.0.network)).collect();
        for key in gone {
            match self.drops.remove(&key) {
                done if is_missing(&done) => {}
                done => done.attempt(|| "remove a drop counter".into())?,
            }
        }
        Ok(())
    }

    /// Forgets ways back that no door leads to: a step that was cut short may leave one.
    fn collect_service_fronts(&mut self) -> Result<(), DatapathError> {
        for (back, front) in self.service_fronts.entries()? {
            let key = ServiceDoorKey {
                network: back.network,
                address: front.address,
                port: front.port,
                datagrams: front.datagrams,
                reserved: 0,
            };
            let door = self.service_doors.get(key)?;
            if door.is_none_or(|door| door.listener != back.listener) {
                self.service_fronts.remove(back)?;
            }
        }
        Ok(())
    }

    /// They take what the full map has no place for, so they must be there before it is full.
    fn make_counters_of_no_network(&mut self) -> Result<(), DatapathError> {
        let reasons = DropReason::ALL.iter().copied();
        for key in reasons.map(|reason| Raw(DropKey::of_no_network(reason))) {
            if !is_missing(&self.drops.get(&key, 0)) {
                continue;
            }
            let cpus = aya::util::nr_cpus().map_err(|(_, error)| error);
            let zeros = cpus
                .and_then(|cpus| PerCpuValues::try_from(vec![Raw(DropCounter::default()); cpus]));
            let zeros = zeros.attempt(|| "count the CPUs".into())?;
            self.drops.insert(key, zeros, 0).attempt(|| "make a drop counter".into())?;
        }
        Ok(())
    }

    /// Everything that was ever dropped.
    pub(crate) fn drops(&self) -> Result<Vec<DropCount>, DatapathError> {
        let counted = self.drops.iter().filter_map(|entry| match entry {
            Ok((key, values)) => drop_count(&key.0, values.iter().map(|value| value.0)).map(Ok),
            Err(MapError::KeyNotFound) => None,
            Err(error) => Some(Err(error)),
        });
        counted.collect::<Result<_, _>>().attempt(|| "read the drop counters".into())
    }
}

fn drop_count(key: &DropKey, values: impl Iterator<Item = DropCounter>) -> Option<DropCount> {
    let (packets, bytes) = values
        .fold((0, 0), |(packets, bytes), value| (packets + value.packets, bytes + value.bytes));
    (packets > 0).then(|| DropCount {
        network: NetworkId::try_from(key.network).ok(),
        reason: DropReason::from_number(key.reason),
        packets,
        bytes,
    })
}

impl<K: Pod, V: Pod> Table<K, V> {
    pub(crate) fn open(dir: &Path, name: &'static str) -> Result<Self, DatapathError> {
        let map =
            HashMap::try_from(pinned(dir, name)?).attempt(|| format!("use the map {name}"))?;
        Ok(Table { name, map })
    }

    /// Puts an entry in, in place of what was there.
    pub(crate) fn put(&mut self, key: K, value: V) -> Result<(), DatapathError> {
        match self.map.insert(Raw(key), Raw(value), 0) {
            Err(MapError::SyscallError(error)) if is_full(&error.io_error) => {
                Err(DatapathError::MapFull(self.name))
            }
            done => done.attempt(|| format!("write the map {}", self.name)),
        }
    }

    /// Takes an entry out; one that is gone already is as good.
    pub(crate) fn remove(&mut self, key: K) -> Result<(), DatapathError> {
        match self.map.remove(&Raw(key)) {
            done if is_missing(&done) => Ok(()),
            done => done.attempt(|| format!("remove from the map {}", self.name)),
        }
    }

    /// The entry at `key`.
    pub(crate) fn get(&self, key: K) -> Result<Option<V>, DatapathError> {
        match self.map.get(&Raw(key), 0) {
            found if is_missing(&found) => Ok(None),
            found => Ok(Some(found.attempt(|| format!("read the map {}", self.name))?.0)),
        }
    }

    /// All entries. One that is removed meanwhile may or may not be among them.
    pub(crate) fn entries(&self) -> Result<Vec<(K, V)>, DatapathError> {
        let there = self.map.iter().filter(|entry| !is_missing(entry));
        let plain = there.map(|entry| entry.map(|(key, value)| (key.0, value.0)));
        plain.collect::<Result<_, _>>().attempt(|| format!("read the map {}", self.name))
    }

    /// All keys, likewise.
    pub(crate) fn keys(&self) -> Result<Vec<K>, DatapathError> {
        let there = self.map.keys().filter(|key| !is_missing(key));
        let plain = there.map(|key| key.map(|key| key.0));
        plain.collect::<Result<_, _>>().attempt(|| format!("read the map {}", self.name))
    }
}

pub(crate) fn pinned(dir: &Path, name: &str) -> Result<Map, DatapathError> {
    let path = dir.join(name);
    MapData::from_pin(&path)
        .and_then(Map::from_map_data)
        .attempt(|| format!("open the map {}", path.display()))
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::E2BIG as i32)
}

pub(crate) fn is_missing<T>(result: &Result<T, MapError>) -> bool {
    match result {
        Err(MapError::KeyNotFound) => true,
        Err(MapError::SyscallError(error)) => error.io_error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_cpus_are_added_up() {
        let key = DropKey { network: 7, reason: DropReason::SpoofedMac.number() };
        let values =
            [DropCounter { packets: 1, bytes: 60 }, DropCounter { packets: 2, bytes: 120 }];
        let count = drop_count(&key, values.into_iter()).unwrap();
        assert_eq!((count.packets, count.bytes), (3, 180));
        assert_eq!(count.network, NetworkId::try_from(7).ok());
        assert_eq!(count.reason, DropReason::SpoofedMac);
    }

    #[test]
    fn counters_at_zero_and_networks_at_none_are_told_apart() {
        let key = DropKey::of_no_network(DropReason::OverlayStranger);
        assert_eq!(drop_count(&key, [DropCounter::default()].into_iter()), None);
        let one = DropCounter { packets: 1, bytes: 60 };
        assert_eq!(drop_count(&key, [one].into_iter()).unwrap().network, None);
    }
}
