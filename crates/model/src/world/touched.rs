//! Who has to be looked at again when something changed.

use atoll_types::{NetAddr, NetworkName};

use super::{Touched, World};
use crate::action::Key;
use crate::intent::{Claim, Kind, Network, ObjectName, Pod, Thing, Vpc, role_name};

/// The key of a pod.
pub(super) fn pod_key(name: &ObjectName) -> Key {
    Key::new(Kind::Pod, name.clone())
}

impl World {
    pub(super) fn touch_tenant(&self, tenant: &str, touched: &mut Touched) {
        touched.insert(Key::new(Kind::Tenant, ObjectName::cluster(tenant)));
    }

    pub(super) fn touch_role(&self, tenant: &str, touched: &mut Touched) {
        touched.insert(Key::new(Kind::ClusterRole, role_name(tenant)));
    }

    pub(super) fn touch_network(&self, network: &NetworkName, touched: &mut Touched) {
        touched.insert(Key::new(Kind::Network, ObjectName::cluster(network.to_string())));
    }

    pub(super) fn touch_networks_of_tenant(&self, tenant: &str, touched: &mut Touched) {
        let networks = self.indexes.networks_of_tenant.of(tenant);
        touched.extend(networks.map(|name| Key::new(Kind::Network, name.clone())));
    }

    /// Pods and ports that wait for anything in a tenant: its limits may have changed.
    pub(super) fn touch_waiting_in_tenant(&self, tenant: &str, touched: &mut Touched) {
        for network in self.indexes.networks_of_tenant.of(tenant) {
            let plan = self.networks.get(network).and_then(|network| network.plan.as_ref().ok());
            plan.into_iter().for_each(|plan| self.touch_waiting_for_network(&plan.name, touched));
        }
    }

    /// Networks that may move up when another of their tenant goes.
    pub(super) fn touch_rivals_for_quota(&self, tenant: &str, touched: &mut Touched) {
        let limited = self.tenants.get(&ObjectName::cluster(tenant));
        if limited.is_some_and(|tenant| tenant.quota.networks.is_some()) {
            self.touch_networks_of_tenant(tenant, touched);
        }
    }

    pub(super) fn touch_vpc(&self, vpc: &Vpc, touched: &mut Touched) {
        let networks = self.vpcs.networks.of_vpc(vpc);
        networks.for_each(|network| self.touch_network(network, touched));
        self.touch_claims_of_vpc(vpc, touched);
    }

    /// Networks that a network of their VPC can be in the way of. Open flat networks cannot be in
    /// each other's way: their ranges are blocks, which have one holder each.
    pub(super) fn touch_neighbours(&self, vpc: &Vpc, touched: &mut Touched) {
        match vpc {
            Vpc::Named { .. } | Vpc::Flat(_) => self.touch_vpc(vpc, touched),
            Vpc::Open => self.touch_claims_of_vpc(vpc, touched),
        }
    }

    pub(super) fn touch_blocks(&self, network: &Network, touched: &mut Touched) {
        let blocks = self.blocks_of(network);
        touched.extend(blocks.map(|block| claim_key(&Thing::Block(block))));
    }

    pub(super) fn touch_subnets_of_network(&self, network: &NetworkName, touched: &mut Touched) {
        let subnets = self.vpcs.subnets().of_network(network);
        touched.extend(subnets.map(|name| Key::new(Kind::Subnet, name.clone())));
    }

    pub(super) fn touch_waiting_for_network(&self, network: &NetworkName, touched: &mut Touched) {
        touched.extend(self.indexes.waiting_for_network.of(network).cloned());
    }

    pub(super) fn touch_waiting_for_thing(&self, thing: &Thing, touched: &mut Touched) {
        touched.extend(self.indexes.waiting_for_thing.of(thing).cloned());
    }

    pub(super) fn touch_waiting_for_port(&self, port: &ObjectName, touched: &mut Touched) {
        touched.extend(self.indexes.waiting_for_port.of(port).cloned());
    }

    pub(super) fn touch_pods_of_namespace(&self, namespace: &str, touched: &mut Touched) {
        touched.extend(self.indexes.pods_of_namespace.of(namespace).map(pod_key));
    }

    /// Pods with several interfaces of which one is in the VPC: what they reach through which may
    /// have changed. The range of the open one never does.
    pub(super) fn touch_routes_into(&self, vpc: &Vpc, touched: &mut Touched) {
        if *vpc == Vpc::Open {
            return;
        }
        let networks = self.vpcs.networks.of_vpc(vpc);
        networks.for_each(|network| self.touch_routes_to(network, touched));
    }

