//! Which addresses a port gets: those it asks for, or one that is free of each family that its
//! network has.
//!
//! The rule: who asks again gets what it was granted before, for as long as it may have it.

use std::net::IpAddr;

use atoll_types::{Cidr, NetAddr, NetworkId};

use crate::addresses::{Exhausted, Refusal};
use crate::circle::Moment;
use crate::family::Family;
use crate::ledger::{Ledger, PortHolder};
use crate::names::Names;
use crate::subnets::{Stage, Subnet};

/// A port that is to get addresses, and what is asked for it.
#[derive(Clone, Debug)]
pub struct Ask<'a, N: Names> {
    /// The port.
    pub holder: PortHolder<N>,
    /// The network that it is to be in.
    pub network: &'a N::Network,
    /// The number of that network's VPC.
    pub vpc: NetworkId,
    /// The names that the subnet may have which it wants; none where any will do.
    pub subnets: &'a [N::Subnet],
    /// The addresses that it wants, at most one of a family.
    pub ips: &'a [IpAddr],
}

/// The addresses of a port, of each family one, and the subnet of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted<S> {
    /// The subnet of the first.
    pub subnet: S,
    /// The addresses.
    pub ips: Vec<IpAddr>,
}

/// Why a port gets no addresses. What is on the way to it of another family stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused<S> {
    /// No subnet gives addresses, or none that it wants.
    NoSubnet,
    /// It wants an address that no subnet which may serve it has.
    Outside {
        /// The address.
        ip: IpAddr,
        /// The ranges of those subnets.
        ranges: Vec<Cidr>,
    },
    /// It wants an address that is kept back.
    Reserved {
        /// The address.
        ip: IpAddr,
        /// The subnet that keeps it.
        subnet: S,
    },
    /// It wants an address that another holds, or that is on the way to another.
    InUse(IpAddr),
    /// No subnet has a free address; the first says why, if there is one.
    Exhausted(Option<Exhausted>),
}

type Grant<S> = Result<(S, IpAddr), Refused<S>>;

impl<N: Names> Ledger<N> {
    /// One address of each family that the network has.
    pub fn grant(
        &mut self,
        ask: &Ask<'_, N>,
        now: Moment,
    ) -> Result<Granted<N::Subnet>, Refused<N::Subnet>> {
        let families = self.families(ask.network);
        self.check_asked(ask, &families)?;
        let mut ips = Vec::new();
        let mut first = None;
        for family in families {
            let subnets = self.candidates(ask, family)?;
            let (subnet, ip) = match ask.ips.iter().find(|ip| Family::of(**ip) == family) {
                Some(ip) => self.grant_exactly(ask, *ip, &subnets)?,
                None => self.grant_any(ask, family, &subnets, now)?,
            };
            first.get_or_insert(subnet);
            ips.push(ip);
        }
        let subnet = first.ok_or(Refused::NoSubnet)?;
        Ok(Granted { subnet, ips })
    }

    /// What is asked for must be of a family that the network has, and of a subnet that it has.
    fn check_asked(&self, ask: &Ask<'_, N>, families: &[Family]) -> Result<(), Refused<N::Subnet>> {
        let giving = || self.subnets.giving(ask.network);
        let foreign = ask.ips.iter().find(|ip| !families.contains(&Family::of(**ip)));
        if let (Some(ip), false) = (foreign, families.is_empty()) {
            let ranges = giving().map(|(_, subnet)| subnet.cidr()).collect();
            return Err(Refused::Outside { ip: *ip, ranges });
        }
        match ask.subnets.is_empty() || giving().any(|(name, _)| ask.subnets.contains(name)) {
            true => Ok(()),
            false => Err(Refused::NoSubnet),
        }
    }

    /// The families of a network, in the order of its ranges; one with blocks has none of its own,
    /// and IPv4 first. A range without a subnet that gives addresses, or will, has no family.
    fn families(&self, network: &N::Network) -> Vec<Family> {
        let ranges = self.networks.get(network).into_iter().flat_map(|it| it.space.declared());
        let mut families = Vec::new();
        for family in ranges.map(|range| Family::from(*range)).chain(Family::BOTH) {
            if !families.contains(&family) && self.has_subnet_of(network, family) {
                families.push(family);
            }
        }
        families
    }

