//! A tenant gets its default network once, and goes when nothing is inside any more.

use atoll_api::{self as api, Reason, TenantPhase};
use atoll_types::{Cidr, Label, NetworkName};

use super::{hold, let_go};
use crate::action::{Action, Decision, Target};
use crate::conditions::{Verdict, conditions, named};
use crate::intent::{Kind, Malformed, NetworkPlan, ObjectName, Tenant};
use crate::world::{Now, World};

impl World {
    pub(crate) fn decide_tenant(&mut self, name: &ObjectName, now: &Now) -> Decision {
        let Some(tenant) = self.tenants.hold(name) else { return Decision::nothing() };
        if tenant.meta.deleting {
            return self.take_down_tenant(&tenant, now);
        }
        if !tenant.meta.is_held() {
            return hold(Kind::Tenant, &tenant.meta);
        }
        match self.default_network(&tenant) {
            Ok(Some(network)) => Action::CreateNetwork(Box::new(network)).into(),
            Ok(None) => self.report_tenant(&tenant, now),
            Err(malformed) => self.complain_of_default_network(&tenant, &malformed, now),
        }
    }

    /// The default network that is to be made, if one is.
    fn default_network(&self, tenant: &Tenant) -> Result<Option<api::Network>, Malformed> {
        let Some(name) = default_network_name(tenant) else { return Ok(None) };
        if tenant.has_default_network() || self.network_named(&name).is_some() {
            return Ok(None);
        }
        let (spec, source) = match &tenant.default_network {
            Some(own) => (Some(own_default(&name, own)), "spec.defaultNetwork"),
            None => (self.template.render(&name.tenant)?, "the template for default networks"),
        };
        let Some(spec) = spec else { return Ok(None) };
        NetworkPlan::check(&name.to_string(), &spec).map_err(|malformed| Malformed {
            message: format!("{source} gives a network that cannot be: {}", malformed.message),
            ..malformed
        })?;
        Ok(Some(api::Network::new(&name.to_string(), spec)))
    }

    fn report_tenant(&self, tenant: &Tenant, now: &Now) -> Decision {
        let network = default_network_name(tenant)
            .and_then(|name| Some((name.to_string(), self.network_named(&name)?)));
        match network {
            Some((name, network)) if !network.is_active() && !was_active(tenant) => {
                let message = format!("waits for its default network {name} to become Active");
                let verdict = Verdict::not_ready(Reason::InProgress, message);
                self.set_tenant_status(tenant, TenantPhase::Pending, &verdict, now)
            }
            Some(_) | None => {
                let verdict = Verdict::ready("namespaces, networks and pods can be made");
                self.set_tenant_status(tenant, TenantPhase::Active, &verdict, now)
            }
        }
    }

    fn complain_of_default_network(
        &mut self,
        tenant: &Tenant,
        malformed: &Malformed,
        now: &Now,
    ) -> Decision {
        let target = Target::new(Kind::Tenant, &tenant.meta);
        let said = self.say(target, malformed.reason, &malformed.message);
        let phase = if was_active(tenant) { TenantPhase::Active } else { TenantPhase::Pending };
        let mut decision = self.set_tenant_status(tenant, phase, &malformed.into(), now);
        decision.actions.extend(said);
        decision
    }

    fn take_down_tenant(&self, tenant: &Tenant, now: &Now) -> Decision {
        if !tenant.meta.is_held() {
            return Decision::nothing();
        }
        if let Some(inside) = self.inside_tenant(tenant) {
            let verdict = Verdict::not_ready(Reason::InUse, inside);
            return self.set_tenant_status(tenant, TenantPhase::Terminating, &verdict, now);
        }
        match default_network_name(tenant).and_then(|name| self.network_named(&name)) {
            None => let_go(Kind::Tenant, &tenant.meta).into(),
            Some(network) if network.meta.deleting => {
                let message = format!("waits for network {} to go", network.meta.name);
                let verdict = Verdict::not_ready(Reason::InProgress, message);
                self.set_tenant_status(tenant, TenantPhase::Terminating, &verdict, now)
            }
            Some(network) => Action::Delete(Target::new(Kind::Network, &network.meta)).into(),
        }
    }

