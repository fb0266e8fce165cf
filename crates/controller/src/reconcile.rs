//! The desk where news arrive and work is handed out, and the workers.
//!
//! The rule: nothing is decided before every kind was listed, and whatever a worker's own writes
//! bring to light is known before the next decision.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_model::intent::{Kind, ObjectName, Seen, Template};
use atoll_model::{Action, Decision, Key, Moment, Now, Touched, World};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::config::ControllerConfig;
use crate::execute::{Executed, execute};
use crate::metrics::Counters;
use crate::queue::{Job, Outcome, Queue};

/// Every kind that must be listed before anything is decided.
const KINDS: usize = 13;

/// How long the actions of one decision may take together. What was decided longer ago is decided
/// again, since a claim that still has no port may be taken for forgotten by others.
const DEADLINE: Duration = Duration::from_secs(10);

/// News about one object.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// It is there.
    There(Box<Seen>),
    /// This incarnation is gone.
    Gone(Key, String),
}

/// Where news arrive and work is handed out.
pub(crate) struct Desk {
    papers: Mutex<Papers>,
    bell: Notify,
    /// How many objects of one type of network are worked on at once.
    most_of_a_type: usize,
    beginning: Instant,
    counters: Counters,
    leading: watch::Sender<bool>,
}

struct Papers {
    world: World,
    queue: Queue,
    listed: HashSet<Kind>,
    template_known: bool,
    leading: bool,
}

impl Papers {
    fn is_open(&self) -> bool {
        self.listed.len() == KINDS && self.template_known && self.leading
    }

    fn file(&mut self, touched: Touched, now: Moment) {
        touched.into_iter().for_each(|key| self.queue.touch(key, now));
    }

    fn hear(&mut self, news: News, now: Moment) {
        let touched = match news {
            News::There(seen) => self.world.observe(*seen, now),
            News::Gone(key, uid) => self.world.gone(&key, &uid, now),
        };
        self.file(touched, now);
    }
}

impl Desk {
    pub(crate) fn new(config: &ControllerConfig) -> Self {
        let papers = Papers {
            world: World::new(config.settings()),
            queue: Queue::default(),
            listed: HashSet::new(),
            template_known: false,
            leading: false,
        };
        Desk {
            papers: Mutex::new(papers),
            bell: Notify::new(),
            most_of_a_type: config.workers,
            beginning: Instant::now(),
            counters: Counters::default(),
            leading: watch::channel(false).0,
        }
    }

    /// Takes in news.
    pub(crate) fn hear(&self, news: News) {
        self.papers().hear(news, self.moment());
        self.bell.notify_one();
    }

    /// Takes in that a kind was listed completely.
    pub(crate) fn hear_list(&self, kind: Kind, names: &BTreeSet<ObjectName>) {
        let mut papers = self.papers();
        let touched = papers.world.only(kind, names, self.moment());
        papers.file(touched, self.moment());
        papers.listed.insert(kind);
        tracing::debug!(?kind, objects = names.len(), "listed");
        self.bell.notify_waiters();
    }

    /// Takes in the template for default networks.
    pub(crate) fn hear_template(&self, template: Template) {
        let mut papers = self.papers();
        let touched = papers.world.observe_template(template);
        papers.file(touched, self.moment());
        papers.template_known = true;
        self.bell.notify_waiters();
    }

    /// Whether work is handed out. News are always taken in.
    pub(crate) fn lead(&self, leading: bool) {
        let mut papers = self.papers();
        if papers.leading != leading {
            papers.leading = leading;
            tracing::info!(leading, "the lead changed");
            self.bell.notify_waiters();
            self.leading.send_replace(leading);
        }
    }

    /// Whether this controller is the one that works, as it changes.
    pub(crate) fn leading(&self) -> watch::Receiver<bool> {
        self.leading.subscribe()
    }

    /// The next object to look at.
    async fn next(&self) -> Job {
        loop {
            let bell = self.bell.notified();
            let alarm = match self.next_or_alarm() {
                Ok(job) => return job,
                Err(alarm) => alarm,
            };
            match alarm {
                None => bell.await,
                Some(pause) => {
                    let _ = tokio::time::timeout(pause, bell).await;
                }
            }
        }
    }

    /// The next object to look at, or how long there will be none.
    fn next_or_alarm(&self) -> Result<Job, Option<Duration>> {
        let now = self.moment();
        let papers = &mut *self.papers();
        if !papers.is_open() {
            return Err(None);
        }
        let world = &papers.world;
        match papers.queue.next_job(now, self.most_of_a_type, |key| world.type_of(key)) {
            Some(job) => {
                if papers.queue.len() > 1 {
                    self.bell.notify_one();
                }
                Ok(job)
            }
            None => Err(papers.queue.next_alarm().map(|alarm| alarm.saturating_sub(now))),
        }
    }

    fn decide(&self, key: &Key) -> Decision {
        let moment = self.moment();
        let now = Now { moment, time: wall_clock() };
        let mut papers = self.papers();
        let decision = papers.world.decide(key, &now);
        if let Some(moment) = decision.again {
            papers.queue.touch_at(key.clone(), moment);
        }
        decision
    }

    /// What can be measured now.
    pub(crate) fn metrics(&self) -> String {
        let (tally, depth, leading) = {
            let papers = self.papers();
            (papers.world.tally(), papers.queue.len(), papers.leading)
        };
        self.counters.text(&tally, depth, leading)
    }

    fn done(&self, key: Key, outcome: Outcome) {
        self.counters.count(&key, outcome);
        self.papers().queue.done(key, outcome, self.moment());
        self.bell.notify_one();
    }

    fn unsay(&self, action: &Action) {
        if let Action::Say(target, ..) = action {
            self.papers().world.unsay(&target.key);
        }
    }

    fn moment(&self) -> Moment {
        self.beginning.elapsed()
    }

    fn papers(&self) -> MutexGuard<'_, Papers> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clock on the wall, in seconds, as Kubernetes writes it.
fn wall_clock() -> Time {
    let now = Timestamp::now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// A worker: looks at one object after the other, for ever. What is in a lane is worked on beside
/// it, and ends with it.
pub(crate) async fn work(client: Client, desk: Arc<Desk>) {
    let mut beside = JoinSet::new();
    loop {
        let job = desk.next().await;
        let looking = look(client.clone(), desk.clone(), job.key);
        if job.apart {
            beside.spawn(looking);
        } else {
            looking.await;
        }
        while beside.try_join_next().is_some() {}
    }
}

async fn look(client: Client, desk: Arc<Desk>, key: Key) {
    let decision = desk.decide(&key);
    let outcome = act(&client, &desk, &key, &decision.actions).await;
    desk.done(key, outcome);
}

async fn act(client: &Client, desk: &Desk, key: &Key, actions: &[Action]) -> Outcome {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    for action in actions {
        let request = tokio::time::timeout_at(deadline, execute(client, action));
        let failure = match request.await {
            Ok(Ok(Executed { news, as_thought })) => {
                tracing::debug!(%key, ?action, as_thought, "done");
                news.into_iter().for_each(|news| desk.hear(news));
                if !as_thought {
                    break;
                }
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("not done within {} s", DEADLINE.as_secs()),
        };
        tracing::warn!(%key, ?action, error = failure, "failed; tried again later");
        desk.unsay(action);
        return Outcome::Failed;
    }
    if actions.is_empty() { Outcome::Idle } else { Outcome::Acted }
}