    fn has_subnet_of(&self, network: &N::Network, family: Family) -> bool {
        let mut subnets = self.subnets.within(network);
        subnets.any(|(_, subnet)| subnet.stage != Stage::Closed && subnet.family() == family)
    }

    /// The subnets that may serve a port: the one it names if that is of this family, else the
    /// network's own, else those that people carved out.
    fn candidates(
        &self,
        ask: &Ask<'_, N>,
        family: Family,
    ) -> Result<Vec<N::Subnet>, Refused<N::Subnet>> {
        let giving = self.subnets.giving(ask.network);
        let mut usable: Vec<(&N::Subnet, &Subnet<N>)> =
            giving.filter(|(_, subnet)| subnet.family() == family).collect();
        let is_named = |name: &N::Subnet| ask.subnets.contains(name);
        if usable.iter().any(|(name, _)| is_named(name)) {
            usable.retain(|(name, _)| is_named(name));
        }
        usable.sort_by_key(|(_, subnet)| (!subnet.own, subnet.cidr()));
        if usable.is_empty() {
            return Err(Refused::NoSubnet);
        }
        Ok(usable.into_iter().map(|(name, _)| name.clone()).collect())
    }

    fn grant_exactly(
        &mut self,
        ask: &Ask<'_, N>,
        ip: IpAddr,
        subnets: &[N::Subnet],
    ) -> Grant<N::Subnet> {
        let address = NetAddr::new(ask.vpc, ip);
        let Some(subnet) = self.narrowest(subnets, ip) else {
            return Err(self.outside(ip, subnets));
        };
        if self.holdings.is_of(address, &ask.holder) {
            return Ok((subnet, ip));
        }
        match self.pool(&subnet, ask.vpc).map(|pool| pool.check(ip)) {
            Some(Ok(())) => {
                self.drop_proposals_of(&ask.holder.name, &[Family::of(ip)], Moment::ZERO);
                if let Some(pool) = self.pool(&subnet, ask.vpc) {
                    pool.take(ip);
                }
                self.holdings.propose(&ask.holder.name, address);
                Ok((subnet, ip))
            }
            Some(Err(Refusal::InUse)) => Err(Refused::InUse(ip)),
            Some(Err(Refusal::Reserved)) => Err(Refused::Reserved { ip, subnet }),
            Some(Err(Refusal::Outside)) | None => Err(self.outside(ip, subnets)),
        }
    }

    fn grant_any(
        &mut self,
        ask: &Ask<'_, N>,
        family: Family,
        subnets: &[N::Subnet],
        now: Moment,
    ) -> Grant<N::Subnet> {
        if let Some(granted) = self.standing_grant(ask, subnets) {
            return Ok(granted);
        }
        self.drop_proposals_of(&ask.holder.name, &[family], now);
        let mut exhausted = None;
        for subnet in subnets {
            match self.pool(subnet, ask.vpc).map(|pool| pool.propose(now)) {
                Some(Ok(ip)) => {
                    self.holdings.propose(&ask.holder.name, NetAddr::new(ask.vpc, ip));
                    return Ok((subnet.clone(), ip));
                }
                Some(Err(error)) => exhausted = exhausted.or(Some(error)),
                None => {}
            }
        }
        Err(Refused::Exhausted(exhausted))
    }

    /// What this port was granted before in these subnets, and still may have.
    fn standing_grant(
        &self,
        ask: &Ask<'_, N>,
        subnets: &[N::Subnet],
    ) -> Option<(N::Subnet, IpAddr)> {
        let own = self.holdings.of(&ask.holder).filter(|address| address.network == ask.vpc);
        let mut ips = own.map(|address| address.ip);
        ips.find_map(|ip| Some((self.narrowest(subnets, ip)?, ip)))
    }

    /// The smallest of these subnets that holds an address.
    fn narrowest(&self, subnets: &[N::Subnet], ip: IpAddr) -> Option<N::Subnet> {
        let known = subnets.iter().filter_map(|name| Some((name, self.subnets.get(name)?.cidr())));
        known
            .filter(|(_, cidr)| cidr.contains(ip))
            .max_by_key(|(_, cidr)| cidr.prefix_len())
            .map(|(name, _)| name.clone())
    }

    fn outside(&self, ip: IpAddr, subnets: &[N::Subnet]) -> Refused<N::Subnet> {
        let ranges =
            subnets.iter().filter_map(|name| Some(self.subnets.get(name)?.cidr())).collect();
        Refused::Outside { ip, ranges }
    }
}
