//! A service of type LoadBalancer gets an address of the outside of each family that it wants, or
//! hears why not.
//!
//! The rule: every address is claimed before the service's status says that it has it, and the
//! status says nothing else. Who writes another address there gets no traffic at it, since nodes
//! ask the claims alone.

use std::net::IpAddr;

use atoll_api::{ClaimHolder, Reason};
use atoll_types::{Cidr, Label};
use atoll_vpc::{Exhausted, Moment};

use super::grant::holder_text;
use super::wait::Complaint;
use crate::action::{Action, Decision, Target};
use crate::intent::{Balancer, Kind, ObjectName, Service, Thing, holder_of_service};
use crate::world::{Now, World};

/// How long a service waits before it asks again where all addresses are in use.
const FULL_POOL_PAUSE: Moment = Moment::from_secs(5);

/// A service that is to be known outside, and from which ranges.
struct Asker<'a> {
    name: &'a ObjectName,
    holder: ClaimHolder,
    tenant: &'a str,
    ranges: Vec<Cidr>,
}

impl Asker<'_> {
    fn of_family(&self, is_ipv4: bool) -> Vec<Cidr> {
        self.ranges.iter().copied().filter(|range| range.is_ipv4() == is_ipv4).collect()
    }
}

impl World {
    /// What to do about the addresses at which the outside knows a service.
    pub(super) fn next_balancer(
        &mut self,
        service: &Service,
        tenant: Option<&Label>,
        now: &Now,
    ) -> Result<Decision, Complaint> {
        let holder = holder_of_service(&service.meta.name, &service.meta.uid);
        let (Some(balancer), Some(tenant)) = (&service.balancer, tenant) else {
            return Ok(self.take_balancer_back(service, &holder, now));
        };
        if service.meta.deleting {
            return Ok(Decision::nothing());
        }
        let name = &service.meta.name;
        let ranges = self.pool_ranges(tenant.as_str());
        let asker = Asker { name, holder, tenant: tenant.as_str(), ranges };
        let ips = self.grant_balancer(&asker, balancer, now)?;
        let missing = ips.iter().map(|ip| Thing::Outside(*ip));
        let missing: Vec<Thing> = missing.filter(|it| self.claim_on(it).is_none()).collect();
        if !missing.is_empty() {
            let claims = missing.into_iter().map(|it| Action::Claim(it, asker.holder.clone()));
            return Ok(Decision::act(claims));
        }
        self.outsides.drop_proposals(name, now.moment);
        let told = ips.iter().map(IpAddr::to_string).collect::<Vec<_>>() == service.ingress;
        let target = Target::new(Kind::Service, &service.meta);
        let tell = (!told).then(|| Action::TellBalancer(target, ips.clone()));
        let surplus = self.outsides.held_by(&asker.holder).filter(|ip| !ips.contains(ip));
        let returns = surplus.map(|ip| self.give_back(Thing::Outside(ip), &asker.holder));
        Ok(Decision::act(tell.into_iter().chain(returns)))
    }

    /// The address asked for, and one of each other family that is wanted and can be had at all.
    fn grant_balancer(
        &mut self,
        asker: &Asker<'_>,
        balancer: &Balancer,
        now: &Now,
    ) -> Result<Vec<IpAddr>, Complaint> {
        let asked = balancer.asked.as_ref().map_err(Complaint::from)?;
        let mut ips = Vec::new();
        if let Some(ip) = asked {
            self.grant_outside(asker, *ip, now)?;
            ips.push(*ip);
        }
        for (wanted, is_ipv4) in [(balancer.families.0, true), (balancer.families.1, false)] {
            if !wanted || ips.iter().any(|ip| ip.is_ipv4() == is_ipv4) {
                continue;
            }
            ips.extend(self.grant_any_outside(asker, is_ipv4, now)?);
        }
        match ips.is_empty() {
            true => Err(no_pool(asker, balancer)),
            false => Ok(ips),
        }
    }

    fn grant_outside(&mut self, asker: &Asker<'_>, ip: IpAddr, now: &Now) -> Result<(), Complaint> {
        if self.is_outside_of(asker, ip) {
            return Ok(());
        }
        let range = asker.ranges.iter().copied().find(|range| range.contains(ip));
        let range = range.ok_or_else(|| not_in_a_pool(asker, ip))?;
        self.check_outside_quota(asker.tenant, now)?;
        let proposed = self.outsides.propose_exactly(asker.name, range, ip);
        proposed.map_err(|_| self.outside_in_use(ip))
    }