    /// What somebody has to delete before the tenant can go: namespaces, and networks other than
    /// the default one, which goes with the tenant.
    fn inside_tenant(&self, tenant: &Tenant) -> Option<String> {
        let name = &tenant.meta.name.name;
        let default = default_network_name(tenant).map(|name| name.to_string());
        let networks = self.indexes.networks_of_tenant.of(name);
        let others = networks.filter(|network| Some(&network.name) != default.as_ref());
        let namespaces = self.indexes.namespaces_of_tenant.of(name);
        let inside = [
            ("namespaces", namespaces.map(ToString::to_string).collect::<Vec<_>>()),
            ("networks", others.map(ToString::to_string).collect()),
        ];
        let waits: Vec<String> = inside
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("its {what} to be deleted: {}", named(names.into_iter())))
            .collect();
        (!waits.is_empty()).then(|| format!("waits for {}", waits.join("; for ")))
    }

    /// The ranges from which a tenant's services get addresses.
    pub(super) fn service_ranges(&self, tenant: &Tenant) -> Vec<Cidr> {
        match tenant.service_ranges.is_empty() {
            true => self.settings.service.clone(),
            false => tenant.service_ranges.clone(),
        }
    }

    fn set_tenant_status(
        &self,
        tenant: &Tenant,
        phase: TenantPhase,
        verdict: &Verdict,
        now: &Now,
    ) -> Decision {
        let standing = tenant.status.clone().unwrap_or_default();
        let made =
            default_network_name(tenant).is_some_and(|name| self.network_named(&name).is_some());
        let networks = self.indexes.networks_of_tenant.of(&tenant.meta.name.name).len();
        let ports = self.indexes.seats_of_tenant.of(&tenant.meta.name.name).len();
        let service = self.service_ranges(tenant);
        let vips = self.vips_of(tenant);
        let has = [networks, ports, vips, self.outsides_of(&tenant.meta.name.name)];
        let ready = conditions(verdict, &tenant.meta, &standing.conditions, &now.time);
        let status = api::TenantStatus {
            phase,
            default_network_created: standing.default_network_created || made,
            networks: i32::try_from(networks).unwrap_or(i32::MAX),
            ports: i32::try_from(ports).unwrap_or(i32::MAX),
            vips: i32::try_from(vips).unwrap_or(i32::MAX),
            service_cidrs: service.iter().map(ToString::to_string).collect(),
            isolation: Some(self.isolation(tenant)),
            conditions: self.with_room(tenant, has, &ready, &now.time),
        };
        if tenant.status.as_ref() == Some(&status) {
            return Decision::nothing();
        }
        let target = Target::new(Kind::Tenant, &tenant.meta);
        Action::SetTenantStatus(target, Box::new(status)).into()
    }
}

/// A tenant that has been ready stays so: what it has serves on.
fn was_active(tenant: &Tenant) -> bool {
    tenant.status.as_ref().is_some_and(|status| status.phase == TenantPhase::Active)
}

fn own_default(name: &NetworkName, own: &api::DefaultNetwork) -> api::NetworkSpec {
    api::NetworkSpec {
        tenant: name.tenant.to_string(),
        type_: own.type_.clone(),
        vpc_id: None,
        cidrs: own.cidrs.clone(),
        isolation: own.isolation,
        dns: own.dns.clone(),
        egress: None,
    }
}

fn default_network_name(tenant: &Tenant) -> Option<NetworkName> {
    let tenant: Label = tenant.meta.name.name.parse().ok()?;
    Some(NetworkName::new(tenant, "default".parse().ok()?))
}
