//! The names of each network on this node, as they follow from what was seen.
//!
//! The rule of this file: a network is known by its object name, since networks of one VPC, and open
//! networks of several tenants, share their number. What is not followed is passed over.

mod exports;
mod kin;
mod network;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::DnsMode;
use atoll_dns::NetworkKey;
use atoll_model::resolver::dns_namespace;
use atoll_types::NetworkId;
use atoll_zones::{Fact, Settings, View, ZoneSet};

use self::exports::Exports;
use self::kin::Vips;
use self::network::Network;
use crate::seen::{Change, Outside, Scope, Seen};

/// What the resolver is to be told.
#[derive(Debug)]
pub(super) enum Update {
    /// The names of a network that had none, and what it may ask outside.
    First(NetworkKey, String, Arc<ZoneSet>, Outside),
    /// The names of a network in place of those it had.
    Next(NetworkKey, Arc<ZoneSet>),
    /// What a network may ask outside in place of what it might.
    Outside(NetworkKey, Outside),
    /// What the names of a network are made from, for those who follow it: all of it where nobody
    /// did before.
    Facts(NetworkKey, Vec<Fact>),
    /// A network is followed no more.
    Unfollowed(NetworkKey),
    /// A network has left.
    Gone(NetworkKey),
}

/// All networks that have names here.
#[derive(Debug)]
pub(super) struct Views {
    settings: Settings,
    /// Whether it is known which namespaces there are.
    is_whole: bool,
    networks: BTreeMap<String, Network>,
    /// The networks that have a number.
    numbered: BTreeMap<NetworkId, BTreeSet<String>>,
    /// Networks of which there may be something to tell; nobody looks at the others.
    touched: BTreeSet<String>,
    /// Networks that have left since they were last told of.
    gone: Vec<NetworkKey>,
    /// How many networks have had a key.
    keys: u64,
    /// The cluster's own services that tenants may call; none before they were seen.
    exports: Option<Exports>,
    /// The services with a VIP, which other networks of their tenant see.
    vips: Vips,
}

impl Views {
    pub(super) fn new(settings: Settings) -> Self {
        Views {
            settings,
            is_whole: false,
            networks: BTreeMap::new(),
            numbered: BTreeMap::new(),
            touched: BTreeSet::new(),
            gone: Vec::new(),
            keys: 0,
            exports: None,
            vips: Vips::new(),
        }
    }

    /// The network of this name, where the resolver has its names.
    pub(super) fn published(&self, network: &str) -> Option<NetworkKey> {
        let known = self.networks.get(network).filter(|known| known.is_published);
        known.map(|known| known.key)
    }

    /// What the names of a network are made with beside its objects.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether the agent answers this pod. Where a network has DNS pods of its own, it answers
    /// those alone.
    pub(super) fn answers(&self, network: &str, namespace: &str) -> bool {
        self.networks.get(network).is_some_and(|known| {
            known.mode() != DnsMode::Dedicated || namespace == dns_namespace(known.id)
        })
    }

    /// The names of a network, where the resolver has them.
    pub(super) fn zones(&self, network: &str) -> Option<&ZoneSet> {
        let known = self.networks.get(network).filter(|known| known.is_published);
        known.map(|known| known.view.zones())
    }

    /// Keeps exactly these networks and namespaces. One that is new begins with what was seen.
    pub(super) fn follow(&mut self, scope: &Scope, seen: &Seen) {
        self.is_whole = scope.is_whole;
        let stays = |name: &String, known: &mut Network| {
            scope.networks.get(name).is_some_and(|presence| presence.id == known.id)
        };
        let left = self.networks.extract_if(.., |name, known| !stays(name, known));
        for (name, known) in left {
            self.numbered.entry(known.id).or_default().remove(&name);
            self.gone.extend(known.is_published.then_some(known.key));
        }
        self.numbered.retain(|_, names| !names.is_empty());
        for (name, presence) in &scope.networks {
            if !self.networks.contains_key(name) {
                self.keys += 1;
                let view = View::new(self.settings.clone());
                let fresh = Network::begin(NetworkKey(self.keys), name, presence.id, view, seen);
                self.networks.insert(name.clone(), fresh);
                self.numbered.entry(presence.id).or_default().insert(name.clone());
            }
        }
        for (name, known) in &mut self.networks {
            scope.networks.get(name).into_iter().for_each(|it| known.follow(&it.namespaces));
            self.exports.iter().for_each(|exports| known.export(exports));
        }
        self.follow_kin(scope);
        self.touched = self.networks.keys().cloned().collect();
    }

    /// Takes in what a change says of names.
    pub(super) fn absorb(&mut self, change: &Change) {
        match change {
            Change::NetworkPorts(id, delta) => {
                for name in self.numbered.get(id).cloned().unwrap_or_default() {
                    self.touch(&name, |known| known.absorb_ports(delta));
                }
            }
            Change::Network(name, delta) => self.touch(name, |known| known.absorb_dns(delta)),
            Change::Services((network, namespace), delta) => {
                self.touch(network, |known| known.absorb_services(namespace, delta));
            }
            Change::Slices((network, namespace), delta) => {
                self.touch(network, |known| known.absorb_slices(namespace, delta));
            }
            Change::Fronts(quarter, delta) => self.absorb_fronts(quarter, delta),
            Change::Nodes(_)
            | Change::Zones(_)
            | Change::OwnPorts(_)
            | Change::Outlet(..)
            | Change::Siblings(..)
            | Change::Namespaces(_)
            | Change::Groups(..)
            | Change::Api(_)
            | Change::Pools(_)
            | Change::Exports(_)
            | Change::Targets(..)
            | Change::Policy(_)
            | Change::Held(..)
            | Change::Answered(_)
            | Change::Exposed(..)
            | Change::Probed(_) => {}
        }
    }

    fn touch(&mut self, name: &str, change: impl FnOnce(&mut Network)) {
        if let Some(known) = self.networks.get_mut(name) {
            change(known);
            self.touched.insert(name.to_owned());
        }
    }

    /// What is to be told since the last time. It costs what was touched, however many networks
    /// there are.
    pub(super) fn updates(&mut self) -> Vec<Update> {
        let mut told: Vec<Update> =
            std::mem::take(&mut self.gone).into_iter().map(Update::Gone).collect();
        let is_whole = self.is_whole && self.exports.is_some();
        for name in std::mem::take(&mut self.touched) {
            let Some(known) = self.networks.get_mut(&name) else { continue };
            let is_whole = is_whole && known.knows_neighbours(&self.vips);
            told.extend(known.updates(is_whole));
            if !known.is_published {
                self.touched.insert(name);
            }
        }
        told
    }
}
