//! The services of the networks on this node, kept true to what was seen.
//!
//! The rule of this file: the services of a network are programmed only once it is known which other
//! networks its tenant has, and of each of them the ports, the addresses of the outside, and the services
//! and EndpointSlices of each namespace have been listed. Until then the kernel keeps those it has: half
//! a list would refuse connections that somebody is there to take.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::DnsMode;
use atoll_model::compile::{
    EndpointGroup, Followed, PlacedPort, ResolverFront, ServiceBook, ServiceComplaint,
    ServiceFront, ServiceName,
};
use atoll_model::outside::Held;
use atoll_model::resolver::{DNS_NAME, dns_namespace};
use atoll_plan::{Resolver, Service, ServiceKey};
use atoll_types::NetworkId;

use crate::seen::{Change, Delta, NetworkDns, PortKey, Presence, Scope, Seen};

/// What is known of services, and how far.
#[derive(Debug)]
pub(crate) struct Services {
    node: String,
    book: ServiceBook,
    /// Whether it is known which namespaces there are.
    is_whole: bool,
    networks: BTreeMap<String, Listed>,
    /// The resolver that the cluster's pods ask.
    cluster_dns: Resolver,
    /// The networks whose resolvers a service shall lead to.
    with_resolvers: BTreeSet<String>,
    /// The networks whose resolvers a service leads to, as it was last told.
    led: BTreeSet<NetworkId>,
}

/// What of a network was listed.
#[derive(Debug)]
struct Listed {
    id: NetworkId,
    /// Whether it has no pods here and services lead to it from networks that do.
    is_kin: bool,
    /// Whether all networks of its tenant are known.
    kin: bool,
    ports: bool,
    held: bool,
    namespaces: BTreeMap<String, Quarter>,
}

#[derive(Debug, Default)]
struct Quarter {
    services: bool,
    slices: bool,
}

impl Listed {
    fn is_whole(&self) -> bool {
        let rest = self.kin && self.ports && (self.held || self.is_kin);
        rest && self.namespaces.values().all(|quarter| quarter.services && quarter.slices)
    }
}

/// What a plan holds of services, on loan.
pub(crate) enum Lent {
    /// All there is, to be given back.
    All,
    /// A copy, with what the kernel keeps.
    Part,
}

impl Services {
    /// Nothing seen yet.
    pub(crate) fn new(node: &str, cluster_dns: Resolver) -> Self {
        Services {
            node: node.to_owned(),
            book: ServiceBook::new(node),
            is_whole: false,
            networks: BTreeMap::new(),
            cluster_dns,
            with_resolvers: BTreeSet::new(),
            led: BTreeSet::new(),
        }
    }

    /// Keeps exactly these networks and namespaces. One that is new begins with what was seen.
    pub(crate) fn follow(&mut self, scope: &Scope, seen: &Seen) {
        self.is_whole = scope.is_whole;
        let followed = |name: &String, presence: &Presence| Followed {
            id: presence.id,
            is_here: scope.networks.contains_key(name),
            is_guest: scope.guests.contains_key(name),
            is_shared: !scope.own.contains(name),
        };
        let all = scope.all().map(|(name, it)| (name.clone(), followed(name, it)));
        let all: BTreeMap<_, _> = all.collect();
        self.book.follow(&all);
        self.networks.retain(|name, listed| all.get(name).map(|it| it.id) == Some(listed.id));
        self.with_resolvers.retain(|name| scope.networks.contains_key(name));
        for (name, presence) in scope.all() {
            if !self.networks.contains_key(name) {
                self.begin(name, presence.id, seen);
            }
            self.follow_namespaces(name, &presence.namespaces);
        }
        for (name, listed) in &mut self.networks {
            listed.kin = scope.knows_kin_of(name);
            listed.is_kin = scope.kin.contains_key(name);
        }
    }

