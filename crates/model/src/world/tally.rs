//! How much of everything there is, for those who watch over the controller.

use atoll_api::{NetworkPhase, SubnetPhase};

use super::World;
use crate::intent::{Kind, Network, Subnet};

/// How much of everything there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Objects of each kind.
    pub objects: Vec<(Kind, usize)>,
    /// Networks in each phase.
    pub networks: Vec<(NetworkPhase, usize)>,
    /// Subnets in each phase.
    pub subnets: Vec<(SubnetPhase, usize)>,
    /// Subnets that give addresses and have none left.
    pub exhausted_subnets: usize,
    /// IPv4 addresses of subnets that give some.
    pub ipv4: Addresses,
    /// IPv6 addresses of subnets that give some.
    pub ipv6: Addresses,
    /// Pods, ports and services that wait for a network or an address.
    pub waiting_pods: usize,
    /// Claims that nobody held any more and that this controller has seen given back.
    pub repaired: u64,
}

/// Addresses by what is with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Somebody holds them.
    pub used: i64,
    /// They can be given.
    pub free: i64,
}

const NETWORK_PHASES: [NetworkPhase; 5] = [
    NetworkPhase::Initializing,
    NetworkPhase::Pending,
    NetworkPhase::Active,
    NetworkPhase::Failed,
    NetworkPhase::Terminating,
];

const SUBNET_PHASES: [SubnetPhase; 4] =
    [SubnetPhase::Pending, SubnetPhase::Active, SubnetPhase::Failed, SubnetPhase::Terminating];

impl World {
    /// How much of everything there is.
    pub fn tally(&self) -> Tally {
        let networks: Vec<_> = self.networks.items().map(Network::phase).collect();
        let subnets: Vec<_> = self.subnets.items().map(Subnet::phase).collect();
        let giving = |ipv4| self.subnets.items().filter(move |it| it.gives_family(ipv4));
        Tally {
            objects: self.counts(),
            networks: by_phase(&NETWORK_PHASES, &networks),
            subnets: by_phase(&SUBNET_PHASES, &subnets),
            exhausted_subnets: self.subnets.items().filter(|subnet| subnet.is_full()).count(),
            ipv4: addresses(giving(true)),
            ipv6: addresses(giving(false)),
            waiting_pods: self.indexes.waits.len(),
            repaired: self.repaired,
        }
    }

    fn counts(&self) -> Vec<(Kind, usize)> {
        vec![
            (Kind::Tenant, self.tenants.items().len()),
            (Kind::Network, self.networks.items().len()),
            (Kind::Subnet, self.subnets.items().len()),
            (Kind::Port, self.ports.items().len()),
            (Kind::Claim, self.claims.items().len()),
            (Kind::Namespace, self.namespaces.items().len()),
            (Kind::Pod, self.pods.items().len()),
            (Kind::Service, self.services.items().len()),
            (Kind::ClusterRole, self.roles.items().len()),
            (Kind::AddressPool, self.address_pools.items().len()),
            (Kind::Node, self.nodes.items().len()),
            (Kind::NetworkType, self.registrations.items().len()),
            (Kind::EndpointSlice, self.slices.items().len()),
        ]
    }
}

fn by_phase<P: Copy + PartialEq>(phases: &[P], found: &[P]) -> Vec<(P, usize)> {
    let count = |phase: &P| found.iter().filter(|it| *it == phase).count();
    phases.iter().map(|phase| (*phase, count(phase))).collect()
}

fn addresses<'a>(subnets: impl Iterator<Item = &'a Subnet>) -> Addresses {
    let statuses = subnets.filter_map(|subnet| subnet.status.as_ref());
    statuses.fold(Addresses::default(), |sum, status| Addresses {
        used: sum.used.saturating_add(status.used),
        free: sum.free.saturating_add(status.free),
    })
}
