//! Which addresses a port gets: those it asks for, or one that is free of each family that its
//! network has.

use std::net::IpAddr;

use atoll_api::{ClaimHolder, Reason, SubnetPhase};
use atoll_types::{Cidr, NetAddr, NetworkId, NetworkName};
use atoll_vpc::{Exhausted, Moment, Refusal};

use super::wait::Complaint;
use crate::action::Action;
use crate::intent::{Claim, ObjectName, Subnet, SubnetPlan, Thing};
use crate::world::{Now, World};

/// How long a pod waits before it asks again for an address of a full subnet.
const FULL_SUBNET_PAUSE: Moment = Moment::from_secs(5);

/// The network that a port is in.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    pub(super) name: NetworkName,
    pub(super) id: NetworkId,
}

/// A port that is to get addresses, and what is asked for it.
pub(super) struct Asker<'a> {
    pub(super) port: &'a ObjectName,
    pub(super) holder: ClaimHolder,
    pub(super) subnet: Option<&'a str>,
    pub(super) ips: &'a [IpAddr],
}

/// The addresses of a port, and the subnet of the first.
pub(super) struct Granted {
    pub(super) subnet: String,
    pub(super) ips: Vec<IpAddr>,
}

impl Granted {
    /// The claims that have to be made for it.
    pub(super) fn claims(&self, network: NetworkId, holder: &ClaimHolder) -> Vec<Action> {
        let thing = |ip: &IpAddr| Thing::Address(NetAddr::new(network, *ip));
        self.ips.iter().map(|ip| Action::Claim(thing(ip), holder.clone())).collect()
    }
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Family {
    is_ipv4: bool,
}

impl Family {
    const BOTH: [Family; 2] = [Family { is_ipv4: true }, Family { is_ipv4: false }];

    fn of(cidr: &Cidr) -> Self {
        Family { is_ipv4: cidr.is_ipv4() }
    }

    fn has(self, ip: &IpAddr) -> bool {
        ip.is_ipv4() == self.is_ipv4
    }
}

impl World {
    /// One address of each family that the network has.
    pub(super) fn grant(
        &mut self,
        asker: &Asker<'_>,
        network: &Joined,
        now: &Now,
    ) -> Result<Granted, Complaint> {
        self.check_asked(asker, network)?;
        let mut ips = Vec::new();
        let mut first = None;
        for family in self.families(&network.name) {
            let subnets = self.candidates(asker, network, family)?;
            let (subnet, ip) = match asker.ips.iter().find(|ip| family.has(ip)) {
                Some(ip) => self.grant_exactly(asker, *ip, network, &subnets)?,
                None => self.grant_any(asker, family, network, &subnets, now)?,
            };
            first.get_or_insert(subnet.name);
            ips.push(ip);
        }
        let subnet = first.ok_or_else(|| no_subnet(asker, network))?;
        Ok(Granted { subnet, ips })
    }

    /// What is asked for must be of a family that the network has, and of a subnet that it has.
    fn check_asked(&self, asker: &Asker<'_>, network: &Joined) -> Result<(), Complaint> {
        let families = self.families(&network.name);
        let foreign = asker.ips.iter().find(|ip| !families.iter().any(|it| it.has(ip)));
        if let (Some(ip), false) = (foreign, families.is_empty()) {
            let usable = self.usable_subnets(&network.name);
            let names: Vec<_> = usable.iter().map(|(it, _)| it.meta.name.clone()).collect();
            return Err(outside(*ip, network, &self.ranges(&names)));
        }
        let usable = self.usable_subnets(&network.name);
        let known = |asked| usable.iter().any(|(it, _)| is_called(it, asked, network));
        match asker.subnet {
            Some(asked) if !known(asked) => Err(no_subnet(asker, network)),
            Some(_) | None => Ok(()),
        }
    }

    /// The families of a network, in the order of its ranges; a flat one has none of its own, and
    /// IPv4 first. A range that failed has no family.
    fn families(&self, network: &NetworkName) -> Vec<Family> {
        let ranges = self.network_named(network).and_then(|it| it.plan.as_ref().ok());
        let ranges = ranges.into_iter().flat_map(|plan| plan.cidrs.iter());
        let mut families = Vec::new();
        for family in ranges.map(Family::of).chain(Family::BOTH) {
            if !families.contains(&family) && self.has_subnet_of(network, family) {
                families.push(family);
            }
        }
        families
    }

