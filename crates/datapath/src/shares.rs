//! What a node has only so much of, divided: places for connections, and ports towards the outside and
//! towards infra. Pure: no map is touched here.
//!
//! The rule: it is divided among tenants first, and then among the networks that each has here. However
//! many networks one tenant brings, what any other has stays as it is. A network whose tenant nobody
//! told is like a tenant of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use atoll_abi::{MAX_CONNECTIONS, MAX_INTERFACES, TURNS_PER_PAGE};
use atoll_types::NetworkId;

/// However few tenants there are, none has more than one part in so many of the connections.
const SHARERS: u32 = 16;
/// However many networks a tenant has, each has room for so many.
const FEWEST_CONNECTIONS: u32 = TURNS_PER_PAGE as u32;
/// However few tenants there are, none has more than one part in so many of the ports.
const SHARERS_OF_PORTS: u32 = 4;
/// A tenant's networks do not cut its ports into smaller parts: they rather have one together. No port
/// ever leads to two pods, so that they lose nothing but room.
const FEWEST_PORTS: u32 = 64;

/// The number of a tenant that nobody told.
const UNTOLD: u32 = 0;

/// Some ports: the first, and how many.
pub(crate) type Ports = (u16, u16);

/// How many connections each of so many tenants may have. The shares of all fit into half of the
/// table: when one more tenant makes them smaller, the others keep what they have until it is
/// collected, and the newcomer must have room at once. Where no share can become smaller, they fit
/// into the whole.
fn share(tenants: usize) -> u32 {
    MAX_CONNECTIONS / (among(tenants) * 2).clamp(SHARERS, MAX_INTERFACES.into())
}

/// So many or a few more: what is divided by this changes seldom.
fn among(sharers: usize) -> u32 {
    u32::try_from(sharers).unwrap_or(u32::MAX / 4).next_power_of_two()
}

/// Whose each network is: those of one tenant have one number in common, which means nothing elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tenants(BTreeMap<u32, u32>);

impl Tenants {
    /// The number of a network's tenant, or zero.
    pub(crate) fn of(&self, network: u32) -> u32 {
        self.0.get(&network).copied().unwrap_or(UNTOLD)
    }

    /// Learns a number that was written down, unless another is known.
    pub(crate) fn recall(&mut self, network: u32, number: u32) {
        if number != UNTOLD {
            self.0.entry(network).or_insert(number);
        }
    }

    pub(crate) fn forget(&mut self, network: u32) {
        self.0.remove(&network);
    }

    /// The networks of each tenant that was told.
    pub(crate) fn known(&self) -> BTreeSet<BTreeSet<NetworkId>> {
        let mut known: BTreeMap<u32, BTreeSet<NetworkId>> = BTreeMap::new();
        for (network, number) in &self.0 {
            known.entry(*number).or_default().extend(NetworkId::try_from(*network));
        }
        known.into_values().collect()
    }

    /// The same after it was told whose these networks are. A tenant keeps its number while it can; what
    /// is here and was not named is on its way out, and still its tenant's.
    pub(crate) fn told(
        &self,
        tenants: &BTreeSet<BTreeSet<NetworkId>>,
        is_here: impl Fn(u32) -> bool,
    ) -> Tenants {
        let mut told = self.0.clone();
        told.retain(|network, _| is_here(*network));
        let mut given = BTreeSet::new();
        for networks in tenants {
            let known = networks.iter().map(|network| self.of(network.get()));
            let kept = known.into_iter().find(|it| *it != UNTOLD && !given.contains(it));
            let number = kept.unwrap_or_else(|| self.free_beside(&given));
            given.insert(number);
            told.extend(networks.iter().map(|network| (network.get(), number)));
        }
        Tenants(told)
    }

    fn free_beside(&self, given: &BTreeSet<u32>) -> u32 {
        let is_taken = |it: &u32| given.contains(it) || self.0.values().any(|other| other == it);
        (1..).find(|it| !is_taken(it)).unwrap_or(u32::MAX)
    }

