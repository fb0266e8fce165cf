//! Which address an interface gets: the one it asks for, or one that is free.

use std::net::IpAddr;

use atoll_api::Reason;
use atoll_types::{NetAddr, NetworkId, NetworkName};
use atoll_vpc::{Exhausted, Moment, Refusal};

use super::pod::Complaint;
use crate::intent::{Claim, Nic, ObjectName, Pod, Subnet, SubnetPlan, Thing, holder_of_port};
use crate::world::{Now, World};

/// How long a pod waits before it asks again for an address of a full subnet.
const FULL_SUBNET_PAUSE: Moment = Moment::from_secs(5);

/// The network a pod is to join, as far as its port needs it.
pub(super) struct Joined {
    pub(super) name: NetworkName,
    pub(super) id: NetworkId,
}

/// An address for an interface, and where it is from.
pub(super) struct Granted {
    pub(super) subnet: String,
    pub(super) ip: IpAddr,
}

impl World {
    pub(super) fn grant(
        &mut self,
        pod: &Pod,
        nic: &Nic,
        port: &ObjectName,
        network: &Joined,
        now: &Now,
    ) -> Result<Granted, Complaint> {
        let subnets = self.candidates(nic, network)?;
        match nic.ip {
            Some(ip) => self.grant_exactly(pod, ip, port, network, &subnets),
            None => self.grant_any(pod, port, network, &subnets, now),
        }
    }

    /// The subnets that may serve an interface: the one it names, else the network's own, else
    /// those that people carved out.
    fn candidates(&self, nic: &Nic, network: &Joined) -> Result<Vec<ObjectName>, Complaint> {
        let subnets = self.indexes.subnets_of_network.of(&network.name);
        let mut usable: Vec<(&Subnet, &SubnetPlan)> = subnets
            .filter_map(|name| self.subnets.get(name))
            .filter(|subnet| subnet.gives_addresses())
            .filter_map(|subnet| Some((subnet, subnet.plan.as_ref().ok()?)))
            .collect();
        if let Some(asked) = &nic.subnet {
            let full = format!("{}.{asked}", network.name);
            usable.retain(|(subnet, _)| [asked, &full].contains(&&subnet.meta.name.name));
        }
        usable.sort_by_key(|(_, plan)| (!plan.automatic, plan.cidr));
        if usable.is_empty() {
            return Err(no_subnet(nic, network));
        }
        Ok(usable.into_iter().map(|(subnet, _)| subnet.meta.name.clone()).collect())
    }

    fn grant_exactly(
        &mut self,
        pod: &Pod,
        ip: IpAddr,
        port: &ObjectName,
        network: &Joined,
        subnets: &[ObjectName],
    ) -> Result<Granted, Complaint> {
        let address = NetAddr::new(network.id, ip);
        let Some(subnet) = self.narrowest(subnets, ip) else {
            return Err(outside(ip, network, &self.ranges(subnets)));
        };
        let granted = Granted { subnet: subnet.name.clone(), ip };
        if self.is_granted(address, port, &pod.meta.uid) {
            return Ok(granted);
        }
        let check = self.pool(&subnet, network.id).map(|pool| pool.check(ip));
        match check {
            Some(Ok(())) => {
                self.drop_proposals(port, Moment::ZERO);
                if let Some(pool) = self.pool(&subnet, network.id) {
                    pool.take(ip);
                }
                self.numbers.propose(port, address);
                Ok(granted)
            }
            Some(Err(Refusal::InUse)) => Err(self.in_use(address, network)),
            Some(Err(Refusal::Reserved)) => Err(reserved(ip, &subnet, network)),
            Some(Err(Refusal::Outside)) | None => Err(outside(ip, network, &self.ranges(subnets))),
        }
    }

    fn grant_any(
        &mut self,
        pod: &Pod,
        port: &ObjectName,
        network: &Joined,
        subnets: &[ObjectName],
        now: &Now,
    ) -> Result<Granted, Complaint> {
        if let Some(granted) = self.standing_grant(pod, port, network, subnets) {
            return Ok(granted);
        }
        self.drop_proposals(port, now.moment);
        let mut exhausted = None;
        for subnet in subnets {
            match self.pool(subnet, network.id).map(|pool| pool.propose(now.moment)) {
                Some(Ok(ip)) => {
                    self.numbers.propose(port, NetAddr::new(network.id, ip));
                    return Ok(Granted { subnet: subnet.name.clone(), ip });
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
        pod: &Pod,
        port: &ObjectName,
        network: &Joined,
        subnets: &[ObjectName],
    ) -> Option<Granted> {
        let claimed = self.indexes.claims_of_port.of(port).filter_map(|thing| match thing {
            Thing::Address(address) => Some(*address),
            Thing::NetworkId(_) | Thing::Block(_) | Thing::Vpc(_) => None,
        });
        let proposed = self.numbers.proposals.get(port).into_iter().flatten().copied();
        let mut standing = claimed.chain(proposed).filter(|address| {
            address.network == network.id && self.is_granted(*address, port, &pod.meta.uid)
        });
        standing.find_map(|NetAddr { ip, .. }| {
            let subnet = self.narrowest(subnets, ip)?;
            Some(Granted { subnet: subnet.name, ip })
        })
    }

    /// Whether an address is this port's: claimed by it, or proposed to it and claimed by nobody.
    fn is_granted(&self, address: NetAddr, port: &ObjectName, uid: &str) -> bool {
        match self.claim_on(&Thing::Address(address)) {
            Some(claim) => claim.holder == holder_of_port(port, uid),
            None => self.numbers.proposed.get(&address) == Some(port),
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

fn holder_text(claim: &Claim) -> String {
    let holder = &claim.holder;
    match &holder.namespace {
        Some(namespace) => format!("port {namespace}/{}", holder.name),
        None => format!("{} {}", holder.kind, holder.name),
    }
}

fn no_subnet(nic: &Nic, network: &Joined) -> Complaint {
    let name = &network.name;
    let message = match &nic.subnet {
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
