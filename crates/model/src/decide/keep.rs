//! Ports that outlive pods: made beforehand by people, or kept for the next pod of a name.
//!
//! The rule: such a port exists before its claims, and they are its own as long as it exists,
//! whichever pod has it.

use atoll_api::{self as api, Reason};
use atoll_types::{MacAddr, NetworkName};

use super::grant::{Asker, Granted, Joined};
use super::hold;
use super::wait::Complaint;
use crate::action::{Action, Decision, Key, Target};
use crate::intent::{Bound, Kind, Nic, ObjectName, Pod, Port, PortPlan, Thing};
use crate::port_change::{Filling, PortChange};
use crate::world::{Now, World};

impl World {
    /// What to do about a port that outlives pods and whose addresses are nobody else's.
    pub(super) fn decide_kept_port(&mut self, port: &Port, now: &Now) -> Decision {
        let before = self.stop_waiting(&Key::new(Kind::Port, port.meta.name.clone()));
        if !port.meta.is_held() {
            return hold(Kind::Port, &port.meta);
        }
        if let Some(bound) = port.bound.as_ref().filter(|_| !self.is_needed(port)) {
            return self.release_port(port, bound);
        }
        match self.fill(port, now) {
            Ok(Some(decision)) => decision,
            Ok(None) => self.rest_port(port, now),
            Err(complaint) => {
                let target = Target::new(Kind::Port, &port.meta);
                self.complain(target, complaint, before, &[port.holder()], now)
            }
        }
    }

    /// The pod is gone, or so it seems: news of ports and of pods come on different ways. What
    /// its node reported goes first, so that the next pod is not taken for attached.
    fn release_port(&self, port: &Port, bound: &Bound) -> Decision {
        let target = Target::new(Kind::Port, &port.meta);
        let next = match port.attached {
            true => Action::DetachPort(target),
            false => Action::ChangePort(target, PortChange::Release),
        };
        Decision::act([self.confirm(Kind::Pod, &bound.pod), next])
    }

    /// Claims what a port lacks and writes it into the port, if it lacks anything.
    fn fill(&mut self, port: &Port, now: &Now) -> Result<Option<Decision>, Complaint> {
        let plan = port.plan.as_ref().map_err(Complaint::from)?;
        let claimed =
            port.addresses().all(|address| self.claim_on(&Thing::Address(address)).is_some());
        let is_filled = port.network().is_some() && plan.mac.is_some() && port.persistent;
        if is_filled && claimed {
            self.drop_proposals(&port.meta.name, now.moment);
            return Ok(None);
        }
        let network = self.network_for_port(port, plan)?;
        self.check_port_quota(&network.name.tenant, &port.meta.name, &network.name, now)?;
        let (subnet, ips) = (plan.subnet.as_deref(), plan.ips.as_slice());
        let asker = Asker { holder: port.address_holder(), subnet, ips };
        let granted = self.grant(asker, &network, now)?;
        self.take_seat(&network.name.tenant, &port.meta.name);
        let mut actions = granted.claims(network.id);
        if !is_filled {
            let filling = filling(&network, granted, plan.mac);
            let target = Target::new(Kind::Port, &port.meta);
            actions.push(Action::ChangePort(target, PortChange::Fill(filling)));
        }
        Ok(Some(Decision::act(actions)))
    }

    /// The network that a port names, which must be of its namespace's tenant.
    fn network_for_port(&self, port: &Port, plan: &PortPlan) -> Result<Joined, Complaint> {
        let namespace = &port.meta.name.namespace;
        let home = self.namespaces.get(&ObjectName::cluster(namespace.as_str()));
        let tenant = home.and_then(|home| home.tenant.as_deref());
        if tenant != Some(plan.network.tenant.as_str()) {
            let network = &plan.network;
            let message = format!("spec.network: {network} is no network of namespace {namespace}");
            let complaint = Complaint::new(Reason::NetworkNotFound, message);
            return Err(complaint.waiting_for(network, None));
        }
        self.joined(&plan.network)
    }

    /// A port that a StatefulSet kept for a pod which does not come again goes.
    fn rest_port(&mut self, port: &Port, now: &Now) -> Decision {
        if port.bound.is_some() || !port.of_stateful_set {
            return Decision::nothing();
        }
        let since = *self.idle_since.entry(port.meta.name.clone()).or_insert(now.moment);
        let due = since + self.settings.keep;
        if now.moment < due {
            return Decision::nothing().and_again(due);
        }
        Action::Delete(Target::new(Kind::Port, &port.meta)).into()
    }
}

fn filling(network: &Joined, granted: Granted, mac: Option<MacAddr>) -> Filling {
    let mac = mac.or_else(|| granted.ips.first().map(|ip| MacAddr::for_ip(*ip)));
    Filling {
        network_id: network.id.get(),
        subnet: granted.subnet,
        ips: granted.ips.iter().map(ToString::to_string).collect(),
        mac: mac.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

/// A port that is to be kept for the pods of a name, without addresses yet.
pub(super) fn kept_port(
    pod: &Pod,
    nic: &Nic,
    port: &ObjectName,
    network: &NetworkName,
) -> api::Port {
    let spec = api::PortSpec {
        network: network.to_string(),
        subnet: nic.subnet.clone().unwrap_or_default(),
        ips: nic.ips.iter().map(ToString::to_string).collect(),
        mac: nic.mac.as_ref().map(ToString::to_string).unwrap_or_default(),
        persistent: true,
        ..api::PortSpec::default()
    };
    let mut object = api::Port::new(&port.name, spec);
    object.metadata.namespace = Some(port.namespace.clone());
    object.metadata.finalizers = Some(vec![api::FINALIZER.to_owned()]);
    object.metadata.owner_references = pod.stateful_set.clone().map(|mut owner| {
        owner.controller = None;
        owner.block_owner_deletion = None;
        vec![owner]
    });
    object
}

/// Whether a port that is kept is what a pod asks for.
pub(super) fn misfit(
    port: &Port,
    plan: &PortPlan,
    nic: &Nic,
    network: Option<&NetworkName>,
) -> Option<String> {
    let name = &port.meta.name;
    if let Some(network) = network.filter(|network| plan.network != **network) {
        return Some(format!("port {name} is in network {}, not in {network}", plan.network));
    }
    let missing = nic.ips.iter().find(|ip| !plan.ips.contains(ip))?;
    Some(format!("port {name} does not have address {missing}"))
}
