//! Everything that is known of VPCs: their numbers, networks, subnets and addresses.
//!
//! The user tells what there is and what was claimed, and asks what may be claimed. The rules: the
//! same news in any order, or twice, leads to the same ledger; what is held or on the way is given
//! to nobody else; what is neither is free.

use std::collections::BTreeSet;

use atoll_types::{Cidr, NetAddr, NetworkId};

use crate::addresses::AddressPool;
use crate::circle::Moment;
use crate::family::Family;
use crate::holder::Holder;
use crate::holdings::Holdings;
use crate::names::Names;
use crate::networks::{Networks, Space};
use crate::numbers::{Number, Numbers};
use crate::pools::Pools;
use crate::shares::{NextBlock, Shares};
use crate::subnets::{Subnet, Subnets};

/// Who holds addresses: one incarnation of a port.
pub type PortHolder<N> = Holder<<N as Names>::Port, <N as Names>::Incarnation>;

/// Who holds blocks: one incarnation of a network.
pub type BlockHolder<N> = Holder<<N as Names>::Network, <N as Names>::Incarnation>;

/// Everything that is known of VPCs.
#[derive(Clone, Debug)]
pub struct Ledger<N: Names> {
    /// The numbers of VPCs.
    pub numbers: Numbers<N::Vpc>,
    /// The blocks of shared ranges.
    pub shares: Shares<BlockHolder<N>>,
    /// The networks of VPCs.
    pub networks: Networks<N>,
    pub(crate) subnets: Subnets<N>,
    pub(crate) holdings: Holdings<N::Port, N::Incarnation>,
    pools: Pools<N::Subnet>,
}

/// The addresses of a subnet, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Held, or on the way.
    pub used: u128,
    /// Still to be given.
    pub free: u128,
}

impl<N: Names> Default for Ledger<N> {
    fn default() -> Self {
        Ledger::sharing(&[])
    }
}

impl<N: Names> Ledger<N> {
    /// A ledger without networks, in which flat ones share these ranges.
    pub fn sharing(ranges: &[Cidr]) -> Self {
        Ledger {
            numbers: Numbers::default(),
            shares: Shares::of(ranges),
            networks: Networks::default(),
            subnets: Subnets::default(),
            holdings: Holdings::default(),
            pools: Pools::default(),
        }
    }

    /// The subnets, which pools follow.
    pub fn subnets(&self) -> &Subnets<N> {
        &self.subnets
    }

    /// The addresses of ports, which pools follow.
    pub fn holdings(&self) -> &Holdings<N::Port, N::Incarnation> {
        &self.holdings
    }

    /// The number of a VPC, of whose networks some have `told` one, and which uses what it was given
    /// if it `has_ports` in one of them: see [`Numbers::number_of`].
    pub fn number_of(
        &mut self,
        vpc: &N::Vpc,
        told: Option<NetworkId>,
        has_ports: impl Fn(&N::Network) -> bool,
        now: Moment,
    ) -> Number {
        let Ledger { numbers, networks, .. } = self;
        numbers.number_of(vpc, told, || networks.of_vpc(vpc).any(has_ports), now)
    }

    /// Whether a VPC needs an id that is claimed for it: it has the right to it, or to none yet
    /// though it has networks.
    pub fn needs_id(&self, vpc: &N::Vpc, id: NetworkId) -> bool {
        match self.numbers.right_of(vpc) {
            Some(given) => given == id,
            None => self.networks.of_vpc(vpc).len() > 0,
        }
    }

    /// A subnet is there, or is another than it was. Without a word on what it is, it gives nothing,
    /// and keeps the range that its network has it for.
    pub fn put_subnet(&mut self, name: &N::Subnet, subnet: Option<Subnet<N>>) {
        let before = self.subnets.put(name.clone(), subnet);
        self.lay_out(name, before.as_ref());
    }

    /// A subnet is gone.
    pub fn remove_subnet(&mut self, name: &N::Subnet) {
        let before = self.subnets.remove(name);
        self.lay_out(name, before.as_ref());
    }

    /// The subnets whose range holds an address, in the VPCs that have the right to its number.
    pub fn subnets_with(&self, address: NetAddr) -> impl Iterator<Item = &N::Subnet> {
        let networks =
            self.numbers.rightful(address.network).flat_map(|it| self.networks.of_vpc(it));
        let subnets = networks.flat_map(|network| self.subnets.within(network));
        let holding = subnets.filter(move |(_, subnet)| subnet.cidr().contains(address.ip));
        holding.map(|(name, _)| name)
    }

