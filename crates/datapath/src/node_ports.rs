//! Node ports in the kernel's maps: which address and port of this node leads to which network.
//!
//! The rule: the service itself is among the services of its network, at the unspecified address, and
//! is there before anything leads to it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use atoll_abi::{Entrance, EntranceKey, NodePort, NodePortKey};
use atoll_plan::{Service, ServiceKey};

use crate::error::DatapathError;
use crate::maps::{Table, check_shape};
use crate::outside::Uplink;

/// The maps of node ports.
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

    /// Whether anything leads from outside to a service.
    pub(crate) fn is_needed(&self) -> Result<bool, DatapathError> {
        Ok(!self.ports.keys()?.is_empty())
    }

    /// Leads a port of the uplink's address to the service, whose network is at `place`.
    pub(crate) fn put(
        &mut self,
        service: &ServiceKey,
        uplink: &Uplink,
        place: Option<u16>,
    ) -> Result<(), DatapathError> {
        let Some(key) = port_key(service, uplink) else { return Ok(()) };
        let network = service.network.get();
        if self.ports.get(key)?.is_some_and(|known| known.network != network) {
            return Err(DatapathError::NodePortTaken(service.port.get()));
        }
        let table = place.map_or(u32::MAX, u32::from);
        self.entrances.put(EntranceKey { network }, Entrance { table })?;
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
        let (gone, left): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| is_same(&it.0, &it.1));
        gone.into_iter().try_for_each(|(key, _)| self.ports.remove(key))?;
        if left.iter().any(|(_, value)| value.network == network) {
            return Ok(());
        }
        self.entrances.remove(EntranceKey { network })
    }

    /// A network that came back may have another place.
    pub(crate) fn reseat(&mut self, network: u32, place: u16) -> Result<(), DatapathError> {
        let (key, entrance) = (EntranceKey { network }, Entrance { table: place.into() });
        match self.entrances.get(key)? {
            Some(known) if known != entrance => self.entrances.put(key, entrance),
            _ => Ok(()),
        }
    }

    /// Leaves out services that should be reached from outside and are not.
    pub(crate) fn led_to(
        &self,
        uplink: &Uplink,
        mut services: BTreeMap<ServiceKey, Service>,
    ) -> Result<BTreeMap<ServiceKey, Service>, DatapathError> {
        let ports: BTreeMap<_, _> = self.ports.entries()?.into_iter().map(name).collect();
        services.retain(|service, _| {
            let key = service.ip.is_unspecified().then(|| port_key(service, uplink)).flatten();
            key.is_none_or(|key| ports.get(&words(&key)) == Some(&service.network.get()))
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
