//! A port that was made for a pod lives as long as that pod needs it; one that was made
//! beforehand, or is kept for the next pod, lives until somebody deletes it. Each gives its
//! addresses back before it goes.

use std::collections::BTreeSet;

use atoll_types::NetAddr;

use super::{hold, let_go};
use crate::action::{Action, Decision, Key, Target};
use crate::intent::{Bound, Kind, Network, ObjectName, Port, PortPlan, Thing};
use crate::world::{Now, World};

impl World {
    pub(crate) fn decide_port(&mut self, name: &ObjectName, now: &Now) -> Decision {
        let Some(port) = self.ports.hold(name) else { return Decision::nothing() };
        if port.meta.deleting {
            return self.take_down_port(&port);
        }
        if let Some(bound) =
            port.bound.as_ref().filter(|_| !port.is_kept() && !self.is_needed(&port))
        {
            return self.end_port(&port, bound);
        }
        if !self.is_rightful(&port) {
            return self.end_usurper(&port);
        }
        if port.is_kept() {
            return self.decide_kept_port(&port, now);
        }
        if !port.meta.is_held() {
            return hold(Kind::Port, &port.meta);
        }
        self.drop_proposals(name, now.moment);
        Decision::act(self.lost_claims(&port))
    }

    pub(super) fn is_needed(&self, port: &Port) -> bool {
        let pod = port.bound.as_ref().and_then(|bound| self.pods.get(&bound.pod));
        pod.is_some_and(|pod| port.is_of(&pod.meta.uid) && pod.needs_port())
    }

    /// The pod is gone, or so it seems: news of ports and of pods come on different ways.
    fn end_port(&self, port: &Port, bound: &Bound) -> Decision {
        let target = Target::new(Kind::Port, &port.meta);
        Decision::act([self.confirm(Kind::Pod, &bound.pod), Action::Delete(target)])
    }

    /// Whether a port's addresses are its own. A claim comes before its port has its place, so
    /// that a port has one unless somebody deleted it, or made or changed the port by hand. Then it
    /// may have one only in a network of its namespace's tenant, under that network's own number.
    fn is_rightful(&self, port: &Port) -> bool {
        let holder = port.holder();
        let Ok(plan) = &port.plan else { return false };
        port.addresses().all(|address| match self.claim_on(&Thing::Address(address)) {
            Some(claim) => claim.holder == holder,
            None => self.is_of_its_tenant(port, plan),
        })
    }

    fn is_of_its_tenant(&self, port: &Port, plan: &PortPlan) -> bool {
        let namespace = self.namespaces.get(&namespace_of(port));
        let tenant = namespace.and_then(|namespace| namespace.tenant.as_deref());
        let network = self.network_named(&plan.network);
        tenant == Some(plan.network.tenant.as_str())
            && plan.network_id.is_some()
            && network.and_then(Network::id) == plan.network_id
    }

    /// A port that the controller would not have made is taken away, after a look at all that
    /// speaks against it.
    fn end_usurper(&self, port: &Port) -> Decision {
        let claims = port.addresses().map(|address| Thing::Address(address).to_string());
        let mut proof: Vec<Action> = claims
            .map(|claim| self.confirm(Kind::Claim, &ObjectName::cluster(claim)))
            .chain([self.confirm(Kind::Namespace, &namespace_of(port))])
            .collect();
        if let Some(network) = port.network() {
            proof.push(self.confirm(Kind::Network, &ObjectName::cluster(network.to_string())));
        }
        proof.push(Action::Delete(Target::new(Kind::Port, &port.meta)));
        Decision::act(proof)
    }

    /// Claims that somebody deleted though their port lives.
    fn lost_claims(&self, port: &Port) -> Vec<Action> {
        let holder = port.holder();
        let things = port.addresses().map(Thing::Address);
        things
            .filter(|thing| self.claim_on(thing).is_none())
            .map(|thing| Action::Claim(thing, holder.clone()))
            .collect()
    }

    /// The port goes first: as long as it is there, its addresses must be nobody else's. Whoever
    /// is killed in between leaves claims without a port, which are found and given back. A port
    /// that outlives pods does not go from under the one that has it.
    fn take_down_port(&mut self, port: &Port) -> Decision {
        let in_use = port.is_kept() && self.is_needed(port) && self.is_rightful(port);
        if !port.meta.is_held() || in_use {
            return Decision::nothing();
        }
        let holder = port.holder();
        let held = self.vpcs.holdings().held_by(&port.meta.name);
        let addresses: BTreeSet<NetAddr> = held.chain(port.addresses()).collect();
        let things = addresses.into_iter().map(Thing::Address);
        let releases = things.map(|thing| self.give_back(thing, &holder));
        Decision::act([let_go(Kind::Port, &port.meta)].into_iter().chain(releases))
    }

    /// Looks whether an object is as the world knows it.
    pub(super) fn confirm(&self, kind: Kind, name: &ObjectName) -> Action {
        let known = match kind {
            Kind::Pod => self.pods.get(name).map(|pod| &pod.meta),
            Kind::Port => self.ports.get(name).map(|port| &port.meta),
            Kind::Network => self.networks.get(name).map(|network| &network.meta),
            Kind::Claim => self.claims.get(name).map(|claim| &claim.meta),
            Kind::Tenant => self.tenants.get(name).map(|tenant| &tenant.meta),
            Kind::Subnet => self.subnets.get(name).map(|subnet| &subnet.meta),
            Kind::ClusterRole => self.roles.get(name).map(|role| &role.meta),
            Kind::Service => self.services.get(name).map(|service| &service.meta),
            Kind::Namespace => self.namespaces.get(name).map(|namespace| &namespace.meta),
            Kind::AddressPool => self.address_pools.get(name).map(|pool| &pool.meta),
            Kind::NetworkType => self.registrations.get(name).map(|type_| &type_.meta),
            Kind::Node => self.nodes.get(name).map(|node| &node.meta),
            Kind::EndpointSlice => self.slices.get(name).map(|slice| &slice.meta),
        };
        let target = known.map(|meta| Target::new(kind, meta));
        Action::Confirm(Key::new(kind, name.clone()), target)
    }
}

fn namespace_of(port: &Port) -> ObjectName {
    ObjectName::cluster(port.meta.name.namespace.as_str())
}
