//! Whatever happens, in whatever order it is heard, whoever is killed: no address twice, nothing
//! forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::{ClaimHolder, NetworkPhase, Port, PortPhase, PortSpec};
use atoll_model::intent::{Kind, ObjectName, Template, Thing, holder_of_port};
use atoll_model::{Key, Settings};
use atoll_types::{NetAddr, NetworkId};
use proptest::prelude::*;
use serde_json::json;

use crate::cluster::{Cluster, Message, Object};
use crate::controller::{Controller, KINDS};
use crate::interfaces::asking;
use crate::kept::{made_beforehand, stateful};
use crate::networks::network;
use crate::pods::pod;
use crate::services::{service, vip};
use crate::tenants::{key, namespace, tenant};

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    MakePod(u8),
    MakePodWithAddress(u8, u8),
    MakeWidePod(u8, u8),
    MakeStatefulPod(u8),
    MakePodWithPort(u8, u8),
    MakePort(u8),
    DeletePort(u8),
    DeletePod(u8),
    BindPod(u8),
    AttachPort(u8),
    FinishPod(u8),
    MakeNetwork(u8),
    GrowNetwork(u8),
    DeleteNetwork(u8),
    MakeService(u8),
    MakeServiceWithVip(u8, u8),
    DeleteService(u8),
    Read(u8, usize),
    Work(u8, usize),
    Kill(u8),
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..2_u8;
    prop_oneof![
        3 => (0..8_u8).prop_map(Step::MakePod),
        1 => (0..8_u8, 0..8_u8).prop_map(|(pod, ip)| Step::MakePodWithAddress(pod, ip)),
        2 => (0..8_u8, 0..3_u8).prop_map(|(pod, extra)| Step::MakeWidePod(pod, extra)),
        1 => (0..8_u8).prop_map(Step::MakeStatefulPod),
        1 => (0..8_u8, 0..2_u8).prop_map(|(pod, port)| Step::MakePodWithPort(pod, port)),
        1 => (0..2_u8).prop_map(Step::MakePort),
        1 => (0..2_u8).prop_map(Step::DeletePort),
        3 => (0..8_u8).prop_map(Step::DeletePod),
        1 => (0..8_u8).prop_map(Step::BindPod),
        2 => any::<u8>().prop_map(Step::AttachPort),
        1 => (0..8_u8).prop_map(Step::FinishPod),
        1 => (0..3_u8).prop_map(Step::MakeNetwork),
        1 => (0..3_u8).prop_map(Step::GrowNetwork),
        1 => (0..3_u8).prop_map(Step::DeleteNetwork),
        2 => (0..4_u8).prop_map(Step::MakeService),
        1 => (0..4_u8, 0..9_u8).prop_map(|(it, ip)| Step::MakeServiceWithVip(it, ip)),
        2 => (0..4_u8).prop_map(Step::DeleteService),
        12 => (who.clone(), 0..KINDS.len()).prop_map(|(who, kind)| Step::Read(who, kind)),
        24 => (who.clone(), any::<usize>()).prop_map(|(who, nth)| Step::Work(who, nth)),
        1 => who.prop_map(Step::Kill),
        1 => (1..40_u8).prop_map(Step::Wait),
    ]
}

/// The VPC of a network: the default network's, or one of its own.
fn vpc(number: u8) -> &'static str {
    if number == 2 { "other" } else { "default" }
}

/// Freed addresses are given again at once, and addresses are kept for a short while only: the
/// harder case.
fn restless() -> Settings {
    let (keep, service) = (Duration::from_secs(40), vec!["198.18.0.0/29".parse().unwrap()]);
    Settings { rest: Duration::ZERO, keep, service, ..Settings::default() }
}

/// Two controllers that work at once, as after a leader was wrongly taken for dead.
struct History {
    cluster: Cluster,
    controllers: Vec<Controller>,
    phases: BTreeMap<String, NetworkPhase>,
    ports: BTreeMap<Key, Port>,
    checked: usize,
}

