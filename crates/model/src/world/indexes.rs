//! Which objects belong to which: how every kind is entered into the indexes and the pools.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use atoll_api::ClaimHolder;
use atoll_types::{Cidr, NetAddr, NetworkId, NetworkName};
use atoll_vpc::Moment;

use super::groups::Groups;
use super::hosts::{Change, Hosts};
use super::touched::pod_key;
use super::{HasMeta, Item, Shelf, Touched, World};
use crate::action::Key;
use crate::decide::{Waiting, pod_of_port};
use crate::intent::{
    Claim, Kind, Meta, Namespace, Network, ObjectName, Pod, Port, Role, Service, Subnet, Tenant,
    Thing, Vpc,
};

/// Which objects belong to which.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indexes {
    pub(crate) namespaces_of_tenant: Groups<String, ObjectName>,
    pub(crate) networks_of_tenant: Groups<String, ObjectName>,
    pub(crate) networks_of_vpc: Groups<Vpc, ObjectName>,
    pub(crate) vpc_of_id: HashMap<NetworkId, Vpc>,
    pub(crate) ids_claimed_by_vpc: Groups<Vpc, NetworkId>,
    pub(crate) blocks_of: Groups<ClaimHolder, Cidr>,
    pub(crate) subnets_of_network: Groups<NetworkName, ObjectName>,
    pub(crate) ports_of_network: Groups<NetworkName, ObjectName>,
    pub(crate) hosts_of_network: HashMap<NetworkName, Hosts>,
    pub(crate) seats_of_tenant: Groups<String, ObjectName>,
    pub(crate) ports_of_pod: Groups<ObjectName, ObjectName>,
    pub(crate) ports_with_siblings: Groups<NetworkName, ObjectName>,
    pub(crate) pods_of_namespace: Groups<String, ObjectName>,
    pub(crate) services_of_namespace: Groups<String, ObjectName>,
    pub(crate) claims_of_port: Groups<ObjectName, Thing>,
    pub(crate) claims_of_service: Groups<ObjectName, Thing>,
    pub(crate) addresses: HashMap<NetworkId, BTreeMap<IpAddr, ObjectName>>,
    pub(crate) waiting_for_network: Groups<NetworkName, Key>,
    pub(crate) waiting_for_thing: Groups<Thing, Key>,
    pub(crate) waiting_for_port: Groups<ObjectName, Key>,
    pub(crate) waits: HashMap<Key, Waiting>,
}

impl Indexes {
    fn hold(&mut self, address: NetAddr, claim: &ObjectName) {
        self.addresses.entry(address.network).or_default().insert(address.ip, claim.clone());
    }

    fn count_host(&mut self, network: &NetworkName, port: &Port, change: Change) {
        let hosts = self.hosts_of_network.entry(network.clone()).or_default();
        hosts.count(port, change);
        if hosts.is_empty() {
            self.hosts_of_network.remove(network);
        }
    }

    fn let_go(&mut self, address: NetAddr) {
        if let Some(held) = self.addresses.get_mut(&address.network) {
            held.remove(&address.ip);
            if held.is_empty() {
                self.addresses.remove(&address.network);
            }
        }
    }
}

macro_rules! has_meta {
    ($($kind:ident),*) => {$(
        impl HasMeta for $kind {
            fn meta(&self) -> &Meta {
                &self.meta
            }
        }
    )*};
}

has_meta!(Tenant, Network, Subnet, Port, Claim, Namespace, Pod, Service, Role);

impl Item for Tenant {
    const KIND: Kind = Kind::Tenant;

    fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
        &mut world.tenants
    }

    fn link(&self, _world: &mut World) {}

    fn unlink(&self, world: &mut World, _now: Moment) {
        if world.tenants.get(&self.meta.name).is_none()
            && let Ok(tenant) = self.meta.name.name.parse()
        {
            world.vips.forget(&tenant);
        }
    }

    fn says_as(&self, earlier: &Self) -> bool {
        let words =
            |tenant: &Tenant| (tenant.meta.uid.clone(), tenant.meta.deleting, tenant.quota.clone());
        words(self) == words(earlier) && self.service_ranges == earlier.service_ranges
    }

    fn touch(&self, world: &World, touched: &mut Touched) {
        world.touch_networks_of_tenant(&self.meta.name.name, touched);
        world.touch_waiting_in_tenant(&self.meta.name.name, touched);
        world.touch_services_of_tenant(&self.meta.name.name, touched);
        world.touch_role(&self.meta.name.name, touched);
    }
}

