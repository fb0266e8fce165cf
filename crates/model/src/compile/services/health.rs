//! How many of those behind a service are on this node and ready, for machines outside that ask before
//! they send clients here.
//!
//! The rule: who is counted would be led to. Whoever ends is not counted, though it may still be led to
//! while there is nobody else: clients are to come no more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

use atoll_plan::{Service, ServiceKey, Side};

use super::across::Kin;
use super::book::{ServiceBook, ServiceName};
use super::choice::Vantage;
use super::homes::ObjectKey;
use super::network::Network;
use super::plain::PlainBook;
use super::slice::Who;

/// What this node says of a plain service at the port that is for this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainHealth<'a> {
    /// The service, by namespace and name.
    pub service: &'a ObjectKey,
    /// Its UID.
    pub uid: &'a str,
    /// The port.
    pub port: NonZeroU16,
    /// How many are ready here.
    pub ready: usize,
}

impl ServiceBook {
    /// How many of this node are ready to take clients of a service from outside.
    pub fn ready_here(&self, who: &ServiceName) -> usize {
        let kin: Vec<&Network> = self.kin(&who.network).map(|(_, known)| known).collect();
        let key = (who.namespace.clone(), who.name.clone());
        let network = self.network(&who.network);
        network.map_or(0, |known| known.ready_here(&key, self.vantage(), &kin).len())
    }

    /// Whether everything that leads to a service from outside is as it is to be, where this is there.
    pub fn is_led_from_outside(
        &self,
        who: &ServiceName,
        there: &BTreeMap<ServiceKey, Service>,
    ) -> bool {
        let key = (who.namespace.clone(), who.name.clone());
        let known = self.network(&who.network).and_then(|network| network.known.get(&key));
        let mut claimed = known.into_iter().flat_map(|(claims, _)| claims);
        claimed.all(|key| key.side != Side::Outside || self.is_there(key, there))
    }
}

impl Network {
    fn ready_here(&self, key: &ObjectKey, vantage: &Vantage, kin: &Kin<'_>) -> BTreeSet<Who> {
        let Some(front) = self.front(key) else { return BTreeSet::new() };
        let mut ready = BTreeSet::new();
        for (port, v4) in front.ports.iter().flat_map(|port| [(port, true), (port, false)]) {
            let behind = self.behind(key, (front, port, v4), vantage, kin);
            let here = behind.all.iter().filter(|it| it.is_here && it.member.ready);
            let own = here.filter(|it| it.at.addr.network == self.id());
            ready.extend(own.map(|it| it.member.who.clone()));
        }
        ready
    }
}

impl PlainBook {
    /// What this node says of each service that it is asked about.
    pub fn health(&self) -> impl Iterator<Item = PlainHealth<'_>> {
        self.services.iter().filter_map(|(service, front)| {
            let (uid, port) = (front.uid.as_str(), front.health_port?);
            Some(PlainHealth { service, uid, port, ready: self.ready_here(service) })
        })
    }

    /// Whoever has an address of each family is one.
    fn ready_here(&self, service: &ObjectKey) -> usize {
        let groups = self.groups.get(service).into_iter().flat_map(BTreeMap::values);
        let members = groups.flat_map(|group| &group.members);
        let here = members.filter(|it| it.node.as_ref() == Some(&self.vantage.node));
        let ready: BTreeSet<IpAddr> = here.filter(|it| it.member.ready).map(|it| it.ip).collect();
        let of_ipv4 = ready.iter().filter(|ip| ip.is_ipv4()).count();
        of_ipv4.max(ready.len() - of_ipv4)
    }
}