    /// One address of a family; none where no pool has any for this tenant.
    fn grant_any_outside(
        &mut self,
        asker: &Asker<'_>,
        is_ipv4: bool,
        now: &Now,
    ) -> Result<Option<IpAddr>, Complaint> {
        if let Some(standing) = self.standing_outside(asker, is_ipv4) {
            return Ok(Some(standing));
        }
        let ranges = asker.of_family(is_ipv4);
        if ranges.is_empty() {
            return Ok(None);
        }
        self.check_outside_quota(asker.tenant, now)?;
        match self.outsides.propose(asker.name, &ranges, now.moment) {
            Some(Ok(ip)) => Ok(Some(ip)),
            Some(Err(exhausted)) => Err(full(asker, exhausted, now)),
            None => Ok(None),
        }
    }

    /// What this service has of a family: by a claim, or by a proposal that stands.
    fn standing_outside(&self, asker: &Asker<'_>, is_ipv4: bool) -> Option<IpAddr> {
        let proposed = self.outsides.proposed_to(asker.name).iter().copied();
        let mut all = self.outsides.held_by(&asker.holder).chain(proposed);
        all.find(|ip| ip.is_ipv4() == is_ipv4 && self.is_outside_of(asker, *ip))
    }

    /// Whether an address is this service's: claimed by it, or proposed to it and claimed by nobody.
    fn is_outside_of(&self, asker: &Asker<'_>, ip: IpAddr) -> bool {
        match self.claim_on(&Thing::Outside(ip)) {
            Some(claim) => claim.holder == asker.holder,
            None => self.outsides.proposed_to(asker.name).contains(&ip),
        }
    }

    /// A service that is no load balancer of ours has no address of ours: first its status says so.
    fn take_balancer_back(
        &mut self,
        service: &Service,
        holder: &ClaimHolder,
        now: &Now,
    ) -> Decision {
        self.outsides.drop_proposals(&service.meta.name, now.moment);
        let held: Vec<IpAddr> = self.outsides.held_by(holder).collect();
        let is_held = |text: &String| text.parse().is_ok_and(|ip: IpAddr| held.contains(&ip));
        let told = service.ingress.iter().any(is_held);
        let target = Target::new(Kind::Service, &service.meta);
        let untell = told.then(|| Action::TellBalancer(target, Vec::new()));
        let returns = held.into_iter().map(|ip| self.give_back(Thing::Outside(ip), holder));
        Decision::act(untell.into_iter().chain(returns))
    }

    pub(super) fn outside_in_use(&self, ip: IpAddr) -> Complaint {
        let thing = Thing::Outside(ip);
        let holder = self.claim_on(&thing).map_or_else(|| "another service".into(), holder_text);
        let message = format!("{ip} is in use by {holder}; name another address, or none");
        Complaint::new(Reason::AddressInUse, message).waiting_for_thing(thing)
    }
}

fn not_in_a_pool(asker: &Asker<'_>, ip: IpAddr) -> Complaint {
    let message = format!(
        "spec.loadBalancerIP: {ip} is in no pool of tenant {}; name an address of {}, or none",
        asker.tenant,
        list(&asker.ranges)
    );
    Complaint::new(Reason::AddressOutside, message)
}

fn no_pool(asker: &Asker<'_>, balancer: &Balancer) -> Complaint {
    let family = match balancer.families {
        (true, true) => "IPv4 or IPv6",
        (false, true) => "IPv6",
        (true, false) | (false, false) => "IPv4",
    };
    let message = format!(
        "no AddressPool gives addresses of {family} to tenant {}; an administrator can make one",
        asker.tenant
    );
    Complaint::new(Reason::NoPool, message)
}

fn full(asker: &Asker<'_>, exhausted: Exhausted, now: &Now) -> Complaint {
    let until = match exhausted {
        Exhausted::Resting { until, .. } => until,
        Exhausted::Full(_) => now.moment + FULL_POOL_PAUSE,
    };
    let message =
        format!("tenant {} has no free address for load balancers: {exhausted}", asker.tenant);
    Complaint::new(Reason::PoolExhausted, message).again_at(until)
}

/// Ranges as people read them.
pub(super) fn list(ranges: &[Cidr]) -> String {
    match ranges {
        [] => "a pool (there is none)".into(),
        ranges => ranges.iter().map(Cidr::to_string).collect::<Vec<_>>().join(" or "),
    }
}
