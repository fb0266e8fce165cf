//! A service of a tenant gets an address of each family from its tenant's service ranges, or hears
//! why not.
//!
//! The rule: every address is claimed before the service's annotation says that it has it. What the
//! annotation says is what is asked for; without it, any address will do. A service has addresses of
//! its own families alone.

use std::net::IpAddr;

use atoll_api::{ClaimHolder, Reason, marks};
use atoll_types::{Cidr, Label};
use atoll_vpc::{Exhausted, Moment, Refusal};

use super::grant::holder_text;
use super::wait::Complaint;
use crate::action::{Action, Decision, Key, Target};
use crate::intent::{Claim, Kind, ObjectName, Service, Tenant, Thing, Vip, holder_of_service};
use crate::world::{Now, World};

/// How long a service waits before it asks again where all addresses are in use.
const FULL_RANGE_PAUSE: Moment = Moment::from_secs(5);

/// A service that is to have addresses, and whose.
struct Asker<'a> {
    name: &'a ObjectName,
    holder: ClaimHolder,
    tenant: Label,
    ranges: Vec<Cidr>,
}

impl Asker<'_> {
    fn vip(&self, ip: IpAddr) -> Vip {
        Vip { tenant: self.tenant.clone(), ip }
    }

    fn range_of_family(&self, ip: IpAddr) -> Option<Cidr> {
        self.ranges.iter().copied().find(|range| range.is_ipv4() == ip.is_ipv4())
    }

    fn ranges(&self) -> String {
        self.ranges.iter().map(Cidr::to_string).collect::<Vec<_>>().join(" and ")
    }
}

impl World {
    pub(crate) fn decide_service(&mut self, name: &ObjectName, now: &Now) -> Decision {
        let Some(service) = self.services.hold(name) else { return Decision::nothing() };
        let before = self.stop_waiting(&Key::new(Kind::Service, name.clone()));
        let tenant = self.tenant_of_service(&service);
        match self.next_addresses(&service, tenant.as_ref(), now) {
            Ok(decision) => {
                self.said.remove(&Key::new(Kind::Service, name.clone()));
                decision
            }
            Err(complaint) => {
                let target = Target::new(Kind::Service, &service.meta);
                self.complain(target, complaint, before, &[], now)
            }
        }
    }

    /// The addresses inside come first, then those that the outside knows, then what it says of others who
    /// may come in there: that it cannot be read keeps it from nothing else.
    fn next_addresses(
        &mut self,
        service: &Service,
        tenant: Option<&Label>,
        now: &Now,
    ) -> Result<Decision, Complaint> {
        let name = &service.meta.name;
        let vips = self.decide_vips(service, tenant, now);
        let vips = vips.inspect_err(|_| self.vips.drop_proposals(name, now.moment))?;
        if !vips.actions.is_empty() {
            return Ok(vips);
        }
        let balancer = self.next_balancer(service, tenant, now);
        let balancer = balancer.inspect_err(|_| self.outsides.drop_proposals(name, now.moment))?;
        match &service.opening {
            Err(malformed) if balancer.actions.is_empty() && tenant.is_some() => {
                Err(Complaint::from(malformed))
            }
            Err(_) | Ok(()) => Ok(balancer),
        }
    }

    fn decide_vips(
        &mut self,
        service: &Service,
        tenant: Option<&Label>,
        now: &Now,
    ) -> Result<Decision, Complaint> {
        if !service.has_address || tenant.is_none() {
            return Ok(self.take_vips_back(service, now));
        }
        let Some(asker) = tenant.and_then(|tenant| self.asker(service, tenant)) else {
            return Ok(Decision::nothing());
        };
        self.next_vips(service, &asker, now)
    }

    /// The tenant whose namespace a service is in.
    pub(super) fn tenant_of_service(&self, service: &Service) -> Option<Label> {
        let namespace = ObjectName::cluster(service.meta.name.namespace.as_str());
        self.namespaces.get(&namespace)?.tenant.as_ref()?.parse().ok()
    }

