//! Small numbers for things that are equal: each distinct thing has one number while it is used.
//!
//! The rule kept here: a number that was given back rests until [`Numbers::settle`], so that within
//! one change it never means two things. The kernel can then be filled before anything points at
//! what is new.

use std::collections::{BTreeMap, BTreeSet};

/// Numbers things from 1 on. 0 is never given and means "none".
#[derive(Clone, Debug)]
pub(crate) struct Numbers<K> {
    by_key: BTreeMap<K, u32>,
    held: BTreeMap<u32, Held<K>>,
    free: BTreeSet<u32>,
    resting: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Held<K> {
    key: K,
    holders: usize,
}

impl<K> Default for Numbers<K> {
    fn default() -> Self {
        Numbers {
            by_key: BTreeMap::new(),
            held: BTreeMap::new(),
            free: BTreeSet::new(),
            resting: Vec::new(),
        }
    }
}

impl<K: Ord + Clone> Numbers<K> {
    /// Holds the number of `key`, and says whether it is new.
    pub(crate) fn hold(&mut self, key: &K) -> (u32, bool) {
        if let Some(number) = self.by_key.get(key).copied() {
            if let Some(held) = self.held.get_mut(&number) {
                held.holders += 1;
            }
            return (number, false);
        }
        let number = self.next();
        self.by_key.insert(key.clone(), number);
        self.held.insert(number, Held { key: key.clone(), holders: 1 });
        (number, true)
    }

    /// The number of `key`, where it has one.
    pub(crate) fn find(&self, key: &K) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    /// Lets go of a number once. The last holder gets the thing back.
    pub(crate) fn release(&mut self, number: u32) -> Option<K> {
        let held = self.held.get_mut(&number)?;
        held.holders -= 1;
        if held.holders > 0 {
            return None;
        }
        let held = self.held.remove(&number)?;
        self.by_key.remove(&held.key);
        self.resting.push(number);
        Some(held.key)
    }

    /// What a number stands for.
    pub(crate) fn key(&self, number: u32) -> Option<&K> {
        self.held.get(&number).map(|held| &held.key)
    }

    /// How many are in use.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// The end of a change: what was given back may be given anew.
    pub(crate) fn settle(&mut self) {
        self.free.extend(self.resting.drain(..));
    }

    fn next(&mut self) -> u32 {
        let fresh = || self.held.len() + self.resting.len() + 1;
        self.free.pop_first().unwrap_or_else(|| fresh() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_things_share_a_number_until_the_last_lets_go() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.hold(&"a"), (1, true));
        assert_eq!(numbers.hold(&"a"), (1, false));
        assert_eq!(numbers.release(1), None);
        assert_eq!(numbers.release(1), Some("a"));
        assert_eq!(numbers.len(), 0);
    }

    #[test]
    fn a_number_given_back_rests_until_the_change_is_over() {
        let mut numbers = Numbers::default();
        numbers.hold(&"a");
        numbers.release(1);
        assert_eq!(numbers.hold(&"b").0, 2);
        numbers.settle();
        assert_eq!(numbers.hold(&"c").0, 1);
        assert_eq!(numbers.hold(&"d").0, 3);
    }
}
