//! Services in the kernel's maps: which address and port leads to whom.
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
    SIDE_OUTSIDE, SLOTS_PER_PAGE, ServicePage, Slots,
};
use atoll_plan::{Backend, Service, ServiceKey, Side};
use atoll_types::{NetAddr, NetworkId, Protocol};
use bytemuck::Zeroable;

use crate::error::DatapathError;
use crate::maps::{Table, check_shape};
use crate::spread::{MOST_BACKENDS, Spread};

/// Services, their slots and their backends, in the maps of one folder.
pub(crate) struct ServicePages {
    services: Table<abi::ServiceKey, abi::Service>,
    slots: Table<ServicePage, Slots>,
    backends: Table<ServicePage, Backends>,
    /// A number that no service has.
    next: u32,
}

/// Refuses pinned maps whose entries have other sizes than ours.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    check_shape::<abi::ServiceKey, abi::Service>(&dir.join("services"))?;
    check_shape::<ServicePage, Slots>(&dir.join("service_slots"))?;
    check_shape::<ServicePage, Backends>(&dir.join("service_backends"))?;
    check_shape::<AffinityKey, Affinity>(&dir.join("service_affinity"))
}

/// Refuses a service with more backends than one can have.
pub(crate) fn check_number(service: &Service) -> Result<(), DatapathError> {
    match service.backends.len() {
        number if number > MOST_BACKENDS => Err(DatapathError::TooManyBackends(number)),
        _ => Ok(()),
    }
}

impl ServicePages {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        let mut pages = ServicePages {
            services: Table::open(dir, "services")?,
            slots: Table::open(dir, "service_slots")?,
            backends: Table::open(dir, "service_backends")?,
            next: 0,
        };
        let entries = pages.services.entries()?;
        let known: BTreeSet<u32> = entries.iter().map(|(_, entry)| entry.id).collect();
        pages.next = known.last().map_or(0, |last| last.wrapping_add(1));
        pages.forget_pages_of_nobody(&known)?;
        Ok(pages)
    }

    /// Every service that can be understood.
    pub(crate) fn keys(&self) -> Result<BTreeSet<ServiceKey>, DatapathError> {
        Ok(self.services.keys()?.iter().filter_map(decode_key).collect())
    }

    /// The networks that services lead to, each with the network whose service does.
    pub(crate) fn leads(&self) -> Result<Vec<(u32, u32)>, DatapathError> {
        let services = self.services.entries()?.into_iter();
        let networks: BTreeMap<u32, u32> =
            services.map(|(key, entry)| (entry.id, key.network)).collect();
        let mut leads = vec![];
        for (page, backends) in self.backends.entries()? {
            let Some(network) = networks.get(&page.service) else { continue };
            let led_to = backends.at.iter().filter(|backend| backend.port != [0; 2]);
            leads.extend(led_to.map(|backend| (*network, backend.network)));
        }
        Ok(leads)
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
        check_number(service)?;
        let former = self.services.get(encode_key(key))?;
        let id = former.map_or(self.next, |former| former.id);
        let before = self.spread(former.as_ref())?;
        let (backend_pages, slot_pages) = (pages(&before.places), pages_of_slots(&before.slots));
        let after = before.clone().follow(&service.backends);
        self.write_changed(id, &before, &after)?;
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
        for page in 0..pages_of_slots(&spread.slots).len() {
            self.slots.remove(page_key(entry.id, page))?;
        }
        for page in 0..pages(&spread.places).len() {
            self.backends.remove(page_key(entry.id, page))?;
        }
        Ok(())
    }

    /// Every service with its backends.
    pub(crate) fn all(&self) -> Result<BTreeMap<ServiceKey, Service>, DatapathError> {
        let mut all = BTreeMap::new();
        for (key, entry) in self.services.entries()? {
            let Some(key) = decode_key(&key) else { continue };
            let backends = self.places(entry.id)?.into_iter().flatten().collect();
            let affinity = (entry.affinity > 0).then(|| Duration::from_secs(entry.affinity.into()));
            all.insert(key, Service { backends, affinity, sources: BTreeSet::new() });
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

pub(crate) fn encode_key(key: ServiceKey) -> abi::ServiceKey {
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

pub(crate) fn decode_key(key: &abi::ServiceKey) -> Option<ServiceKey> {
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
