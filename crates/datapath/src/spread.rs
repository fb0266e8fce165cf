//! Which backend each slot of a service leads to. Pure: no map is touched here.
//!
//! The rules: every backend has as many slots as any other, or one more; and as backends come and
//! go, only slots move that must. When one of many goes, its own slots are shared out and nobody
//! else's connections are led elsewhere.

use std::collections::BTreeSet;

use atoll_abi::slots_for;
use atoll_plan::Backend;

/// The most backends of one service.
pub(crate) const MOST_BACKENDS: usize = 16384;

/// The backends of a service at their places, and the place that each slot leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spread {
    /// The backends. A place that nobody has is free for the next.
    pub(crate) places: Vec<Option<Backend>>,
    /// A power of two of them, or none where there is no backend.
    pub(crate) slots: Vec<u16>,
}

impl Spread {
    /// The same, for exactly these backends. Whoever was there keeps its place.
    pub(crate) fn follow(mut self, wanted: &BTreeSet<Backend>) -> Self {
        for place in &mut self.places {
            place.take_if(|backend| !wanted.contains(backend));
        }
        let seated: BTreeSet<Backend> = self.places.iter().flatten().copied().collect();
        let mut free = self.free_places().into_iter();
        for backend in wanted.difference(&seated) {
            match free.next() {
                Some(place) => self.places[place] = Some(*backend),
                None => self.places.push(Some(*backend)),
            }
        }
        self.places.truncate(self.places.iter().rposition(Option::is_some).map_or(0, |it| it + 1));
        self.grow();
        self.share_out();
        self
    }

    fn free_places(&self) -> Vec<usize> {
        let places = self.places.iter().enumerate();
        places.filter(|(_, backend)| backend.is_none()).map(|(place, _)| place).collect()
    }

    /// More slots repeat the ones before, so that a connection's slot leads where it led.
    fn grow(&mut self) {
        let backends = self.places.iter().flatten().count();
        if backends == 0 {
            return self.slots.clear();
        }
        let needed = slots_for(backends);
        if self.slots.is_empty() {
            self.slots = vec![NOBODY; needed];
        }
        while self.slots.len() < needed {
            self.slots.extend_from_within(..);
        }
    }

    /// Gives every backend its share: whoever has too many slots gives them up, and those that lead
    /// to nobody go to whoever has too few.
    fn share_out(&mut self) {
        let mut lacking = self.shares();
        let mut free = vec![];
        for (slot, place) in self.slots.iter_mut().enumerate() {
            match lacking.get_mut(usize::from(*place)) {
                Some(left) if *left > 0 => *left -= 1,
                _ => free.push(slot),
            }
        }
        let owed = lacking.iter().enumerate().flat_map(|(place, left)| {
            let place = u16::try_from(place).unwrap_or(NOBODY);
            std::iter::repeat_n(place, *left)
        });
        for (slot, place) in free.into_iter().zip(owed) {
            self.slots[slot] = place;
        }
    }

    /// How many slots each place is to have. Whoever has most keeps the odd ones.
    fn shares(&self) -> Vec<usize> {
        let mut has = vec![0_usize; self.places.len()];
        for place in &self.slots {
            if let Some(count) = has.get_mut(usize::from(*place)) {
                *count += 1;
            }
        }
        let taken = |place: &usize| self.places[*place].is_some();
        let mut order: Vec<usize> = (0..self.places.len()).filter(taken).collect();
        order.sort_by_key(|place| std::cmp::Reverse(has[*place]));
        let backends = order.len().max(1);
        let (each, odd) = (self.slots.len() / backends, self.slots.len() % backends);
        let mut shares = vec![0; self.places.len()];
        for (rank, place) in order.into_iter().enumerate() {
            shares[place] = each + usize::from(rank < odd);
        }
        shares
    }
}