impl Item for Namespace {
    const KIND: Kind = Kind::Namespace;

    fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
        &mut world.namespaces
    }

    fn link(&self, world: &mut World) {
        if let Some(tenant) = &self.tenant {
            world.indexes.namespaces_of_tenant.add(tenant.clone(), self.meta.name.clone());
        }
    }

    fn unlink(&self, world: &mut World, _now: Moment) {
        if let Some(tenant) = &self.tenant {
            world.indexes.namespaces_of_tenant.remove(tenant, &self.meta.name);
        }
    }

    fn says_as(&self, earlier: &Self) -> bool {
        (&self.tenant, &self.network) == (&earlier.tenant, &earlier.network)
    }

    fn touch(&self, world: &World, touched: &mut Touched) {
        if let Some(tenant) = &self.tenant {
            world.touch_tenant(tenant, touched);
        }
        world.touch_pods_of_namespace(&self.meta.name.name, touched);
        world.touch_services_of_namespace(&self.meta.name.name, touched);
    }
}

impl Item for Network {
    const KIND: Kind = Kind::Network;

    fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
        &mut world.networks
    }

    fn link(&self, world: &mut World) {
        if let Ok(plan) = &self.plan {
            let name = &self.meta.name;
            let indexes = &mut world.indexes;
            indexes.networks_of_tenant.add(plan.name.tenant.to_string(), name.clone());
            indexes.networks_of_vpc.add(plan.vpc.clone(), name.clone());
        }
    }

    fn unlink(&self, world: &mut World, _now: Moment) {
        if let Ok(plan) = &self.plan {
            let name = &self.meta.name;
            world.indexes.networks_of_tenant.remove(&plan.name.tenant.to_string(), name);
            world.indexes.networks_of_vpc.remove(&plan.vpc, name);
        }
    }

    fn says_as(&self, earlier: &Self) -> bool {
        let words = |network: &Network| {
            (network.plan.clone(), network.id(), network.phase(), network.meta.deleting)
        };
        words(self) == words(earlier)
    }

    fn touch(&self, world: &World, touched: &mut Touched) {
        let Ok(plan) = &self.plan else { return };
        world.touch_tenant(plan.name.tenant.as_str(), touched);
        world.touch_role(plan.name.tenant.as_str(), touched);
        world.touch_rivals_for_quota(plan.name.tenant.as_str(), touched);
        world.touch_neighbours(&plan.vpc, touched);
        world.touch_routes_into(&plan.vpc, touched);
        world.touch_blocks(self, touched);
        world.touch_subnets_of_network(&plan.name, touched);
        world.touch_waiting_for_network(&plan.name, touched);
    }
}

impl Item for Subnet {
    const KIND: Kind = Kind::Subnet;

    fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
        &mut world.subnets
    }

    fn link(&self, world: &mut World) {
        let Ok(plan) = &self.plan else { return };
        let name = self.meta.name.clone();
        if world.indexes.subnets_of_network.add(plan.network.clone(), name) {
            world.rebuild_pools(&plan.network);
        }
    }

    fn unlink(&self, world: &mut World, _now: Moment) {
        let Ok(plan) = &self.plan else { return };
        let name = &self.meta.name;
        if world.subnets.get(name).is_some_and(|after| after.plan.as_ref() == Ok(plan)) {
            return;
        }
        world.indexes.subnets_of_network.remove(&plan.network, name);
        if !world.subnet_plan(name).is_some_and(|after| after.has_the_place_of(plan)) {
            world.numbers.pools.remove(name);
        }
        world.rebuild_pools(&plan.network);
    }

    fn says_as(&self, earlier: &Self) -> bool {
        let words =
            |subnet: &Subnet| (subnet.plan.clone(), subnet.gives_addresses(), subnet.meta.deleting);
        words(self) == words(earlier) && self.is_full() == earlier.is_full()
    }

    fn touch(&self, world: &World, touched: &mut Touched) {
        let Ok(plan) = &self.plan else { return };
        world.touch_network(&plan.network, touched);
        world.touch_role(plan.network.tenant.as_str(), touched);
        world.touch_waiting_for_network(&plan.network, touched);
        world.touch_routes_to(&plan.network, touched);
    }
}

