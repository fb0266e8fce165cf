//! A pod of a tenant gets a port for each of its interfaces, or hears why not.
//!
//! The rule: all or nothing. No port is made before every address of every interface is claimed,
//! and the first interface's port comes last: the pod starts when it is there.

use std::sync::Arc;

use atoll_api::{self as api, Reason, marks};
use atoll_types::{Label, MacAddr, NetworkName};
use atoll_vpc::Holder;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::grant::{Asker, Granted, Joined};
use super::keep::{kept_port, misfit};
use super::routes::Ways;
use super::wait::Complaint;
use crate::action::{Action, Decision, Key, Target, Tone};
use crate::intent::{Kind, Network, Nic, ObjectName, Pod, Port, holder_of_port};
use crate::port_change::{Binding, PortChange};
use crate::world::{Now, World};

/// What is next for one interface of a pod.
enum Next {
    /// It has its port.
    Has(Arc<Port>),
    /// A port is to be made for it, that goes with the pod.
    Make(Joined),
    /// A port is to be made that stays, and then taken.
    Keep(Joined),
    /// A port that stays is there to be taken.
    Take(Arc<Port>),
    /// A port that was kept for another wish is in the way.
    Clear(Arc<Port>),
    /// The port of an earlier pod of this name is in the way, and goes by itself.
    Await,
}

impl Next {
    fn network(&self) -> Option<&NetworkName> {
        match self {
            Next::Make(network) | Next::Keep(network) => Some(&network.name),
            Next::Has(port) | Next::Take(port) | Next::Clear(port) => port.network(),
            Next::Await => None,
        }
    }
}

impl World {
    pub(crate) fn decide_pod(&mut self, name: &ObjectName, now: &Now) -> Decision {
        let Some(pod) = self.pods.hold(name) else { return Decision::nothing() };
        let before = self.stop_waiting(&Key::new(Kind::Pod, name.clone()));
        if !pod.needs_port() {
            return Decision::nothing();
        }
        match self.next_ports(&pod, now) {
            Ok(decision) => decision,
            Err(complaint) => {
                let holders: Vec<_> =
                    pod.port_names().map(|port| holder_of_port(&port, &pod.meta.uid)).collect();
                let target = Target::new(Kind::Pod, &pod.meta);
                self.complain(target, complaint, before, &holders, now)
            }
        }
    }

    fn next_ports(&mut self, pod: &Pod, now: &Now) -> Result<Decision, Complaint> {
        let Some(tenant) = self.tenant_of(pod)? else { return Ok(Decision::nothing()) };
        let nics = pod.nics.as_ref().map_err(Complaint::from)?;
        let mut all = Vec::new();
        for nic in nics {
            let next = self.next_of(pod, &tenant, nic)?;
            all.push((self.wish(nic, &next), next));
        }
        if all.iter().all(|(_, next)| matches!(next, Next::Has(_))) {
            self.said.remove(&Key::new(Kind::Pod, pod.meta.name.clone()));
            let placed = all.iter().filter_map(|(_, next)| place(next, pod));
            let changed: Vec<Action> = placed.chain(self.reroute(pod, &all)).collect();
            return Ok(Decision::act(changed.into_iter().chain(self.tell(pod))));
        }
        if pod.meta.deleting || all.iter().any(|(_, next)| matches!(next, Next::Await)) {
            return Ok(Decision::act(all.iter().filter_map(|(_, next)| place(next, pod))));
        }
        let prepared: Vec<Action> =
            all.iter().filter_map(|(nic, next)| prepare(pod, nic, next)).collect();
        if !prepared.is_empty() {
            return Ok(Decision::act(prepared));
        }
        self.wire(pod, &tenant, &all, now)
    }

    /// What can be asked of an interface: on a flat network, no place.
    fn wish(&self, nic: &Nic, next: &Next) -> Nic {
        let network = next.network().and_then(|name| self.network_named(name));
        let is_idle = network.is_some_and(Network::ignores_nic_requests);
        if is_idle { nic.content() } else { nic.clone() }
    }