/// A place that no service has.
const NOBODY: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use atoll_types::NetAddr;
    use proptest::prelude::*;

    use super::*;

    fn backend(number: u16) -> Backend {
        let [high, low] = number.to_be_bytes();
        let addr = NetAddr::new(1.try_into().unwrap(), [10, 0, high, low].into());
        Backend { addr, port: 80.try_into().unwrap() }
    }

    fn backends(numbers: impl IntoIterator<Item = u16>) -> BTreeSet<Backend> {
        numbers.into_iter().map(backend).collect()
    }

    /// How many slots lead to each backend.
    fn counts(spread: &Spread) -> Vec<usize> {
        let mut counts = vec![0; spread.places.len()];
        spread.slots.iter().for_each(|place| counts[usize::from(*place)] += 1);
        let places = spread.places.iter().zip(counts);
        places.filter(|(backend, _)| backend.is_some()).map(|(_, count)| count).collect()
    }

    fn led_to(spread: &Spread) -> Vec<Backend> {
        spread.slots.iter().map(|place| spread.places[usize::from(*place)].unwrap()).collect()
    }

    fn is_even(spread: &Spread) -> bool {
        let counts = counts(spread);
        let (least, most) = (counts.iter().min(), counts.iter().max());
        least.zip(most).is_none_or(|(least, most)| most - least <= 1)
    }

    #[test]
    fn nobody_behind_a_service_has_no_slot() {
        let spread = Spread::default().follow(&backends(0..3)).follow(&BTreeSet::new());
        assert_eq!(spread, Spread::default());
    }

    #[test]
    fn when_one_of_many_goes_only_its_own_slots_lead_elsewhere() {
        for many in [2, 3, 10, 100, 1000] {
            let before = Spread::default().follow(&backends(0..many));
            let gone = backend(many / 2);
            let after = before.clone().follow(&backends((0..many).filter(|it| *it != many / 2)));
            let moved = led_to(&before).into_iter().zip(led_to(&after));
            let moved: Vec<_> = moved.filter(|(was, is)| was != is).map(|(was, _)| was).collect();
            assert!(moved.iter().all(|was| *was == gone), "{many}");
            assert!(moved.len() <= before.slots.len().div_ceil(usize::from(many)), "{many}");
            assert!(is_even(&after), "{many}");
        }
    }

    #[test]
    fn when_one_comes_it_takes_its_share_and_nothing_else_moves() {
        let before = Spread::default().follow(&backends(0..9));
        let after = before.clone().follow(&backends(0..10));
        let moved = led_to(&before).into_iter().zip(led_to(&after));
        let moved: Vec<_> = moved.filter(|(was, is)| was != is).map(|(_, is)| is).collect();
        assert!(moved.iter().all(|is| *is == backend(9)));
        assert_eq!(moved.len(), 256 / 10);
    }

    #[test]
    fn more_slots_lead_where_those_before_led() {
        let before = Spread::default().follow(&backends(0..16));
        let mut after = before.clone();
        after.places.extend((16..17).map(|number| Some(backend(number))));
        after.grow();
        assert_eq!(after.slots.len(), 2 * before.slots.len());
        assert!((0..after.slots.len()).all(|slot| after.slots[slot] == before.slots[slot % 256]));
    }

    #[test]
    fn thousands_of_backends_are_all_led_to() {
        let spread = Spread::default().follow(&backends(0..5000));
        assert!(counts(&spread).iter().all(|count| *count > 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn whatever_came_and_went_exactly_the_wanted_ones_are_led_to_evenly(
            steps in prop::collection::vec(prop::collection::btree_set(0..60_u16, 0..40), 1..6)
        ) {
            let mut spread = Spread::default();
            for numbers in &steps {
                let before = spread.clone();
                spread = spread.follow(&backends(numbers.iter().copied()));
                let seated: BTreeSet<_> = spread.places.iter().flatten().copied().collect();
                prop_assert_eq!(&seated, &backends(numbers.iter().copied()));
                prop_assert!(is_even(&spread));
                for (place, was) in before.places.iter().enumerate() {
                    let stays = was.is_some_and(|was| seated.contains(&was));
                    prop_assert!(!stays || spread.places[place] == *was, "a place is kept");
                }
                if !numbers.is_empty() {
                    prop_assert!(spread.slots.len().is_power_of_two());
                    let led: BTreeSet<_> = led_to(&spread).into_iter().collect();
                    prop_assert_eq!(led, seated);
                }
            }
        }
    }
}
