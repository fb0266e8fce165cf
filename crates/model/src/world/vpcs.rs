//! What the layer of VPCs is told of objects: how it calls them, and what is on the way to them.

use atoll_api::SubnetPhase;
use atoll_types::{Cidr, NetworkName};
use atoll_vpc::{self as vpc, Moment, Names, Space, Stage};
use k8s_openapi::jiff::Timestamp;

use super::World;
use super::touched::pod_key;
use crate::action::Key;
use crate::intent::{
    Claim, Kind, Network, NetworkPlan, NetworkType, ObjectName, Pod, Port, Subnet, Thing, Vpc,
    subnet_name,
};

/// Things of VPCs are called as the objects that stand for them.
#[derive(Clone, Debug)]
pub(crate) struct ObjectNames;

impl Names for ObjectNames {
    type Vpc = Vpc;
    type Network = NetworkName;
    type Subnet = ObjectName;
    type Port = ObjectName;
    type Incarnation = Box<str>;
    type Age = Option<Timestamp>;

    fn own_subnet(network: &NetworkName, range: Cidr) -> ObjectName {
        ObjectName::cluster(subnet_name(network, &range))
    }
}

impl Network {
    /// What it is to its VPC.
    pub(super) fn in_vpc(&self, plan: &NetworkPlan) -> vpc::Network<ObjectNames> {
        let space = match plan.type_ {
            NetworkType::Flat => Space::Blocks(self.meta.uid.as_str().into()),
            NetworkType::Vpc | NetworkType::Other(_) => Space::Declared(plan.cidrs.clone()),
        };
        vpc::Network { vpc: plan.vpc.clone(), space, age: self.meta.created }
    }
}

impl Subnet {
    /// What it is to its VPC, where it can be understood.
    pub(super) fn in_vpc(&self) -> Option<vpc::Subnet<ObjectNames>> {
        let plan = self.plan.as_ref().ok()?;
        Some(vpc::Subnet {
            network: plan.network.clone(),
            layout: plan.layout.clone(),
            own: plan.automatic,
            stage: self.stage(),
            age: self.meta.created,
        })
    }

    fn stage(&self) -> Stage {
        match self.phase() {
            _ if self.meta.deleting => Stage::Closed,
            SubnetPhase::Pending => Stage::Coming,
            SubnetPhase::Active => Stage::Giving,
            SubnetPhase::Failed | SubnetPhase::Terminating => Stage::Closed,
        }
    }
}

impl World {
    /// The claim on a thing.
    pub(crate) fn claim_on(&self, thing: &Thing) -> Option<&Claim> {
        self.claims.get(&ObjectName::cluster(thing.to_string()))
    }

    /// A pod is gone: it waits for nothing, and what was proposed to it and not claimed is free.
    pub(super) fn forget_pod(&mut self, pod: &Pod, now: Moment) {
        self.stop_waiting(&pod_key(&pod.meta.name));
        for port in pod.port_names() {
            self.drop_proposals(&port, now);
        }
    }

    /// A port is gone: it waits for nothing, and nobody waits for it to be used again.
    pub(super) fn forget_port(&mut self, port: &Port, now: Moment) {
        self.stop_waiting(&Key::new(Kind::Port, port.meta.name.clone()));
        self.idle_since.remove(&port.meta.name);
        if port.is_kept() {
            self.drop_proposals(&port.meta.name, now);
        }
    }

    /// Takes back what was proposed to a port.
    pub(crate) fn drop_proposals(&mut self, port: &ObjectName, now: Moment) {
        if let Some(tenant) = self.indexes.tenant_of_seat.remove(port)
            && self.ports.get(port).is_none_or(|port| port.network().is_none())
        {
            self.indexes.seats_of_tenant.remove(tenant.as_str(), port);
        }
        self.vpcs.drop_proposals(port, now);
    }
}