    fn has_subnet_of(&self, network: &NetworkName, family: Family) -> bool {
        let subnets = self.indexes.subnets_of_network.of(network);
        let mut standing = subnets.filter_map(|name| self.subnets.get(name)).filter(|subnet| {
            let phase = subnet.status.as_ref().map(|status| status.phase).unwrap_or_default();
            matches!(phase, SubnetPhase::Pending | SubnetPhase::Active) && !subnet.meta.deleting
        });
        standing.any(|it| it.plan.as_ref().is_ok_and(|plan| Family::of(&plan.cidr) == family))
    }

    fn usable_subnets(&self, network: &NetworkName) -> Vec<(&Subnet, &SubnetPlan)> {
        let subnets = self.indexes.subnets_of_network.of(network);
        subnets
            .filter_map(|name| self.subnets.get(name))
            .filter(|subnet| subnet.gives_addresses())
            .filter_map(|subnet| Some((subnet, subnet.plan.as_ref().ok()?)))
            .collect()
    }

    /// The subnets that may serve a port: the one it names if that is of this family, else the
    /// network's own, else those that people carved out.
    fn candidates(
        &self,
        asker: &Asker<'_>,
        network: &Joined,
        family: Family,
    ) -> Result<Vec<ObjectName>, Complaint> {
        let mut usable = self.usable_subnets(&network.name);
        usable.retain(|(_, plan)| Family::of(&plan.cidr) == family);
        if let Some(asked) = asker.subnet
            && usable.iter().any(|(subnet, _)| is_called(subnet, asked, network))
        {
            usable.retain(|(subnet, _)| is_called(subnet, asked, network));
        }
        usable.sort_by_key(|(_, plan)| (!plan.automatic, plan.cidr));
        if usable.is_empty() {
            return Err(no_subnet(asker, network));
        }
        Ok(usable.into_iter().map(|(subnet, _)| subnet.meta.name.clone()).collect())
    }

    fn grant_exactly(
        &mut self,
        asker: &Asker<'_>,
        ip: IpAddr,
        network: &Joined,
        subnets: &[ObjectName],
    ) -> Result<(ObjectName, IpAddr), Complaint> {
        let address = NetAddr::new(network.id, ip);
        let Some(subnet) = self.narrowest(subnets, ip) else {
            return Err(outside(ip, network, &self.ranges(subnets)));
        };
        if self.is_granted(address, asker) {
            return Ok((subnet, ip));
        }
        let check = self.pool(&subnet, network.id).map(|pool| pool.check(ip));
        match check {
            Some(Ok(())) => {
                self.drop_proposals_of_family(asker.port, ip.is_ipv4(), Moment::ZERO);
                if let Some(pool) = self.pool(&subnet, network.id) {
                    pool.take(ip);
                }
                self.numbers.propose(asker.port, address);
                Ok((subnet, ip))
            }
            Some(Err(Refusal::InUse)) => Err(self.in_use(address, network)),
            Some(Err(Refusal::Reserved)) => Err(reserved(ip, &subnet, network)),
            Some(Err(Refusal::Outside)) | None => Err(outside(ip, network, &self.ranges(subnets))),
        }
    }

    fn grant_any(
        &mut self,
        asker: &Asker<'_>,
        family: Family,
        network: &Joined,
        subnets: &[ObjectName],
        now: &Now,
    ) -> Result<(ObjectName, IpAddr), Complaint> {
        if let Some(granted) = self.standing_grant(asker, network, subnets) {
            return Ok(granted);
        }
        self.drop_proposals_of_family(asker.port, family.is_ipv4, now.moment);
        let mut exhausted = None;
        for subnet in subnets {
            match self.pool(subnet, network.id).map(|pool| pool.propose(now.moment)) {
                Some(Ok(ip)) => {
                    self.numbers.propose(asker.port, NetAddr::new(network.id, ip));
                    return Ok((subnet.clone(), ip));
                }
                Some(Err(error)) => exhausted = exhausted.or(Some(error)),
                None => {}
            }
        }
        Err(full(network, exhausted, now))
    }

