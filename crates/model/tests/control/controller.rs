//! A simulated controller: a world, a queue, and its own pace of reading news of each kind.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_model::intent::{Kind, Template};
use atoll_model::{Action, Key, Now, Settings, World};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::cluster::{Cluster, Message, Outcome};

/// A simulated controller.
pub(crate) struct Controller {
    pub(crate) world: World,
    queue: BTreeSet<Key>,
    alarms: BTreeMap<Key, Duration>,
    read: BTreeMap<Kind, usize>,
    pub(crate) now: Duration,
}

pub(crate) const KINDS: [Kind; 7] = [
    Kind::Tenant,
    Kind::Network,
    Kind::Subnet,
    Kind::Port,
    Kind::Claim,
    Kind::Namespace,
    Kind::Pod,
];

impl Controller {
    /// A controller that has listed everything.
    pub(crate) fn start(cluster: &Cluster, template: &Template, now: Duration) -> Self {
        let mut controller = Controller {
            world: World::new(Settings::default()),
            queue: BTreeSet::new(),
            alarms: BTreeMap::new(),
            read: KINDS.map(|kind| (kind, cluster.log.len())).into(),
            now,
        };
        let touched = controller.world.observe_template(template.clone());
        controller.queue.extend(touched);
        for object in cluster.objects.values() {
            controller.hear(Message::There(Box::new(object.clone())));
        }
        controller
    }

    pub(crate) fn hear(&mut self, message: Message) {
        let touched = match message {
            Message::There(object) => self.world.observe(object.seen(), self.now),
            Message::Gone(key, uid) => self.world.gone(&key, &uid, self.now),
        };
        self.queue.extend(touched);
    }

    /// Reads the next message of a kind; says whether there was one.
    pub(crate) fn read_next(&mut self, cluster: &Cluster, kind: Kind) -> bool {
        let position = self.read[&kind];
        let rest = cluster.log.iter().enumerate().skip(position);
        let next = rest.clone().find(|(_, message)| message.kind() == kind);
        let Some((position, message)) = next else {
            self.read.insert(kind, cluster.log.len());
            return false;
        };
        self.read.insert(kind, position + 1);
        self.hear(message.clone());
        true
    }

    fn clock(&self) -> Now {
        let time = Time(Timestamp::from_second(self.now.as_secs() as i64).unwrap());
        Now { moment: self.now, time }
    }

    /// Works on one queued object; `patience` is how many actions it does before it stops, as if
    /// its process had been killed. Says whether it was killed.
    pub(crate) fn work_on_nth(
        &mut self,
        cluster: &mut Cluster,
        nth: usize,
        patience: usize,
    ) -> bool {
        let Some(key) = self.queue.iter().nth(nth % self.queue.len().max(1)).cloned() else {
            return false;
        };
        self.queue.remove(&key);
        let now = self.clock();
        let decision = self.world.decide(&key, &now);
        if let Some(moment) = decision.again {
            self.alarms.insert(key.clone(), moment);
        }
        if !decision.actions.is_empty() {
            self.queue.insert(key);
        }
        self.act(cluster, &decision.actions, patience)
    }

    fn act(&mut self, cluster: &mut Cluster, actions: &[Action], patience: usize) -> bool {
        for (done, action) in actions.iter().enumerate() {
            if done == patience {
                return true;
            }
            match cluster.execute(action) {
                Outcome::Done(answers) => answers.into_iter().for_each(|it| self.hear(it)),
                Outcome::Otherwise(answers) => {
                    answers.into_iter().for_each(|it| self.hear(it));
                    break;
                }
            }
        }
        false
    }

    /// Reads everything and works until nothing is left to do.
    pub(crate) fn settle(&mut self, cluster: &mut Cluster) {
        for _ in 0..100_000 {
            let news = KINDS.map(|kind| self.read_next(cluster, kind));
            self.ring_alarms();
            if self.queue.is_empty() && !news.contains(&true) {
                return;
            }
            self.work_on_nth(cluster, 0, usize::MAX);
        }
        panic!("the controller does not come to rest; queued: {:?}", self.queue);
    }

    /// Lets time pass and settles.
    pub(crate) fn wait(&mut self, cluster: &mut Cluster, time: Duration) {
        self.now += time;
        self.settle(cluster);
    }

    /// What it would do about each queued object, without the numbers that it would propose.
    pub(crate) fn intentions(mut self) -> Vec<String> {
        let queue = std::mem::take(&mut self.queue);
        let now = self.clock();
        let decide = |key: &Key| {
            let actions = self.world.clone().decide(key, &now).actions;
            let names: Vec<_> = actions.iter().map(std::mem::discriminant).collect();
            (!names.is_empty()).then(|| format!("{key}: {names:?}"))
        };
        queue.iter().filter_map(decide).collect()
    }

    pub(crate) fn look_at(&mut self, touched: BTreeSet<Key>) {
        self.queue.extend(touched);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn ring_alarms(&mut self) {
        let now = self.now;
        let due: Vec<Key> =
            self.alarms.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.alarms.remove(&key);
            self.queue.insert(key);
        }
    }
}

/// A cluster with one controller that is always up to date: for scenarios.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) controller: Controller,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Scene::with_template(&Template::None)
    }

    pub(crate) fn with_template(template: &Template) -> Self {
        let cluster = Cluster::default();
        let controller = Controller::start(&cluster, template, Duration::ZERO);
        Scene { cluster, controller }
    }

    pub(crate) fn settle(&mut self) {
        self.controller.settle(&mut self.cluster);
    }

    /// What people were told about an object, last first.
    pub(crate) fn said_of(&self, key: &Key) -> Vec<&str> {
        let said = self.cluster.said.iter().rev();
        said.filter(|(about, _)| about == key).map(|(_, message)| message.as_str()).collect()
    }
}
