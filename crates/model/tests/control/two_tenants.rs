//! Random histories of two tenants with the same ranges: tenants, namespaces that move between
//! networks, subnets whose pools change, limits, templates, nodes that are lost, and two controllers
//! that read and work at their own pace and are killed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::{PortPhase, SubnetPhase, TenantQuota, marks};
use atoll_model::Key;
use atoll_model::intent::{Kind, Template};
use atoll_types::Cidr;
use proptest::prelude::*;

use crate::balancers::node;
use crate::cluster::{Cluster, Object};
use crate::controller::{Controller, KINDS};
use crate::history::restless;
use crate::networks::{network, subnet};
use crate::phases::Phases;
use crate::pods::pod;
use crate::tenants::{key, namespace, tenant};

const TENANTS: [&str; 2] = ["acme", "globex"];
const NODES: [&str; 2] = ["node0", "node1"];

/// One step of a history. The first number is the tenant.
#[derive(Clone, Debug)]
enum Step {
    MakeTenant(usize),
    DeleteTenant(usize),
    Limit(usize, Option<u32>),
    MakeNamespace(usize, u8),
    DeleteNamespace(usize, u8),
    MoveNamespace(usize, u8, Option<u8>),
    MakeNetwork(usize, u8),
    DeleteNetwork(usize, u8),
    MakeSubnet(usize, u8, u8),
    DeleteSubnet(usize, u8, u8),
    ChangePools(usize, u8, u8, u8),
    MakePod(usize, u8, u8, Option<u8>),
    DeletePod(usize, u8, u8),
    BindPod(usize, u8, u8, usize),
    AttachPort(u8),
    LoseNode(usize),
    ChangeTemplate(u8),
    Read(usize, usize),
    Work(usize, usize),
    Kill(usize),
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (two, half) = (0..2_usize, 0..2_u8);
    let place = (two.clone(), half.clone());
    let maybe = prop::option::of(0..3_u8);
    let pod = (two.clone(), half.clone(), 0..3_u8);
    prop_oneof![
        2 => two.clone().prop_map(Step::MakeTenant),
        1 => two.clone().prop_map(Step::DeleteTenant),
        1 => (two.clone(), prop::option::of(0..4_u32)).prop_map(|(who, it)| Step::Limit(who, it)),
        3 => place.clone().prop_map(|(who, it)| Step::MakeNamespace(who, it)),
        1 => place.clone().prop_map(|(who, it)| Step::DeleteNamespace(who, it)),
        2 => (place, maybe.clone()).prop_map(|((who, it), to)| Step::MoveNamespace(who, it, to)),
        3 => (two.clone(), 0..3_u8).prop_map(|(who, it)| Step::MakeNetwork(who, it)),
        1 => (two.clone(), 0..3_u8).prop_map(|(who, it)| Step::DeleteNetwork(who, it)),
        2 => pod.clone().prop_map(|(who, part, it)| Step::MakeSubnet(who, it, part)),
        1 => pod.clone().prop_map(|(who, part, it)| Step::DeleteSubnet(who, it, part)),
        1 => (pod.clone(), 0..4_u8)
            .prop_map(|((who, part, it), how)| Step::ChangePools(who, it, part, how)),
        8 => (pod.clone(), maybe).prop_map(|((who, at, it), to)| Step::MakePod(who, at, it, to)),
        4 => pod.clone().prop_map(|(who, at, it)| Step::DeletePod(who, at, it)),
        3 => (pod, two.clone()).prop_map(|((who, at, it), on)| Step::BindPod(who, at, it, on)),
        2 => any::<u8>().prop_map(Step::AttachPort),
        1 => two.clone().prop_map(Step::LoseNode),
        1 => (0..4_u8).prop_map(Step::ChangeTemplate),
        16 => (two.clone(), 0..KINDS.len()).prop_map(|(who, kind)| Step::Read(who, kind)),
        32 => (two.clone(), any::<usize>()).prop_map(|(who, nth)| Step::Work(who, nth)),
        1 => two.prop_map(Step::Kill),
        1 => (1..40_u8).prop_map(Step::Wait),
    ]
}

