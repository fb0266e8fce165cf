//! The desk where news arrive and work is handed out, and the workers.
//!
//! The rule: nothing is decided before every kind was listed, and whatever a worker's own writes
//! bring to light is known before the next decision. Until then nobody asks what news touches: once
//! all is known and this controller leads, everything is looked at once.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_model::intent::{Kind, ObjectName, Seen, Template};
use atoll_model::{Action, Decision, Key, Moment, Now, Tally, Touched, World};
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

/// How many objects are looked at before somebody else has a turn at the desk.
const TURN: usize = 64;

/// News.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// An object is there.
    There(Box<Seen>),
    /// This incarnation of an object is gone.
    Gone(Key, String),
    /// A kind was listed completely, and these are all.
    All(Kind, BTreeSet<ObjectName>),
}

/// Something that has to be done about an object.
struct Work {
    job: Job,
    actions: Vec<Action>,
}

/// What a worker that asks for work is told.
enum Next {
    /// Here it is.
    Work(Work),
    /// Nobody knows yet: ask again, after others.
    Ask,
    /// There is none for so long, or until the bell rings.
    None(Option<Duration>),
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
    /// Everything was looked at, or stands in the queue to be.
    begun: bool,
}

impl Papers {
    /// Whether work is handed out. At the first time, everything becomes work.
    fn open(&mut self, now: Moment) -> bool {
        let is_open = self.listed.len() == KINDS && self.template_known && self.leading;
        if is_open && !self.begun {
            self.begun = true;
            self.world.everything().for_each(|key| self.queue.touch(key, now));
        }
        is_open
    }

    fn file(&mut self, touched: Touched, now: Moment) {
        if self.begun {
            touched.into_iter().for_each(|key| self.queue.touch(key, now));
        }
    }

    fn hear(&mut self, news: News, now: Moment) {
        let touched = match news {
            News::There(seen) if self.begun => self.world.observe(*seen, now),
            News::There(seen) => return self.world.learn(*seen, now),
            News::Gone(key, uid) => self.world.gone(&key, &uid, now),
            News::All(kind, names) => {
                tracing::debug!(?kind, objects = names.len(), "listed");
                self.listed.insert(kind);
                self.world.only(kind, &names, now)
            }
        };
        self.file(touched, now);
    }

    /// How many objects are looked at or wait for it.
    fn depth(&self, tally: &Tally) -> usize {
        match self.begun {
            true => self.queue.len(),
            false => tally.objects.iter().map(|(_, count)| count).sum(),
        }
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
            begun: false,
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

    /// Takes in news, in this order.
    pub(crate) fn hear(&self, news: impl IntoIterator<Item = News>) {
        let mut papers = self.papers();
        let now = self.moment();
        let listed = papers.listed.len();
        news.into_iter().for_each(|news| papers.hear(news, now));
        let is_complete = papers.listed.len() > listed;
        match papers.begun {
            true => self.bell.notify_one(),
            false if is_complete => self.bell.notify_waiters(),
            false => {}
        }
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

    /// The next object about which something has to be done.
    async fn next(&self) -> Work {
        loop {
            let bell = self.bell.notified();
            match self.next_now() {
                Next::Work(work) => return work,
                Next::Ask => tokio::task::yield_now().await,
                Next::None(None) => bell.await,
                Next::None(Some(pause)) => {
                    let _ = tokio::time::timeout(pause, bell).await;
                }
            }
        }
    }

    /// Looks at one object after the other, until something has to be done about one.
    fn next_now(&self) -> Next {
        let moment = self.moment();
        let papers = &mut *self.papers();
        if !papers.open(moment) {
            return Next::None(None);
        }
        let now = Now { moment, time: wall_clock() };
        for _ in 0..TURN {
            let world = &papers.world;
            let job = papers.queue.next_job(moment, self.most_of_a_type, |key| world.type_of(key));
            let Some(job) = job else {
                let alarm = papers.queue.next_alarm();
                return Next::None(alarm.map(|alarm| alarm.saturating_sub(moment)));
            };
            let Decision { actions, again } = papers.world.decide(&job.key, &now);
            if let Some(again) = again {
                papers.queue.touch_at(job.key.clone(), again);
            }
            if !actions.is_empty() {
                if papers.queue.len() > 1 {
                    self.bell.notify_one();
                }
                return Next::Work(Work { job, actions });
            }
            self.counters.count(&job.key, Outcome::Idle);
            papers.queue.done(job.key, Outcome::Idle, moment);
        }
        Next::Ask
    }

    /// What can be measured now.
    pub(crate) fn metrics(&self) -> String {
        let (tally, depth, leading) = {
            let papers = self.papers();
            let tally = papers.world.tally();
            let depth = papers.depth(&tally);
            (tally, depth, papers.leading)
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
        let Work { job, actions } = desk.next().await;
        let doing = perform(client.clone(), desk.clone(), job.key, actions);
        if job.apart {
            beside.spawn(doing);
        } else {
            doing.await;
        }
        while beside.try_join_next().is_some() {}
    }
}

async fn perform(client: Client, desk: Arc<Desk>, key: Key, actions: Vec<Action>) {
    let outcome = act(&client, &desk, &key, &actions).await;
    desk.done(key, outcome);
}

/// Does what has to be done, in this order.
async fn act(client: &Client, desk: &Desk, key: &Key, actions: &[Action]) -> Outcome {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    for action in actions {
        let request = tokio::time::timeout_at(deadline, execute(client, action));
        let failure = match request.await {
            Ok(Ok(Executed { news, as_thought })) => {
                tracing::debug!(%key, ?action, as_thought, "done");
                desk.hear(news);
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
    Outcome::Acted
}
