//! Services in the kernel's maps.
//!
//! The rule: at every moment each entry that a packet can find leads on to entries that are there.
//! What is needed is written first, the service itself last, and taken away the other way round.
//! The maps are the only memory: which slot leads where is read from them before it is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::Path;
use std::time::Duration;

use atoll_abi::{
    self as abi, Affinity, AffinityKey, BACKENDS_PER_PAGE, Backends, SIDE_BACKENDS, SIDE_CLIENTS,
    SIDE_OUTSIDE, SLOTS_PER_PAGE, ServicePage, Slots, SourceKey,
};
use atoll_plan::{Backend, Service, ServiceKey, Side};
use atoll_types::{Cidr, NetAddr, NetworkId, Protocol};
use bytemuck::Zeroable;

use crate::error::DatapathError;
use crate::maps::{Table, check_shape};
use crate::spread::{MOST_BACKENDS, Spread};
use crate::trie::{Prefix, Trie};

/// The maps of services.
pub(crate) struct Services {
    services: Table<abi::ServiceKey, abi::Service>,
    slots: Table<ServicePage, Slots>,
    backends: Table<ServicePage, Backends>,
    sources: Trie<SourceKey, abi::Source>,
    /// A number that no service has.
    next: u32,
    /// The services that the outside reaches, and the clients that each lets in.
    outside: BTreeMap<ServiceKey, BTreeSet<Cidr>>,
    /// The networks that services have led to from each, and those that were led from: what is decided
    /// in one hangs on what happens in the other.
    kin: BTreeMap<u32, BTreeSet<u32>>,
}

/// Refuses pinned maps whose entries have other sizes than ours.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    check_shape::<abi::ServiceKey, abi::Service>(&dir.join("services"))?;
    check_shape::<ServicePage, Slots>(&dir.join("service_slots"))?;
    check_shape::<ServicePage, Backends>(&dir.join("service_backends"))?;
    check_shape::<(u32, SourceKey), abi::Source>(&dir.join("service_sources"))?;
    check_shape::<AffinityKey, Affinity>(&dir.join("service_affinity"))
}

