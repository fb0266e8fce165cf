//! The services of networks in the kernel's maps: beside where each leads ([`ServicePages`]), whom it
//! lets in from outside, and which networks have to do with each other by it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use atoll_abi::{self as abi, SourceKey};
use atoll_plan::{Service, ServiceKey, ServiceRoom, Side};
use atoll_types::{Cidr, NetworkId};
use aya::maps::MapInfo;

use crate::error::{Attempt, DatapathError};
use crate::maps::check_shape;
use crate::service_pages::{self, ServicePages, decode_key, encode_key};
use crate::trie::{Prefix, Trie};

/// The maps of services.
pub(crate) struct Services {
    pages: ServicePages,
    sources: Trie<SourceKey, abi::Source>,
    /// The services that the outside reaches, and the clients that each lets in.
    outside: BTreeMap<ServiceKey, BTreeSet<Cidr>>,
    /// The networks that services have led to from each, and those that were led from: what is decided
    /// in one hangs on what happens in the other.
    kin: BTreeMap<u32, BTreeSet<u32>>,
    room: ServiceRoom,
}

/// Refuses pinned maps whose entries have other sizes than ours.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    service_pages::check_pinned(dir)?;
    check_shape::<(u32, SourceKey), abi::Source>(&dir.join("service_sources"))
}

impl Services {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        let mut services = Services {
            pages: ServicePages::open(dir)?,
            sources: Trie::open(dir, "service_sources")?,
            outside: BTreeMap::new(),
            kin: BTreeMap::new(),
            room: room(dir)?,
        };
        let keys = services.pages.keys()?.into_iter();
        services.learn_outside(keys.filter(|key| key.side == Side::Outside).collect())?;
        for (network, led_to) in services.pages.leads()? {
            services.note_kin(network, &[led_to].into());
        }
        Ok(services)
    }

    /// What the maps hold at most.
    pub(crate) fn room(&self) -> ServiceRoom {
        self.room
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

    /// Makes the service lead to exactly these backends.
    pub(crate) fn put(&mut self, key: ServiceKey, service: &Service) -> Result<(), DatapathError> {
        service_pages::check_number(service)?;
        let led_to = service.backends.iter().map(|backend| backend.addr.network.get()).collect();
        self.note_kin(key.network.get(), &led_to);
        self.let_in(key, &service.sources)?;
        self.pages.put(key, service)
    }

    /// Forgets the service; one that is gone already is as good.
    pub(crate) fn remove(&mut self, key: ServiceKey) -> Result<(), DatapathError> {
        self.pages.remove(key)?;
        self.let_in(key, &BTreeSet::new())?;
        self.outside.remove(&key);
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
        let mut sources = self.all_sources()?;
        let mut all = self.pages.all()?;
        for (key, service) in &mut all {
            service.sources = sources.remove(key).unwrap_or_default();
        }
        Ok(all)
    }
}

/// What the pinned maps hold, whichever version made them.
fn room(dir: &Path) -> Result<ServiceRoom, DatapathError> {
    let all = |name: &str| {
        let info = MapInfo::from_pin(dir.join(name)).attempt(|| format!("look at the map {name}"));
        Ok::<_, DatapathError>(info?.max_entries() as usize)
    };
    Ok(ServiceRoom {
        services: all("services")?,
        slots: all("service_slots")?,
        backends: all("service_backends")?,
        sources: all("service_sources")?,
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use atoll_types::Protocol;

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
