//! `diff` against a kernel made of maps: whatever was there before, executing the steps in order
//! leaves exactly the plan, and no moment on the way lets an unguarded pod speak.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

use atoll_plan::{
    Backend, Closed, Device, Doors, Egress, Endpoint, Guard, HostInterface, Infra, NodePlan,
    Observed, ObservedInterface, Opening, Place, PodInterface, Reach, Resolver, Service,
    ServiceDoor, ServiceKey, Side, Step, diff, diff_services,
};
use atoll_types::{Cidr, MacAddr, NetAddr, NetworkId, Protocol};
use proptest::prelude::*;

/// A kernel whose links have numbers, as real ones do: an endpoint points at a number.
#[derive(Clone, Debug, Default)]
struct Kernel {
    tenants: BTreeSet<BTreeSet<NetworkId>>,
    peers: BTreeSet<IpAddr>,
    links: BTreeMap<HostInterface, Link>,
    remains: BTreeSet<HostInterface>,
    endpoints: BTreeMap<NetAddr, (MacAddr, Target)>,
    doors: BTreeMap<NetworkId, Doors>,
    services: BTreeMap<ServiceKey, Service>,
    service_doors: BTreeMap<ServiceDoor, Option<u16>>,
    egress: BTreeMap<NetworkId, Option<Egress>>,
    closed: BTreeSet<Closed>,
    compatible: BTreeMap<NetworkId, bool>,
    openings: BTreeMap<Opening, bool>,
    infra: BTreeMap<Cidr, Infra>,
    held: BTreeMap<IpAddr, Option<NetworkId>>,
    last_number: u32,
}

#[derive(Clone, Debug, Default)]
struct Link {
    number: u32,
    up: bool,
    mtu: u32,
    reach: Option<Reach>,
    guard: Option<Guard>,
}

#[derive(Clone, Debug, PartialEq)]
enum Target {
    Link(u32),
    Node(IpAddr),
}

impl Kernel {
    fn apply(&mut self, step: Step) {
        match step {
            Step::ShareAmong(tenants) => self.tenants = tenants,
            Step::AddPeer(ip) => drop(self.peers.insert(ip)),
            Step::RemovePeer(ip) => drop(self.peers.remove(&ip)),
            Step::CreateInterface(name, wanted) => self.create(name, &wanted),
            Step::ResizeInterface(name, wanted) => self.link(&name).mtu = wanted.mtu,
            Step::RouteInterface(name, wanted) => self.link(&name).reach = wanted.routed(),
            Step::GuardInterface(name, guard) => self.guard(&name, guard),
            Step::RaiseInterface(name) => self.raise(&name),
            Step::RemoveInterfaces(names) => {
                self.links.retain(|name, _| !names.contains(name));
                self.remains.retain(|name| !names.contains(name));
            }
            Step::PutEndpoint(addr, endpoint) => self.put(addr, &endpoint),
            Step::RemoveEndpoint(addr) => self.forget(addr),
            Step::PutDoors(network, doors) => {
                self.doors.insert(network, doors);
            }
            Step::RemoveDoors(network) => {
                self.doors.remove(&network);
            }
            Step::PutService(key, service) => self.serve(key, service),
            Step::RemoveService(key) => self.stop_serving(key),
            Step::PutServiceDoor(door, listener) => {
                self.service_doors.insert(door, Some(listener));
            }
            Step::RemoveServiceDoor(door) => drop(self.service_doors.remove(&door)),
            Step::CloseOutside(closed) => drop(self.closed.insert(closed)),
            Step::OpenOutside(closed) => self.open_outside(closed),
            Step::PutEgress(network, egress) => self.let_out(network, egress),
            Step::RemoveEgress(network) => self.remove_egress(network),
            Step::PutOpening(opening, is_here) => self.put_opening(opening, is_here),
            Step::RemoveOpening(opening) => drop(self.openings.remove(&opening)),
            Step::PutInfra(range, infra) => self.put_infra(range, infra),
            Step::RemoveInfra(range) => self.remove_infra(range),
            Step::LetToInfra(network) => self.let_to_infra(network),
            Step::KeepFromInfra(network) => drop(self.compatible.remove(&network)),
            Step::Hold(ip, network) => self.hold(ip, network),
            Step::Release(ip) => drop(self.held.remove(&ip)),
        }
    }

