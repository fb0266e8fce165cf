//! What upstreams said, kept for one network as long as they allow.
//!
//! Its rule: each network has its own cache of bounded size; what one tenant asked is never an
//! answer for another.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use atoll_zones::MAX_NAME;

use crate::limits::lock;
use crate::query::Rcode;

/// An answer from outside, checked and written anew. Its records carry their owners themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    pub(crate) rcode: Rcode,
    pub(crate) answers: Vec<u8>,
    pub(crate) count: u16,
    pub(crate) authority: Vec<u8>,
    /// Where the times to live stand, in the answers and, after them, the authority.
    pub(crate) ttl_at: Vec<u16>,
    /// How long it may be kept, in seconds; none where it may not.
    pub(crate) ttl: u32,
}

/// What an entry takes beside the bytes of its records.
const OVERHEAD: usize = 256;

struct Kept {
    foreign: Arc<Foreign>,
    since: Instant,
}

impl Kept {
    fn bytes(&self) -> usize {
        OVERHEAD + self.foreign.answers.len() + self.foreign.authority.len()
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    fn is_fresh(&self, now: Instant) -> bool {
        self.age(now) < Duration::from_secs(self.foreign.ttl.into())
    }
}

#[derive(Default)]
struct Inside {
    kept: HashMap<Box<[u8]>, Kept>,
    order: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl Inside {
    fn put(&mut self, key: Box<[u8]>, kept: Kept) {
        self.bytes += kept.bytes();
        match self.kept.insert(key.clone(), kept) {
            Some(old) => self.bytes -= old.bytes(),
            None => self.order.push_back(key),
        }
    }

    fn drop_oldest(&mut self) {
        let oldest = self.order.pop_front();
        let oldest = oldest.and_then(|oldest| self.kept.remove(&oldest));
        self.bytes -= oldest.map_or(0, |oldest| oldest.bytes());
    }
}

/// The cache of one network, of so many bytes at most.
pub(crate) struct Cache {
    most: usize,
    inside: Mutex<Inside>,
}

impl Cache {
    pub(crate) fn new(most: usize) -> Self {
        Cache { most, inside: Mutex::default() }
    }

    /// What is known, and how many seconds ago it was learned.
    pub(crate) fn get(&self, name: &[u8], kind: u16, now: Instant) -> Option<(Arc<Foreign>, u32)> {
        let mut space = [0; MAX_NAME + 2];
        let inside = lock(&self.inside);
        let kept = inside.kept.get(key(name, kind, &mut space)).filter(|it| it.is_fresh(now))?;
        Some((kept.foreign.clone(), kept.age(now).as_secs() as u32))
    }

    /// Keeps an answer, in place of the oldest where there is no room.
    pub(crate) fn put(&self, name: &[u8], kind: u16, foreign: Arc<Foreign>, now: Instant) {
        if foreign.ttl == 0 || self.most == 0 {
            return;
        }
        let key: Box<[u8]> = key(name, kind, &mut [0; MAX_NAME + 2]).into();
        let mut inside = lock(&self.inside);
        inside.put(key, Kept { foreign, since: now });
        while inside.bytes > self.most {
            inside.drop_oldest();
        }
    }

    pub(crate) fn clear(&self) {
        *lock(&self.inside) = Inside::default();
    }
}

fn key<'s>(name: &[u8], kind: u16, space: &'s mut [u8; MAX_NAME + 2]) -> &'s [u8] {
    space[..2].copy_from_slice(&kind.to_be_bytes());
    space[2..2 + name.len()].copy_from_slice(name);
    &space[..2 + name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign(ttl: u32) -> Arc<Foreign> {
        let (answers, authority, ttl_at) = (vec![], vec![], vec![]);
        Arc::new(Foreign { rcode: Rcode::NoError, answers, count: 0, authority, ttl_at, ttl })
    }

    #[test]
    fn an_answer_is_kept_as_long_as_it_may_be() {
        let (cache, start) = (Cache::new(10 * OVERHEAD), Instant::now());
        cache.put(b"\x01a\x00", 1, foreign(5), start);
        cache.put(b"\x01b\x00", 1, foreign(0), start);
        let at = |seconds| cache.get(b"\x01a\x00", 1, start + Duration::from_secs(seconds));
        assert_eq!(at(4).map(|(_, age)| age), Some(4));
        assert_eq!(at(5), None);
        assert_eq!(cache.get(b"\x01a\x00", 28, start), None, "another type");
        assert_eq!(cache.get(b"\x01b\x00", 1, start), None, "one that may not be kept");
    }

    #[test]
    fn the_oldest_goes_where_there_is_no_room() {
        let (cache, start) = (Cache::new(100 * OVERHEAD), Instant::now());
        for n in 0..1000u16 {
            let [high, low] = n.to_be_bytes();
            cache.put(&[2, high, low, 0], 1, foreign(60), start);
        }
        assert_eq!(lock(&cache.inside).kept.len(), 100);
        assert!(cache.get(&[2, 3, 231, 0], 1, start).is_some(), "the last of 1000");
        assert!(cache.get(&[2, 0, 0, 0], 1, start).is_none(), "the first");
    }

    #[test]
    fn long_answers_take_the_room_of_many_short_ones() {
        let (cache, start) = (Cache::new(100 * OVERHEAD), Instant::now());
        let long = Foreign { answers: vec![0; 40 * OVERHEAD], ..Foreign::clone(&foreign(60)) };
        let long = Arc::new(long);
        (0..10).for_each(|n| cache.put(&[1, n, 0], 1, long.clone(), start));
        (0..10).for_each(|_| cache.put(&[1, 9, 0], 1, long.clone(), start));
        let inside = lock(&cache.inside);
        assert_eq!((inside.kept.len(), inside.order.len()), (2, 2));
        assert_eq!(inside.bytes, 2 * 41 * OVERHEAD);
    }
}