impl Services {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        let mut services = Services {
            services: Table::open(dir, "services")?,
            slots: Table::open(dir, "service_slots")?,
            backends: Table::open(dir, "service_backends")?,
            sources: Trie::open(dir, "service_sources")?,
            next: 0,
            outside: BTreeMap::new(),
            kin: BTreeMap::new(),
        };
        let entries = services.services.entries()?;
        let keys = entries.iter().filter_map(|(key, _)| decode_key(key));
        services.learn_outside(keys.filter(|key| key.side == Side::Outside).collect())?;
        let known: BTreeMap<u32, u32> =
            entries.into_iter().map(|(key, entry)| (entry.id, key.network)).collect();
        services.next = known.keys().next_back().map_or(0, |last| last.wrapping_add(1));
        services.forget_pages_of_nobody(&known.keys().copied().collect())?;
        services.recall_kin(&known)?;
        Ok(services)
    }

    /// Learns whom these services let in, and forgets what is said of others.
    fn learn_outside(&mut self, known: BTreeSet<ServiceKey>) -> Result<(), DatapathError> {
        for (key, range) in self.sources.keys()?.iter().filter_map(source_of) {
            match known.contains(&key) {
                true => drop(self.outside.entry(key).or_default().insert(range)),
                false => self.sources.remove(source_key(key, &range))?,
            }
        }
        for key in known {
            self.outside.entry(key).or_default();
        }
        Ok(())
    }

    fn recall_kin(&mut self, networks: &BTreeMap<u32, u32>) -> Result<(), DatapathError> {
        for (page, backends) in self.backends.entries()? {
            let Some(network) = networks.get(&page.service) else { continue };
            let led_to = backends.at.iter().filter(|backend| backend.port != [0; 2]);
            let led_to: BTreeSet<u32> = led_to.map(|backend| backend.network).collect();
            self.note_kin(*network, &led_to);
        }
        Ok(())
    }

    fn note_kin(&mut self, network: u32, led_to: &BTreeSet<u32>) {
        for other in led_to.iter().filter(|other| **other != network) {
            self.kin.entry(network).or_default().insert(*other);
            self.kin.entry(*other).or_default().insert(network);
        }
    }

    /// The networks whose connections hang on what happens in this one: itself, and those that
    /// services lead to from it or lead from to it.
    pub(crate) fn concerned(&self, network: u32) -> BTreeSet<u32> {
        let kin = self.kin.get(&network).into_iter().flatten();
        kin.copied().chain([network]).collect()
    }

    /// Whoever was cut short between two writes left pages that nothing leads to.
    fn forget_pages_of_nobody(&mut self, known: &BTreeSet<u32>) -> Result<(), DatapathError> {
        for page in self.slots.keys()?.into_iter().filter(|page| !known.contains(&page.service)) {
            self.slots.remove(page)?;
        }
        for page in self.backends.keys()?.into_iter().filter(|page| !known.contains(&page.service))
        {
            self.backends.remove(page)?;
        }
        Ok(())
    }

    /// Makes the service lead to exactly these backends.
    pub(crate) fn put(&mut self, key: ServiceKey, service: &Service) -> Result<(), DatapathError> {
        if service.backends.len() > MOST_BACKENDS {
            return Err(DatapathError::TooManyBackends(service.backends.len()));
        }
        let former = self.services.get(encode_key(key))?;
        let id = former.map_or(self.next, |former| former.id);
        let before = self.spread(former.as_ref())?;
        let led_to = service.backends.iter().map(|backend| backend.addr.network.get()).collect();
        self.note_kin(key.network.get(), &led_to);
        let (backend_pages, slot_pages) = (pages(&before.places), pages_of_slots(&before.slots));
        let after = before.clone().follow(&service.backends);
        self.write_changed(id, &before, &after)?;
        self.let_in(key, &service.sources)?;
        let entry = abi::Service {
            id,
            slots: u32::try_from(after.slots.len()).unwrap_or(0),
            affinity: service.affinity.map_or(0, seconds),
        };
        self.services.put(encode_key(key), entry)?;
        if former.is_none() {
            self.next = self.next.wrapping_add(1);
        }
        for page in pages(&after.places).len()..backend_pages.len() {
            self.backends.remove(page_key(id, page))?;
        }
        for page in pages_of_slots(&after.slots).len()..slot_pages.len() {
            self.slots.remove(page_key(id, page))?;
        }
        Ok(())
    }

    fn write_changed(
        &mut self,
        id: u32,
        before: &Spread,
        after: &Spread,
    ) -> Result<(), DatapathError> {
        let (was, is) = (pages(&before.places), pages(&after.places));
        for (page, value) in is.iter().enumerate().filter(|(page, it)| was.get(*page) != Some(it)) {
            self.backends.put(page_key(id, page), *value)?;
        }
        let (was, is) = (pages_of_slots(&before.slots), pages_of_slots(&after.slots));
        for (page, value) in is.iter().enumerate().filter(|(page, it)| was.get(*page) != Some(it)) {
            self.slots.put(page_key(id, page), *value)?;
        }
        Ok(())
    }

    /// Forgets the service; one that is gone already is as good.
    pub(crate) fn remove(&mut self, key: ServiceKey) -> Result<(), DatapathError> {
        let Some(entry) = self.services.get(encode_key(key))? else { return Ok(()) };
        let spread = self.spread(Some(&entry))?;
        self.services.remove(encode_key(key))?;
        self.let_in(key, &BTreeSet::new())?;
        self.outside.remove(&key);
        for page in 0..pages_of_slots(&spread.slots).len() {
            self.slots.remove(page_key(entry.id, page))?;
        }
        for page in 0..pages(&spread.places).len() {
            self.backends.remove(page_key(entry.id, page))?;
        }
        Ok(())
    }

    /// Whether the outside reaches any service of a network.
    pub(crate) fn reaches(&self, network: NetworkId) -> bool {
        self.outside.keys().any(|key| key.network == network)
    }

    /// Lets exactly these clients in from outside.
    fn let_in(&mut self, key: ServiceKey, clients: &BTreeSet<Cidr>) -> Result<(), DatapathError> {
        if key.side != Side::Outside {
            return Ok(());
        }
        let known = self.outside.entry(key).or_default();
        for range in known.difference(clients) {
            self.sources.remove(source_key(key, range))?;
        }
        for range in clients.difference(known) {
            self.sources.put(source_key(key, range), abi::Source { reserved: 0 })?;
        }
        known.clone_from(clients);
        Ok(())
    }

    fn all_sources(&self) -> Result<BTreeMap<ServiceKey, BTreeSet<Cidr>>, DatapathError> {
        let mut all: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (key, range) in self.sources.keys()?.iter().filter_map(source_of) {
            all.entry(key).or_default().insert(range);
        }
        Ok(all)
    }

    /// Every service with its backends.
    pub(crate) fn all(&self) -> Result<BTreeMap<ServiceKey, Service>, DatapathError> {
        let mut all = BTreeMap::new();
        let mut sources = self.all_sources()?;
        for (key, entry) in self.services.entries()? {
            let Some(key) = decode_key(&key) else { continue };
            let backends = self.places(entry.id)?.into_iter().flatten().collect();
            let affinity = (entry.affinity > 0).then(|| Duration::from_secs(entry.affinity.into()));
            let sources = sources.remove(&key).unwrap_or_default();
            all.insert(key, Service { backends, affinity, sources });
        }
        Ok(all)
    }

    fn spread(&self, entry: Option<&abi::Service>) -> Result<Spread, DatapathError> {
        let Some(entry) = entry else { return Ok(Spread::default()) };
        let mut slots = vec![];
        for page in 0..(entry.slots as usize).div_ceil(SLOTS_PER_PAGE) {
            let known = self.slots.get(page_key(entry.id, page))?;
            slots.extend(known.unwrap_or_else(Slots::zeroed).backends);
        }
        Ok(Spread { places: self.places(entry.id)?, slots })
    }

    fn places(&self, id: u32) -> Result<Vec<Option<Backend>>, DatapathError> {
        let mut places = vec![];
        while let Some(page) = self.backends.get(page_key(id, places.len() / BACKENDS_PER_PAGE))? {
            places.extend(page.at.iter().map(decode_backend));
        }
        Ok(places)
    }
}