    /// These networks, those of one tenant together, always in the same order.
    fn together(&self, networks: impl IntoIterator<Item = u32>) -> Vec<Vec<u32>> {
        let mut tenants: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
        for network in networks {
            let tenant = match self.of(network) {
                UNTOLD => (UNTOLD, network),
                number => (number, 0),
            };
            tenants.entry(tenant).or_default().push(network);
        }
        tenants.into_values().collect()
    }

    /// How many connections each of these networks may have, which are all that are here.
    pub(crate) fn connections(
        &self,
        networks: impl IntoIterator<Item = u32>,
    ) -> BTreeMap<u32, u32> {
        let tenants = self.together(networks);
        let of_tenant = share(tenants.len());
        let of_network = |networks: &Vec<u32>| {
            let each = (of_tenant / among(networks.len())).max(FEWEST_CONNECTIONS);
            networks.iter().map(move |network| (*network, each)).collect::<Vec<_>>()
        };
        tenants.iter().flat_map(of_network).collect()
    }

    /// The part of the ports that each of these networks has, which are all that need some.
    pub(crate) fn ports(
        &self,
        (first, count): Ports,
        networks: impl IntoIterator<Item = u32>,
    ) -> BTreeMap<u32, Ports> {
        let tenants = self.together(networks);
        let each = u32::from(count) / among(tenants.len()).max(SHARERS_OF_PORTS);
        let starts = iter::successors(Some(u32::from(first)), |start| Some(start + each));
        let parts = starts.zip(&tenants).flat_map(|(start, networks)| cut(start, each, networks));
        parts.collect()
    }
}