    /// An address was claimed: by a port, or by somebody who is none.
    pub fn claim_address(&mut self, address: NetAddr, holder: Option<PortHolder<N>>) {
        self.holdings.claim(address, holder);
        self.pools.take(address);
    }

    /// The claim of this holder on an address is gone; it is not proposed before `until`.
    pub fn release_address(
        &mut self,
        address: NetAddr,
        holder: Option<PortHolder<N>>,
        until: Moment,
    ) {
        if self.holdings.release(address, holder) {
            self.pools.free(address, until);
        }
    }

    /// Takes back what is on the way to a port; it can be proposed again at `until`.
    pub fn drop_proposals(&mut self, port: &N::Port, until: Moment) {
        self.drop_proposals_of(port, &Family::BOTH, until);
    }

    pub(crate) fn drop_proposals_of(&mut self, port: &N::Port, families: &[Family], until: Moment) {
        for address in self.holdings.drop_proposals(port, families) {
            self.pools.free(address, until);
        }
    }

    /// The addresses of a subnet of a VPC, counted.
    pub fn count(&mut self, subnet: &N::Subnet, vpc: NetworkId) -> Option<Count> {
        let pool = self.pool(subnet, vpc)?;
        Some(Count { used: pool.used(), free: pool.available() })
    }

    /// The block that a network lacks, if blocks are what it has.
    pub fn next_block(&mut self, network: &N::Network, vpc: NetworkId, now: Moment) -> NextBlock {
        let Some(holder) = self.holder_of_blocks(network) else { return NextBlock::Enough };
        let mut full: Vec<Cidr> = self.shares.held_by(&holder).copied().collect();
        full.retain(|block| self.is_full(network, *block, vpc));
        self.shares.next_of(&holder, |block| full.contains(&block), now)
    }

    pub(crate) fn holder_of_blocks(&self, network: &N::Network) -> Option<BlockHolder<N>> {
        match &self.networks.get(network)?.space {
            Space::Declared(_) => None,
            Space::Blocks(incarnation) => {
                Some(Holder { name: network.clone(), incarnation: incarnation.clone() })
            }
        }
    }

    fn is_full(&mut self, network: &N::Network, block: Cidr, vpc: NetworkId) -> bool {
        let subnet = N::own_subnet(network, block);
        self.count(&subnet, vpc).is_some_and(|count| count.free == 0)
    }

    /// The pool of a subnet, for as long as its VPC has this number.
    pub(crate) fn pool(&mut self, subnet: &N::Subnet, vpc: NetworkId) -> Option<&mut AddressPool> {
        if self.pools.vpc_of(subnet) != Some(vpc) {
            self.build_pool(subnet, vpc);
        }
        self.pools.get(subnet)
    }

    /// A subnet changed: its pool, and those of its neighbours, whose ranges it may lie in.
    fn lay_out(&mut self, name: &N::Subnet, before: Option<&Subnet<N>>) {
        let after = self.subnets.get(name);
        let both = before.zip(after);
        if both.is_some_and(|(before, after)| after.is_laid_out_as(before)) {
            return;
        }
        if !both.is_some_and(|(before, after)| after.has_the_place_of(before)) {
            self.pools.remove(name);
        }
        let networks = before.into_iter().chain(after).map(|subnet| subnet.network.clone());
        for network in networks.collect::<BTreeSet<_>>() {
            self.rebuild_pools(&network);
        }
    }

    fn rebuild_pools(&mut self, network: &N::Network) {
        let subnets: Vec<N::Subnet> = self.subnets.of_network(network).cloned().collect();
        for subnet in subnets {
            if let Some(vpc) = self.pools.vpc_of(&subnet) {
                self.build_pool(&subnet, vpc);
            }
        }
    }

    fn build_pool(&mut self, name: &N::Subnet, vpc: NetworkId) {
        let Some(subnet) = self.subnets.get(name) else { return };
        let siblings = self.subnets.within(&subnet.network);
        let siblings = siblings.filter(|(other, _)| *other != name).map(|(_, it)| it.cidr());
        let held = self.holdings.held_in(vpc, subnet.cidr());
        let taken = held.chain(self.holdings.on_the_way_in(vpc));
        self.pools.build(name.clone(), vpc, &subnet.layout, siblings, taken);
    }
}
