//! What is to be looked at, and when.
//!
//! The rule: an object is worked on by one worker at a time; however often it is touched
//! meanwhile, it is looked at once more afterwards. What fails waits longer each time. Subnets,
//! networks and tenants, whose counts change with every pod, are looked at four times a second at most.
//! Objects of one type of network have a lane: however long they take, others are not kept waiting.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use atoll_model::intent::Kind;
use atoll_model::{Key, Moment};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const COUNTING_PACE: Duration = Duration::from_millis(250);

/// How many waves of actions in a row an object may cause before it is made to wait.
const PATIENCE: u32 = 32;

/// What came of looking at an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// There was nothing to do.
    Idle,
    /// Something was done; it has to be looked at again.
    Acted,
    /// Something failed.
    Failed,
}

/// The type of network whose own work it is to look at an object.
pub(crate) type Lane = String;

/// What goes on in a lane.
#[derive(Debug, Default)]
struct Traffic {
    working: usize,
    /// Ready, and there is no room.
    held: VecDeque<Key>,
}

/// An object to look at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) key: Key,
    /// It is in a lane: whoever looks at it must not keep others waiting.
    pub(crate) apart: bool,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    ready: VecDeque<Key>,
    waiting: HashSet<Key>,
    /// What is worked on, and in which lane.
    working: HashMap<Key, Option<Lane>>,
    lanes: HashMap<Lane, Traffic>,
    touched_meanwhile: HashSet<Key>,
    alarms: BTreeSet<(Moment, Key)>,
    alarm_of: HashMap<Key, Moment>,
    trouble: HashMap<Key, u32>,
    waves: HashMap<Key, u32>,
    not_before: HashMap<Key, Moment>,
    /// The same, the earliest first, until it is over.
    paced: VecDeque<(Moment, Key)>,
}

impl Queue {
    /// An object has to be looked at.
    pub(crate) fn touch(&mut self, key: Key, now: Moment) {
        if self.working.contains_key(&key) {
            self.touched_meanwhile.insert(key);
            return;
        }
        match self.not_before.get(&key).copied() {
            Some(moment) if moment > now => self.touch_at(key, moment),
            Some(_) | None => {
                if self.waiting.insert(key.clone()) {
                    self.ready.push_back(key);
                }
            }
        }
    }

    /// An object has to be looked at at `moment`. It has one alarm, the earliest: when that rings,
    /// whoever looks says when to look again. With one for each wish, an object that is touched
    /// often while it waits would be looked at ever more often.
    pub(crate) fn touch_at(&mut self, key: Key, moment: Moment) {
        match self.alarm_of.get(&key).copied() {
            Some(earlier) if earlier <= moment => return,
            Some(later) => drop(self.alarms.remove(&(later, key.clone()))),
            None => {}
        }
        self.alarm_of.insert(key.clone(), moment);
        self.alarms.insert((moment, key));
    }

