//! Which objects belong to which.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use atoll_types::{NetAddr, NetworkId, NetworkName};
use atoll_vpc::Groups;

use super::hosts::{Change, Hosts};
use crate::action::Key;
use crate::decide::Waiting;
use crate::intent::{Network, ObjectName, Port, Thing, Vpc};

/// Which objects belong to which.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indexes {
    pub(crate) namespaces_of_tenant: Groups<String, ObjectName>,
    pub(crate) networks_of_tenant: Groups<String, ObjectName>,
    pub(crate) networks_of_type: Groups<String, ObjectName>,
    pub(crate) provided_of_type: Groups<String, ObjectName>,
    pub(crate) networks_of_vpc: Groups<Vpc, ObjectName>,
    pub(crate) subnets_of_network: Groups<NetworkName, ObjectName>,
    pub(crate) ports_of_network: Groups<NetworkName, ObjectName>,
    pub(crate) hosts_of_network: HashMap<NetworkName, Hosts>,
    pub(crate) seats_of_tenant: Groups<String, ObjectName>,
    pub(crate) ports_of_pod: Groups<ObjectName, ObjectName>,
    pub(crate) ports_with_siblings: Groups<NetworkName, ObjectName>,
    pub(crate) pods_of_namespace: Groups<String, ObjectName>,
    pub(crate) services_of_namespace: Groups<String, ObjectName>,
    pub(crate) slices_of_service: Groups<ObjectName, ObjectName>,
    pub(crate) claims_of_port: Groups<ObjectName, Thing>,
    pub(crate) claims_of_service: Groups<ObjectName, Thing>,
    pub(crate) addresses: HashMap<NetworkId, BTreeMap<IpAddr, ObjectName>>,
    pub(crate) waiting_for_network: Groups<NetworkName, Key>,
    pub(crate) waiting_for_thing: Groups<Thing, Key>,
    pub(crate) waiting_for_port: Groups<ObjectName, Key>,
    pub(crate) waits: HashMap<Key, Waiting>,
}

impl Indexes {
    /// A network of a type that is not built in.
    pub(super) fn enter_foreign(&mut self, type_: &str, network: &Network) {
        let name = &network.meta.name;
        self.networks_of_type.add(type_.to_owned(), name.clone());
        if network.is_provided() {
            self.provided_of_type.add(type_.to_owned(), name.clone());
        }
    }

    pub(super) fn forget_foreign(&mut self, type_: &str, network: &ObjectName) {
        self.networks_of_type.remove(type_, network);
        self.provided_of_type.remove(type_, network);
    }

    pub(super) fn hold(&mut self, address: NetAddr, claim: &ObjectName) {
        self.addresses.entry(address.network).or_default().insert(address.ip, claim.clone());
    }

    pub(super) fn count_host(&mut self, network: &NetworkName, port: &Port, change: Change) {
        let hosts = self.hosts_of_network.entry(network.clone()).or_default();
        hosts.count(port, change);
        if hosts.is_empty() {
            self.hosts_of_network.remove(network);
        }
    }

    pub(super) fn let_go(&mut self, address: NetAddr) {
        if let Some(held) = self.addresses.get_mut(&address.network) {
            held.remove(&address.ip);
            if held.is_empty() {
                self.addresses.remove(&address.network);
            }
        }
    }
}