    /// Pods with several interfaces of which one is in the network.
    pub(super) fn touch_routes_to(&self, network: &NetworkName, touched: &mut Touched) {
        let ports = self.indexes.ports_with_siblings.of(network);
        let bound = ports.filter_map(|port| self.ports.get(port)?.bound.as_ref());
        touched.extend(bound.map(|bound| pod_key(&bound.pod)));
    }

    pub(super) fn touch_services_of_namespace(&self, namespace: &str, touched: &mut Touched) {
        for service in self.indexes.services_of_namespace.of(namespace) {
            touched.insert(Key::new(Kind::Service, service.clone()));
            self.touch_claims_of_service(service, touched);
        }
    }

    pub(super) fn touch_services_of_tenant(&self, tenant: &str, touched: &mut Touched) {
        for namespace in self.indexes.namespaces_of_tenant.of(tenant) {
            self.touch_services_of_namespace(&namespace.name, touched);
        }
    }

    pub(super) fn touch_claims_of_service(&self, service: &ObjectName, touched: &mut Touched) {
        let things = self.indexes.claims_of_service.of(service);
        touched.extend(things.map(claim_key));
    }

    /// The claims on addresses of the outside: another node may have to answer for each.
    pub(super) fn touch_outside_claims(&self, touched: &mut Touched) {
        touched.extend(self.outsides.claimed().map(|ip| claim_key(&Thing::Outside(ip))));
    }

    /// An address of the outside was claimed or let go: its holder, the pools, which count anew, its
    /// tenant, and the networks that would speak from it.
    pub(super) fn touch_around_outside(&self, claim: &Claim, touched: &mut Touched) {
        touched.extend(claim.service_holder().map(|(name, _)| Key::new(Kind::Service, name)));
        touched.extend(claim.network_holder().map(|(name, _)| Key::new(Kind::Network, name)));
        let pools = self.address_pools.names();
        touched.extend(pools.map(|name| Key::new(Kind::AddressPool, name.clone())));
        let tenant = self.tenant_of_holder(&claim.holder);
        tenant.iter().for_each(|tenant| self.touch_tenant(tenant.as_str(), touched));
        let askers = self.outsides.askers().filter(|key| key.kind == Kind::Network);
        touched.extend(askers.cloned());
    }

    pub(super) fn touch_claims_of_port(&self, port: &ObjectName, touched: &mut Touched) {
        let addresses = self.vpcs.holdings().held_by(port);
        touched.extend(addresses.map(|address| claim_key(&Thing::Address(address))));
    }

    pub(super) fn touch_ports_and_claims_of_pod(&self, pod: &Pod, touched: &mut Touched) {
        let ports = self.indexes.ports_of_pod.of(&pod.meta.name);
        touched.extend(ports.map(|name| Key::new(Kind::Port, name.clone())));
        for port in pod.port_names() {
            self.touch_claims_of_port(&port, touched);
        }
    }

    /// An address was claimed or let go: its port may have lost it, a subnet counts anew, and a
    /// network may wait for its last address to be free.
    pub(super) fn touch_holder_and_subnets(
        &self,
        claim: &Claim,
        address: NetAddr,
        touched: &mut Touched,
    ) {
        if let Some((port, _)) = claim.port_holder() {
            touched.insert(Key::new(Kind::Port, port));
        }
        for subnet in self.vpcs.subnets_with(address) {
            touched.insert(Key::new(Kind::Subnet, subnet.clone()));
        }
        let vpcs = self.vpcs.numbers.rightful(address.network);
        for network in vpcs.flat_map(|vpc| self.vpcs.networks.of_vpc(vpc)) {
            if self.network_named(network).is_some_and(|network| network.meta.deleting) {
                self.touch_network(network, touched);
            }
        }
    }

    fn touch_claims_of_vpc(&self, vpc: &Vpc, touched: &mut Touched) {
        let ids = self.vpcs.numbers.claimed_by(vpc);
        touched.extend(ids.map(|id| claim_key(&Thing::NetworkId(*id))));
        touched.insert(claim_key(&Thing::Vpc(vpc.clone())));
    }
}

fn claim_key(thing: &Thing) -> Key {
    Key::new(Kind::Claim, ObjectName::cluster(thing.to_string()))
}