    fn create(&mut self, name: HostInterface, wanted: &PodInterface) {
        assert!(!self.remains.contains(&name), "{name}: remains must go before the link is made");
        self.last_number += 1;
        let (number, reach) = (self.last_number, wanted.routed());
        let made = Link { number, mtu: wanted.mtu, reach, ..Link::default() };
        assert!(self.links.insert(name, made).is_none(), "a link of that name is there already");
    }

    fn link(&mut self, name: &HostInterface) -> &mut Link {
        self.links.get_mut(name).expect("the step before made the link")
    }

    fn guard(&mut self, name: &HostInterface, guard: Guard) {
        let mut known = self.tenants.iter().flatten();
        assert!(known.any(|network| *network == guard.network), "nobody said whose {name} is");
        self.link(name).guard = Some(guard);
    }

    fn raise(&mut self, name: &HostInterface) {
        let link = self.link(name);
        assert!(link.guard.is_some(), "{name} is raised before it is guarded");
        link.up = true;
    }

    fn put(&mut self, addr: NetAddr, endpoint: &Endpoint) {
        let target = match &endpoint.place {
            Place::Here(name) => Target::Link(self.link(name).number),
            Place::There(node) => Target::Node(*node),
        };
        self.endpoints.insert(addr, (endpoint.mac, target));
    }

    fn serve(&mut self, key: ServiceKey, service: Service) {
        for backend in &service.backends {
            assert!(self.endpoints.contains_key(&backend.addr), "{key} leads to nobody");
        }
        self.services.insert(key, service);
    }

    /// Nobody is let in to a service that is gone.
    fn stop_serving(&mut self, key: ServiceKey) {
        assert!(!self.held.contains_key(&key.ip), "{key} goes before its address does");
        self.services.remove(&key);
    }

    /// And nobody is called before there is one.
    fn hold(&mut self, ip: IpAddr, network: NetworkId) {
        assert!(self.services.contains_key(&edge(network)), "{ip} is there before its service");
        self.held.insert(ip, Some(network));
    }

    /// Nobody is taken away while a service still leads to it.
    fn forget(&mut self, addr: NetAddr) {
        let leads_there = |service: &Service| service.backends.iter().any(|it| it.addr == addr);
        assert!(!self.services.values().any(leads_there), "a service still leads to {addr}");
        self.endpoints.remove(&addr);
    }

    /// Nobody gets out before what is its own is closed.
    fn let_out(&mut self, network: NetworkId, egress: Egress) {
        assert!(
            self.closed.contains(&own_range(network)),
            "{network} leaves for its own addresses"
        );
        self.egress.insert(network, Some(egress));
    }

    /// Nothing is open to who has no way out yet, and what was opened goes first.
    fn put_opening(&mut self, opening: Opening, is_here: bool) {
        if let Opening::Port { to, .. } = opening {
            assert!(self.egress.contains_key(&to), "{opening}: {to} has no way out");
        }
        self.openings.insert(opening, is_here);
    }

    fn remove_egress(&mut self, network: NetworkId) {
        let is_open = |it: &Opening| matches!(it, Opening::Port { to, .. } if *to == network);
        assert!(!self.openings.keys().any(is_open), "{network} leaves what is open behind");
        self.egress.remove(&network);
    }

    /// What is open around what is closed is never there without it.
    fn put_infra(&mut self, range: Cidr, infra: Infra) {
        assert!(infra == Infra::Nowhere || self.infra.contains_key(&denied()));
        self.infra.insert(range, infra);
    }

    fn remove_infra(&mut self, range: Cidr) {
        assert!(range != denied() || !self.infra.contains_key(&pods_there()));
        self.infra.remove(&range);
    }

