//! All names of one network, and the answer to any question about them.
//!
//! Its rule: a name under the zone is answered here or does not exist; what is not under the zone
//! and is no address of the network is for others to answer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use atoll_types::Label;

use crate::address::{
    REVERSE_V4, REVERSE_V6, Reverse, is_private, reverse_v4, reverse_v6, undashed,
};
use crate::apex::{Apex, Negative, Settings};
use crate::name::{Asked, push_label};
use crate::pointer::{Octets, Pointer};
use crate::records::{Kind, Records, Rrsets};
use crate::service::{Names, ServiceKey};
use crate::trie::{Entry, Trie};

/// The names of one network. A clone costs nothing and is not disturbed by later changes.
#[derive(Clone, Debug)]
pub struct ZoneSet {
    apex: Arc<Apex>,
    services: Trie<Names>,
    pods: Trie<Pod>,
    namespaces: Trie<Namespace>,
    pointers: Trie<Pointer>,
}

/// What a network knows about a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// Records of the kind asked for.
    Records(Records<'a>),
    /// The name has one address, and it is this.
    Address(IpAddr, u32),
    /// The name is another name for `target`; the record says so.
    Alias {
        /// The CNAME record.
        record: Records<'a>,
        /// The other name, in wire form.
        target: &'a [u8],
    },
    /// The name exists and has nothing of the kind asked for.
    NoData(Negative<'a>),
    /// There is no such name.
    NoName(Negative<'a>),
    /// The network does not know; others may.
    Outside,
}

/// A pod's address in its namespace.
#[derive(Debug)]
struct Pod(Box<[u8]>);

impl Entry for Pod {
    fn key(&self) -> &[u8] {
        &self.0
    }
}

/// How many names a namespace has: one with none does not exist.
#[derive(Clone, Debug)]
struct Namespace {
    label: Box<[u8]>,
    services: u32,
    pods: u32,
}

impl Entry for Namespace {
    fn key(&self) -> &[u8] {
        &self.label
    }
}

impl ZoneSet {
    /// A network without names.
    pub fn new(settings: Settings) -> Self {
        ZoneSet {
            apex: Arc::new(Apex::new(settings)),
            services: Trie::new(),
            pods: Trie::new(),
            namespaces: Trie::new(),
            pointers: Trie::new(),
        }
    }

    /// What it was made with.
    pub fn settings(&self) -> &Settings {
        &self.apex.settings
    }

    /// How many services have names.
    pub fn services(&self) -> usize {
        self.services.len()
    }

    /// Gives a service these names in place of those it had, or takes it away.
    pub fn put_service(&mut self, key: &ServiceKey, names: Option<Names>) {
        let after: BTreeSet<_> = names.iter().flat_map(Names::pointers).collect();
        let has = names.is_some();
        let old = match names {
            Some(names) => self.services.insert(names),
            None => self.services.remove(&key.wire()),
        };
        let before: BTreeSet<_> = old.iter().flat_map(|old| old.pointers()).collect();
        before.difference(&after).for_each(|(ip, name)| self.unpoint(*ip, name));
        after.difference(&before).for_each(|(ip, name)| self.point(*ip, name));
        self.count(&key.namespace, old.is_some(), has, |it| &mut it.services);
    }

    /// A pod of this namespace has this address in the network.
    pub fn put_pod(&mut self, namespace: &Label, ip: IpAddr) {
        let had = self.pods.insert(Pod(pod_key(namespace, ip).into())).is_some();
        self.count(namespace, had, true, |it| &mut it.pods);
    }

    /// No pod of this namespace has this address any more.
    pub fn remove_pod(&mut self, namespace: &Label, ip: IpAddr) {
        let had = self.pods.remove(&pod_key(namespace, ip)).is_some();
        self.count(namespace, had, false, |it| &mut it.pods);
    }

    /// One name of the namespace more or less, where that changed.
    fn count(
        &mut self,
        namespace: &Label,
        had: bool,
        has: bool,
        number: impl Fn(&mut Namespace) -> &mut u32,
    ) {
        if had == has {
            return;
        }
        let mut label = vec![];
        push_label(&mut label, namespace.as_str());
        let fresh = || Namespace { label: label.clone().into(), services: 0, pods: 0 };
        let mut counted = self.namespaces.get(&label).cloned().unwrap_or_else(fresh);
        let number = number(&mut counted);
        *number = if has { *number + 1 } else { number.saturating_sub(1) };
        if counted.services == 0 && counted.pods == 0 {
            self.namespaces.remove(&label);
        } else {
            self.namespaces.insert(counted);
        }
    }

    fn point(&mut self, ip: IpAddr, name: &[u8]) {
        let old = self.pointers.get(Octets::of(ip).as_slice());
        let pointer = Pointer::with(old, ip, self.whole(name), self.apex.settings.ttl);
        self.pointers.insert(pointer);
    }

    fn unpoint(&mut self, ip: IpAddr, name: &[u8]) {
        let (key, target) = (Octets::of(ip), self.whole(name));
        let Some(old) = self.pointers.get(key.as_slice()) else { return };
        match old.without(ip, &target, self.apex.settings.ttl) {
            Some(rest) => drop(self.pointers.insert(rest)),
            None => drop(self.pointers.remove(key.as_slice())),
        }
    }

    fn whole(&self, name: &[u8]) -> Vec<u8> {
        [name, b"\x03svc", self.apex.zone()].concat()
    }

    /// The answer to a question.
    pub fn find(&self, asked: &Asked<'_>, kind: Option<Kind>) -> Found<'_> {
        if let Some(labels) = asked.before(self.apex.zone(), self.apex.labels) {
            return self.inside(asked, labels, kind);
        }
        if let Some(labels) = asked.before(REVERSE_V4, 2) {
            return self.reverse(reverse_v4(asked, labels), asked.start(labels), kind);
        }
        if let Some(labels) = asked.before(REVERSE_V6, 2) {
            return self.reverse(reverse_v6(asked, labels), asked.start(labels), kind);
        }
        Found::Outside
    }

    fn inside(&self, asked: &Asked<'_>, labels: usize, kind: Option<Kind>) -> Found<'_> {
        let negative = self.apex.negative(asked.start(labels));
        let Some(last) = labels.checked_sub(1) else { return self.top(negative, kind) };
        let found = match asked.label(last) {
            b"svc" => self.service(asked, last),
            b"pod" => return self.pod(asked, last, negative, kind),
            b"dns-version" if last == 0 => Some(&self.apex.version),
            b"dns" if last == 0 => Some(&self.apex.empty),
            b"dns" if last == 1 && asked.label(0) == b"ns" => Some(&self.apex.server),
            _ => None,
        };
        found.map_or(Found::NoName(negative), |sets| answer(sets, negative, kind))
    }

    fn top<'a>(&'a self, negative: Negative<'a>, kind: Option<Kind>) -> Found<'a> {
        let sets = if kind == Some(Kind::Ns) { &self.apex.top } else { self.apex.soa() };
        answer(sets, negative, kind)
    }

    /// The records of a name under `svc`; empty ones where the name is only on the way to others.
    fn service(&self, asked: &Asked<'_>, last: usize) -> Option<&Rrsets> {
        match last {
            0 => Some(&self.apex.empty),
            1 => {
                let namespace = self.namespaces.get(asked.span(0, 1))?;
                (namespace.services > 0).then_some(&self.apex.empty)
            }
            2 => Some(&self.services.get(asked.span(0, 2))?.top),
            _ => {
                let names = self.services.get(asked.span(last - 2, last))?;
                names.below(asked.span(0, last - 2))
            }
        }
    }

    fn pod<'a>(
        &'a self,
        asked: &Asked<'_>,
        last: usize,
        negative: Negative<'a>,
        kind: Option<Kind>,
    ) -> Found<'a> {
        let exists = match last {
            0 => true,
            1 => self.namespaces.get(asked.span(0, 1)).is_some_and(|it| it.pods > 0),
            _ => false,
        };
        let ip = if last == 2 { self.pod_address(asked) } else { None };
        match (ip, kind) {
            (Some(IpAddr::V4(ip)), Some(Kind::A | Kind::Any)) => self.address(ip.into()),
            (Some(IpAddr::V6(ip)), Some(Kind::Aaaa | Kind::Any)) => self.address(ip.into()),
            (Some(_), _) => Found::NoData(negative),
            (None, _) if exists => Found::NoData(negative),
            (None, _) => Found::NoName(negative),
        }
    }

    fn address(&self, ip: IpAddr) -> Found<'_> {
        Found::Address(ip, self.apex.settings.ttl)
    }

    fn pod_address(&self, asked: &Asked<'_>) -> Option<IpAddr> {
        let ip = undashed(asked.label(0))?;
        let (namespace, octets) = (asked.span(1, 2), Octets::of(ip));
        let mut key = [0; 80];
        let len = namespace.len() + octets.as_slice().len();
        key[..namespace.len()].copy_from_slice(namespace);
        key[namespace.len()..len].copy_from_slice(octets.as_slice());
        self.pods.get(&key[..len]).map(|_| ip)
    }

    fn reverse(&self, name: Reverse, zone_at: usize, kind: Option<Kind>) -> Found<'_> {
        let negative = self.apex.negative(zone_at);
        let pointer = match &name {
            Reverse::Address(ip) => self.pointers.get(Octets::of(*ip).as_slice()),
            Reverse::Part(_) | Reverse::Nothing(_) => None,
        };
        match (pointer, name) {
            (Some(pointer), _) => answer(&pointer.names, negative, kind),
            (None, Reverse::Part(ip)) if self.is_ours(ip) => Found::NoData(negative),
            (None, Reverse::Address(ip) | Reverse::Nothing(ip)) if self.is_ours(ip) => {
                Found::NoName(negative)
            }
            (None, _) => Found::Outside,
        }
    }

    /// Nobody outside is asked about these.
    fn is_ours(&self, ip: IpAddr) -> bool {
        is_private(ip) || self.apex.settings.cidrs.iter().any(|cidr| cidr.contains(ip))
    }
}

#[cfg(test)]
impl ZoneSet {
    /// How many branches it has for itself and does not share with what it came from.
    pub(crate) fn branches_beside(&self, former: &ZoneSet) -> usize {
        self.services.branches_beside(&former.services)
            + self.pods.branches_beside(&former.pods)
            + self.namespaces.branches_beside(&former.namespaces)
            + self.pointers.branches_beside(&former.pointers)
    }
}

fn answer<'a>(sets: &'a Rrsets, negative: Negative<'a>, kind: Option<Kind>) -> Found<'a> {
    if let Some(target) = sets.alias().filter(|_| kind != Some(Kind::Cname)) {
        return Found::Alias { record: sets.of(Kind::Cname), target };
    }
    match kind.map(|kind| sets.of(kind)) {
        Some(records) if records.count > 0 => Found::Records(records),
        _ => Found::NoData(negative),
    }
}

fn pod_key(namespace: &Label, ip: IpAddr) -> Vec<u8> {
    let mut key = vec![];
    push_label(&mut key, namespace.as_str());
    key.extend(Octets::of(ip).as_slice());
    key
}
