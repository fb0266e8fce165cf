//! Whatever happens, in whatever order it is heard, whoever is killed: no address twice, nothing
//! forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::NetworkPhase;
use atoll_model::Settings;
use atoll_model::intent::{Kind, ObjectName, Template, holder_of_port};
use proptest::prelude::*;

use crate::cluster::{Cluster, Message, Object};
use crate::controller::{Controller, KINDS};
use crate::networks::network;
use crate::pods::pod;
use crate::tenants::{key, namespace, tenant};

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    MakePod(u8),
    MakePodWithAddress(u8, u8),
    DeletePod(u8),
    BindPod(u8),
    FinishPod(u8),
    MakeNetwork(u8),
    DeleteNetwork(u8),
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
        2 => (0..8_u8).prop_map(Step::DeletePod),
        1 => (0..8_u8).prop_map(Step::BindPod),
        1 => (0..8_u8).prop_map(Step::FinishPod),
        1 => (0..3_u8).prop_map(Step::MakeNetwork),
        1 => (0..3_u8).prop_map(Step::DeleteNetwork),
        12 => (who.clone(), 0..7_usize).prop_map(|(who, kind)| Step::Read(who, kind)),
        24 => (who.clone(), any::<usize>()).prop_map(|(who, nth)| Step::Work(who, nth)),
        1 => who.prop_map(Step::Kill),
        1 => (1..40_u8).prop_map(Step::Wait),
    ]
}

/// Freed addresses are given again at once: the harder case.
fn restless() -> Settings {
    Settings { rest: Duration::ZERO, ..Settings::default() }
}

/// Two controllers that work at once, as after a leader was wrongly taken for dead.
struct History {
    cluster: Cluster,
    controllers: Vec<Controller>,
    phases: BTreeMap<String, NetworkPhase>,
    checked: usize,
}

impl History {
    fn new() -> Self {
        let mut cluster = Cluster::default();
        cluster.create(tenant("acme", &["10.0.0.0/29"])).unwrap();
        cluster.create(namespace("shop", "acme")).unwrap();
        let start =
            || Controller::start_with(&cluster, &Template::None, restless(), Duration::ZERO);
        let controllers = vec![start(), start()];
        History { cluster, controllers, phases: BTreeMap::new(), checked: 0 }
    }

    fn take(&mut self, step: &Step) {
        let pod_key = |number: &u8| key(Kind::Pod, &format!("shop/web-{number}"));
        match step {
            Step::MakePod(number) => self.make_pod(*number, None),
            Step::MakePodWithAddress(number, ip) => {
                self.make_pod(*number, Some(&format!(r#"[{{"ip": "10.0.0.{ip}"}}]"#)));
            }
            Step::DeletePod(number) => self.cluster.delete(&pod_key(number)),
            Step::BindPod(number) => self.change_pod(*number, |pod| {
                pod.spec.as_mut().unwrap().node_name = Some("node1".into());
            }),
            Step::FinishPod(number) => self.change_pod(*number, |pod| {
                pod.status.get_or_insert_default().phase = Some("Failed".into());
            }),
            Step::MakeNetwork(number) => {
                let (name, cidr) = (format!("acme.extra-{number}"), format!("10.0.{number}.0/24"));
                self.cluster.create(network(&name, Some("default"), &[&cidr])).ok();
            }
            Step::DeleteNetwork(number) => {
                self.cluster.delete(&key(Kind::Network, &format!("acme.extra-{number}")));
            }
            Step::Read(who, kind) => {
                self.controllers[usize::from(*who)].read_next(&self.cluster, KINDS[*kind]);
            }
            Step::Work(who, nth) => {
                self.controllers[usize::from(*who)].work_on_nth(&mut self.cluster, *nth);
            }
            Step::Kill(who) => {
                let who = usize::from(*who);
                let now = self.controllers[who].now;
                self.controllers[who] =
                    Controller::start_with(&self.cluster, &Template::None, restless(), now);
            }
            Step::Wait(seconds) => {
                let time = Duration::from_secs((*seconds).into());
                self.controllers.iter_mut().for_each(|it| it.now += time);
            }
        }
    }

    fn make_pod(&mut self, number: u8, nics: Option<&str>) {
        let name = format!("shop/web-{number}");
        let extra = format!("extra-{}", number % 3);
        let network = (number % 2 == 1).then_some(extra.as_str());
        self.cluster.create(pod(&name, network, nics)).ok();
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
            if let Message::There(object) = self.cluster.log[position].clone() {
                self.check_phase(&object);
                self.check_end(&object);
            }
        }
        self.checked = self.cluster.log.len();
    }

    /// No pod loses its port while it needs it.
    fn check_end(&self, object: &Object) {
        let Object::Port(port) = object else { return };
        let ends = port.metadata.deletion_timestamp.is_some();
        assert!(!ends || !self.pod_lives(port), "{} lost its port", port.spec.pod);
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
            let name = ObjectName::inside("shop", port.metadata.name.clone().unwrap());
            let holder = holder_of_port(&name, &port.spec.pod_uid);
            for ip in &port.spec.ips {
                let claim = key(Kind::Claim, &format!("address.{}.{ip}", port.spec.network_id));
                let Some(Object::Claim(found)) = self.cluster.objects.get(&claim) else {
                    panic!("{name} has no claim on {ip}");
                };
                assert_eq!(found.spec.holder, holder);
                wanted.insert(claim);
            }
            assert!(self.pod_lives(port), "{name} outlived its pod");
        }
        for claim in self.cluster.of_kind(Kind::Claim) {
            let name = claim.meta().name.clone().unwrap();
            let known = wanted.contains(&claim.key()) || !name.starts_with("address.");
            assert!(known, "{name} is held by nobody");
        }
        let ids = self.cluster.objects.keys().filter(|it| it.name.name.starts_with("network-id."));
        assert_eq!(ids.count(), 1, "one VPC has one number");
    }

    fn pod_lives(&self, port: &atoll_api::Port) -> bool {
        let pod = key(Kind::Pod, &format!("shop/{}", port.spec.pod));
        let Some(Object::Pod(pod)) = self.cluster.objects.get(&pod) else { return false };
        let finished = pod.status.as_ref().is_some_and(|status| status.phase.is_some());
        pod.metadata.uid.as_deref() == Some(&port.spec.pod_uid) && !finished
    }

    fn delete_everything(&mut self) {
        let keys: Vec<_> = self.cluster.objects.keys().cloned().collect();
        let made_by_people = [Kind::Pod, Kind::Namespace, Kind::Network, Kind::Tenant];
        for key in keys.iter().filter(|key| made_by_people.contains(&key.kind)) {
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
    let mut controller = Controller::start(&Cluster::default(), &Template::None, Duration::ZERO);
    news.iter().for_each(|message| controller.hear(message.clone()));
    controller.intentions()
}