    fn begin(&mut self, name: &str, id: NetworkId, seen: &Seen) {
        let (ports, held) = (seen.ports_of(id), seen.held_of(name));
        let listed = Listed {
            id,
            is_kin: true,
            kin: false,
            ports: ports.is_some(),
            held: held.is_some(),
            namespaces: BTreeMap::new(),
        };
        self.networks.insert(name.to_owned(), listed);
        for (key, port) in ports.into_iter().flatten() {
            self.book.put_port(name, key, Some(port));
        }
        for (claim, held) in held.into_iter().flatten() {
            self.book.put_held(name, claim, Some(held));
        }
        self.lead_resolvers(name, seen.dns_of(name).as_ref());
    }

    /// Leads the resolvers of a network to those who answer there, as its object says.
    pub(crate) fn lead_resolvers(&mut self, network: &str, dns: Option<&NetworkDns>) {
        let Some(listed) = self.networks.get(network) else { return };
        let service = dns.and_then(|dns| match dns.mode {
            DnsMode::Shared => None,
            DnsMode::Dedicated => Some((dns_namespace(listed.id), DNS_NAME.to_owned())),
            DnsMode::Tenant => dns.service.clone(),
        });
        let resolver = dns.zip(service).map(|(dns, service)| ResolverFront {
            service,
            addresses: self.cluster_dns.addresses().chain(dns.addresses.addresses()).collect(),
            falls_back: dns.mode == DnsMode::Tenant,
        });
        match resolver.is_some() {
            true => drop(self.with_resolvers.insert(network.to_owned())),
            false => drop(self.with_resolvers.remove(network)),
        }
        self.book.lead_resolvers(network, resolver);
    }

    /// Whether other networks than before have resolvers that a service leads to.
    pub(crate) fn resolvers_moved(&mut self) -> bool {
        let led = self.with_resolvers.iter().filter(|name| self.book.leads_resolvers(name));
        let led = led.filter_map(|name| self.networks.get(name));
        let led: BTreeSet<NetworkId> = led.map(|listed| listed.id).collect();
        let moved = self.led != led;
        self.led = led;
        moved
    }

    /// The networks whose resolvers a service leads to.
    pub(crate) fn led(&self) -> &BTreeSet<NetworkId> {
        &self.led
    }

    fn follow_namespaces(&mut self, network: &str, namespaces: &BTreeSet<String>) {
        let Some(listed) = self.networks.get_mut(network) else { return };
        let left = listed.namespaces.extract_if(.., |name, _| !namespaces.contains(name));
        let left: Vec<String> = left.map(|(name, _)| name).collect();
        for namespace in namespaces {
            listed.namespaces.entry(namespace.clone()).or_default();
        }
        for namespace in left {
            self.replace_services(network, &namespace, &BTreeMap::new());
            self.replace_slices(network, &namespace, &BTreeMap::new());
        }
    }

    /// Takes in what a change says of services.
    pub(crate) fn absorb(&mut self, change: &Change) {
        match change {
            Change::Zones(delta) => self.absorb_zone(delta),
            Change::NetworkPorts(id, delta) => self.absorb_ports(*id, delta),
            Change::Fronts((network, namespace), delta) => {
                self.absorb_fronts(network, namespace, delta);
            }
            Change::Groups((network, namespace), delta) => {
                self.absorb_groups(network, namespace, delta);
            }
            Change::Held(network, delta) => self.absorb_held(network, delta),
            Change::Nodes(_)
            | Change::Answered(_)
            | Change::Exposed(..)
            | Change::OwnPorts(_)
            | Change::Namespaces(_)
            | Change::Network(..)
            | Change::Outlet(..)
            | Change::Siblings(..)
            | Change::Services(..)
            | Change::Slices(..)
            | Change::Api(_)
            | Change::Pools(_)
            | Change::Exports(_)
            | Change::Targets(..)
            | Change::Policy(_)
            | Change::Probed(_) => {}
        }
    }

