//! A simulated controller: a world, a queue, and its own pace of reading news of each kind.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    in_flight: Vec<Batch>,
    decided: usize,
    pub(crate) now: Duration,
}

/// Actions that a worker has begun to do.
struct Batch {
    key: Key,
    actions: VecDeque<Action>,
    begun: Duration,
}

/// What a worker that took longer than this does not finish, as in the real controller.
const DEADLINE: Duration = Duration::from_secs(10);

pub(crate) const KINDS: [Kind; 13] = [
    Kind::Tenant,
    Kind::Network,
    Kind::Subnet,
    Kind::Port,
    Kind::Claim,
    Kind::Namespace,
    Kind::Pod,
    Kind::Service,
    Kind::ClusterRole,
    Kind::AddressPool,
    Kind::Node,
    Kind::NetworkType,
    Kind::EndpointSlice,
];

impl Controller {
    /// A controller that has listed everything.
    pub(crate) fn start(cluster: &Cluster, template: &Template, now: Duration) -> Self {
        Controller::start_with(cluster, template, Settings::default(), now)
    }

    pub(crate) fn start_with(
        cluster: &Cluster,
        template: &Template,
        settings: Settings,
        now: Duration,
    ) -> Self {
        let mut controller = Controller {
            world: World::new(settings),
            queue: BTreeSet::new(),
            alarms: BTreeMap::new(),
            read: KINDS.map(|kind| (kind, cluster.log.len())).into(),
            in_flight: Vec::new(),
            decided: 0,
            now,
        };
        controller.world.observe_template(template.clone());
        for object in cluster.objects.values() {
            controller.world.learn(object.seen(), now);
        }
        controller.queue.extend(controller.world.everything());
        controller
    }

    pub(crate) fn hear(&mut self, message: Message) {
        let touched = match message {
            Message::There(object) => self.world.observe(object.seen(), self.now),
            Message::Gone(key, uid) => self.world.gone(&key, &uid, self.now),
        };
        self.queue.extend(touched);
    }

    /// Takes all news for read, whether it heard them or not.
    pub(crate) fn skip_news(&mut self, cluster: &Cluster) {
        self.read.values_mut().for_each(|position| *position = cluster.log.len());
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

    /// Begins to work on a queued object, or does the next action of something begun.
    pub(crate) fn work_on_nth(&mut self, cluster: &mut Cluster, nth: usize) {
        let begun: BTreeSet<&Key> = self.in_flight.iter().map(|batch| &batch.key).collect();
        let free = self.queue.iter().filter(|key| !begun.contains(key)).cloned();
        let free: Vec<Key> = free.collect();
        let choices = free.len() + self.in_flight.len();
        match nth.checked_rem(choices) {
            None => {}
            Some(chosen) if chosen < free.len() => self.begin(&free[chosen]),
            Some(chosen) => self.go_on(cluster, chosen - free.len()),
        }
    }

    fn begin(&mut self, key: &Key) {
        self.queue.remove(key);
        let now = self.clock();
        let decision = self.world.decide(key, &now);
        self.decided += 1;
        if let Some(moment) = decision.again {
            self.alarms.insert(key.clone(), moment);
        }
        if !decision.actions.is_empty() {
            let actions = decision.actions.into();
            self.in_flight.push(Batch { key: key.clone(), actions, begun: self.now });
        }
    }

    fn go_on(&mut self, cluster: &mut Cluster, nth: usize) {
        let mut batch = self.in_flight.remove(nth);
        let late = self.now > batch.begun + DEADLINE;
        let action = batch.actions.pop_front().filter(|_| !late);
        let as_thought = action.is_some_and(|action| self.act(cluster, &action));
        if as_thought && !batch.actions.is_empty() {
            self.in_flight.push(batch);
        } else {
            self.queue.insert(batch.key);
        }
    }

    /// Does one action; says whether what follows may be done.
    fn act(&mut self, cluster: &mut Cluster, action: &Action) -> bool {
        let (answers, as_thought) = match cluster.execute(action) {
            Outcome::Done(answers) => (answers, true),
            Outcome::Otherwise(answers) => (answers, false),
        };
        answers.into_iter().for_each(|answer| self.hear(answer));
        as_thought
    }

    /// Works until nothing is left to do, without reading news.
    pub(crate) fn work_off(&mut self, cluster: &mut Cluster) {
        self.ring_alarms();
        while !self.is_idle() {
            self.finish_one(cluster);
        }
    }

    /// Finishes what was begun, or one queued object.
    fn finish_one(&mut self, cluster: &mut Cluster) {
        if self.in_flight.is_empty()
            && let Some(key) = self.queue.pop_first()
        {
            self.begin(&key);
        }
        while !self.in_flight.is_empty() {
            self.go_on(cluster, 0);
        }
    }

    /// Reads everything and works until nothing is left to do.
    pub(crate) fn settle(&mut self, cluster: &mut Cluster) {
        for _ in 0..1_000_000 {
            for kind in KINDS {
                while self.read_next(cluster, kind) {}
            }
            self.ring_alarms();
            if self.is_idle() {
                return;
            }
            self.finish_one(cluster);
        }
        panic!("the controller does not come to rest; queued: {:?}", self.queue);
    }

    /// Settles, and tells how often it decided about an object.
    pub(crate) fn settle_counting(&mut self, cluster: &mut Cluster) -> usize {
        let before = self.decided;
        self.settle(cluster);
        self.decided - before
    }

    /// The objects that a message makes it look at.
    pub(crate) fn touched_by(&mut self, message: &Message) -> BTreeSet<Key> {
        self.queue.clear();
        self.hear(message.clone());
        self.queue.clone()
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
        self.queue.is_empty() && self.in_flight.is_empty()
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
