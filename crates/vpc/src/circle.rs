//! Numbers handed out in a circle: the cursor always moves on, so that a freed number comes round
//! again last, and never before its rest is over.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::spans::Spans;

/// A point in time, as the time since some fixed beginning. The caller reads the clock.
pub type Moment = Duration;

/// Numbers `first..=last` in a circle.
#[derive(Clone, Debug)]
pub(crate) struct Circle {
    first: u128,
    last: u128,
    cursor: u128,
    reserved: Spans,
    taken: Spans,
    taken_though_reserved: u128,
    resting: Spans,
    /// Until when each rests, the next to wake first.
    rests: BTreeSet<(Moment, u128)>,
    rests_until: HashMap<u128, Moment>,
}

/// Why a circle gives no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dry {
    /// Everything is taken.
    Full,
    /// What is free was freed too recently; the first may be given at this moment.
    Resting(Moment),
}

impl Circle {
    /// The numbers `first..=last` without the `reserved` ones, which are never given.
    pub(crate) fn new(first: u128, last: u128, reserved: Spans) -> Self {
        Circle {
            first,
            last,
            cursor: first,
            reserved,
            taken: Spans::default(),
            taken_though_reserved: 0,
            resting: Spans::default(),
            rests: BTreeSet::new(),
            rests_until: HashMap::new(),
        }
    }

    /// Marks a number as taken, by whomever. A reserved one can be: it was given before somebody
    /// reserved it.
    pub(crate) fn take(&mut self, number: u128) {
        if !self.taken.contains(number) {
            self.taken.insert(number, number);
            self.taken_though_reserved += u128::from(self.reserved.contains(number));
        }
    }

    /// Marks a number as free again; it is not given before `until`.
    pub(crate) fn free(&mut self, number: u128, until: Moment) {
        if self.taken.remove(number) {
            self.taken_though_reserved -= u128::from(self.reserved.contains(number));
            self.resting.insert(number, number);
            if let Some(before) = self.rests_until.insert(number, until) {
                self.rests.remove(&(before, number));
            }
            self.rests.insert((until, number));
        }
    }

    /// Takes and returns the next number in the circle.
    pub(crate) fn next(&mut self, now: Moment) -> Result<u128, Dry> {
        self.wake(now);
        let number = self
            .untouched(self.cursor, self.last)
            .or_else(|| self.untouched(self.first, self.cursor.saturating_sub(1)))
            .ok_or_else(|| self.dry())?;
        self.take(number);
        self.cursor = if number == self.last { self.first } else { number + 1 };
        Ok(number)
    }

    /// Takes over where `old`, a circle of the same numbers, stood and what rested in it.
    pub(crate) fn go_on_from(&mut self, old: Circle) {
        self.cursor = old.cursor;
        self.resting = old.resting;
        self.rests = old.rests;
        self.rests_until = old.rests_until;
    }

    pub(crate) fn is_taken(&self, number: u128) -> bool {
        self.taken.contains(number)
    }

    pub(crate) fn is_reserved(&self, number: u128) -> bool {
        self.reserved.contains(number)
    }

    /// How many numbers are taken of those that are not reserved.
    pub(crate) fn taken(&self) -> u128 {
        self.taken.count() - self.taken_though_reserved
    }

    /// How many numbers can still be given, now or after their rest.
    pub(crate) fn free_count(&self) -> u128 {
        let size = (self.last - self.first).saturating_add(1);
        size.saturating_sub(self.reserved.count()).saturating_sub(self.taken())
    }

    /// The first number of `from..=until` that is neither reserved nor taken nor resting.
    fn untouched(&self, from: u128, until: u128) -> Option<u128> {
        let mut candidate = from;
        loop {
            let start = candidate;
            for hindrance in [&self.reserved, &self.taken, &self.resting] {
                candidate = hindrance.gap(candidate, until)?;
            }
            if candidate == start {
                return Some(candidate);
            }
        }
    }

