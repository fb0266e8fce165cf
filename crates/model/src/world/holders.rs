//! Ports and claims, which hold things: how each is entered into the indexes and the pools, and who
//! has to be looked at when it changes.

use atoll_vpc::Moment;

use super::hosts::Change;
use super::touched::pod_key;
use super::{Item, Shelf, Touched, World};
use crate::action::Key;
use crate::decide::pod_of_port;
use crate::intent::{Claim, Kind, Port, Thing};

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
        if let Some((service, _)) = self.service_holder() {
            world.indexes.claims_of_service.add(service, thing.clone());
        }
        self.take(thing, world);
    }

    fn unlink(&self, world: &mut World, now: Moment) {
        let Some(thing) = &self.thing else { return };
        if world.claims.get(&self.meta.name).is_some_and(|after| after.holder == self.holder) {
            return;
        }
        if let Some((service, _)) = self.service_holder() {
            world.indexes.claims_of_service.remove(&service, thing);
        }
        let until = now + world.settings.rest;
        self.free(thing, world, until);
        world.note_repair(&self.meta.name, now);
    }

    fn says_as(&self, earlier: &Self) -> bool {
        let words = |claim: &Claim| (claim.holder.clone(), claim.node.clone());
        words(self) == words(earlier)
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
            Thing::Outside(_) => world.touch_around_outside(self, touched),
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

impl Claim {
    /// Takes the thing out of what can be given.
    fn take(&self, thing: &Thing, world: &mut World) {
        match thing {
            Thing::Address(address) => world.vpcs.claim_address(*address, self.address_holder()),
            Thing::Vip(vip) => world.vips.claim(vip),
            Thing::Outside(ip) => world.outsides.claim(*ip, &self.holder),
            Thing::NetworkId(id) => world.vpcs.numbers.claim(*id, self.vpc_holder()),
            Thing::Block(block) => world.vpcs.shares.claim(*block, self.block_holder()),
            Thing::Vpc(vpc) => {
                if let Some(id) = self.given_id() {
                    world.vpcs.numbers.give_right(vpc.clone(), id);
                }
            }
        }
    }

    /// Lets the thing be given again from `until` on.
    fn free(&self, thing: &Thing, world: &mut World, until: Moment) {
        match thing {
            Thing::Address(address) => {
                world.vpcs.release_address(*address, self.address_holder(), until);
            }
            Thing::Vip(vip) => world.vips.release(vip, until),
            Thing::Outside(ip) => world.outsides.release(*ip, &self.holder, until),
            Thing::NetworkId(id) => world.vpcs.numbers.release(*id, until),
            Thing::Block(block) => world.vpcs.shares.release(*block, until),
            Thing::Vpc(vpc) => world.vpcs.numbers.take_right(vpc),
        }
    }
}
