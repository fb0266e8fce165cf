//! A pod of a tenant gets its port, or hears why not.

use atoll_api::{self as api, Reason, marks};
use atoll_types::{Label, MacAddr, NetAddr, NetworkName};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::grant::{Granted, Joined};
use crate::action::{Action, Decision, Target};
use crate::allocate::Moment;
use crate::intent::{Kind, Malformed, Nic, ObjectName, Pod, Port, Thing, holder_of_port};
use crate::world::{Now, World};

/// What a pod without a port waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The network.
    network: NetworkName,
    /// The address that somebody else has.
    thing: Option<Thing>,
}

/// A pod that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    wait: Wait,
    reason: Reason,
    since: Moment,
}

/// How long something that mostly solves itself may last before people are told.
fn patience(reason: Reason) -> Moment {
    match reason {
        Reason::NetworkNotFound => Moment::from_secs(1),
        Reason::NetworkNotReady | Reason::SubnetNotReady => Moment::from_secs(5),
        _ => Moment::ZERO,
    }
}

/// Why a pod has no port yet.
pub(super) struct Complaint {
    reason: Reason,
    message: String,
    wait: Option<Box<Wait>>,
    again: Option<Moment>,
}

impl World {
    pub(crate) fn decide_pod(&mut self, name: &ObjectName, now: &Now) -> Decision {
        let Some(pod) = self.pods.get(name).cloned() else { return Decision::nothing() };
        let before = self.stop_waiting(name);
        if !pod.needs_port() {
            return Decision::nothing();
        }
        match self.next_port(&pod, now) {
            Ok(decision) => decision,
            Err(complaint) => self.complain(&pod, complaint, before, now),
        }
    }

    fn next_port(&mut self, pod: &Pod, now: &Now) -> Result<Decision, Complaint> {
        let Some(tenant) = self.tenant_of(pod)? else { return Ok(Decision::nothing()) };
        for (nic, port) in interfaces(pod)?.iter().zip(port_names(pod)) {
            match self.ports.get(&port) {
                Some(known) if known.pod_uid == pod.meta.uid => {
                    if let Some(placed) = place(known, pod) {
                        return Ok(placed.into());
                    }
                }
                Some(_) => return Ok(Decision::nothing()),
                None if pod.meta.deleting => return Ok(Decision::nothing()),
                None => return self.make_port(pod, &tenant, nic, &port, now),
            }
        }
        self.said.remove(&Target::new(Kind::Pod, &pod.meta).key);
        Ok(Decision::nothing())
    }

    fn tenant_of(&self, pod: &Pod) -> Result<Option<Label>, Complaint> {
        let namespace = ObjectName::cluster(pod.meta.name.namespace.as_str());
        let tenant = self.namespaces.get(&namespace).and_then(|found| found.tenant.as_ref());
        tenant.map(|tenant| tenant.parse()).transpose().map_err(|error| {
            let message = format!("label {} of namespace {namespace}: {error}", marks::TENANT);
            Complaint::new(Reason::RequestMalformed, message)
        })
    }

    fn make_port(
        &mut self,
        pod: &Pod,
        tenant: &Label,
        nic: &Nic,
        port: &ObjectName,
        now: &Now,
    ) -> Result<Decision, Complaint> {
        let network = self.join(pod, tenant)?;
        self.check_port_quota(tenant, port, &network.name, now)?;
        let granted = self.grant(pod, nic, port, &network, now)?;
        self.take_seat(tenant, port);
        let address = NetAddr::new(network.id, granted.ip);
        Ok(Decision::act([
            Action::Claim(Thing::Address(address), holder_of_port(port, &pod.meta.uid)),
            Action::CreatePort(Box::new(new_port(pod, nic, port, &network, &granted))),
        ]))
    }

