//! Random histories: what people make and delete, what nodes report, and two controllers that read
//! and work at their own pace and are killed.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_api::{Port, PortPhase, PortSpec};
use atoll_model::intent::{Kind, Template};
use atoll_model::{Key, Settings};
use proptest::prelude::*;
use serde_json::json;

use crate::cluster::{Cluster, Object};
use crate::controller::{Controller, KINDS};
use crate::interfaces::asking;
use crate::kept::{made_beforehand, stateful};
use crate::networks::network;
use crate::phases::Phases;
use crate::pods::pod;
use crate::services::service;
use crate::tenants::{key, namespace, tenant};

/// One step of a history.
#[derive(Clone, Debug)]
pub(crate) enum Step {
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

pub(crate) fn step() -> impl Strategy<Value = Step> {
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
pub(crate) fn restless() -> Settings {
    let (keep, service) = (Duration::from_secs(40), vec!["198.18.0.0/29".parse().unwrap()]);
    Settings { rest: Duration::ZERO, keep, service, ..Settings::default() }
}

/// Two controllers that work at once, as after a leader was wrongly taken for dead.
pub(crate) struct History {
    pub(crate) cluster: Cluster,
    controllers: Vec<Controller>,
    /// What was told of everything.
    pub(crate) phases: Phases,
    /// Ports as they were last seen.
    pub(crate) ports: BTreeMap<Key, Port>,
    /// How much of the log was looked at.
    pub(crate) checked: usize,
}

impl History {
    pub(crate) fn new() -> Self {
        let mut cluster = Cluster::default();
        cluster.create(tenant("acme", &["10.0.0.0/29", "fd00::/124"])).unwrap();
        cluster.create(namespace("shop", "acme")).unwrap();
        let start =
            || Controller::start_with(&cluster, &Template::None, restless(), Duration::ZERO);
        let controllers = vec![start(), start()];
        let (phases, ports) = (Phases::default(), BTreeMap::new());
        History { cluster, controllers, phases, ports, checked: 0 }
    }

    pub(crate) fn take(&mut self, step: &Step) {
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
    pub(crate) fn come_to_rest(&mut self) {
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

    pub(crate) fn delete_everything(&mut self) {
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