    fn wake(&mut self, now: Moment) {
        while self.rests.first().is_some_and(|(until, _)| *until <= now) {
            let Some((_, number)) = self.rests.pop_first() else { return };
            self.rests_until.remove(&number);
            self.resting.remove(number);
        }
    }

    fn dry(&self) -> Dry {
        let free = self.rests.iter().find(|(_, number)| !self.taken.contains(*number));
        free.map_or(Dry::Full, |(until, _)| Dry::Resting(*until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::ZERO;
    const LATER: Moment = Moment::from_secs(30);

    #[test]
    fn a_freed_number_comes_round_last() {
        let mut circle = Circle::new(1, 3, Spans::default());
        assert_eq!(circle.next(START), Ok(1));
        circle.free(1, START);
        assert_eq!(circle.next(START), Ok(2));
        assert_eq!(circle.next(START), Ok(3));
        assert_eq!(circle.next(START), Ok(1));
        assert_eq!(circle.next(START), Err(Dry::Full));
    }

    #[test]
    fn a_freed_number_rests_before_it_is_given_again() {
        let mut circle = Circle::new(1, 2, Spans::default());
        circle.take(2);
        assert_eq!(circle.next(START), Ok(1));
        circle.free(1, LATER);
        assert_eq!(circle.next(START), Err(Dry::Resting(LATER)));
        assert_eq!(circle.next(LATER), Ok(1));
    }

    #[test]
    fn a_resting_number_that_was_taken_by_name_is_not_given_when_its_rest_ends() {
        let mut circle = Circle::new(1, 1, Spans::default());
        assert_eq!(circle.next(START), Ok(1));
        circle.free(1, LATER);
        circle.take(1);
        assert_eq!(circle.next(START), Err(Dry::Full));
        assert_eq!(circle.next(LATER), Err(Dry::Full));
    }

    #[test]
    fn a_number_freed_twice_rests_from_the_second_time_on() {
        let mut circle = Circle::new(1, 1, Spans::default());
        circle.take(1);
        circle.free(1, LATER);
        circle.take(1);
        circle.free(1, LATER * 2);
        assert_eq!(circle.next(START), Err(Dry::Resting(LATER * 2)));
        assert_eq!(circle.next(LATER), Err(Dry::Resting(LATER * 2)));
        assert_eq!(circle.next(LATER * 2), Ok(1));
    }

    #[test]
    fn who_rests_shorter_is_given_sooner_also_when_freed_later() {
        let mut circle = Circle::new(1, 2, Spans::default());
        assert_eq!((circle.next(START), circle.next(START)), (Ok(1), Ok(2)));
        circle.free(1, LATER * 2);
        circle.free(2, LATER);
        assert_eq!(circle.next(START), Err(Dry::Resting(LATER)));
        assert_eq!(circle.next(LATER), Ok(2));
    }

    #[test]
    fn freeing_what_was_not_taken_changes_nothing() {
        let mut circle = Circle::new(1, 1, Spans::default());
        circle.free(1, LATER);
        assert_eq!(circle.next(START), Ok(1));
    }

    #[test]
    fn a_reserved_number_is_never_given_and_never_counted() {
        let mut reserved = Spans::default();
        reserved.insert(1, 2);
        let mut circle = Circle::new(1, 4, reserved);
        assert_eq!((circle.taken(), circle.free_count()), (0, 2));
        circle.take(2);
        assert_eq!((circle.taken(), circle.free_count()), (0, 2));
        assert_eq!(circle.next(START), Ok(3));
        assert_eq!((circle.taken(), circle.free_count()), (1, 1));
        circle.free(2, START);
        assert_eq!((circle.taken(), circle.free_count()), (1, 1));
        assert_eq!(circle.next(START), Ok(4));
        assert_eq!(circle.next(LATER), Err(Dry::Full));
    }
}