    fn absorb_zone(&mut self, delta: &Delta<String, String>) {
        match delta {
            Delta::All(zones) => self.book.set_zone(zones.get(&self.node).cloned()),
            Delta::Put(node, zone) if *node == self.node => self.book.set_zone(Some(zone.clone())),
            Delta::Gone(node) if *node == self.node => self.book.set_zone(None),
            Delta::Put(..) | Delta::Gone(_) => {}
        }
    }

    fn absorb_ports(&mut self, id: NetworkId, delta: &Delta<PortKey, PlacedPort>) {
        let with_id = self.networks.iter().filter(|(_, listed)| listed.id == id);
        for network in with_id.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            let Some(listed) = self.networks.get_mut(&network) else { continue };
            match delta {
                Delta::All(ports) => {
                    listed.ports = true;
                    self.replace_ports(&network, ports);
                }
                Delta::Put(key, port) if listed.ports => {
                    self.book.put_port(&network, key, Some(port));
                }
                Delta::Gone(key) if listed.ports => self.book.put_port(&network, key, None),
                Delta::Put(..) | Delta::Gone(_) => {}
            }
        }
    }

    fn absorb_fronts(
        &mut self,
        network: &str,
        namespace: &str,
        delta: &Delta<String, ServiceFront>,
    ) {
        let Some(quarter) = self.quarter(network, namespace) else { return };
        let key = |name: &String| (namespace.to_owned(), name.clone());
        match delta {
            Delta::All(services) => {
                quarter.services = true;
                self.replace_services(network, namespace, services);
            }
            Delta::Put(name, front) if quarter.services => {
                self.book.put_service(network, &key(name), Some(front.clone()));
            }
            Delta::Gone(name) if quarter.services => {
                self.book.put_service(network, &key(name), None);
            }
            Delta::Put(..) | Delta::Gone(_) => {}
        }
    }

    fn absorb_groups(
        &mut self,
        network: &str,
        namespace: &str,
        delta: &Delta<String, EndpointGroup>,
    ) {
        let Some(quarter) = self.quarter(network, namespace) else { return };
        let key = |name: &String| (namespace.to_owned(), name.clone());
        match delta {
            Delta::All(slices) => {
                quarter.slices = true;
                self.replace_slices(network, namespace, slices);
            }
            Delta::Put(name, group) if quarter.slices => {
                self.book.put_slice(network, &key(name), Some(group.clone()));
            }
            Delta::Gone(name) if quarter.slices => self.book.put_slice(network, &key(name), None),
            Delta::Put(..) | Delta::Gone(_) => {}
        }
    }

    fn absorb_held(&mut self, network: &str, delta: &Delta<String, Held>) {
        let Some(listed) = self.networks.get_mut(network) else { return };
        match delta {
            Delta::All(all) => {
                listed.held = true;
                let gone = self.book.claims_of(network).filter(|claim| !all.contains_key(*claim));
                for claim in gone.cloned().collect::<Vec<_>>() {
                    self.book.put_held(network, &claim, None);
                }
                for (claim, held) in all {
                    self.book.put_held(network, claim, Some(held));
                }
            }
            Delta::Put(claim, held) if listed.held => {
                self.book.put_held(network, claim, Some(held));
            }
            Delta::Gone(claim) if listed.held => self.book.put_held(network, claim, None),
            Delta::Put(..) | Delta::Gone(_) => {}
        }
    }

    fn quarter(&mut self, network: &str, namespace: &str) -> Option<&mut Quarter> {
        self.networks.get_mut(network)?.namespaces.get_mut(namespace)
    }

    fn replace_ports(&mut self, network: &str, ports: &BTreeMap<PortKey, PlacedPort>) {
        let gone = self.book.ports_of(network).filter(|key| !ports.contains_key(key));
        for key in gone.cloned().collect::<Vec<_>>() {
            self.book.put_port(network, &key, None);
        }
        for (key, port) in ports {
            self.book.put_port(network, key, Some(port));
        }
    }

    fn replace_services(
        &mut self,
        network: &str,
        namespace: &str,
        services: &BTreeMap<String, ServiceFront>,
    ) {
        let known = self.book.services_of(network).filter(|key| key.0 == namespace);
        let gone: Vec<_> = known.filter(|key| !services.contains_key(&key.1)).cloned().collect();
        for key in gone {
            self.book.put_service(network, &key, None);
        }
        for (name, front) in services {
            let key = (namespace.to_owned(), name.clone());
            self.book.put_service(network, &key, Some(front.clone()));
        }
    }

    fn replace_slices(
        &mut self,
        network: &str,
        namespace: &str,
        slices: &BTreeMap<String, EndpointGroup>,
    ) {
        let known = self.book.slices_of(network).filter(|key| key.0 == namespace);
        let gone: Vec<_> = known.filter(|key| !slices.contains_key(&key.1)).cloned().collect();
        for key in gone {
            self.book.put_slice(network, &key, None);
        }
        for (name, group) in slices {
            let key = (namespace.to_owned(), name.clone());
            self.book.put_slice(network, &key, Some(group.clone()));
        }
    }

    /// The numbers of networks of which not everything was listed, or not of another one of their
    /// tenant.
    fn unlisted(&self) -> BTreeSet<NetworkId> {
        let tenant = |name: &str| name.split('.').next().map(ToOwned::to_owned);
        let partly = self.networks.iter().filter(|(_, it)| !self.is_whole || !it.is_whole());
        let tenants: BTreeSet<_> = partly.map(|(name, _)| tenant(name)).collect();
        let unlisted = self.networks.iter().filter(|(name, _)| tenants.contains(&tenant(name)));
        unlisted.map(|(_, listed)| listed.id).collect()
    }

    /// What has changed since the last time, and may be programmed.
    pub(crate) fn due(&mut self) -> Vec<ServiceKey> {
        let unlisted = self.unlisted();
        self.book.take_touched(|key| !unlisted.contains(&key.network))
    }

    /// What people are to be told.
    pub(crate) fn untold(&mut self) -> Vec<(ServiceName, String, ServiceComplaint)> {
        let unlisted = self.unlisted();
        let networks = &self.networks;
        let is_due = |who: &ServiceName| {
            networks.get(&who.network).is_none_or(|listed| !unlisted.contains(&listed.id))
        };
        let untold = self.book.take_untold(is_due).into_iter();
        untold
            .filter_map(|(who, complaint)| {
                let uid = self.book.uid_of(&who)?.to_owned();
                Some((who, uid, complaint))
            })
            .collect()
    }

    /// What is to be served.
    pub(crate) fn served(&self) -> &BTreeMap<ServiceKey, Service> {
        self.book.served()
    }

    /// What a plan must hold, where the kernel has `observed`.
    pub(crate) fn lend(
        &mut self,
        observed: &BTreeMap<ServiceKey, Service>,
    ) -> (BTreeMap<ServiceKey, Service>, Lent) {
        let unlisted = self.unlisted();
        if unlisted.is_empty() {
            return (self.book.lend(), Lent::All);
        }
        let ready = self.book.served().iter().filter(|(key, _)| !unlisted.contains(&key.network));
        let kept = observed.iter().filter(|(key, _)| unlisted.contains(&key.network));
        let part = ready.chain(kept).map(|(key, service)| (*key, service.clone()));
        (part.collect(), Lent::Part)
    }

    /// Takes back what was lent.
    pub(crate) fn give_back(&mut self, services: BTreeMap<ServiceKey, Service>, lent: &Lent) {
        match lent {
            Lent::All => self.book.give_back(services),
            Lent::Part => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use atoll_model::outside::Purpose;
    use atoll_plan::Side;
    use atoll_types::{MacAddr, PodRef};
    use serde_json::json;

    use super::*;

    fn id() -> NetworkId {
        1.try_into().unwrap()
    }

    fn scope(namespaces: &[&str]) -> Scope {
        let namespaces = namespaces.iter().map(|&name| name.to_owned()).collect();
        let presence = Presence { id: id(), namespaces };
        let networks = [("acme.default".to_owned(), presence)].into();
        Scope { networks, is_whole: true, ..Scope::default() }
    }

    fn quarter(namespace: &str) -> (String, String) {
        ("acme.default".into(), namespace.into())
    }

    fn front() -> ServiceFront {
        let spec = json!({"clusterIPs": ["10.96.0.9"], "ports": [{"port": 80}]});
        let service = json!({"metadata": {"uid": "u"}, "spec": spec});
        ServiceFront::read(&serde_json::from_value(service).unwrap()).unwrap()
    }

    fn group(ip: &str) -> EndpointGroup {
        let labels = json!({"kubernetes.io/service-name": "web"});
        let slice = json!({
            "metadata": {"namespace": "shop", "labels": labels}, "addressType": "IPv4",
            "endpoints": [{"addresses": [ip]}], "ports": [{"port": 8080}],
        });
        EndpointGroup::read(&serde_json::from_value(slice).unwrap()).unwrap()
    }

    fn port() -> PlacedPort {
        let ip = [10, 0, 0, 5].into();
        PlacedPort {
            network: id(),
            network_name: "acme.default".into(),
            ips: vec![ip],
            mac: MacAddr::for_ip(ip),
            pod: PodRef::new("shop", "web-0"),
            pod_uid: "uid".into(),
            interface: "eth0".into(),
            device: atoll_plan::Device::Veth,
            node: Some("node1".into()),
            others: [].into(),
            routes: [].into(),
        }
    }

    fn held() -> Held {
        let (namespace, name) = ("shop".to_owned(), "web".to_owned());
        let service = ServiceName { network: "acme.default".into(), namespace, name };
        let address = [192, 0, 2, 5].into();
        Held { address, node: "node2".into(), purpose: Purpose::LoadBalancer { service } }
    }

    fn all<V>(name: &str, value: V) -> Delta<String, V> {
        Delta::All([(name.to_owned(), value)].into())
    }

    /// All that must be listed before services are programmed, in any order.
    fn lists() -> [Change; 4] {
        let ports = [(("shop".to_owned(), "web-0".to_owned()), port())];
        [
            Change::NetworkPorts(id(), Delta::All(ports.into())),
            Change::Fronts(quarter("shop"), all("web", front())),
            Change::Groups(quarter("shop"), all("web-1", group("10.0.0.5"))),
            Change::Held("acme.default".into(), all("outside.192.0.2.5", held())),
        ]
    }

    fn followed() -> Services {
        let mut services = Services::new("node1", Resolver::default());
        services.follow(&scope(&["shop"]), &Seen::default());
        services
    }

    #[test]
    fn services_are_programmed_once_everything_of_their_network_was_listed() {
        for missing in 0..4 {
            let mut services = followed();
            let mut last = None;
            for (at, change) in lists().into_iter().enumerate() {
                if at == missing {
                    last = Some(change);
                } else {
                    services.absorb(&change);
                }
            }
            assert_eq!(services.due(), [], "list {missing} is still to come");
            let kept = lists_done();
            let observed = kept.served().clone();
            assert_eq!(services.lend(&observed).0, observed, "the kernel keeps what it has");
            services.absorb(&last.unwrap());
            assert_eq!(
                services.due().len(),
                3,
                "at the cluster's address, and twice at the outside's"
            );
            assert!(services.served().values().all(|service| service.backends.len() == 1));
        }
    }

    fn lists_done() -> Services {
        let mut services = followed();
        lists().iter().for_each(|change| services.absorb(change));
        services
    }

    /// Beside the network that is here, one of its tenant that is not.
    fn scope_with_kin(unlisted: &[&str]) -> Scope {
        let kin = Presence { id: 2.try_into().unwrap(), namespaces: ["store".to_owned()].into() };
        Scope {
            kin: [("acme.back".to_owned(), kin)].into(),
            own: ["acme.default".to_owned(), "acme.back".to_owned()].into(),
            unlisted: unlisted.iter().map(|tenant| tenant.parse().unwrap()).collect(),
            ..scope(&["shop"])
        }
    }

    #[test]
    fn services_wait_for_the_other_networks_of_their_tenant_and_for_no_other_tenants() {
        let mut services = lists_done();
        services.follow(&scope_with_kin(&["globex"]), &Seen::default());
        assert_eq!(services.due(), [], "another network of the tenant was not listed");
        let store = ("acme.back".to_owned(), "store".to_owned());
        services.absorb(&Change::NetworkPorts(2.try_into().unwrap(), Delta::All([].into())));
        services.absorb(&Change::Fronts(store.clone(), Delta::All([].into())));
        assert_eq!(services.due(), []);
        services.absorb(&Change::Groups(store, Delta::All([].into())));
        assert_eq!(services.due().len(), 3, "nobody waits for what is held by a network elsewhere");
        services.follow(&scope_with_kin(&["acme"]), &Seen::default());
        let observed = services.served().clone();
        services.absorb(&Change::Fronts(quarter("shop"), Delta::Gone("web".into())));
        assert_eq!(services.lend(&observed).0, observed, "there may be networks to come");
    }

    #[test]
    fn an_address_of_the_outside_is_served_on_both_sides_for_as_long_as_it_is_claimed() {
        let mut services = lists_done();
        assert_eq!(services.served().len(), 3);
        services.absorb(&Change::Held("globex.default".into(), all("outside.192.0.2.6", held())));
        assert_eq!(services.served().len(), 3, "of a network that is not here");
        let gone = Delta::Gone("outside.192.0.2.5".to_owned());
        services.absorb(&Change::Held("acme.default".into(), gone));
        assert_eq!(services.served().len(), 1);
    }

    #[test]
    fn of_a_network_that_is_a_guest_here_only_the_outside_is_served() {
        let mut services = lists_done();
        let Scope { networks, is_whole, .. } = scope(&["shop"]);
        let guest = Scope { guests: networks, is_whole, ..Scope::default() };
        services.follow(&guest, &Seen::default());
        let sides: Vec<Side> = services.served().keys().map(|key| key.side).collect();
        assert_eq!(sides, [Side::Outside]);
        services.follow(&scope(&["shop"]), &Seen::default());
        assert_eq!(services.served().len(), 3, "its first pod came");
    }

    #[test]
    fn what_was_lent_comes_back() {
        let mut services = lists_done();
        let before = services.served().clone();
        let (plan, lent) = services.lend(&BTreeMap::new());
        assert_eq!(plan, before);
        services.give_back(plan, &lent);
        assert_eq!(*services.served(), before);
    }

    #[test]
    fn a_namespace_that_leaves_takes_its_services_along() {
        let mut services = lists_done();
        assert_eq!(services.due().len(), 3);
        services.follow(&scope(&[]), &Seen::default());
        assert_eq!(services.due().len(), 3);
        assert!(services.served().is_empty());
        lists().iter().for_each(|change| services.absorb(change));
        assert!(services.served().is_empty(), "late words of an earlier watch");
    }

    #[test]
    fn people_are_told_once_everything_was_listed() {
        let mut services = followed();
        let [ports, fronts, _, held] = lists();
        services.absorb(&fronts);
        services.absorb(&held);
        let stranger = all("web-1", group("10.0.0.77"));
        services.absorb(&Change::Groups(quarter("shop"), stranger));
        assert_eq!(services.untold().len(), 0, "the ports may still come");
        services.absorb(&ports);
        let untold = services.untold();
        let [(who, uid, complaint)] = &untold[..] else { panic!("{untold:?}") };
        assert_eq!((who.name.as_str(), uid.as_str()), ("web", "u"));
        assert_eq!(*complaint, ServiceComplaint::ForeignEndpoint([10, 0, 0, 77].into()));
        assert_eq!(services.untold().len(), 0);
    }
}
