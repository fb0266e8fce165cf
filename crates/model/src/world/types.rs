//! Which objects are the business of one type of network.

use super::{Key, World};
use crate::intent::{Kind, Network, NetworkType};

impl World {
    /// The type of network whose own work it is to look at this object: a network of that type, a
    /// subnet of one, or that type itself. None for what is common to all.
    pub fn type_of(&self, key: &Key) -> Option<&str> {
        match key.kind {
            Kind::Network => self.networks.get(&key.name).and_then(type_name),
            Kind::Subnet => {
                let subnet = self.subnets.get(&key.name)?.plan.as_ref().ok()?;
                self.network_named(&subnet.network).and_then(type_name)
            }
            Kind::NetworkType => {
                self.registrations.get(&key.name).map(|type_| type_.meta.name.name.as_str())
            }
            _ => None,
        }
    }
}

fn type_name(network: &Network) -> Option<&str> {
    Some(match &network.plan.as_ref().ok()?.type_ {
        NetworkType::Vpc => "vpc",
        NetworkType::Flat => "flat",
        NetworkType::Other(name) => name,
    })
}
