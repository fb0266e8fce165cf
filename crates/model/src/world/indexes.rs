//! Which objects belong to which.

use std::collections::HashMap;

use atoll_types::{Label, NetworkName};
use atoll_vpc::Groups;

use super::hosts::{Change, Hosts};
use crate::action::Key;
use crate::decide::Waiting;
use crate::intent::{Network, ObjectName, Port, Thing};

/// Which objects belong to which.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indexes {
    pub(crate) namespaces_of_tenant: Groups<String, ObjectName>,
    pub(crate) networks_of_tenant: Groups<String, ObjectName>,
    pub(crate) networks_of_type: Groups<String, ObjectName>,
    pub(crate) provided_of_type: Groups<String, ObjectName>,
    pub(crate) ports_of_network: Groups<NetworkName, ObjectName>,
    pub(crate) hosts_of_network: HashMap<NetworkName, Hosts>,
    pub(crate) seats_of_tenant: Groups<String, ObjectName>,
    /// Of ports on the way: which tenant they count for.
    pub(crate) tenant_of_seat: HashMap<ObjectName, Label>,
    pub(crate) ports_of_pod: Groups<ObjectName, ObjectName>,
    pub(crate) ports_with_siblings: Groups<NetworkName, ObjectName>,
    pub(crate) pods_of_namespace: Groups<String, ObjectName>,
    pub(crate) services_of_namespace: Groups<String, ObjectName>,
    pub(crate) slices_of_service: Groups<ObjectName, ObjectName>,
    pub(crate) claims_of_service: Groups<ObjectName, Thing>,
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

    pub(super) fn count_host(&mut self, network: &NetworkName, port: &Port, change: Change) {
        let hosts = self.hosts_of_network.entry(network.clone()).or_default();
        hosts.count(port, change);
        if hosts.is_empty() {
            self.hosts_of_network.remove(network);
        }
    }
}
