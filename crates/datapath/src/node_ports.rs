//! What leads from outside to services: which address and port of this node leads to which network,
//! and where the networks of such services are.
//!
//! The rule: the service itself is among the services of its network, a node port at the unspecified
//! address, and is there before anything leads to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use atoll_abi::{Entrance, EntranceKey, NodePort, NodePortKey};
use atoll_plan::{Service, ServiceKey, Side};

use crate::error::DatapathError;
use crate::maps::{Table, check_shape};
use crate::outside::Uplink;

/// The maps of what leads to services.
pub(crate) struct NodePorts {
    ports: Table<NodePortKey, NodePort>,
    entrances: Table<EntranceKey, Entrance>,
}

/// Refuses pinned maps whose entries have other sizes than ours.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    check_shape::<NodePortKey, NodePort>(&dir.join("node_ports"))?;
    check_shape::<EntranceKey, Entrance>(&dir.join("entrances"))
}

impl NodePorts {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        Ok(NodePorts {
            ports: Table::open(dir, "node_ports")?,
            entrances: Table::open(dir, "entrances")?,
        })
    }

    /// Whether a port of this node leads to a service.
    pub(crate) fn is_needed(&self) -> Result<bool, DatapathError> {
        Ok(!self.ports.keys()?.is_empty())
    }

    /// Has the outside come in to services of a network, whose place is this.
    pub(crate) fn let_in(&mut self, network: u32, place: u16) -> Result<(), DatapathError> {
        self.entrances.put(EntranceKey { network }, Entrance { table: place.into() })
    }

    /// Lets it in no longer.
    pub(crate) fn shut_out(&mut self, network: u32) -> Result<(), DatapathError> {
        self.entrances.remove(EntranceKey { network })
    }

    /// The networks that it comes in to, and the place of each as it is written.
    pub(crate) fn places(&self) -> Result<Vec<(u32, u32)>, DatapathError> {
        let all = self.entrances.entries()?.into_iter();
        Ok(all.map(|(key, entrance)| (key.network, entrance.table)).collect())
    }

    /// Leads a port of the uplink's address to the service.
    pub(crate) fn put(
        &mut self,
        service: &ServiceKey,
        uplink: &Uplink,
    ) -> Result<(), DatapathError> {
        let Some(key) = port_key(service, uplink) else { return Ok(()) };
        let network = service.network.get();
        if self.ports.get(key)?.is_some_and(|known| known.network != network) {
            return Err(DatapathError::NodePortTaken(service.port.get()));
        }
        self.ports.put(key, NodePort { network })
    }

    /// Leads it nowhere, whatever address it was at.
    pub(crate) fn remove(&mut self, service: &ServiceKey) -> Result<(), DatapathError> {
        let network = service.network.get();
        let all = self.ports.entries()?;
        let is_same = |key: &NodePortKey, value: &NodePort| {
            let is_v4 = IpAddr::from(key.address).is_ipv4() == service.ip.is_ipv4();
            is_v4 && value.network == network && (key.port, key.protocol) == number(service)
        };
        let mut gone = all.into_iter().filter(|it| is_same(&it.0, &it.1));
        gone.try_for_each(|(key, _)| self.ports.remove(key))
    }

    /// Leaves out services that should be reached from outside and are not.
    pub(crate) fn led_to(
        &self,
        uplink: &Uplink,
        mut services: BTreeMap<ServiceKey, Service>,
    ) -> Result<BTreeMap<ServiceKey, Service>, DatapathError> {
        let ports: BTreeMap<_, _> = self.ports.entries()?.into_iter().map(name).collect();
        let open: BTreeSet<u32> = self.entrances.keys()?.iter().map(|key| key.network).collect();
        services.retain(|service, _| {
            let network = service.network.get();
            let is_open = service.side != Side::Outside || open.contains(&network);
            let key = service.is_node_port().then(|| port_key(service, uplink)).flatten();
            is_open && key.is_none_or(|key| ports.get(&words(&key)) == Some(&network))
        });
        Ok(services)
    }
}

fn name((key, value): (NodePortKey, NodePort)) -> ((IpAddr, [u8; 2], u8), u32) {
    (words(&key), value.network)
}

fn words(key: &NodePortKey) -> (IpAddr, [u8; 2], u8) {
    (key.address.into(), key.port, key.protocol)
}

fn number(service: &ServiceKey) -> ([u8; 2], u8) {
    (service.port.get().to_be_bytes(), service.protocol.number())
}

/// None where the uplink has no address of the family.
fn port_key(service: &ServiceKey, uplink: &Uplink) -> Option<NodePortKey> {
    let address = match service.ip {
        IpAddr::V4(_) => IpAddr::from(uplink.ipv4?),
        IpAddr::V6(_) => IpAddr::from(uplink.ipv6?),
    };
    let (port, protocol) = number(service);
    Some(NodePortKey { address: address.into(), port, protocol, reserved: 0 })
}