    fn let_to_infra(&mut self, network: NetworkId) {
        assert!(self.infra.contains_key(&denied()), "{network} is let in before all is closed");
        self.compatible.insert(network, true);
    }

    /// And nothing is opened while those are out to whom it was closed.
    fn open_outside(&mut self, closed: Closed) {
        let is_out = closed.to.is_some_and(|network| self.egress.contains_key(&network));
        assert!(!is_out, "{closed} is opened to a network that has egress");
        self.closed.remove(&closed);
    }

    fn name_of(&self, number: u32) -> Option<HostInterface> {
        let has_number = |(_, link): &(&HostInterface, &Link)| link.number == number;
        self.links.iter().find(has_number).map(|(name, _)| name.clone())
    }

    fn observe(&self) -> Observed {
        let link = |(name, link): (&HostInterface, &Link)| {
            let Link { up, mtu, reach, guard, .. } = link.clone();
            (name.clone(), ObservedInterface { exists: true, up, mtu, reach, guard })
        };
        let remains = |name: &HostInterface| (name.clone(), ObservedInterface::default());
        let endpoint = |(addr, (mac, target)): (&NetAddr, &(MacAddr, Target))| {
            let place = match target {
                Target::Node(node) => Some(Place::There(*node)),
                Target::Link(number) => self.name_of(*number).map(Place::Here),
            };
            (*addr, place.map(|place| Endpoint { mac: *mac, place }))
        };
        Observed {
            tenants: self.tenants.clone(),
            peers: self.peers.clone(),
            interfaces: self
                .links
                .iter()
                .map(link)
                .chain(self.remains.iter().map(remains))
                .collect(),
            endpoints: self.endpoints.iter().map(endpoint).collect(),
            doors: self.doors.clone(),
            services: self.services.clone(),
            service_doors: self.service_doors.clone(),
            egress: self.egress.clone(),
            closed: self.closed.clone(),
            compatible: self.compatible.clone(),
            openings: self.openings.clone(),
            infra: self.infra.clone(),
            held: self.held.clone(),
        }
    }

    /// Executes the steps, and checks that whoever only noted them saw the same.
    fn reach(&mut self, plan: &NodePlan) {
        let mut noted = self.observe();
        for step in diff(plan, &noted) {
            noted.note(&step);
            self.apply(step);
        }
        assert_eq!(noted, self.observe());
    }