    /// The network that the pod names, else its namespace, else the tenant's `default`.
    fn join(&self, pod: &Pod, tenant: &Label) -> Result<Joined, Complaint> {
        let namespace = ObjectName::cluster(pod.meta.name.namespace.as_str());
        let from_namespace = self.namespaces.get(&namespace).and_then(|it| it.network.as_deref());
        let short = pod.network.as_deref().or(from_namespace).unwrap_or("default");
        let label: Label = short.parse().map_err(|error| {
            Complaint::new(Reason::RequestMalformed, format!("label {}: {error}", marks::NETWORK))
        })?;
        let name = NetworkName::new(tenant.clone(), label);
        let waiting = |reason, message| Complaint::new(reason, message).waiting_for(&name, None);
        let Some(network) = self.network_named(&name) else {
            let message = format!("network {name} does not exist; the pod starts once it does");
            return Err(waiting(Reason::NetworkNotFound, message));
        };
        match network.id() {
            Some(id) if network.is_active() => Ok(Joined { name, id }),
            Some(_) | None => {
                let phase = network.phase();
                let message =
                    format!("network {name} is {phase:?}; the pod starts once it is Active");
                Err(waiting(Reason::NetworkNotReady, message))
            }
        }
    }

    fn complain(
        &mut self,
        pod: &Pod,
        complaint: Complaint,
        before: Option<Waiting>,
        now: &Now,
    ) -> Decision {
        let same = before.filter(|waiting| waiting.reason == complaint.reason);
        let since = same.map_or(now.moment, |waiting| waiting.since);
        if let Some(wait) = complaint.wait {
            let reason = complaint.reason;
            let farewell = self.let_go_of_network(pod, &wait.network, since, now);
            self.start_waiting(&pod.meta.name, Waiting { wait: *wait, reason, since });
            if let Some(decision) = farewell {
                return decision;
            }
        }
        let due = since + patience(complaint.reason);
        if now.moment < due {
            return Decision::nothing().and_again(due);
        }
        let target = Target::new(Kind::Pod, &pod.meta);
        let said = self.say(target, complaint.reason, &complaint.message);
        Decision { actions: said.into_iter().collect(), again: complaint.again }
    }

    /// A pod that claimed an address of a network that goes would keep the network from going.
    fn let_go_of_network(
        &self,
        pod: &Pod,
        network: &NetworkName,
        since: Moment,
        now: &Now,
    ) -> Option<Decision> {
        let lives = self.network_named(network).is_some_and(|network| !network.meta.deleting);
        let returns: Vec<Action> = port_names(pod)
            .iter()
            .flat_map(|port| self.indexes.claims_of_port.of(port).map(move |it| (port, it)))
            .map(|(port, thing)| (thing, holder_of_port(port, &pod.meta.uid)))
            .filter(|(thing, holder)| self.claim_on(thing).is_some_and(|it| it.holder == *holder))
            .map(|(thing, holder)| self.give_back(thing.clone(), &holder))
            .collect();
        if lives || returns.is_empty() {
            return None;
        }
        let due = since + self.settings.grace;
        if now.moment < due {
            return Some(Decision::nothing().and_again(due));
        }
        let look = self.confirm(Kind::Network, &ObjectName::cluster(network.to_string()));
        Some(Decision::act([look].into_iter().chain(returns)))
    }

    fn start_waiting(&mut self, pod: &ObjectName, waiting: Waiting) {
        let Wait { network, thing } = &waiting.wait;
        self.indexes.waiting_for_network.add(network.clone(), pod.clone());
        if let Some(thing) = thing {
            self.indexes.waiting_for_thing.add(thing.clone(), pod.clone());
        }
        self.indexes.waits.insert(pod.clone(), waiting);
    }

    pub(crate) fn stop_waiting(&mut self, pod: &ObjectName) -> Option<Waiting> {
        let waiting = self.indexes.waits.remove(pod)?;
        let Wait { network, thing } = &waiting.wait;
        self.indexes.waiting_for_network.remove(network, pod);
        if let Some(thing) = thing {
            self.indexes.waiting_for_thing.remove(thing, pod);
        }
        Some(waiting)
    }
}

