//! Who has which address and port, where several services of a network may say that they do.
//!
//! The rule: an address that was given by the API or the controller beats one that somebody wrote
//! into a service, and one that was given in the network beats one of another network of the tenant.
//! Where two have an equal right, neither is served.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_plan::{Service, ServiceKey};

use super::book::ServiceName;
use super::rationed::Rationed;

/// What a service's right to an address rests on; the better one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The cluster gave it the address.
    Cluster,
    /// The network gave it the address.
    Vip,
    /// Another network of its tenant gave it the address.
    Elsewhere,
    /// It names the address itself.
    External,
}

/// Something about a service that gets no traffic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum ServiceComplaint {
    /// An endpoint is no pod of the network.
    #[error("endpoint {0} is no pod of the service's network: no traffic goes there")]
    ForeignEndpoint(IpAddr),
    /// An address cannot be a service's.
    #[error("address {0} is a pod's, or can be no service's: it is not served")]
    TakenAddress(IpAddr),
    /// Another service has it, with a better or an equal right.
    #[error("{0} is also another service's: it is not served for this one")]
    Contested(ServiceKey),
    /// Its tenant has as much of this node's room for services as it leaves to others.
    #[error(
        "its tenant has as many services on this node as it leaves room for those of others: what has \
         no room is not served here; fewer services, ports and networks with pods need less"
    )]
    NoRoom,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) rank: Rank,
    pub(super) service: Service,
}

/// What all services of a node claim, and who is served.
#[derive(Debug, Default)]
pub(super) struct Fronts {
    claims: BTreeMap<ServiceKey, BTreeMap<ServiceName, Claim>>,
    pub(super) rationed: Rationed,
}

/// Services that got less than they claim at a front, or more than before.
pub(super) type Losers = BTreeSet<ServiceName>;

impl Fronts {
    pub(super) fn served(&self) -> &BTreeMap<ServiceKey, Service> {
        &self.rationed.served.now
    }

    pub(super) fn served_mut(&mut self) -> &mut BTreeMap<ServiceKey, Service> {
        &mut self.rationed.served.now
    }

    /// Takes out the touched keys that `is_due`.
    pub(super) fn take_touched(&mut self, is_due: impl Fn(&ServiceKey) -> bool) -> Vec<ServiceKey> {
        self.rationed.served.touched.extract_if(.., |key| is_due(key)).collect()
    }

    /// `who` claims this at `key`, or nothing any more. Says who loses there from now on.
    pub(super) fn claim(
        &mut self,
        who: &ServiceName,
        key: ServiceKey,
        claim: Option<Claim>,
    ) -> Losers {
        let claims = self.claims.entry(key).or_default();
        match claim {
            Some(claim) => drop(claims.insert(who.clone(), claim)),
            None => drop(claims.remove(who)),
        }
        let winner = winner(claims).map(|(who, claim)| (who.clone(), claim.service.clone()));
        let name = winner.as_ref().map(|(who, _)| who);
        let losers = claims.keys().filter(|who| Some(*who) != name).cloned().collect();
        if claims.is_empty() {
            self.claims.remove(&key);
        }
        self.rationed.put(key, winner.as_ref().map(|(who, service)| (who, service)));
        losers
    }

    /// Who else claims `key`.
    pub(super) fn claimants(&self, key: &ServiceKey) -> impl Iterator<Item = &ServiceName> {
        self.claims.get(key).into_iter().flat_map(BTreeMap::keys)
    }
}

/// The one with the best right, if it is only one.
fn winner(claims: &BTreeMap<ServiceName, Claim>) -> Option<(&ServiceName, &Claim)> {
    let best = claims.values().map(|claim| claim.rank).min()?;
    let mut with_best = claims.iter().filter(|(_, claim)| claim.rank == best);
    let first = with_best.next();
    if with_best.next().is_some() { None } else { first }
}
