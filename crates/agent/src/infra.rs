//! Services of the cluster's own, called by pods of tenants through the agent of their node.
//!
//! A service's address is a door of a network ([`atoll_plan::ServiceDoor`]); behind it the agent
//! listens at a port for each address and port of each service, knows the caller by its alias, and
//! passes bytes, or datagrams, between it and one of those behind the service. The rules: who is not known,
//! or not meant, is turned away; a pod and a tenant have no more than their share; and bytes of one call
//! never meet those of another.

mod calls;
mod datagrams;
mod fronts;
mod limits;
mod splice;
mod turn_away;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use atoll_abi::{Door, aliased_interface};
use atoll_model::compile::{Front, Occupant};
use atoll_model::export::{Export, ExportPort, ServiceName, TargetSlice};
use atoll_plan::HostInterface;

use self::fronts::{Fronts, Offer, Place};
use self::limits::Limits;
use self::turn_away::{Counters, TurnAway};

/// Who is behind an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Caller {
    pod_uid: Arc<str>,
    tenant: Arc<str>,
}

/// Who is behind each interface, by the index of its host side.
type Callers = Arc<ArcSwap<HashMap<u32, Caller>>>;

/// What every call needs.
#[derive(Clone)]
struct Exchange {
    callers: Callers,
    /// The interface that an address is the alias of.
    interface_of: fn(IpAddr) -> Option<u32>,
    limits: Limits,
    counters: Arc<Counters>,
}

impl Exchange {
    /// Who calls, if it may call what is offered.
    fn admit(&self, from: SocketAddr, offer: &Offer) -> Result<Caller, TurnAway> {
        let callers = self.callers.load();
        let caller = (self.interface_of)(from.ip()).and_then(|index| callers.get(&index));
        let caller = caller.ok_or(TurnAway::UnknownCaller)?;
        if offer.to.has(&caller.tenant) { Ok(caller.clone()) } else { Err(TurnAway::NotExported) }
    }
}

/// A service that is exported, and who stands behind it.
#[derive(Clone, Debug)]
pub(crate) struct Backed<'a> {
    /// The service.
    pub(crate) export: &'a Export,
    /// Its slices.
    pub(crate) slices: Vec<&'a TargetSlice>,
}

/// The listeners of this node, and whom they know.
pub(crate) struct Infra {
    exchange: Exchange,
    fronts: Fronts,
}

impl Infra {
    /// Listens to nobody yet, and will pass on so many calls at a time.
    pub(crate) fn new(calls: usize) -> Infra {
        Infra::behind(Door::Service.listeners(), calls)
    }

    /// Will listen at these addresses, one of each family.
    fn behind(addresses: [IpAddr; 2], calls: usize) -> Infra {
        let exchange = Exchange {
            callers: Callers::default(),
            interface_of: aliased_interface,
            limits: Limits::within(calls),
            counters: Arc::default(),
        };
        Infra { exchange, fronts: Fronts::behind(addresses) }
    }

    /// Listens for exactly these services. A port that cannot be had is tried again next time.
    pub(crate) fn offer(&mut self, services: &BTreeMap<ServiceName, Backed<'_>>) {
        let offers = services.values().flat_map(offers).collect();
        self.fronts.match_offers(offers, &self.exchange);
    }

    /// The addresses and ports that are listened for.
    pub(crate) fn fronts(&self) -> Vec<Front<'_>> {
        self.fronts.list()
    }

    /// From now on pods are heard by this link alone.
    pub(crate) fn hear(&mut self, link: u32) -> io::Result<()> {
        self.fronts.hear(link)
    }

    /// From now on these interfaces are known, each by who is behind it.
    pub(crate) fn know(
        &self,
        interfaces: &BTreeMap<u32, HostInterface>,
        occupants: &BTreeMap<HostInterface, Occupant>,
    ) {
        let caller = |(index, name): (&u32, _)| Some((*index, caller(occupants.get(name)?)));
        let known: HashMap<u32, Caller> = interfaces.iter().filter_map(caller).collect();
        if **self.exchange.callers.load() != known {
            self.exchange.callers.store(Arc::new(known));
        }
    }
}

fn caller(occupant: &Occupant) -> Caller {
    Caller { pod_uid: occupant.pod_uid.as_str().into(), tenant: occupant.tenant().into() }
}

/// What a service offers at each of its addresses and ports.
fn offers(backed: &Backed<'_>) -> Vec<(Place, Offer)> {
    let Export { to, addresses, ports } = backed.export;
    let places = addresses.iter().flat_map(|ip| ports.iter().map(|port| (*ip, port)));
    let offer = |(ip, port): (IpAddr, &ExportPort)| {
        let targets = backed.slices.iter().flat_map(|slice| slice.targets(port));
        let offer = Offer { to: to.clone(), targets: targets.collect() };
        (Place { ip, port: port.port, datagrams: port.datagrams }, offer)
    };
    places.map(offer).collect()
}

#[cfg(test)]
mod tests;