    /// What this port was granted before: by a claim that it has, or by a proposal that stands.
    fn standing_grant(
        &self,
        asker: &Asker<'_>,
        network: &Joined,
        subnets: &[ObjectName],
    ) -> Option<(ObjectName, IpAddr)> {
        let claimed = self.indexes.claims_of_port.of(asker.port).filter_map(|thing| match thing {
            Thing::Address(address) => Some(*address),
            Thing::Vip(_)
            | Thing::Outside(_)
            | Thing::NetworkId(_)
            | Thing::Block(_)
            | Thing::Vpc(_) => None,
        });
        let proposed = self.numbers.proposals.get(asker.port).into_iter().flatten().copied();
        let mut standing = claimed
            .chain(proposed)
            .filter(|address| address.network == network.id && self.is_granted(*address, asker));
        standing.find_map(|NetAddr { ip, .. }| Some((self.narrowest(subnets, ip)?, ip)))
    }

    /// Whether an address is this port's: claimed by it, or proposed to it and claimed by nobody.
    fn is_granted(&self, address: NetAddr, asker: &Asker<'_>) -> bool {
        match self.claim_on(&Thing::Address(address)) {
            Some(claim) => claim.holder == asker.holder,
            None => self.numbers.proposed.get(&address) == Some(asker.port),
        }
    }

    /// The smallest of these subnets that holds an address.
    fn narrowest(&self, subnets: &[ObjectName], ip: IpAddr) -> Option<ObjectName> {
        let plans = subnets.iter().filter_map(|name| Some((name, self.subnet_plan(name)?)));
        plans
            .filter(|(_, plan)| plan.cidr.contains(ip))
            .max_by_key(|(_, plan)| plan.cidr.prefix_len())
            .map(|(name, _)| name.clone())
    }

    fn ranges(&self, subnets: &[ObjectName]) -> String {
        let plans = subnets.iter().filter_map(|name| self.subnet_plan(name));
        plans.map(|plan| plan.cidr.to_string()).collect::<Vec<_>>().join(", ")
    }

    fn in_use(&self, address: NetAddr, network: &Joined) -> Complaint {
        let thing = Thing::Address(address);
        let holder = self.claim_on(&thing).map(holder_text);
        let holder = holder
            .or_else(|| self.numbers.proposed.get(&address).map(|port| format!("port {port}")));
        let holder = holder.unwrap_or_else(|| "somebody".into());
        let message =
            format!("address {} of network {} is in use by {holder}", address.ip, network.name);
        Complaint::new(Reason::AddressInUse, message).waiting_for(&network.name, Some(thing))
    }
}

pub(super) fn holder_text(claim: &Claim) -> String {
    let holder = &claim.holder;
    match &holder.namespace {
        Some(namespace) => {
            format!("{} {namespace}/{}", holder.kind.to_lowercase(), holder.name)
        }
        None => format!("{} {}", holder.kind, holder.name),
    }
}

/// Whether a subnet is called so: by its object name, or by what follows its network's in it.
fn is_called(subnet: &Subnet, asked: &str, network: &Joined) -> bool {
    let name = &subnet.meta.name.name;
    name == asked || *name == format!("{}.{asked}", network.name)
}

fn no_subnet(asker: &Asker<'_>, network: &Joined) -> Complaint {
    let name = &network.name;
    let message = match asker.subnet {
        Some(asked) => format!("network {name} has no subnet {asked} that gives addresses"),
        None => format!("network {name} has no subnet that gives addresses yet"),
    };
    Complaint::new(Reason::SubnetNotReady, message).waiting_for(name, None)
}

fn outside(ip: IpAddr, network: &Joined, ranges: &str) -> Complaint {
    let name = &network.name;
    let message = format!("address {ip} is outside the ranges of network {name}: {ranges}");
    Complaint::new(Reason::AddressOutside, message).waiting_for(name, None)
}

fn reserved(ip: IpAddr, subnet: &ObjectName, network: &Joined) -> Complaint {
    let message = format!("address {ip} is reserved in subnet {subnet}");
    Complaint::new(Reason::AddressReserved, message).waiting_for(&network.name, None)
}

fn full(network: &Joined, exhausted: Option<Exhausted>, now: &Now) -> Complaint {
    let name = &network.name;
    let detail = exhausted.map_or_else(String::new, |error| format!(": {error}"));
    let until = match exhausted {
        Some(Exhausted::Resting { until, .. }) => until,
        Some(Exhausted::Full(_)) | None => now.moment + FULL_SUBNET_PAUSE,
    };
    let message = format!("network {name} has no free address{detail}");
    Complaint::new(Reason::SubnetExhausted, message).waiting_for(name, None).again_at(until)
}