fn seconds(affinity: Duration) -> u32 {
    u32::try_from(affinity.as_secs()).unwrap_or(u32::MAX).max(1)
}

fn page_key(service: u32, page: usize) -> ServicePage {
    ServicePage { service, page: u32::try_from(page).unwrap_or(u32::MAX) }
}

fn pages(places: &[Option<Backend>]) -> Vec<Backends> {
    let page = |chunk: &[Option<Backend>]| {
        let mut page = Backends::zeroed();
        for (place, backend) in page.at.iter_mut().zip(chunk) {
            *place = backend.map_or_else(abi::Backend::zeroed, encode_backend);
        }
        page
    };
    let end = places.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    places[..end].chunks(BACKENDS_PER_PAGE).map(page).collect()
}

fn pages_of_slots(slots: &[u16]) -> Vec<Slots> {
    let (pages, _) = slots.as_chunks::<SLOTS_PER_PAGE>();
    pages.iter().map(|backends| Slots { backends: *backends }).collect()
}

fn encode_key(key: ServiceKey) -> abi::ServiceKey {
    abi::ServiceKey {
        network: key.network.get(),
        address: key.ip.into(),
        port: key.port.get().to_be_bytes(),
        protocol: key.protocol.number(),
        side: match key.side {
            Side::Clients => SIDE_CLIENTS,
            Side::Backends => SIDE_BACKENDS,
            Side::Outside => SIDE_OUTSIDE,
        },
    }
}

fn decode_key(key: &abi::ServiceKey) -> Option<ServiceKey> {
    Some(ServiceKey {
        network: NetworkId::try_from(key.network).ok()?,
        ip: IpAddr::from(key.address),
        protocol: Protocol::from_number(key.protocol)?,
        port: NonZeroU16::new(u16::from_be_bytes(key.port))?,
        side: match key.side {
            SIDE_CLIENTS => Side::Clients,
            SIDE_BACKENDS => Side::Backends,
            SIDE_OUTSIDE => Side::Outside,
            _ => return None,
        },
    })
}

/// How many bits of a key come before those of a client's IPv4 or IPv6 address.
fn bits_before(v4: bool) -> u32 {
    let service = 8 * u32::try_from(size_of::<abi::ServiceKey>()).unwrap_or(u32::MAX / 8);
    if v4 { service + 96 } else { service }
}

fn source_key(key: ServiceKey, range: &Cidr) -> Prefix<SourceKey> {
    let bits = bits_before(range.is_ipv4()) + u32::from(range.prefix_len());
    (bits, SourceKey { service: encode_key(key), client: range.first().into() })
}

fn source_of((bits, key): &Prefix<SourceKey>) -> Option<(ServiceKey, Cidr)> {
    let ip = IpAddr::from(key.client);
    let length = bits.checked_sub(bits_before(ip.is_ipv4()))?;
    Some((decode_key(&key.service)?, format!("{ip}/{length}").parse().ok()?))
}

fn encode_backend(backend: Backend) -> abi::Backend {
    abi::Backend {
        network: backend.addr.network.get(),
        address: backend.addr.ip.into(),
        port: backend.port.get().to_be_bytes(),
        reserved: [0; 2],
    }
}

fn decode_backend(entry: &abi::Backend) -> Option<Backend> {
    let network = NetworkId::try_from(entry.network).ok()?;
    let port = NonZeroU16::new(u16::from_be_bytes(entry.port))?;
    Some(Backend { addr: NetAddr::new(network, entry.address.into()), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_let_in_survives_the_round_trip() {
        let key = ServiceKey {
            network: NetworkId::MIN,
            side: Side::Outside,
            ip: [192, 0, 2, 5].into(),
            protocol: Protocol::Udp,
            port: NonZeroU16::MIN,
        };
        for range in ["0.0.0.0/0", "203.0.113.0/24", "192.0.2.1/32", "::/0", "2001:db8::/32"] {
            let range: Cidr = range.parse().unwrap();
            assert_eq!(source_of(&source_key(key, &range)), Some((key, range)));
        }
    }
}