impl Item for Port {
    const KIND: Kind = Kind::Port;

    fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
        &mut world.ports
    }

    fn link(&self, world: &mut World) {
        let name = &self.meta.name;
        if let Some(bound) = &self.bound {
            world.indexes.ports_of_pod.add(bound.pod.clone(), name.clone());
            world.idle_since.remove(name);
        }
        if let Some(network) = self.network() {
            world.indexes.ports_of_network.add(network.clone(), name.clone());
            world.indexes.count_host(network, self, Change::Comes);
            world.indexes.seats_of_tenant.add(network.tenant.to_string(), name.clone());
            if self.has_siblings() {
                world.indexes.ports_with_siblings.add(network.clone(), name.clone());
            }
        }
    }

    fn unlink(&self, world: &mut World, now: Moment) {
        let name = &self.meta.name;
        if let Some(bound) = &self.bound {
            world.indexes.ports_of_pod.remove(&bound.pod, name);
        }
        if let Some(network) = self.network() {
            world.indexes.ports_of_network.remove(network, name);
            world.indexes.count_host(network, self, Change::Goes);
            world.indexes.seats_of_tenant.remove(network.tenant.as_str(), name);
            world.indexes.ports_with_siblings.remove(network, name);
        }
        if world.ports.get(name).is_none_or(|after| after.meta.uid != self.meta.uid) {
            world.forget_port(self, now);
        }
    }

    fn says_as(&self, earlier: &Self) -> bool {
        let words = |port: &Port| (port.plan.clone(), port.bound.clone(), port.attached);
        words(self) == words(earlier) && self.meta.deleting == earlier.meta.deleting
    }

    fn touch(&self, world: &World, touched: &mut Touched) {
        let named_after = pod_of_port(&self.meta.name);
        touched.insert(pod_key(&named_after));
        touched.extend(self.bound.iter().map(|bound| pod_key(&bound.pod)));
        world.touch_waiting_for_port(&self.meta.name, touched);
        world.touch_claims_of_port(&self.meta.name, touched);
        if let Some(network) = self.network() {
            world.touch_network(network, touched);
            world.touch_tenant(network.tenant.as_str(), touched);
        }
    }
}

impl Item for Claim {
    const KIND: Kind = Kind::Claim;

    fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
        &mut world.claims
    }

    fn link(&self, world: &mut World) {
        let Some(thing) = &self.thing else { return };
        if let Some((port, _)) = self.port_holder() {
            world.indexes.claims_of_port.add(port, thing.clone());
        }
        if let Some((service, _)) = self.service_holder() {
            world.indexes.claims_of_service.add(service, thing.clone());
        }
        match thing {
            Thing::Address(address) => {
                world.indexes.hold(*address, &self.meta.name);
                world.take_address(*address);
            }
            Thing::Vip(vip) => world.vips.claim(vip),
            Thing::NetworkId(id) => {
                world.numbers.ids.take(*id);
                if let Some(vpc) = self.vpc_holder() {
                    world.indexes.ids_claimed_by_vpc.add(vpc, *id);
                }
            }
            Thing::Block(block) => {
                world.numbers.blocks.iter_mut().for_each(|blocks| blocks.take(*block));
                world.indexes.blocks_of.add(self.holder.clone(), *block);
            }
            Thing::Vpc(vpc) => {
                if let Some(id) = self.given_id() {
                    world.indexes.vpc_of_id.insert(id, vpc.clone());
                }
            }
        }
    }

    fn unlink(&self, world: &mut World, now: Moment) {
        let Some(thing) = &self.thing else { return };
        if world.claims.get(&self.meta.name).is_some_and(|after| after.holder == self.holder) {
            return;
        }
        if let Some((port, _)) = self.port_holder() {
            world.indexes.claims_of_port.remove(&port, thing);
        }
        if let Some((service, _)) = self.service_holder() {
            world.indexes.claims_of_service.remove(&service, thing);
        }
        let until = now + world.settings.rest;
        match thing {
            Thing::Address(address) => {
                world.indexes.let_go(*address);
                world.free_address(*address, until);
            }
            Thing::Vip(vip) => world.vips.release(vip, until),
            Thing::NetworkId(id) => {
                world.numbers.ids.free(*id, until);
                if let Some(vpc) = self.vpc_holder() {
                    world.indexes.ids_claimed_by_vpc.remove(&vpc, id);
                }
            }
            Thing::Block(block) => {
                world.numbers.blocks.iter_mut().for_each(|blocks| blocks.free(*block, until));
                world.indexes.blocks_of.remove(&self.holder, block);
            }
            Thing::Vpc(_) => {
                if let Some(id) = self.given_id() {
                    world.indexes.vpc_of_id.remove(&id);
                }
            }
        }
        world.note_repair(&self.meta.name, now);
    }

    fn says_as(&self, earlier: &Self) -> bool {
        self.holder == earlier.holder
    }

    fn touch(&self, world: &World, touched: &mut Touched) {
        let Some(thing) = &self.thing else { return };
        world.touch_waiting_for_thing(thing, touched);
        match thing {
            Thing::Address(address) => world.touch_holder_and_subnets(self, *address, touched),
            Thing::Vip(vip) => {
                let service = self.service_holder().map(|(service, _)| service);
                touched.extend(service.map(|service| Key::new(Kind::Service, service)));
                world.touch_tenant(vip.tenant.as_str(), touched);
            }
            Thing::NetworkId(_) => {
                self.vpc_holder().iter().for_each(|vpc| world.touch_vpc(vpc, touched));
            }
            Thing::Block(_) => {
                let network = self.network_holder().map(|(network, _)| network);
                touched.extend(network.map(|network| Key::new(Kind::Network, network)));
            }
            Thing::Vpc(vpc) => world.touch_vpc(vpc, touched),
        }
    }
}

impl Item for Pod {
    const KIND: Kind = Kind::Pod;

    fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
        &mut world.pods
    }

    fn link(&self, world: &mut World) {
        let name = self.meta.name.clone();
        world.indexes.pods_of_namespace.add(name.namespace.clone(), name);
    }

    fn unlink(&self, world: &mut World, now: Moment) {
        let name = &self.meta.name;
        world.indexes.pods_of_namespace.remove(&name.namespace, name);
        match world.pods.get(name).filter(|after| after.meta.uid == self.meta.uid) {
            None => world.forget_pod(self, now),
            Some(after) if after.nics != self.nics => {
                self.port_names().for_each(|port| world.drop_proposals(&port, now));
            }
            Some(_) => {}
        }
    }

    fn says_as(&self, earlier: &Self) -> bool {
        self.meta.uid == earlier.meta.uid && self.finished == earlier.finished
    }

    fn touch(&self, world: &World, touched: &mut Touched) {
        world.touch_ports_and_claims_of_pod(self, touched);
    }
}

impl Item for Service {
    const KIND: Kind = Kind::Service;

    fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
        &mut world.services
    }

    fn link(&self, world: &mut World) {
        let name = self.meta.name.clone();
        world.indexes.services_of_namespace.add(name.namespace.clone(), name);
    }

    fn unlink(&self, world: &mut World, now: Moment) {
        let name = &self.meta.name;
        world.indexes.services_of_namespace.remove(&name.namespace, name);
        if world.services.get(name).is_none_or(|after| after.meta.uid != self.meta.uid) {
            world.stop_waiting(&Key::new(Kind::Service, name.clone()));
            world.vips.drop_proposals(name, now);
        }
    }

    fn says_as(&self, earlier: &Self) -> bool {
        let words = |it: &Service| (it.meta.uid.clone(), it.has_address, it.annotation.clone());
        words(self) == words(earlier)
    }

    fn touch(&self, world: &World, touched: &mut Touched) {
        world.touch_claims_of_service(&self.meta.name, touched);
    }
}

impl Item for Role {
    const KIND: Kind = Kind::ClusterRole;

    fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
        &mut world.roles
    }

    fn link(&self, _world: &mut World) {}

    fn unlink(&self, _world: &mut World, _now: Moment) {}

    fn says_as(&self, _earlier: &Self) -> bool {
        true
    }

    fn touch(&self, _world: &World, _touched: &mut Touched) {}
}