    fn matches(&self, plan: &NodePlan) -> bool {
        let observed = self.observe();
        let interfaces_match = plan.interfaces.iter().all(|(name, wanted)| {
            let seen = observed.interfaces.get(name);
            seen.is_some_and(|seen| {
                let fits = seen.guard.as_ref() == Some(&wanted.guard) && seen.mtu == wanted.mtu;
                seen.exists && seen.up && fits
            })
        });
        let wanted: BTreeMap<_, _> =
            plan.endpoints.iter().map(|(addr, endpoint)| (*addr, Some(endpoint.clone()))).collect();
        let service_doors: BTreeMap<_, _> =
            plan.service_doors.iter().map(|(door, listener)| (*door, Some(*listener))).collect();
        let told: BTreeSet<NetworkId> = observed.tenants.iter().flatten().copied().collect();
        plan.tenants.iter().flatten().all(|network| told.contains(network))
            && observed.peers == plan.peers
            && interfaces_match
            && observed.interfaces.len() == plan.interfaces.len()
            && observed.endpoints == wanted
            && observed.doors == plan.doors
            && observed.services == plan.services
            && observed.service_doors == service_doors
            && observed.egress.keys().eq(plan.egress.keys())
            && observed.closed == plan.closed
            && observed.compatible.keys().eq(&plan.compatible)
            && observed.openings == plan.openings
            && observed.infra == plan.infra
            && observed.held.keys().eq(plan.held.keys())
    }
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn network(number: u32) -> NetworkId {
    NetworkId::try_from(number).unwrap()
}

/// A port that its owner opened to a network.
fn opening(to: NetworkId) -> Opening {
    let address = IpAddr::from([192, 0, 2, 80]);
    Opening::Port { to, address, protocol: Protocol::Tcp, port: port(80) }
}

/// A plan in which pod `(network, last)` is here when `here`, and on a peer otherwise.
fn plan(pods: &BTreeMap<(u32, u8), bool>) -> NodePlan {
    let mut plan = NodePlan::default();
    for ((number, last), here) in pods {
        let addr = NetAddr::new(network(*number), ip(*last));
        let mac = MacAddr::for_ip(addr.ip);
        let place = if *here {
            let name = HostInterface::for_attachment(&addr.to_string(), "eth0");
            let guard = Guard { network: addr.network, mac, ips: [addr.ip].into() };
            plan.interfaces.insert(name.clone(), pod_interface(guard));
            Place::Here(name)
        } else {
            plan.peers.insert(ip(200));
            Place::There(ip(200))
        };
        plan.endpoints.insert(addr, Endpoint { mac, place });
        plan.doors.insert(addr.network, doors(*last));
        let service = plan.services.entry(web(addr.network)).or_default();
        service.backends.insert(Backend { addr, port: port(8080) });
        let datagrams = last % 2 == 0;
        let api = ServiceDoor { addr: NetAddr::new(addr.network, ip(1)), port: 443, datagrams };
        plan.service_doors.insert(api, 61_000 + u16::from(*last));
        if *here {
            plan.egress.insert(addr.network, Egress::Node);
            plan.closed.insert(own_range(addr.network));
            plan.openings.insert(opening(addr.network), *last % 2 == 0);
            plan.openings.insert(Opening::Node(ip(*last)), false);
            plan.compatible.insert(addr.network);
            plan.infra.extend([(pods_there(), Infra::PodsThere), (denied(), Infra::Nowhere)]);
            let edge = edge(addr.network);
            plan.services
                .entry(edge)
                .or_default()
                .backends
                .insert(Backend { addr, port: port(8080) });
            plan.held.insert(edge.ip, addr.network);
        }
    }
    let here = plan.egress.keys().copied();
    let (one, another): (BTreeSet<_>, BTreeSet<_>) = here.partition(|it| it.get() < 3);
    plan.tenants = [one, another].into_iter().filter(|networks| !networks.is_empty()).collect();
    plan
}

/// Pods of no tenant, and some of them whom nobody reaches.
fn pods_there() -> Cidr {
    "10.244.0.0/16".parse().unwrap()
}

fn denied() -> Cidr {
    "10.244.7.0/24".parse().unwrap()
}

/// What is a network's own.
fn own_range(network: NetworkId) -> Closed {
    Closed { to: Some(network), range: "10.0.0.0/24".parse().unwrap() }
}

fn port(number: u16) -> NonZeroU16 {
    number.try_into().unwrap()
}

/// The service that all pods of a network are behind.
fn web(network: NetworkId) -> ServiceKey {
    let (side, protocol) = (Side::Clients, Protocol::Tcp);
    ServiceKey { network, side, ip: ip(100), protocol, port: port(80) }
}

/// The service by which the outside reaches those that are here.
fn edge(network: NetworkId) -> ServiceKey {
    let last = u8::try_from(network.get()).unwrap();
    ServiceKey { side: Side::Outside, ip: [192, 0, 2, last].into(), ..web(network) }
}

/// Doors whose own resolver is at `last`.
fn doors(last: u8) -> Doors {
    let resolver = |last| [ip(last)].into_iter().collect::<Resolver>();
    Doors { cluster: resolver(53), own: resolver(last) }
}

fn pod_interface(guard: Guard) -> PodInterface {
    PodInterface {
        sandbox: "/run/netns/pod".into(),
        name: "eth0".into(),
        description: "acme/web eth0".into(),
        mtu: 1450,
        guard,
        reach: Reach::Everything,
        has_siblings: false,
        device: Device::Veth,
    }
}

fn any_pods() -> impl Strategy<Value = BTreeMap<(u32, u8), bool>> {
    proptest::collection::btree_map((1..4_u32, 1..5_u8), any::<bool>(), 0..8)
}

proptest! {
    #[test]
    fn from_any_plan_to_any_other(before in any_pods(), after in any_pods()) {
        let mut kernel = Kernel::default();
        kernel.reach(&plan(&before));
        kernel.reach(&plan(&after));
        prop_assert!(kernel.matches(&plan(&after)));
        prop_assert_eq!(diff(&plan(&after), &kernel.observe()), vec![]);
    }

    #[test]
    fn a_link_deleted_by_hand_is_made_again_and_its_endpoint_follows(pods in any_pods()) {
        let mut kernel = Kernel::default();
        kernel.reach(&plan(&pods));
        kernel.remains = std::mem::take(&mut kernel.links).into_keys().collect();
        kernel.reach(&plan(&pods));
        prop_assert!(kernel.matches(&plan(&pods)));
    }

    #[test]
    fn a_guard_lost_or_altered_is_restored(pods in any_pods(), lost in any::<bool>()) {
        let mut kernel = Kernel::default();
        kernel.reach(&plan(&pods));
        let foreign = Guard { network: network(99), mac: MacAddr::GATEWAY, ips: BTreeSet::new() };
        for link in kernel.links.values_mut() {
            link.guard = (!lost).then(|| foreign.clone());
        }
        kernel.reach(&plan(&pods));
        prop_assert!(kernel.matches(&plan(&pods)));
    }

    #[test]
    fn a_pod_follows_the_size_of_the_underlays_packets(pods in any_pods(), mtu in 576..9000_u32) {
        let mut kernel = Kernel::default();
        kernel.reach(&plan(&pods));
        let mut resized = plan(&pods);
        resized.interfaces.values_mut().for_each(|interface| interface.mtu = mtu);
        let steps = diff(&resized, &kernel.observe());
        prop_assert!(steps.iter().all(|step| matches!(step, Step::ResizeInterface(..))));
        kernel.reach(&resized);
        prop_assert!(kernel.matches(&resized));
    }

    #[test]
    fn the_steps_for_what_was_touched_are_all_that_services_need(before in any_pods(), after in any_pods()) {
        let (before, after) = (plan(&before), plan(&after));
        let touched: BTreeSet<_> = before.services.keys().chain(after.services.keys()).collect();
        let mut observed = Observed { services: before.services.clone(), ..Observed::default() };
        for step in diff_services(touched, &after.services, &before.services) {
            observed.note(&step);
        }
        prop_assert_eq!(observed.services, after.services);
    }

    #[test]
    fn the_routes_of_pods_with_several_interfaces_follow_the_plan(pods in any_pods(), known in any::<bool>()) {
        let mut kernel = Kernel::default();
        let mut wanted = plan(&pods);
        wanted.interfaces.values_mut().for_each(|interface| interface.has_siblings = true);
        kernel.reach(&wanted);
        let ranges = ["10.1.0.0/16".parse().unwrap()];
        for (name, interface) in &mut wanted.interfaces {
            interface.reach = Reach::Only(ranges.into());
            kernel.link(name).reach.take_if(|_| !known);
        }
        let steps = diff(&wanted, &kernel.observe());
        prop_assert!(steps.iter().all(|step| matches!(step, Step::RouteInterface(..))));
        prop_assert_eq!(steps.len(), wanted.interfaces.len());
        kernel.reach(&wanted);
        prop_assert_eq!(diff(&wanted, &kernel.observe()), vec![]);
    }

    #[test]
    fn cut_short_at_any_step_the_next_pass_finishes(pods in any_pods(), after in any_pods(), cut in 0..20_usize) {
        let mut kernel = Kernel::default();
        kernel.reach(&plan(&pods));
        for step in diff(&plan(&after), &kernel.observe()).into_iter().take(cut) {
            kernel.apply(step);
        }
        kernel.reach(&plan(&after));
        prop_assert!(kernel.matches(&plan(&after)));
    }
}

#[test]
fn a_pod_is_reachable_before_it_may_speak_and_unreachable_before_its_link_goes() {
    let pods = plan(&[((1, 5), true)].into());
    let up: Vec<String> = diff(&pods, &Observed::default()).iter().map(Step::to_string).collect();
    let name = pods.interfaces.keys().next().unwrap();
    assert_eq!(
        up,
        [
            "share among tenants: 1".into(),
            format!("create interface {name} for acme/web eth0"),
            format!("guard interface {name} of network 1"),
            "put endpoint 1/10.0.0.5".into(),
            "put the doors of network 1".into(),
            "put service 1/10.0.0.100:80 TCP".into(),
            "put service 1/192.0.2.1:80 TCP from outside".into(),
            "put the door to 1/10.0.0.1 port 443 of TCP at 61005".into(),
            "close 10.0.0.0/24 to network 1 outside".into(),
            "put the egress of network 1".into(),
            "put what is open: TCP port 80 of 192.0.2.80 to network 1".into(),
            "put what is open: node ports at 10.0.0.5".into(),
            "put what of infra is in 10.244.7.0/24".into(),
            "put what of infra is in 10.244.0.0/16".into(),
            "let network 1 reach infra".into(),
            format!("raise interface {name}"),
            "answer for 192.0.2.1, which is network 1's".into(),
        ]
    );
    let mut kernel = Kernel::default();
    kernel.reach(&pods);
    let down = diff(&NodePlan::default(), &kernel.observe());
    assert!(matches!(
        down[..],
        [
            Step::RemoveOpening(_),
            Step::RemoveOpening(_),
            Step::Release(_),
            Step::KeepFromInfra(_),
            Step::RemoveInfra(_),
            Step::RemoveInfra(_),
            Step::RemoveEgress(_),
            Step::OpenOutside(_),
            Step::RemoveService(_),
            Step::RemoveService(_),
            Step::RemoveEndpoint(_),
            Step::RemoveInterfaces(_),
            Step::RemoveDoors(_),
            Step::RemoveServiceDoor(_)
        ]
    ));
}

#[test]
fn the_routes_of_a_pod_with_one_interface_are_nobodys_concern() {
    let mut kernel = Kernel::default();
    let plan = plan(&[((1, 5), true)].into());
    kernel.reach(&plan);
    assert_eq!(diff(&plan, &kernel.observe()), vec![]);
}

#[test]
fn many_interfaces_go_in_one_step() {
    let mut kernel = Kernel::default();
    kernel.reach(&plan(&[((1, 5), true), ((1, 6), true), ((2, 5), true)].into()));
    let steps = diff(&NodePlan::default(), &kernel.observe());
    let removals: Vec<_> =
        steps.iter().filter(|step| matches!(step, Step::RemoveInterfaces(_))).collect();
    assert!(matches!(removals[..], [Step::RemoveInterfaces(names)] if names.len() == 3));
}

#[test]
fn it_is_said_whose_networks_are_before_any_comes_and_not_again_when_one_goes() {
    let mut kernel = Kernel::default();
    let [one, both] = [&[1][..], &[1, 2]].map(|networks: &[u32]| {
        plan(&networks.iter().map(|number| ((*number, 5), true)).collect())
    });
    let whose = |kernel: &Kernel, plan: &NodePlan| {
        let steps = diff(plan, &kernel.observe());
        steps.iter().position(|step| matches!(step, Step::ShareAmong(_)))
    };
    kernel.reach(&one);
    assert_eq!(whose(&kernel, &both), Some(0), "the tenant has one network more");
    kernel.reach(&both);
    assert_eq!(whose(&kernel, &one), None, "what goes is its own to the end");
    kernel.tenants = [[network(1)].into(), [network(2)].into()].into();
    assert_eq!(whose(&kernel, &both), Some(0), "they were taken for two tenants");
}