    fn asker<'a>(&self, service: &'a Service, tenant: &Label) -> Option<Asker<'a>> {
        let found: &Tenant = self.tenants.get(&ObjectName::cluster(tenant.as_str()))?;
        Some(Asker {
            name: &service.meta.name,
            holder: holder_of_service(&service.meta.name, &service.meta.uid),
            tenant: tenant.clone(),
            ranges: self.service_ranges(found),
        })
    }

    /// Claims what the service lacks, then tells it what it has.
    fn next_vips(
        &mut self,
        service: &Service,
        asker: &Asker<'_>,
        now: &Now,
    ) -> Result<Decision, Complaint> {
        if service.meta.deleting {
            return Ok(Decision::nothing());
        }
        let ips = self.grant_vips(service, asker, now)?;
        let things = ips.iter().map(|ip| Thing::Vip(asker.vip(*ip)));
        let missing: Vec<Thing> = things.filter(|it| self.claim_on(it).is_none()).collect();
        let claims = missing.iter().map(|it| Action::Claim(it.clone(), asker.holder.clone()));
        let text = ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",");
        let text = (!ips.is_empty()).then_some(text);
        let known = service.vips.as_ref().is_ok_and(|vips| same(vips, &ips));
        let target = || Target::new(Kind::Service, &service.meta);
        let tell = (!known).then(|| Action::TellService(target(), text));
        if missing.is_empty() {
            self.vips.drop_proposals(asker.name, now.moment);
        }
        Ok(Decision::act(claims.chain(tell)))
    }

    /// The addresses asked for, and one of each other family that the service has and the tenant has
    /// a range of. What it has of a family that it lost is left out.
    fn grant_vips(
        &mut self,
        service: &Service,
        asker: &Asker<'_>,
        now: &Now,
    ) -> Result<Vec<IpAddr>, Complaint> {
        let asked = service.vips.as_ref().map_err(Complaint::from)?;
        let mut ips = Vec::new();
        for ip in asked {
            if service.has_family_of(*ip) {
                self.grant_vip(asker, *ip, now)?;
                ips.push(*ip);
            } else if !self.is_vip_of(asker, *ip) {
                return Err(of_another_family(*ip));
            }
        }
        for range in asker.ranges.iter().filter(|range| service.has_family_of(range.first())) {
            if !ips.iter().any(|ip| ip.is_ipv4() == range.is_ipv4()) {
                ips.push(self.grant_any_vip(asker, *range, now)?);
            }
        }
        Ok(ips)
    }

    fn grant_vip(&mut self, asker: &Asker<'_>, ip: IpAddr, now: &Now) -> Result<(), Complaint> {
        if self.is_vip_of(asker, ip) {
            return Ok(());
        }
        let range = asker.range_of_family(ip).filter(|range| range.contains(ip));
        let range = range.ok_or_else(|| outside(asker, ip))?;
        self.check_vip_quota(&asker.tenant, now)?;
        match self.vips.propose_exactly(asker.name, &asker.tenant, range, ip) {
            Ok(()) => Ok(()),
            Err(Refusal::InUse) => Err(self.vip_in_use(asker, ip)),
            Err(Refusal::Reserved | Refusal::Outside) => Err(reserved(asker, ip)),
        }
    }

    fn grant_any_vip(
        &mut self,
        asker: &Asker<'_>,
        range: Cidr,
        now: &Now,
    ) -> Result<IpAddr, Complaint> {
        if let Some(standing) = self.standing_vip(asker, range) {
            return Ok(standing);
        }
        self.check_vip_quota(&asker.tenant, now)?;
        let proposed = self.vips.propose(asker.name, &asker.tenant, range, now.moment);
        proposed.map_err(|exhausted| full(asker, exhausted, now))
    }

    /// What this service has of a range's family: by a claim, or by a proposal that stands.
    fn standing_vip(&self, asker: &Asker<'_>, range: Cidr) -> Option<IpAddr> {
        let claimed = self.indexes.claims_of_service.of(asker.name).filter_map(Thing::vip);
        let all = claimed.chain(self.vips.proposed_to(asker.name));
        let mut mine =
            all.filter(|vip| self.is_vip_of(asker, vip.ip) && vip.tenant == asker.tenant);
        mine.find(|vip| vip.ip.is_ipv4() == range.is_ipv4()).map(|vip| vip.ip)
    }

    /// Whether an address is this service's: claimed by it, or proposed to it and claimed by nobody.
    fn is_vip_of(&self, asker: &Asker<'_>, ip: IpAddr) -> bool {
        let vip = asker.vip(ip);
        match self.claim_on(&Thing::Vip(vip.clone())) {
            Some(claim) => claim.holder == asker.holder,
            None => self.vips.proposed_to(asker.name).contains(&vip),
        }
    }

    /// What a service has no right to any more goes: first from its annotation.
    fn take_vips_back(&mut self, service: &Service, now: &Now) -> Decision {
        self.vips.drop_proposals(&service.meta.name, now.moment);
        let holder = holder_of_service(&service.meta.name, &service.meta.uid);
        let things = self.indexes.claims_of_service.of(&service.meta.name);
        let vips = things.filter(|it| it.vip().is_some());
        let mine = vips.filter(|it| self.claim_on(it).is_some_and(|it| it.holder == holder));
        let mine: Vec<&Thing> = mine.collect();
        let told = mine.iter().filter_map(|it| it.vip()).any(|vip| service.has(vip.ip));
        let target = Target::new(Kind::Service, &service.meta);
        let untell = told.then_some(Action::TellService(target, None));
        let returns = mine.into_iter().map(|thing| self.give_back(thing.clone(), &holder));
        Decision::act(untell.into_iter().chain(returns))
    }

    /// What to do about a claim whose service is gone: it existed before its claims, so that
    /// nothing has to be waited for.
    pub(super) fn farewell_to_service(&self, claim: &Claim, thing: &Thing) -> Option<Decision> {
        let (name, uid) = claim.service_holder()?;
        let lives = self.services.get(&name).is_some_and(|service| service.meta.uid == uid);
        let release = || self.give_back(thing.clone(), &claim.holder);
        (!lives).then(|| Decision::act([self.confirm(Kind::Service, &name), release()]))
    }

    /// If the service that claims an address does not have it: what to look at to be sure.
    pub(super) fn proof_of_lost_vip(&self, claim: &Claim, vip: &Vip) -> Option<Vec<Action>> {
        let (name, _) = claim.service_holder()?;
        let service = self.services.get(&name)?;
        let has =
            service.has(vip.ip) && self.tenant_of_service(service).as_ref() == Some(&vip.tenant);
        (!has).then(|| vec![self.confirm(Kind::Service, &name)])
    }

    fn vip_in_use(&self, asker: &Asker<'_>, ip: IpAddr) -> Complaint {
        let thing = Thing::Vip(asker.vip(ip));
        let holder = self.claim_on(&thing).map_or_else(|| "another service".into(), holder_text);
        let message = format!(
            "annotation {}: {ip} is in use by {holder}; name another address of {}, or none",
            marks::VIP,
            asker.ranges()
        );
        Complaint::new(Reason::AddressInUse, message).waiting_for_thing(thing)
    }
}