/// What a tenant has, cut into parts for its networks.
fn cut(start: u32, count: u32, networks: &[u32]) -> Vec<(u32, Ports)> {
    let parts = among(networks.len()).min((count / FEWEST_PORTS).max(1));
    let each = count / parts;
    let narrow = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
    let places = (0..parts).cycle().map(|place| (narrow(start + place * each), narrow(each)));
    networks.iter().copied().zip(places).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: Ports = (1024, 28_976);

    /// Tenants with so many networks each, numbered from one on.
    fn tenants_with(networks: &[usize]) -> (Tenants, Vec<Vec<u32>>) {
        let mut next = 1..;
        let of: Vec<Vec<u32>> =
            networks.iter().map(|count| next.by_ref().take(*count).collect()).collect();
        (Tenants::default().told(&sets(&of), |_| false), of)
    }

    fn sets(of: &[Vec<u32>]) -> BTreeSet<BTreeSet<NetworkId>> {
        let id = |network: &u32| NetworkId::try_from(*network).unwrap();
        of.iter().map(|networks| networks.iter().map(id).collect()).collect()
    }

    /// Crowds with up to as many networks as there are places, some tenants with many.
    fn crowds() -> Vec<Vec<usize>> {
        let mut crowds = vec![vec![1; 4096], vec![2048, 1, 1], vec![64; 64]];
        for tenants in [1, 2, 7, 8, 9, 15, 16, 17, 100, 1000, 2000] {
            for many in [1, 2, 3, 64, 65, 2000] {
                crowds.push([vec![many], vec![1; tenants - 1]].concat());
            }
        }
        crowds
    }

    fn shares(networks: &[usize]) -> BTreeMap<u32, u32> {
        let (tenants, of) = tenants_with(networks);
        tenants.connections(of.into_iter().flatten())
    }

    #[test]
    fn the_shares_of_all_networks_fit_together() {
        for crowd in crowds() {
            let shares = shares(&crowd);
            let together: u64 = shares.values().map(|it| u64::from(*it)).sum();
            assert!(together <= u64::from(MAX_CONNECTIONS), "{crowd:?}");
            assert!(shares.values().all(|it| *it >= FEWEST_CONNECTIONS), "{crowd:?}");
        }
        assert_eq!((share(1), share(8), share(9)), (16_384, 16_384, 8192));
    }

    #[test]
    fn a_network_that_comes_has_its_share_while_all_others_still_fill_what_they_had() {
        for tenants in 1..usize::from(MAX_INTERFACES) {
            let theirs = u64::from(share(tenants)) * tenants as u64;
            let own = u64::from(share(tenants + 1));
            assert!(theirs + own <= u64::from(MAX_CONNECTIONS), "{tenants}");
        }
    }

    #[test]
    fn whatever_networks_one_tenant_brings_another_has_what_it_had() {
        for tenants in [2, 3, 8, 9, 64, 500] {
            let others = vec![1; tenants - 1];
            let crowd = |many: usize| [others.clone(), vec![many]].concat();
            let (alone, alone_ports) = (shares(&crowd(1)), ports(&crowd(1)));
            for many in [2, 3, 64, 1000] {
                let (shares, ports) = (shares(&crowd(many)), ports(&crowd(many)));
                for (other, _) in (1..).zip(&others) {
                    assert_eq!(shares[&other], alone[&other], "{tenants} tenants, {many} networks");
                    assert_eq!(ports[&other], alone_ports[&other], "{tenants}, {many}");
                }
                let least = MAX_CONNECTIONS / 4 / u32::try_from(tenants).unwrap();
                assert!(alone[&1] >= least.min(MAX_CONNECTIONS / SHARERS), "{tenants}");
            }
        }
    }

    #[test]
    fn a_tenants_networks_have_together_what_it_would_have_with_one() {
        for many in [1, 2, 3, 64, 100] {
            let shares = shares(&[many, 1, 1]);
            let own: u32 = (1..).take(many).map(|network| shares[&network]).sum();
            assert!(own <= share(3) && own > share(3) / 2, "{many} networks have {own}");
        }
    }

    fn ports(networks: &[usize]) -> BTreeMap<u32, Ports> {
        let (tenants, of) = tenants_with(networks);
        tenants.ports(PORTS, of.into_iter().flatten())
    }

    #[test]
    fn every_tenant_has_ports_that_nobody_else_has() {
        for crowd in crowds() {
            let (ports, mut next) = (ports(&crowd), u32::from(PORTS.0));
            let mut networks = 1..;
            for count in crowd {
                let own = networks.by_ref().take(count).map(|network| ports[&network]);
                let (mut first, mut end) = (u32::MAX, 0);
                for (start, count) in own {
                    assert!(count > 0);
                    first = first.min(start.into());
                    end = end.max(u32::from(start) + u32::from(count));
                }
                assert!(first >= next);
                next = end;
            }
            assert!(next <= u32::from(PORTS.0) + u32::from(PORTS.1));
        }
        assert_eq!(ports(&[1])[&1], (1024, 7244));
    }

    #[test]
    fn a_tenants_networks_have_ports_of_their_own_while_there_are_enough() {
        let starts = |networks: &[usize]| {
            let ports = ports(networks);
            ports.values().map(|it| it.0).collect::<BTreeSet<_>>().len()
        };
        assert_eq!((starts(&[64]), starts(&[100, 1])), (64, 101));
        let parts = ports(&[2000]);
        assert!(parts.values().all(|(_, count)| u32::from(*count) >= FEWEST_PORTS));
    }

    #[test]
    fn a_network_that_nobody_told_of_is_a_tenant_of_its_own() {
        let tenants = Tenants::default();
        assert_eq!(tenants.together([3, 1, 2]), [[1], [2], [3]]);
        assert_eq!(tenants.connections([1, 2])[&1], share(2));
    }

    #[test]
    fn a_tenant_keeps_its_number_and_what_leaves_is_its_own_to_the_end() {
        let (tenants, _) = tenants_with(&[2, 1]);
        assert_eq!(tenants.known(), sets(&[vec![1, 2], vec![3]]));
        let later = tenants.told(&sets(&[vec![2, 4], vec![5]]), |network| network <= 3);
        assert_eq!(later.of(4), tenants.of(2));
        assert_eq!(later.of(1), tenants.of(1), "it is here still");
        assert_eq!(later.of(3), tenants.of(3));
        assert!(![tenants.of(1), tenants.of(3)].contains(&later.of(5)), "a number of its own");
        let split = tenants.told(&sets(&[vec![1], vec![2], vec![3]]), |_| true);
        assert_eq!(split.known().len(), 3);
    }
}