impl Complaint {
    pub(super) fn new(reason: Reason, message: String) -> Self {
        Complaint { reason, message, wait: None, again: None }
    }

    pub(super) fn waiting_for(self, network: &NetworkName, thing: Option<Thing>) -> Self {
        Complaint { wait: Some(Box::new(Wait { network: network.clone(), thing })), ..self }
    }

    /// Even if nothing happens, the pod asks again at `moment`.
    pub(super) fn again_at(self, moment: Moment) -> Self {
        Complaint { again: Some(moment), ..self }
    }
}

impl From<&Malformed> for Complaint {
    fn from(malformed: &Malformed) -> Self {
        Complaint::new(malformed.reason, malformed.message.clone())
    }
}

/// The ports of a pod, one for each interface, in the order of its request. The last label of a
/// port's name is the interface, so that no two pods of a namespace can mean the same port.
pub(crate) fn port_names(pod: &Pod) -> Vec<ObjectName> {
    let asked = pod.nics.as_deref().unwrap_or_default();
    let name = |nic: Option<&Nic>| {
        ObjectName::inside(
            pod.meta.name.namespace.clone(),
            format!("{}.{}", pod.meta.name.name, interface_name(nic)),
        )
    };
    vec![name(asked.first())]
}

fn interface_name(nic: Option<&Nic>) -> &str {
    nic.and_then(|nic| nic.name.as_ref()).map_or(RUNTIMES_INTERFACE, Label::as_str)
}

/// What container runtimes call a pod's first interface, whatever the pod says.
const RUNTIMES_INTERFACE: &str = "eth0";

/// How long the name of an object may be.
const LONGEST_NAME: usize = 253;

/// The interfaces that a pod asks for, if they can be made.
fn interfaces(pod: &Pod) -> Result<Vec<Nic>, Complaint> {
    let wrong = |message| Err(Complaint::new(Reason::RequestMalformed, message));
    let room = LONGEST_NAME - ".".len() - RUNTIMES_INTERFACE.len();
    match &pod.nics {
        Err(malformed) => Err(malformed.into()),
        Ok(nics) if nics.len() > 1 => wrong(format!(
            "{}: {} interfaces are asked for; one is served",
            marks::NICS,
            nics.len()
        )),
        Ok(nics) if interface_name(nics.first()) != RUNTIMES_INTERFACE => wrong(format!(
            "{}[0].name: a pod's first interface is always {RUNTIMES_INTERFACE}, not {}",
            marks::NICS,
            interface_name(nics.first())
        )),
        Ok(_) if pod.meta.name.name.len() > room => wrong(format!(
            "the pod's name is too long for a port to be named after it: {room} letters fit"
        )),
        Ok(nics) if nics.is_empty() => Ok(vec![Nic::default()]),
        Ok(nics) => Ok(nics.clone()),
    }
}

/// Tells a port the node of its pod, once it is known.
fn place(port: &Port, pod: &Pod) -> Option<Action> {
    let node = pod.node.as_ref().filter(|node| port.node.as_ref() != Some(node))?;
    (!port.meta.deleting)
        .then(|| Action::PlacePort(Target::new(Kind::Port, &port.meta), node.clone()))
}

fn new_port(
    pod: &Pod,
    nic: &Nic,
    port: &ObjectName,
    network: &Joined,
    granted: &Granted,
) -> api::Port {
    let spec = api::PortSpec {
        network: network.name.to_string(),
        network_id: network.id.get(),
        subnet: granted.subnet.clone(),
        ips: vec![granted.ip.to_string()],
        mac: nic.mac.unwrap_or_else(|| MacAddr::for_ip(granted.ip)).to_string(),
        pod: pod.meta.name.name.clone(),
        pod_uid: pod.meta.uid.clone(),
        interface: interface_name(Some(nic)).to_owned(),
        node: pod.node.clone(),
        primary: true,
        ..api::PortSpec::default()
    };
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