    /// The next object to look at, where each lane has so many of them worked on at once.
    pub(crate) fn next_job<'a>(
        &mut self,
        now: Moment,
        most: usize,
        lane_of: impl Fn(&Key) -> Option<&'a str>,
    ) -> Option<Job> {
        self.ring(now);
        loop {
            let key = self.ready.pop_front()?;
            let lane = lane_of(&key).map(ToOwned::to_owned);
            if let Some(lane) = &lane {
                let traffic = self.lanes.entry(lane.clone()).or_default();
                if traffic.working >= most {
                    traffic.held.push_back(key);
                    continue;
                }
                traffic.working += 1;
            }
            self.waiting.remove(&key);
            let apart = lane.is_some();
            self.working.insert(key.clone(), lane);
            if counts_pods(&key) {
                self.pace(&key, now);
            }
            return Some(Job { key, apart });
        }
    }

    /// An object that counts was looked at: not again so soon.
    fn pace(&mut self, key: &Key, now: Moment) {
        while self.paced.front().is_some_and(|(moment, _)| *moment <= now) {
            if let Some((moment, over)) = self.paced.pop_front()
                && self.not_before.get(&over) == Some(&moment)
            {
                self.not_before.remove(&over);
            }
        }
        let moment = now + COUNTING_PACE;
        self.not_before.insert(key.clone(), moment);
        self.paced.push_back((moment, key.clone()));
    }

    /// One less in a lane: the next that was held there is ready.
    fn leave(&mut self, lane: &str) {
        let Some(traffic) = self.lanes.get_mut(lane) else { return };
        traffic.working -= 1;
        let next = traffic.held.pop_front();
        if traffic.working == 0 && traffic.held.is_empty() {
            self.lanes.remove(lane);
        }
        next.into_iter().for_each(|key| self.ready.push_front(key));
    }

    /// When the next alarm rings.
    pub(crate) fn next_alarm(&self) -> Option<Moment> {
        self.alarms.first().map(|(moment, _)| *moment)
    }

    /// How many objects wait to be looked at, now or later.
    pub(crate) fn len(&self) -> usize {
        let held: usize = self.lanes.values().map(|traffic| traffic.held.len()).sum();
        self.ready.len() + held + self.working.len()
    }

    /// A worker is done with an object.
    pub(crate) fn done(&mut self, key: Key, outcome: Outcome, now: Moment) {
        if let Some(Some(lane)) = self.working.remove(&key) {
            self.leave(&lane);
        }
        let touched = self.touched_meanwhile.remove(&key);
        match outcome {
            Outcome::Idle => {
                self.trouble.remove(&key);
                self.waves.remove(&key);
                if touched {
                    self.touch(key, now);
                }
            }
            Outcome::Acted => self.go_on(key, now),
            Outcome::Failed => self.pause(key, now),
        }
    }

    fn go_on(&mut self, key: Key, now: Moment) {
        let waves = self.waves.entry(key.clone()).or_default();
        *waves += 1;
        if *waves > PATIENCE {
            tracing::warn!(%key, "does not come to rest; slowed down");
            return self.pause(key, now);
        }
        self.not_before.remove(&key);
        self.touch(key, now);
    }

    fn pause(&mut self, key: Key, now: Moment) {
        let failures = self.trouble.entry(key.clone()).or_default();
        let pause = FIRST_PAUSE.saturating_mul(1 << (*failures).min(16)).min(LONGEST_PAUSE);
        *failures += 1;
        self.touch_at(key, now + pause);
    }

    fn ring(&mut self, now: Moment) {
        while self.alarms.first().is_some_and(|(moment, _)| *moment <= now) {
            if let Some((_, key)) = self.alarms.pop_first() {
                self.alarm_of.remove(&key);
                self.not_before.remove(&key);
                self.touch(key, now);
            }
        }
    }
}

/// Whether an object's status changes with every pod or network.
fn counts_pods(key: &Key) -> bool {
    matches!(key.kind, Kind::Subnet | Kind::Network | Kind::Tenant | Kind::NetworkType)
}

#[cfg(test)]
mod tests {
    use atoll_model::intent::ObjectName;

    use super::*;

    const START: Moment = Moment::ZERO;

    impl Queue {
        /// The next object, where there are no lanes.
        fn next(&mut self, now: Moment) -> Option<Key> {
            self.next_job(now, 1, |_| None).map(|job| job.key)
        }
    }

    fn key(kind: Kind, name: &str) -> Key {
        Key::new(kind, ObjectName::cluster(name))
    }

    fn pod() -> Key {
        key(Kind::Pod, "web")
    }

    #[test]
    fn an_object_touched_many_times_is_looked_at_once() {
        let mut queue = Queue::default();
        queue.touch(pod(), START);
        queue.touch(pod(), START);
        assert_eq!(queue.next(START), Some(pod()));
        assert_eq!(queue.next(START), None);
    }

