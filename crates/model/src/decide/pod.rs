//! A pod of a tenant gets its port, or hears why not.

use std::net::IpAddr;

use atoll_api::{self as api, Reason, marks};
use atoll_types::{Label, MacAddr, NetAddr, NetworkId, NetworkName};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::World;
use crate::action::{Action, Decision, Target};
use crate::allocate::{Exhausted, Moment, Refusal};
use crate::intent::{
    Claim, Kind, Malformed, Nic, ObjectName, Pod, Port, Subnet, SubnetPlan, Thing, holder_of_port,
};
use crate::world::Now;

/// What a pod without a port waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The network.
    pub(crate) network: NetworkName,
    /// The address that somebody else has.
    pub(crate) thing: Option<Thing>,
}

/// Why a pod has no port yet.
struct Complaint {
    reason: Reason,
    message: String,
    wait: Option<Wait>,
    again: Option<Moment>,
}

/// How long a pod waits before it asks again for an address of a full subnet.
const FULL_SUBNET_PAUSE: Moment = Moment::from_secs(5);

/// The network a pod is to join, as far as its port needs it.
struct Joined {
    name: NetworkName,
    id: NetworkId,
}

/// An address for an interface, and where it is from.
struct Granted {
    subnet: String,
    ip: IpAddr,
}

impl World {
    pub(crate) fn decide_pod(&mut self, name: &ObjectName, now: &Now) -> Decision {
        let Some(pod) = self.pods.get(name).cloned() else { return Decision::nothing() };
        self.stop_waiting(name);
        if !pod.needs_port() {
            return Decision::nothing();
        }
        match self.next_port(&pod, now) {
            Ok(decision) => decision,
            Err(complaint) => self.complain(&pod, complaint),
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
        let granted = self.grant(pod, nic, port, &network, now)?;
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

    fn grant(
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
            Thing::NetworkId(_) | Thing::Vpc(_) => None,
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
        let mut complaint = Complaint::new(Reason::AddressInUse, message);
        complaint.wait = Some(Wait { network: network.name.clone(), thing: Some(thing) });
        complaint
    }

    fn complain(&mut self, pod: &Pod, complaint: Complaint) -> Decision {
        if let Some(wait) = complaint.wait {
            self.start_waiting(&pod.meta.name, wait);
        }
        let target = Target::new(Kind::Pod, &pod.meta);
        let said = self.say(target, complaint.reason, &complaint.message);
        Decision { actions: said.into_iter().collect(), again: complaint.again }
    }

    fn start_waiting(&mut self, pod: &ObjectName, wait: Wait) {
        self.indexes.waiting_for_network.add(wait.network.clone(), pod.clone());
        if let Some(thing) = &wait.thing {
            self.indexes.waiting_for_thing.add(thing.clone(), pod.clone());
        }
        self.indexes.waits.insert(pod.clone(), wait);
    }

    pub(crate) fn stop_waiting(&mut self, pod: &ObjectName) {
        let Some(wait) = self.indexes.waits.remove(pod) else { return };
        self.indexes.waiting_for_network.remove(&wait.network, pod);
        if let Some(thing) = &wait.thing {
            self.indexes.waiting_for_thing.remove(thing, pod);
        }
    }
}

impl Complaint {
    fn new(reason: Reason, message: String) -> Self {
        Complaint { reason, message, wait: None, again: None }
    }

    fn waiting_for(self, network: &NetworkName, thing: Option<Thing>) -> Self {
        Complaint { wait: Some(Wait { network: network.clone(), thing }), ..self }
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
    nic.and_then(|nic| nic.name.as_ref()).map_or("eth0", Label::as_str)
}

fn interfaces(pod: &Pod) -> Result<Vec<Nic>, Complaint> {
    match &pod.nics {
        Err(malformed) => Err(malformed.into()),
        Ok(nics) if nics.is_empty() => Ok(vec![Nic::default()]),
        Ok(nics) if nics.len() == 1 => Ok(nics.clone()),
        Ok(nics) => {
            let message =
                format!("{}: {} interfaces are asked for; one is served", marks::NICS, nics.len());
            Err(Complaint::new(Reason::RequestMalformed, message))
        }
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
    let complaint = Complaint::new(Reason::SubnetExhausted, message).waiting_for(name, None);
    Complaint { again: Some(until), ..complaint }
}