    fn tenant_of(&self, pod: &Pod) -> Result<Option<Label>, Complaint> {
        let namespace = ObjectName::cluster(pod.meta.name.namespace.as_str());
        let tenant = self.namespaces.get(&namespace).and_then(|found| found.tenant.as_ref());
        tenant.map(|tenant| tenant.parse()).transpose().map_err(|error| {
            let message = format!("label {} of namespace {namespace}: {error}", marks::TENANT);
            Complaint::new(Reason::RequestMalformed, message)
        })
    }

    fn next_of(&self, pod: &Pod, tenant: &Label, nic: &Nic) -> Result<Next, Complaint> {
        let name = pod.port_name(nic);
        match self.ports.hold(&name) {
            Some(port) if port.is_of(&pod.meta.uid) => Ok(Next::Has(port)),
            Some(port) if port.meta.deleting => Ok(Next::Await),
            Some(port) => self.next_with(&port, pod, tenant, nic),
            None if nic.port.is_some() => {
                let message = format!("port {name} does not exist; the pod starts once it does");
                Err(Complaint::new(Reason::PortNotFound, message).waiting_for_port(&name))
            }
            None => {
                let network = self.joined(&self.network_of(pod, tenant, nic)?)?;
                Ok(if pod.keeps_addresses() { Next::Keep(network) } else { Next::Make(network) })
            }
        }
    }

    /// What is next where a port stands that the pod does not have.
    fn next_with(
        &self,
        port: &Arc<Port>,
        pod: &Pod,
        tenant: &Label,
        nic: &Nic,
    ) -> Result<Next, Complaint> {
        let name = &port.meta.name;
        let waiting = |reason, message| Complaint::new(reason, message).waiting_for_port(name);
        match (&port.bound, &port.plan) {
            (Some(_), _) if !port.is_kept() => Ok(Next::Await),
            (Some(bound), _) if self.is_needed(port) => {
                Err(waiting(Reason::InUse, format!("port {name} is used by pod {}", bound.pod)))
            }
            (Some(_), _) => Ok(Next::Await),
            (None, Ok(plan)) if port.network().is_some() && port.persistent => {
                let asked = self.asked_network(pod, tenant, nic)?;
                match misfit(port, plan, nic, asked.as_ref()) {
                    None => Ok(Next::Take(port.clone())),
                    Some(_) if port.of_stateful_set => Ok(Next::Clear(port.clone())),
                    Some(message) => Err(waiting(Reason::PortUnfit, message)),
                }
            }
            (None, _) => {
                let tell = format!(
                    "`kubectl describe port -n {} {}` tells why",
                    name.namespace, name.name
                );
                Err(waiting(
                    Reason::PortNotReady,
                    format!("port {name} has no addresses yet: {tell}"),
                ))
            }
        }
    }

    /// The network that a port must be in: for one that the pod names, any of the tenant's unless
    /// the pod says which.
    fn asked_network(
        &self,
        pod: &Pod,
        tenant: &Label,
        nic: &Nic,
    ) -> Result<Option<NetworkName>, Complaint> {
        let says = nic.network.is_some() || pod.network.is_some();
        match nic.port.is_some() && !says {
            true => Ok(None),
            false => self.network_of(pod, tenant, nic).map(Some),
        }
    }

    /// The network of an interface: the one it names, else the pod, else its namespace, else the
    /// tenant's `default`.
    fn network_of(&self, pod: &Pod, tenant: &Label, nic: &Nic) -> Result<NetworkName, Complaint> {
        if let Some(network) = &nic.network {
            return Ok(NetworkName::new(tenant.clone(), network.clone()));
        }
        let namespace = ObjectName::cluster(pod.meta.name.namespace.as_str());
        let from_namespace = self.namespaces.get(&namespace).and_then(|it| it.network.as_deref());
        let (short, place) = match (pod.network.as_deref(), from_namespace) {
            (Some(short), _) => (short, format!("label {}", pod.network_label)),
            (None, Some(short)) => {
                (short, format!("label {} of namespace {namespace}", marks::NETWORK))
            }
            (None, None) => ("default", String::new()),
        };
        let label: Label = short.parse().map_err(|error| {
            Complaint::new(Reason::RequestMalformed, format!("{place}: {error}"))
        })?;
        Ok(NetworkName::new(tenant.clone(), label))
    }