    #[test]
    fn an_object_is_worked_on_by_one_worker_and_looked_at_again_if_touched_meanwhile() {
        let mut queue = Queue::default();
        queue.touch(pod(), START);
        queue.next(START);
        queue.touch(pod(), START);
        assert_eq!(queue.next(START), None);
        queue.done(pod(), Outcome::Idle, START);
        assert_eq!(queue.next(START), Some(pod()));
        queue.done(pod(), Outcome::Idle, START);
        assert_eq!(queue.next(START), None);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_type_that_takes_long_is_held_in_its_lane_and_all_others_go_on() {
        let lane = |key: &Key| if key.name.name.starts_with("sdn") { Some("sdn") } else { None };
        let mut queue = Queue::default();
        let slow: Vec<Key> = (0..5).map(|n| key(Kind::Network, &format!("sdn{n}"))).collect();
        slow.iter().for_each(|key| queue.touch(key.clone(), START));
        queue.touch(pod(), START);
        let next = |queue: &mut Queue| queue.next_job(START, 2, lane);
        for key in &slow[..2] {
            assert_eq!(next(&mut queue), Some(Job { key: key.clone(), apart: true }));
        }
        assert_eq!(next(&mut queue), Some(Job { key: pod(), apart: false }), "past those held");
        assert_eq!(next(&mut queue), None);
        assert_eq!(queue.len(), 6);
        slow.iter().for_each(|key| queue.touch(key.clone(), START));
        for (done, key) in slow.iter().zip(&slow[2..]) {
            queue.done(done.clone(), Outcome::Failed, START);
            assert_eq!(next(&mut queue), Some(Job { key: key.clone(), apart: true }));
            assert_eq!(next(&mut queue), None, "no more than two at once");
        }
    }

    #[test]
    fn what_fails_waits_longer_each_time_until_it_works() {
        let mut queue = Queue::default();
        queue.touch(pod(), START);
        let mut now = START;
        let mut pauses = Vec::new();
        for _ in 0..3 {
            assert_eq!(queue.next(now), Some(pod()));
            queue.done(pod(), Outcome::Failed, now);
            let alarm = queue.next_alarm().unwrap();
            pauses.push((alarm - now).as_millis());
            now = alarm;
        }
        assert_eq!(pauses, [100, 200, 400]);
        queue.next(now);
        queue.done(pod(), Outcome::Idle, now);
        assert_eq!(queue.next_alarm(), None);
        queue.touch(pod(), now);
        queue.next(now);
        queue.done(pod(), Outcome::Failed, now);
        assert_eq!(queue.next_alarm(), Some(now + FIRST_PAUSE));
    }

    #[test]
    fn an_object_that_never_comes_to_rest_is_slowed_down() {
        let mut queue = Queue::default();
        queue.touch(pod(), START);
        for _ in 0..=PATIENCE {
            assert_eq!(queue.next(START), Some(pod()));
            queue.done(pod(), Outcome::Acted, START);
        }
        assert_eq!(queue.next(START), None);
        assert!(queue.next_alarm().is_some());
    }

    #[test]
    fn what_counts_pods_is_looked_at_four_times_a_second_at_most() {
        for kind in [Kind::Subnet, Kind::Network, Kind::Tenant, Kind::NetworkType] {
            let counting = key(kind, "web");
            let mut queue = Queue::default();
            queue.touch(counting.clone(), START);
            assert_eq!(queue.next(START), Some(counting.clone()));
            queue.done(counting.clone(), Outcome::Idle, START);
            queue.touch(counting.clone(), START);
            assert_eq!(queue.next(START), None);
            assert_eq!(queue.next(START + COUNTING_PACE), Some(counting));
        }
    }

    #[test]
    fn what_was_looked_at_long_ago_takes_no_room() {
        let mut queue = Queue::default();
        for number in 0..100_u64 {
            let now = COUNTING_PACE * u32::try_from(number).unwrap();
            let counting = key(Kind::Subnet, &number.to_string());
            queue.touch(counting.clone(), now);
            assert_eq!(queue.next(now), Some(counting.clone()));
            queue.done(counting, Outcome::Idle, now);
            assert!(queue.not_before.len() <= 1 && queue.paced.len() <= 1, "{number}");
        }
    }

    #[test]
    fn an_object_touched_often_while_it_waits_is_not_looked_at_ever_more_often() {
        let mut queue = Queue::default();
        for millis in [0, 10, 20] {
            let now = Moment::from_millis(millis);
            queue.touch(pod(), now);
            assert_eq!(queue.next(now), Some(pod()));
            queue.touch_at(pod(), now + Moment::from_secs(5));
            queue.done(pod(), Outcome::Idle, now);
        }
        let alarm = Moment::from_secs(5);
        assert_eq!(queue.next(alarm), Some(pod()));
        queue.done(pod(), Outcome::Idle, alarm);
        assert_eq!(queue.next_alarm(), None);
    }

    #[test]
    fn an_earlier_alarm_takes_the_place_of_a_later_one() {
        let mut queue = Queue::default();
        queue.touch_at(pod(), Moment::from_secs(5));
        queue.touch_at(pod(), Moment::from_secs(3));
        assert_eq!(queue.next_alarm(), Some(Moment::from_secs(3)));
        assert_eq!(queue.next(Moment::from_secs(3)), Some(pod()));
        queue.done(pod(), Outcome::Idle, Moment::from_secs(3));
        assert_eq!(queue.next_alarm(), None);
    }

    #[test]
    fn an_alarm_rings_once_at_its_time() {
        let mut queue = Queue::default();
        queue.touch_at(pod(), Moment::from_secs(5));
        queue.touch_at(pod(), Moment::from_secs(5));
        assert_eq!(queue.next(Moment::from_secs(4)), None);
        assert_eq!(queue.next(Moment::from_secs(5)), Some(pod()));
        assert_eq!(queue.next(Moment::from_secs(5)), None);
    }
}