fn template(number: u8) -> Template {
    match number {
        0 => Template::None,
        1 => Template::Text("kind: Pod".into()),
        _ => Template::Text(format!(
            "kind: Network\nspec: {{type: vpc, cidrs: [10.0.1{number}.0/28]}}"
        )),
    }
}

fn home(who: usize, number: u8) -> String {
    format!("{}-{number}", TENANTS[who])
}

fn subnet_name(who: usize, number: u8, part: u8) -> String {
    format!("{}.net-{number}.part-{part}", TENANTS[who])
}

/// The tenant of a namespace, or of an object `<tenant>.<name>`.
fn tenant_of(name: &str) -> &str {
    name.split(['-', '.']).next().unwrap()
}

struct History {
    cluster: Cluster,
    controllers: [Controller; 2],
    template: Template,
    phases: Phases,
    checked: usize,
}

impl History {
    fn new() -> Self {
        let mut cluster = Cluster::default();
        NODES.into_iter().for_each(|name| drop(cluster.create(node(name, "True")).unwrap()));
        let template = template(2);
        let start = |_| Controller::start_with(&cluster, &template, restless(), Duration::ZERO);
        let controllers = [0, 1].map(start);
        History { cluster, controllers, template, phases: Phases::default(), checked: 0 }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::MakeTenant(who) => drop(self.cluster.create(tenant(TENANTS[*who], &[]))),
            Step::DeleteTenant(who) => self.delete(Kind::Tenant, TENANTS[*who]),
            Step::Limit(who, limit) => self.limit(TENANTS[*who], *limit),
            Step::MakeNamespace(who, number) => {
                drop(self.cluster.create(namespace(&home(*who, *number), TENANTS[*who])));
            }
            Step::DeleteNamespace(who, number) => self.delete_namespace(&home(*who, *number)),
            Step::MoveNamespace(who, number, to) => self.move_namespace(&home(*who, *number), *to),
            Step::MakeNetwork(who, number) => {
                let name = format!("{}.net-{number}", TENANTS[*who]);
                let vpc = (*number < 2).then_some("shared");
                let range = format!("10.0.{number}.0/28");
                drop(self.cluster.create(network(&name, vpc, &[&range])));
            }
            Step::DeleteNetwork(who, number) => {
                self.delete(Kind::Network, &format!("{}.net-{number}", TENANTS[*who]));
            }
            Step::MakeSubnet(who, number, part) => {
                let (name, own) = (subnet_name(*who, *number, *part), TENANTS[*who]);
                let range = format!("10.0.{number}.{}/29", part * 8);
                drop(self.cluster.create(subnet(&name, &format!("{own}.net-{number}"), &range)));
            }
            Step::DeleteSubnet(who, number, part) => {
                self.delete(Kind::Subnet, &subnet_name(*who, *number, *part));
            }
            Step::ChangePools(who, number, part, how) => {
                self.change_pools(&subnet_name(*who, *number, *part), *how);
            }
            Step::MakePod(..)
            | Step::DeletePod(..)
            | Step::BindPod(..)
            | Step::AttachPort(_)
            | Step::LoseNode(_) => self.take_of_pods(step),
            Step::ChangeTemplate(_)
            | Step::Read(..)
            | Step::Work(..)
            | Step::Kill(_)
            | Step::Wait(_) => self.take_of_controllers(step),
        }
    }

    /// What becomes of pods.
    fn take_of_pods(&mut self, step: &Step) {
        match step {
            Step::MakePod(who, at, number, to) => {
                self.make_pod(&home(*who, *at), &format!("web-{number}"), *to);
            }
            Step::DeletePod(who, at, number) => {
                self.delete(Kind::Pod, &format!("{}/web-{number}", home(*who, *at)));
            }
            Step::BindPod(who, at, number, on) => {
                self.bind_pod(&format!("{}/web-{number}", home(*who, *at)), NODES[*on]);
            }
            Step::AttachPort(nth) => self.attach_port(usize::from(*nth)),
            Step::LoseNode(which) => self.lose_node(NODES[*which]),
            other => unreachable!("{other:?} is not about pods"),
        }
    }

    /// What controllers do, and what is done to them.
    fn take_of_controllers(&mut self, step: &Step) {
        match step {
            Step::ChangeTemplate(number) => self.change_template(template(*number)),
            Step::Read(who, kind) => {
                self.controllers[*who].read_next(&self.cluster, KINDS[*kind]);
            }
            Step::Work(who, nth) => self.controllers[*who].work_on_nth(&mut self.cluster, *nth),
            Step::Kill(who) => {
                let (cluster, now) = (&self.cluster, self.controllers[*who].now);
                self.controllers[*who] =
                    Controller::start_with(cluster, &self.template, restless(), now);
            }
            Step::Wait(seconds) => {
                let time = Duration::from_secs((*seconds).into());
                self.controllers.iter_mut().for_each(|it| it.now += time);
            }
            other => unreachable!("{other:?} is not about controllers"),
        }
    }

    fn delete(&mut self, kind: Kind, name: &str) {
        self.cluster.delete(&key(kind, name));
    }

    fn change(&mut self, key: &Key, change: impl FnOnce(&mut Object)) {
        if self.cluster.objects.contains_key(key) {
            self.cluster.change(key, change);
        }
    }

    fn limit(&mut self, tenant: &str, limit: Option<u32>) {
        self.change(&key(Kind::Tenant, tenant), |object| {
            let Object::Tenant(tenant) = object else { unreachable!() };
            tenant.spec.quota =
                Some(TenantQuota { ports: limit, networks: limit, ..TenantQuota::default() });
        });
    }

    /// What is in a namespace goes with it.
    fn delete_namespace(&mut self, name: &str) {
        let inside = |it: &&Key| it.kind == Kind::Pod && it.name.namespace == name;
        let pods: Vec<Key> = self.cluster.objects.keys().filter(inside).cloned().collect();
        pods.iter().for_each(|pod| self.cluster.delete(pod));
        self.delete(Kind::Namespace, name);
    }

    fn move_namespace(&mut self, name: &str, to: Option<u8>) {
        self.change(&key(Kind::Namespace, name), |object| {
            let labels = object.meta_mut().labels.get_or_insert_default();
            match to {
                Some(number) => {
                    drop(labels.insert(marks::NETWORK.into(), format!("net-{number}")));
                }
                None => drop(labels.remove(marks::NETWORK)),
            }
        });
    }

    fn change_pools(&mut self, name: &str, how: u8) {
        self.change(&key(Kind::Subnet, name), |object| {
            let Object::Subnet(subnet) = object else { unreachable!() };
            let (start, _) = subnet.spec.cidr.split_once('/').unwrap();
            let (net, first) = start.rsplit_once('.').unwrap();
            let first: u8 = first.parse().unwrap();
            let part = format!("{net}.{}-{net}.{}", first + 2, first + 3);
            subnet.spec.pools = if how & 1 == 1 { vec![part] } else { Vec::new() };
            let excluded = format!("{net}.{}", first + 3);
            subnet.spec.excluded = if how & 2 == 2 { vec![excluded] } else { Vec::new() };
        });
    }

    fn make_pod(&mut self, home: &str, name: &str, to: Option<u8>) {
        if self.cluster.objects.contains_key(&key(Kind::Namespace, home)) {
            let network = to.map(|number| format!("net-{number}"));
            let pod = pod(&format!("{home}/{name}"), network.as_deref(), None);
            drop(self.cluster.create(pod));
        }
    }

    fn bind_pod(&mut self, name: &str, node: &str) {
        let has_node = self.cluster.objects.contains_key(&key(Kind::Node, node));
        self.change(&key(Kind::Pod, name), |object| {
            let Object::Pod(pod) = object else { unreachable!() };
            let place = &mut pod.spec.as_mut().unwrap().node_name;
            if has_node && place.is_none() {
                *place = Some(node.into());
            }
        });
    }

    /// A node reports one of its ports.
    fn attach_port(&mut self, nth: usize) {
        let placed =
            |object: &&Object| matches!(object, Object::Port(port) if port.spec.node.is_some());
        let ports = self.cluster.of_kind(Kind::Port).into_iter().filter(placed);
        let keys: Vec<Key> = ports.map(Object::key).collect();
        let Some(key) = nth.checked_rem(keys.len()).map(|nth| keys[nth].clone()) else { return };
        self.change(&key, |object| {
            let Object::Port(port) = object else { unreachable!() };
            port.status.get_or_insert_default().phase = PortPhase::Attached;
        });
    }

    /// The node goes, its pods are deleted by force, and another of its name comes.
    fn lose_node(&mut self, name: &str) {
        self.delete(Kind::Node, name);
        let pods = self.cluster.of_kind(Kind::Pod).into_iter().filter(|object| {
            let Object::Pod(pod) = object else { unreachable!() };
            pod.spec.as_ref().is_some_and(|it| it.node_name.as_deref() == Some(name))
        });
        let pods: Vec<Key> = pods.map(Object::key).collect();
        pods.iter().for_each(|pod| self.cluster.delete(pod));
        drop(self.cluster.create(node(name, "True")));
    }

    fn change_template(&mut self, template: Template) {
        for controller in &mut self.controllers {
            let touched = controller.world.observe_template(template.clone());
            controller.look_at(touched);
        }
        self.template = template;
    }

    fn come_to_rest(&mut self) {
        for _ in 0..8 {
            for controller in &mut self.controllers {
                controller.wait(&mut self.cluster, Duration::from_secs(10));
            }
        }
        for controller in &mut self.controllers {
            controller.settle(&mut self.cluster);
        }
    }

    /// What must hold at every moment.
    fn check(&mut self) {
        for position in self.checked..self.cluster.log.len() {
            self.phases.hear(&self.cluster.log[position]);
        }
        self.checked = self.cluster.log.len();
        let (mut addresses, mut owners) = (BTreeSet::new(), BTreeMap::new());
        for object in self.cluster.of_kind(Kind::Port) {
            let Object::Port(port) = object else { unreachable!() };
            let (name, spec) = (object.key().name, &port.spec);
            let tenant = tenant_of(&spec.network);
            assert_eq!(tenant, tenant_of(&name.namespace), "{name} is in {}", spec.network);
            let owner = owners.entry(spec.network_id).or_insert(tenant);
            assert_eq!(*owner, tenant, "both tenants have number {}", spec.network_id);
            for ip in &spec.ips {
                assert!(addresses.insert((spec.network_id, ip)), "{ip} is given twice");
            }
        }
    }

    /// Subnets that serve count truly, and tenants do.
    fn check_counts(&self) {
        for object in self.cluster.of_kind(Kind::Subnet) {
            let Object::Subnet(subnet) = object else { unreachable!() };
            let status = subnet.status.clone().unwrap();
            if status.phase == SubnetPhase::Active {
                let name = subnet.metadata.name.as_deref().unwrap();
                assert_eq!(status.used, self.claimed_in(subnet), "{name} counts wrongly");
            }
        }
        for object in self.cluster.of_kind(Kind::Tenant) {
            let Object::Tenant(tenant) = object else { unreachable!() };
            let (name, status) = (object.key().name.name, tenant.status.clone().unwrap());
            let ports = i32::try_from(self.ports_of(&name)).unwrap();
            assert_eq!(status.ports, ports, "{name} counts its ports wrongly");
        }
    }

    /// How many addresses are claimed of a subnet's range, and of no smaller one within it.
    fn claimed_in(&self, subnet: &atoll_api::Subnet) -> i64 {
        let network = self.cluster.network(&subnet.spec.network);
        let id = network.status.clone().unwrap().id.unwrap();
        let range: Cidr = subnet.spec.cidr.parse().unwrap();
        let claims = self.cluster.objects.keys().filter(|key| key.kind == Kind::Claim);
        let prefix = format!("address.{id}.");
        let held = claims.filter_map(|key| key.name.name.strip_prefix(&prefix));
        let smaller = self.smaller_ranges(subnet, &range);
        let inside = held.map(|ip| ip.parse().unwrap()).filter(|ip| {
            range.contains(*ip) && !smaller.iter().any(|smaller| smaller.contains(*ip))
        });
        i64::try_from(inside.count()).unwrap()
    }

    /// The ranges of subnets of the same network that lie within this one's.
    fn smaller_ranges(&self, subnet: &atoll_api::Subnet, range: &Cidr) -> Vec<Cidr> {
        let subnets = self.cluster.of_kind(Kind::Subnet).into_iter();
        let siblings = subnets.filter_map(|object| match object {
            Object::Subnet(other) if other.spec.network == subnet.spec.network => {
                other.spec.cidr.parse().ok()
            }
            _ => None,
        });
        siblings.filter(|other| range.contains_cidr(other) && other != range).collect()
    }

    fn ports_of(&self, tenant: &str) -> usize {
        let of_tenant =
            |key: &&Key| key.kind == Kind::Port && tenant_of(&key.name.namespace) == tenant;
        self.cluster.objects.keys().filter(of_tenant).count()
    }

    /// Networks that have their place.
    fn networks_of(&self, tenant: &str) -> usize {
        let networks = self.cluster.of_kind(Kind::Network).into_iter();
        let has_place = |object: &&Object| {
            let Object::Network(network) = object else { unreachable!() };
            let id = network.status.as_ref().and_then(|status| status.id);
            tenant_of(&object.key().name.name) == tenant && id.is_some()
        };
        networks.filter(has_place).count()
    }

    /// With room for one more, one more comes at most, however many ask.
    fn check_limits(&mut self) {
        let had = TENANTS.map(|it| (self.ports_of(it), self.networks_of(it)));
        for (tenant, (ports, networks)) in TENANTS.into_iter().zip(had) {
            self.limit(tenant, u32::try_from(ports.max(networks) + 1).ok());
        }
        self.come_to_rest();
        for who in 0..2 {
            (0..3).for_each(|it| self.take(&Step::MakeNetwork(who, it)));
            let pods = (0..2).flat_map(|at| (0..3).map(move |it| (at, it)));
            pods.for_each(|(at, it)| self.take(&Step::MakePod(who, at, it, Some(it))));
        }
        self.come_to_rest();
        for (tenant, (ports, networks)) in TENANTS.into_iter().zip(had) {
            let limit = ports.max(networks) + 1;
            assert!(self.ports_of(tenant) <= limit, "{tenant} has more than {limit} ports");
            let networks = self.networks_of(tenant);
            assert!(networks <= limit, "{tenant} has {networks} networks and may have {limit}");
        }
    }

    fn delete_everything(&mut self) {
        let made_by_people =
            [Kind::Pod, Kind::Namespace, Kind::Subnet, Kind::Network, Kind::Tenant, Kind::Node];
        let keys = self.cluster.objects.keys().filter(|key| made_by_people.contains(&key.kind));
        let keys: Vec<Key> = keys.cloned().collect();
        keys.iter().for_each(|key| self.cluster.delete(key));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn two_tenants_never_share_a_number_get_more_than_they_may_or_leave_anything(
        steps in prop::collection::vec(step(), 0..400)
    ) {
        let mut history = History::new();
        for step in &steps {
            history.take(step);
            history.check();
        }
        history.come_to_rest();
        history.check();
        history.check_counts();
        history.check_limits();
        history.check();
        history.delete_everything();
        history.come_to_rest();
        history.check();
        let left: Vec<_> = history.cluster.objects.keys().collect();
        prop_assert!(left.is_empty(), "{:?} is left", left);
    }
}
