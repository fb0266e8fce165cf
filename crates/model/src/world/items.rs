//! Tenants, namespaces, networks, subnets, pods, services, slices and roles: how each is entered into the
//! indexes and the pools, and who has to be looked at when it changes.

use atoll_vpc::Moment;

use super::{HasMeta, Item, Shelf, Touched, World};
use crate::action::Key;
use crate::intent::{
    AddressPool, Claim, Kind, Meta, Namespace, Network, Node, ObjectName, Pod, Port, Registration,
    Role, Service, Slice, Subnet, Tenant,
};

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
has_meta!(AddressPool, Node, Registration, Slice);

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
            let networks = &mut world.indexes.networks_of_tenant;
            networks.add(plan.name.tenant.to_string(), name.clone());
            match plan.type_.foreign() {
                None => world.vpcs.networks.put(plan.name.clone(), self.in_vpc(plan)),
                Some(type_) => world.indexes.enter_foreign(type_, self),
            }
            world.outsides.ask(Key::new(Kind::Network, name.clone()), !plan.egress.is_empty());
        }
    }

    fn unlink(&self, world: &mut World, _now: Moment) {
        if let Ok(plan) = &self.plan {
            let name = &self.meta.name;
            world.indexes.networks_of_tenant.remove(&plan.name.tenant.to_string(), name);
            match plan.type_.foreign() {
                None => world.vpcs.networks.remove(&plan.name),
                Some(type_) => world.indexes.forget_foreign(type_, name),
            }
        }
        world.outsides.ask(Key::new(Kind::Network, self.meta.name.clone()), false);
    }

    fn says_as(&self, earlier: &Self) -> bool {
        let words = |network: &Network| {
            (network.plan.clone(), network.id(), network.phase(), network.meta.deleting)
        };
        words(self) == words(earlier) && self.is_provided() == earlier.is_provided()
    }

    fn touch(&self, world: &World, touched: &mut Touched) {
        let Ok(plan) = &self.plan else { return };
        world.touch_tenant(plan.name.tenant.as_str(), touched);
        world.touch_role(plan.name.tenant.as_str(), touched);
        world.touch_rivals_for_quota(plan.name.tenant.as_str(), touched);
        if let Some(type_) = plan.type_.foreign() {
            touched.insert(Key::new(Kind::NetworkType, ObjectName::cluster(type_)));
        }
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
        world.vpcs.put_subnet(&self.meta.name, self.in_vpc());
    }

    fn unlink(&self, world: &mut World, _now: Moment) {
        if world.subnets.get(&self.meta.name).is_none() {
            world.vpcs.remove_subnet(&self.meta.name);
        }
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
        world.indexes.services_of_namespace.add(name.namespace.clone(), name.clone());
        world.outsides.ask(Key::new(Kind::Service, name), self.balancer.is_some());
    }

    fn unlink(&self, world: &mut World, now: Moment) {
        let name = &self.meta.name;
        world.indexes.services_of_namespace.remove(&name.namespace, name);
        world.outsides.ask(Key::new(Kind::Service, name.clone()), false);
        if world.services.get(name).is_none_or(|after| after.meta.uid != self.meta.uid) {
            world.stop_waiting(&Key::new(Kind::Service, name.clone()));
            world.vips.drop_proposals(name, now);
            world.outsides.drop_proposals(name, now);
        }
    }

    fn says_as(&self, earlier: &Self) -> bool {
        let words = |it: &Service| {
            (it.meta.uid.clone(), it.has_address, it.families, it.annotation.clone())
        };
        let outside = |it: &Service| (it.balancer.clone(), it.ingress.clone());
        words(self) == words(earlier) && outside(self) == outside(earlier)
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

impl Item for AddressPool {
    const KIND: Kind = Kind::AddressPool;

    fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
        &mut world.address_pools
    }

    fn link(&self, _world: &mut World) {}

    fn unlink(&self, world: &mut World, _now: Moment) {
        let still = world.address_pools.items().flat_map(AddressPool::ranges);
        let still: Vec<_> = still.copied().collect();
        world.outsides.keep(&still);
    }

    fn says_as(&self, earlier: &Self) -> bool {
        let words = |pool: &AddressPool| (pool.ranges.clone(), pool.tenants.clone());
        words(self) == words(earlier) && self.meta.deleting == earlier.meta.deleting
    }

    fn touch(&self, world: &World, touched: &mut Touched) {
        touched.extend(world.outsides.askers().cloned());
    }
}

impl Item for Node {
    const KIND: Kind = Kind::Node;

    fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
        &mut world.nodes
    }

    fn link(&self, _world: &mut World) {}

    fn unlink(&self, _world: &mut World, _now: Moment) {}

    fn says_as(&self, earlier: &Self) -> bool {
        self.can_hold == earlier.can_hold
    }

    fn touch(&self, world: &World, touched: &mut Touched) {
        world.touch_outside_claims(touched);
    }
}

impl Item for Registration {
    const KIND: Kind = Kind::NetworkType;

    fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
        &mut world.registrations
    }

    fn link(&self, _world: &mut World) {}

    fn unlink(&self, _world: &mut World, _now: Moment) {}

    fn says_as(&self, earlier: &Self) -> bool {
        let words = |it: &Registration| (it.meta.uid.clone(), it.meta.deleting);
        words(self) == words(earlier) && self.provider == earlier.provider
    }

    fn touch(&self, world: &World, touched: &mut Touched) {
        let networks = world.indexes.networks_of_type.of(&self.meta.name.name);
        touched.extend(networks.map(|name| Key::new(Kind::Network, name.clone())));
    }
}

impl Item for Slice {
    const KIND: Kind = Kind::EndpointSlice;

    fn shelf_mut(world: &mut World) -> &mut Shelf<Self> {
        &mut world.slices
    }

    fn link(&self, world: &mut World) {
        if let Some(service) = &self.service {
            world.indexes.slices_of_service.add(service.clone(), self.meta.name.clone());
        }
    }

    fn unlink(&self, world: &mut World, _now: Moment) {
        if let Some(service) = &self.service {
            world.indexes.slices_of_service.remove(service, &self.meta.name);
        }
    }

    fn says_as(&self, earlier: &Self) -> bool {
        let words = |it: &Slice| (it.service.clone(), it.is_ipv4);
        let nodes = |it: &Slice| (it.ready_on.clone(), it.ending_on.clone());
        words(self) == words(earlier) && nodes(self) == nodes(earlier)
    }

    fn touch(&self, world: &World, touched: &mut Touched) {
        let service = self.service.as_ref().and_then(|name| world.services.get(name));
        if let Some(service) = service.filter(|service| service.is_local_outside()) {
            world.touch_claims_of_service(&service.meta.name, touched);
        }
    }
}