impl History {
    fn new() -> Self {
        let mut cluster = Cluster::default();
        cluster.create(tenant("acme", &["10.0.0.0/29", "fd00::/124"])).unwrap();
        cluster.create(namespace("shop", "acme")).unwrap();
        let start =
            || Controller::start_with(&cluster, &Template::None, restless(), Duration::ZERO);
        let controllers = vec![start(), start()];
        let (phases, ports) = (BTreeMap::new(), BTreeMap::new());
        History { cluster, controllers, phases, ports, checked: 0 }
    }

    fn take(&mut self, step: &Step) {
        let pod_key = |number: &u8| key(Kind::Pod, &format!("shop/web-{number}"));
        match step {
            Step::MakePod(number) => self.make_pod(*number, None),
            Step::MakePodWithAddress(number, ip) => {
                self.make_pod(*number, Some(&format!(r#"[{{"ip": "10.0.0.{ip}"}}]"#)));
            }
            Step::MakeWidePod(number, extra) => {
                let annotations = json!({"atoll.dev/nics": "[{}, {}]",
                    "atoll.dev/extra-networks": format!("extra-{extra}")});
                self.cluster.create(asking(&format!("shop/web-{number}"), &annotations)).ok();
            }
            Step::MakeStatefulPod(number) => {
                self.cluster.create(stateful(&format!("shop/web-{number}"))).ok();
            }
            Step::MakePodWithPort(number, port) => {
                self.make_pod(*number & !1, Some(&format!(r#"[{{"port": "mine-{port}"}}]"#)));
            }
            Step::MakePort(number) => {
                let spec = PortSpec { network: "acme.default".into(), ..PortSpec::default() };
                self.cluster.create(made_beforehand(&format!("shop/mine-{number}"), spec)).ok();
            }
            Step::DeletePort(number) => self.delete(Kind::Port, &format!("shop/mine-{number}")),
            Step::DeletePod(number) => self.cluster.delete(&pod_key(number)),
            Step::BindPod(number) => self.change_pod(*number, |pod| {
                pod.spec.as_mut().unwrap().node_name = Some("node1".into());
            }),
            Step::AttachPort(nth) => self.attach_port(usize::from(*nth)),
            Step::FinishPod(number) => self.change_pod(*number, |pod| {
                pod.status.get_or_insert_default().phase = Some("Failed".into());
            }),
            Step::MakeNetwork(number) => {
                let (name, cidr) = (format!("acme.extra-{number}"), format!("10.0.{number}.0/24"));
                self.cluster.create(network(&name, Some(vpc(*number)), &[&cidr])).ok();
            }
            Step::GrowNetwork(number) => self.grow_network(*number),
            Step::MakeService(number) => self.make_service(*number, ""),
            Step::MakeServiceWithVip(number, ip) => {
                self.make_service(*number, &format!("198.18.0.{ip}"));
            }
            Step::DeleteService(number) => {
                self.delete(Kind::Service, &format!("shop/svc-{number}"));
            }
            Step::DeleteNetwork(number) => {
                self.delete(Kind::Network, &format!("acme.extra-{number}"));
            }
            Step::Read(who, kind) => {
                self.controllers[usize::from(*who)].read_next(&self.cluster, KINDS[*kind]);
            }
            Step::Work(who, nth) => {
                self.controllers[usize::from(*who)].work_on_nth(&mut self.cluster, *nth);
            }
            Step::Kill(who) => self.kill(usize::from(*who)),
            Step::Wait(seconds) => {
                let time = Duration::from_secs((*seconds).into());
                self.controllers.iter_mut().for_each(|it| it.now += time);
            }
        }
    }

    fn kill(&mut self, who: usize) {
        let now = self.controllers[who].now;
        self.controllers[who] =
            Controller::start_with(&self.cluster, &Template::None, restless(), now);
    }

    fn delete(&mut self, kind: Kind, name: &str) {
        self.cluster.delete(&key(kind, name));
    }

    fn make_service(&mut self, number: u8, vip: &str) {
        self.cluster.create(service(&format!("shop/svc-{number}"), vip)).ok();
    }

    fn make_pod(&mut self, number: u8, nics: Option<&str>) {
        let name = format!("shop/web-{number}");
        let extra = format!("extra-{}", number % 3);
        let network = (number % 2 == 1).then_some(extra.as_str());
        self.cluster.create(pod(&name, network, nics)).ok();
    }

    /// Adds a range to a network, if it is there.
    fn grow_network(&mut self, number: u8) {
        let key = key(Kind::Network, &format!("acme.extra-{number}"));
        if self.cluster.objects.contains_key(&key) {
            self.cluster.change(&key, |object| {
                let Object::Network(network) = object else { unreachable!() };
                let range = format!("10.1.{number}.0/24");
                network.spec.cidrs.retain(|it| *it != range);
                network.spec.cidrs.push(range);
            });
        }
    }

    /// A node reports one of the ports that pods have.
    fn attach_port(&mut self, nth: usize) {
        let bound =
            |object: &&Object| matches!(object, Object::Port(it) if !it.spec.pod.is_empty());
        let ports = self.cluster.of_kind(Kind::Port).into_iter().filter(bound);
        let keys: Vec<Key> = ports.map(Object::key).collect();
        let Some(key) = nth.checked_rem(keys.len()).map(|nth| &keys[nth]) else { return };
        self.cluster.change(key, |object| {
            let Object::Port(port) = object else { unreachable!() };
            port.status.get_or_insert_default().phase = PortPhase::Attached;
        });
    }

    fn change_pod(
        &mut self,
        number: u8,
        change: impl FnOnce(&mut k8s_openapi::api::core::v1::Pod),
    ) {
        let key = key(Kind::Pod, &format!("shop/web-{number}"));
        if self.cluster.objects.contains_key(&key) {
            self.cluster.change(&key, |object| {
                let Object::Pod(pod) = object else { unreachable!() };
                change(pod);
            });
        }
    }

    /// Lets both controllers read all and do all, and time pass for what waits.
    fn come_to_rest(&mut self) {
        for _ in 0..8 {
            for who in 0..2 {
                let time = Duration::from_secs(10);
                self.controllers[who].wait(&mut self.cluster, time);
            }
        }
        for who in 0..2 {
            self.controllers[who].settle(&mut self.cluster);
            assert!(self.controllers[who].is_idle());
        }
    }

    /// What must hold at every moment.
    fn check(&mut self) {
        let mut addresses = BTreeSet::new();
        for object in self.cluster.of_kind(Kind::Port) {
            let Object::Port(port) = object else { unreachable!() };
            for ip in &port.spec.ips {
                let address = (port.spec.network_id, ip.clone());
                assert!(addresses.insert(address), "{ip} is given twice");
            }
        }
        for position in self.checked..self.cluster.log.len() {
            match self.cluster.log[position].clone() {
                Message::There(object) => {
                    self.check_phase(&object);
                    self.note_port(&object);
                }
                Message::Gone(key, _) => self.check_end(&key),
            }
        }
        self.checked = self.cluster.log.len();
    }

    /// No port that goes with its pod is deleted while the pod needs it.
    fn note_port(&mut self, object: &Object) {
        let Object::Port(port) = object else { return };
        let ends = port.metadata.deletion_timestamp.is_some() && !port.spec.persistent;
        assert!(!ends || !self.pod_lives(port), "{} loses its port", port.spec.pod);
        self.ports.insert(object.key(), port.clone());
    }

    /// No pod loses its port while it needs it.
    fn check_end(&mut self, gone: &Key) {
        let Some(port) = self.ports.remove(gone) else { return };
        assert!(!self.pod_lives(&port), "{} lost its port", port.spec.pod);
    }

    /// No phase goes back to the beginning, and none leaves Terminating.
    fn check_phase(&mut self, object: &Object) {
        let Object::Network(network) = object else { return };
        let Some(status) = &network.status else { return };
        let incarnation = network.metadata.uid.clone().unwrap();
        let before = self.phases.insert(incarnation, status.phase);
        let legal = match before {
            None => true,
            Some(NetworkPhase::Terminating) => status.phase == NetworkPhase::Terminating,
            Some(before) => status.phase == before || status.phase != NetworkPhase::Initializing,
        };
        assert!(legal, "{before:?} was followed by {:?}", status.phase);
    }

    /// What must hold when nothing is left to do.
    fn check_at_rest(&self) {
        let mut wanted = BTreeSet::new();
        for object in self.cluster.of_kind(Kind::Port) {
            let Object::Port(port) = object else { unreachable!() };
            self.check_claims(port, &mut wanted);
            let (name, spec) = (&port.metadata.name, &port.spec);
            let outlives = spec.persistent || spec.pod_uid.is_empty();
            assert!(outlives || self.pod_lives(port), "{name:?} outlived its pod");
            assert!(spec.pod_uid.is_empty() || self.pod_lives(port), "{name:?} keeps a dead pod");
            let attached = port.status.as_ref().map(|it| it.phase) == Some(PortPhase::Attached);
            assert!(!attached || !spec.pod_uid.is_empty(), "{name:?} is attached to nobody");
            assert!(self.has_others(port), "{name:?} is there without its other interfaces");
            self.check_routes(port);
        }
        for object in self.cluster.of_kind(Kind::Claim) {
            let Object::Claim(claim) = object else { unreachable!() };
            let name = claim.metadata.name.clone().unwrap();
            if let Some(vip) = name.strip_prefix("vip.acme.") {
                assert!(self.service_has(&claim.spec.holder, vip), "{name} is held by nobody");
                continue;
            }
            let known = wanted.contains(&name) || !name.starts_with("address.");
            assert!(known || self.is_awaited(claim), "{name} is held by nobody");
        }
        let ids = self.cluster.objects.keys().filter(|it| it.name.name.starts_with("network-id."));
        let vpcs = self.cluster.objects.keys().filter(|it| it.name.name.starts_with("vpc."));
        assert_eq!(ids.count(), vpcs.count(), "one VPC has one number");
        self.check_services();
    }

    /// What is reached through an interface that is not the first: all of its VPC, unless that is
    /// the first one's, too.
    fn check_routes(&self, port: &Port) {
        if port.spec.pod.is_empty()
            || port.spec.primary
            || port.metadata.deletion_timestamp.is_some()
        {
            return;
        }
        let mut ranges = match port.spec.network.as_str() {
            "acme.extra-2" => self.cluster.network("acme.extra-2").spec.cidrs.clone(),
            _ => Vec::new(),
        };
        ranges.sort();
        assert_eq!(port.spec.routes, ranges, "{:?}", port.metadata.name);
    }

    /// Whether this service lives and says that it has the address.
    fn service_has(&self, holder: &ClaimHolder, ip: &str) -> bool {
        let found = self.cluster.objects.get(&key(Kind::Service, &format!("shop/{}", holder.name)));
        let lives = found.is_some_and(|found| found.meta().uid == holder.uid);
        lives && vip(&self.cluster, &format!("shop/{}", holder.name)).as_deref() == Some(ip)
    }

    /// There are fewer services than addresses: who has none asked for what it cannot have.
    fn check_services(&self) {
        for object in self.cluster.of_kind(Kind::Service) {
            let name = object.key().name.to_string();
            let vip = vip(&self.cluster, &name).unwrap_or_else(|| panic!("{name} has no address"));
            let claim = self.cluster.objects.get(&key(Kind::Claim, &format!("vip.acme.{vip}")));
            let is_kept_back = ["198.18.0.0", "198.18.0.1", "198.18.0.7", "198.18.0.8"];
            assert!(claim.is_some() != is_kept_back.contains(&vip.as_str()), "{name}: {vip}");
        }
    }

    /// Every address of a port is claimed by it.
    fn check_claims(&self, port: &Port, wanted: &mut BTreeSet<String>) {
        let name = ObjectName::inside("shop", port.metadata.name.clone().unwrap());
        let own = port.metadata.uid.clone().unwrap();
        let uid = if port.spec.persistent { &own } else { &port.spec.pod_uid };
        let Ok(network) = NetworkId::try_from(port.spec.network_id) else { return };
        for ip in &port.spec.ips {
            let thing = Thing::Address(NetAddr::new(network, ip.parse().unwrap())).to_string();
            let Some(Object::Claim(found)) = self.cluster.objects.get(&key(Kind::Claim, &thing))
            else {
                panic!("{name} has no claim on {ip}");
            };
            assert_eq!(found.spec.holder, holder_of_port(&name, uid));
            wanted.insert(thing);
        }
    }

    /// The first interface's port comes last, so that the others are there with it.
    fn has_others(&self, port: &Port) -> bool {
        port.spec.other_interfaces.iter().all(|interface| {
            let other = self.cluster.port("shop", &format!("{}.{interface}", port.spec.pod));
            other.is_some_and(|other| other.spec.pod_uid == port.spec.pod_uid)
        })
    }

    /// Whether a claim is for a pod or a port that waits for the rest of what it needs.
    fn is_awaited(&self, claim: &atoll_api::Claim) -> bool {
        let holder = claim.spec.holder.uid.as_deref();
        let mut live = self.cluster.objects.values();
        let Some(found) = live.find(|object| object.meta().uid.as_deref() == holder) else {
            return false;
        };
        match found {
            Object::Pod(pod) => {
                let name = pod.metadata.name.as_deref().unwrap();
                self.cluster.port("shop", &format!("{name}.eth0")).is_none()
            }
            Object::Port(port) => port.spec.network_id == 0,
            _ => false,
        }
    }

    fn pod_lives(&self, port: &Port) -> bool {
        let pod = key(Kind::Pod, &format!("shop/{}", port.spec.pod));
        let Some(Object::Pod(pod)) = self.cluster.objects.get(&pod) else { return false };
        let finished = pod.status.as_ref().is_some_and(|status| status.phase.is_some());
        pod.metadata.uid.as_deref() == Some(&port.spec.pod_uid) && !finished
    }

    fn delete_everything(&mut self) {
        let keys: Vec<_> = self.cluster.objects.keys().cloned().collect();
        let made_by_people =
            [Kind::Pod, Kind::Service, Kind::Namespace, Kind::Network, Kind::Tenant];
        let kept = |key: &Key| match &self.cluster.objects[key] {
            Object::Port(port) => port.spec.persistent || port.spec.pod_uid.is_empty(),
            object => made_by_people.contains(&object.kind()),
        };
        let keys: Vec<_> = keys.into_iter().filter(kept).collect();
        for key in &keys {
            self.cluster.delete(key);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_address_is_given_twice_and_nothing_is_forgotten(
        steps in prop::collection::vec(step(), 0..400)
    ) {
        let mut history = History::new();
        for step in &steps {
            history.take(step);
            history.check();
        }
        history.come_to_rest();
        history.check();
        history.check_at_rest();
        history.delete_everything();
        history.come_to_rest();
        history.check();
        let left: Vec<_> = history.cluster.objects.keys().collect();
        prop_assert!(left.is_empty(), "{:?} is left", left);
    }

    #[test]
    fn the_same_news_in_any_order_lead_to_the_same_decisions(
        steps in prop::collection::vec(step(), 0..150),
        order in any::<prop::sample::Index>(),
        doubled in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut history = History::new();
        steps.iter().for_each(|step| history.take(step));
        let straight = decisions(&history.cluster.log);
        let mut shuffled: Vec<Message> = history.cluster.log.iter().rev().cloned().collect();
        let turn = order.index(shuffled.len());
        shuffled.rotate_left(turn);
        for index in doubled {
            let message = shuffled[index.index(shuffled.len())].clone();
            shuffled.push(message);
        }
        prop_assert_eq!(decisions(&shuffled), straight);
    }
}

/// What a controller that heard these news, and did nothing yet, would do about each object.
fn decisions(news: &[Message]) -> Vec<String> {
    let cluster = Cluster::default();
    let mut controller =
        Controller::start_with(&cluster, &Template::None, restless(), Duration::ZERO);
    news.iter().for_each(|message| controller.hear(message.clone()));
    controller.intentions()
}