    /// A network that ports can be in.
    pub(super) fn joined(&self, name: &NetworkName) -> Result<Joined, Complaint> {
        let waiting = |reason, message| Complaint::new(reason, message).waiting_for(name, None);
        let Some(network) = self.network_named(name) else {
            let message = format!("network {name} does not exist; the pod starts once it does");
            return Err(waiting(Reason::NetworkNotFound, message));
        };
        if let (Some((_, type_)), true) = (network.foreign(), network.is_active()) {
            let message = format!(
                "network {name} is of type {type_}: its provider gives its addresses, and Atoll none"
            );
            return Err(waiting(Reason::NetworkNotReady, message));
        }
        match network.id() {
            Some(id) if network.is_active() => Ok(Joined { name: name.clone(), id }),
            Some(_) | None => {
                let phase = network.phase();
                let message =
                    format!("network {name} is {phase:?}; the pod starts once it is Active");
                Err(waiting(Reason::NetworkNotReady, message))
            }
        }
    }

    /// Claims, then the ports, the first interface's last.
    fn wire(
        &mut self,
        pod: &Pod,
        tenant: &Label,
        all: &[(Nic, Next)],
        now: &Now,
    ) -> Result<Decision, Complaint> {
        let mut ways = Ways::default();
        let (mut claims, mut ports) = (Vec::new(), Vec::new());
        for (position, (nic, next)) in all.iter().enumerate() {
            let through = next.network().map(|network| ways.through(self, network));
            let binding = binding(pod, all, position, through.unwrap_or_default());
            match next {
                Next::Make(network) => {
                    let (claimed, port) = self.make(pod, tenant, nic, network, &binding, now)?;
                    claims.extend(claimed);
                    ports.push(port);
                }
                Next::Take(port) => {
                    let target = Target::new(Kind::Port, &port.meta);
                    ports.push(Action::ChangePort(target, PortChange::Bind(binding)));
                }
                Next::Has(_) => ports.extend(place(next, pod)),
                Next::Keep(_) | Next::Clear(_) | Next::Await => {}
            }
        }
        let warnings = ways.warning().into_iter().chain(ignored(pod, all));
        let warnings = warnings.map(|message| partly_served(pod, message));
        ports.reverse();
        Ok(Decision::act(claims.into_iter().chain(ports).chain(warnings)))
    }

    /// Tells the ports of a pod with several interfaces what is reached through each, where the
    /// ranges of their VPCs changed, and people where an interface lost one to an earlier one.
    fn reroute(&self, pod: &Pod, all: &[(Nic, Next)]) -> Vec<Action> {
        let mut ways = Ways::default();
        let (mut changes, mut lost) = (Vec::new(), false);
        for (_, next) in all.iter().filter(|_| all.len() > 1) {
            let Some(network) = next.network() else { continue };
            let through = ways.through(self, network);
            lost |= loses(next, &through);
            changes.extend(route(next, through));
        }
        changes.extend(ways.warning().filter(|_| lost).map(|message| partly_served(pod, message)));
        changes
    }

    /// The claims and the making of a port that goes with its pod.
    fn make(
        &mut self,
        pod: &Pod,
        tenant: &Label,
        nic: &Nic,
        network: &Joined,
        binding: &Binding,
        now: &Now,
    ) -> Result<(Vec<Action>, Action), Complaint> {
        let port = &pod.port_name(nic);
        self.check_port_quota(tenant, port, &network.name, now)?;
        let holder = Holder { name: port.clone(), incarnation: pod.meta.uid.as_str().into() };
        let asker = Asker { holder, subnet: nic.subnet.as_deref(), ips: &nic.ips };
        let granted = self.grant(asker, network, now)?;
        self.take_seat(tenant, port);
        let made = new_port(pod, nic, port, network, &granted, binding);
        Ok((granted.claims(network.id), Action::CreatePort(Box::new(made))))
    }
}