/// Whether two lists have the same addresses.
fn same(one: &[IpAddr], other: &[IpAddr]) -> bool {
    one.len() == other.len() && one.iter().all(|ip| other.contains(ip))
}

fn outside(asker: &Asker<'_>, ip: IpAddr) -> Complaint {
    let message = format!(
        "annotation {}: {ip} is outside the service ranges of tenant {}; name an address of {}, or none",
        marks::VIP,
        asker.tenant,
        asker.ranges()
    );
    Complaint::new(Reason::AddressOutside, message)
}

fn of_another_family(ip: IpAddr) -> Complaint {
    let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
    let message = format!(
        "annotation {}: {ip} is of {family}, which the service does not have; name an address of a \
         family of spec.ipFamilies, or add {family} there",
        marks::VIP
    );
    Complaint::new(Reason::AddressOutside, message)
}

fn reserved(asker: &Asker<'_>, ip: IpAddr) -> Complaint {
    let message = format!(
        "annotation {}: {ip} is kept back; name another address of {}, or none",
        marks::VIP,
        asker.ranges()
    );
    Complaint::new(Reason::AddressReserved, message)
}

fn full(asker: &Asker<'_>, exhausted: Exhausted, now: &Now) -> Complaint {
    let until = match exhausted {
        Exhausted::Resting { until, .. } => until,
        Exhausted::Full(_) => now.moment + FULL_RANGE_PAUSE,
    };
    let message = format!("tenant {} has no free address for services: {exhausted}", asker.tenant);
    Complaint::new(Reason::SubnetExhausted, message).again_at(until)
}
