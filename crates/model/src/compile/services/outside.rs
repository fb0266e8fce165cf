//! Addresses of the outside: what a load balancer has out there leads to its pods, for clients from
//! outside and for those of its own network.
//!
//! The rule: a claim alone gives a service such an address, never the service's own words.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::book::{ServiceBook, ServiceName};
use super::front::ServiceFront;
use super::fronts::Rank;
use super::homes::ObjectKey;
use crate::outside::{Held, Purpose};

/// The addresses of the outside that services of one network have, by the claims on them.
#[derive(Debug, Default)]
pub(super) struct OutsideAddresses(BTreeMap<String, (ObjectKey, IpAddr)>);

impl OutsideAddresses {
    /// The claim says this, or is gone. Says which services it concerns.
    fn put(&mut self, claim: &str, held: Option<(ObjectKey, IpAddr)>) -> BTreeSet<ObjectKey> {
        if self.0.get(claim) == held.as_ref() {
            return BTreeSet::new();
        }
        let former = self.0.remove(claim);
        self.0.extend(held.clone().map(|held| (claim.to_owned(), held)));
        former.into_iter().chain(held).map(|(service, _)| service).collect()
    }

    /// Adds what a service has to its addresses.
    pub(super) fn add_to(&self, service: &ObjectKey, front: &mut ServiceFront) {
        for (_, ip) in self.0.values().filter(|(holder, _)| holder == service) {
            front.addresses.insert(*ip, Rank::Vip);
        }
    }

    /// What a service has.
    pub(super) fn of(&self, service: &ObjectKey) -> impl Iterator<Item = IpAddr> {
        self.0.values().filter(move |(holder, _)| holder == service).map(|(_, ip)| *ip)
    }

    /// Whether a service has any.
    pub(super) fn has(&self, service: &ObjectKey) -> bool {
        self.0.values().any(|(holder, _)| holder == service)
    }
}

impl ServiceBook {
    /// The claims on addresses of the outside of a network's services.
    pub fn claims_of<'a>(&'a self, network: &str) -> impl Iterator<Item = &'a String> + use<'a> {
        self.network(network).into_iter().flat_map(|known| known.outside.0.keys())
    }

    /// The claim says this, or is gone. What is for another network, or for no service, is nothing
    /// here.
    pub fn put_held(&mut self, network: &str, claim: &str, held: Option<&Held>) {
        let service = |held: &Held| match &held.purpose {
            Purpose::LoadBalancer { service } if service.network == network => {
                let ServiceName { namespace, name, .. } = service;
                Some(((namespace.clone(), name.clone()), held.address.to_canonical()))
            }
            Purpose::LoadBalancer { .. } | Purpose::Egress { .. } => None,
        };
        let held = held.and_then(service);
        let Some(known) = self.network_mut(network) else { return };
        for service in known.outside.put(claim, held) {
            self.compile(network, &service);
        }
    }
}