/// What a pod asked of a flat network, if it asked for a place.
fn ignored(pod: &Pod, all: &[(Nic, Next)]) -> Option<String> {
    let asked = pod.nics.iter().flatten().zip(all);
    let mut ignored = asked.filter(|(asked, (wish, _))| asked.asks_for_place() && *asked != wish);
    let (nic, (_, next)) = ignored.next()?;
    let network = next.network()?;
    Some(format!(
        "subnet and ip of interface {} are ignored: network {network} is flat and gives any address",
        nic.name
    ))
}

/// What has to happen before a port that stays can be taken.
fn prepare(pod: &Pod, nic: &Nic, next: &Next) -> Option<Action> {
    match next {
        Next::Keep(network) => {
            let port = kept_port(pod, nic, &pod.port_name(nic), &network.name);
            Some(Action::CreatePort(Box::new(port)))
        }
        Next::Clear(port) => Some(Action::Delete(Target::new(Kind::Port, &port.meta))),
        Next::Has(_) | Next::Make(_) | Next::Take(_) | Next::Await => None,
    }
}

/// Tells a port the node of its pod, once it is known.
fn place(next: &Next, pod: &Pod) -> Option<Action> {
    let Next::Has(port) = next else { return None };
    let known = port.bound.as_ref().and_then(|bound| bound.node.as_ref());
    let node = pod.node.as_ref().filter(|node| known != Some(node))?;
    let change = PortChange::Place(node.clone());
    (!port.meta.deleting).then(|| Action::ChangePort(Target::new(Kind::Port, &port.meta), change))
}

/// Tells a port that is not its pod's first what is reached through it, if that changed.
fn route(next: &Next, through: Vec<String>) -> Option<Action> {
    let Next::Has(port) = next else { return None };
    let bound = port.bound.as_ref()?;
    let changed = !bound.primary && bound.routes != through && !port.meta.deleting;
    let target = || Target::new(Kind::Port, &port.meta);
    changed.then(|| Action::ChangePort(target(), PortChange::Route(through)))
}

/// Whether a port that is not its pod's first reaches more than it is to.
fn loses(next: &Next, through: &[String]) -> bool {
    let Next::Has(port) = next else { return false };
    let bound = port.bound.as_ref().filter(|bound| !bound.primary && !port.meta.deleting);
    bound.is_some_and(|bound| bound.routes.iter().any(|range| !through.contains(range)))
}

fn partly_served(pod: &Pod, message: String) -> Action {
    let target = Target::new(Kind::Pod, &pod.meta);
    Action::Say(target, Tone::Warning, Reason::PartlyServed, message)
}

/// The place in the pod of one of its interfaces.
fn binding(pod: &Pod, all: &[(Nic, Next)], position: usize, through: Vec<String>) -> Binding {
    let primary = position == 0;
    let names = all.iter().map(|(nic, _)| nic.name.to_string());
    Binding {
        pod: pod.meta.name.name.clone(),
        pod_uid: pod.meta.uid.clone(),
        interface: all[position].0.name.to_string(),
        interface_type: all[position].0.kind,
        node: pod.node.clone(),
        primary,
        other_interfaces: if primary { names.skip(1).collect() } else { Vec::new() },
        routes: if primary { Vec::new() } else { through },
    }
}

fn new_port(
    pod: &Pod,
    nic: &Nic,
    port: &ObjectName,
    network: &Joined,
    granted: &Granted,
    binding: &Binding,
) -> api::Port {
    let mac = nic.mac.or_else(|| granted.ips.first().map(|ip| MacAddr::for_ip(*ip)));
    let mut spec = api::PortSpec {
        network: network.name.to_string(),
        network_id: network.id.get(),
        subnet: granted.subnet.clone(),
        ips: granted.ips.iter().map(ToString::to_string).collect(),
        mac: mac.as_ref().map(ToString::to_string).unwrap_or_default(),
        ..api::PortSpec::default()
    };
    binding.write(&mut spec);
    let mut object = api::Port::new(&port.name, spec);
    object.metadata.namespace = Some(port.namespace.clone());
    object.metadata.finalizers = Some(vec![api::FINALIZER.to_owned()]);
    object.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.meta.name.name.clone(),
        uid: pod.meta.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    object
}
