//! Which VPC has which number.
//!
//! A VPC has its number by two claims, each of which can exist once: the id is claimed for the
//! VPC, and the VPC has the right to this one id. The rule: a number that was given stays until it
//! is given up, whoever forgets what it told; and no id is proposed to two VPCs.

use std::collections::HashMap;
use std::hash::Hash;

use atoll_types::NetworkId;

use crate::circle::Moment;
use crate::groups::{Each, Groups};
use crate::ids::IdPool;
use crate::proposals::Proposals;

/// The numbers of VPCs, which are named by `V`.
#[derive(Clone, Debug)]
pub struct Numbers<V> {
    ids: IdPool,
    claims: HashMap<NetworkId, Option<V>>,
    claimed_by: Groups<V, NetworkId>,
    rights: HashMap<V, NetworkId>,
    /// One, but for a moment in which a second was promised what the first has.
    rightful: Groups<NetworkId, V>,
    proposals: Proposals<V, NetworkId>,
}

/// A VPC's number, or what is to be done about it.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// The VPC has it.
    Held(NetworkId),
    /// The VPC may claim it, or the half of it that is missing.
    Claimable(NetworkId),
    /// The VPC was given it and uses it, and another has claimed it.
    Stolen(NetworkId),
    /// The VPC was promised what is another's, and nobody has used it.
    Unfounded(NetworkId),
    /// Every id is taken, or rests.
    NoneFree,
}

impl<V> Default for Numbers<V> {
    fn default() -> Self {
        Numbers {
            ids: IdPool::default(),
            claims: HashMap::new(),
            claimed_by: Groups::default(),
            rights: HashMap::new(),
            rightful: Groups::default(),
            proposals: Proposals::default(),
        }
    }
}

impl<V: Clone + Ord + Hash> Numbers<V> {
    /// The id was claimed: for a VPC, or by somebody who is none.
    pub fn claim(&mut self, id: NetworkId, holder: Option<V>) {
        self.ids.take(id);
        self.proposals.remove(id);
        if let Some(Some(before)) = self.claims.insert(id, holder.clone()) {
            self.claimed_by.remove(&before, &id);
        }
        if let Some(vpc) = holder {
            self.claimed_by.add(vpc, id);
        }
    }

    /// The claim on an id is gone; the id is not proposed before `until`.
    pub fn release(&mut self, id: NetworkId, until: Moment) {
        let Some(holder) = self.claims.remove(&id) else { return };
        if let Some(vpc) = holder {
            self.claimed_by.remove(&vpc, &id);
        }
        self.ids.free(id, until);
    }

    /// A VPC was given the right to an id.
    pub fn give_right(&mut self, vpc: V, id: NetworkId) {
        self.take_right(&vpc);
        self.rights.insert(vpc.clone(), id);
        self.rightful.add(id, vpc);
    }

    /// A VPC has no right to an id any more.
    pub fn take_right(&mut self, vpc: &V) {
        if let Some(id) = self.rights.remove(vpc) {
            self.rightful.remove(&id, vpc);
        }
    }

    /// The id that a VPC has the right to.
    pub fn right_of(&self, vpc: &V) -> Option<NetworkId> {
        self.rights.get(vpc).copied()
    }

    /// The VPCs that have the right to an id.
    pub fn rightful(&self, id: NetworkId) -> Each<'_, V> {
        self.rightful.of(&id)
    }

    /// The ids that are claimed for a VPC.
    pub fn claimed_by(&self, vpc: &V) -> Each<'_, NetworkId> {
        self.claimed_by.of(vpc)
    }

    /// The number of a VPC: the one it was given, else the one that its networks have `told`, else a
    /// new one. A right that clashes is given up where nobody was told of it and nothing `uses` it.
    pub fn number_of(
        &mut self,
        vpc: &V,
        told: Option<NetworkId>,
        uses: impl FnOnce() -> bool,
        now: Moment,
    ) -> Number {
        let given = self.right_of(vpc);
        let Some(id) = given.or(told) else { return self.propose(vpc, now) };
        let holder = self.claims.get(&id).map(Option::as_ref);
        match holder.map(|holder| holder == Some(vpc)) {
            Some(true) if given.is_some() => {
                self.drop_proposal(vpc, now);
                Number::Held(id)
            }
            Some(false) if told.is_none() && !uses() => Number::Unfounded(id),
            Some(false) => Number::Stolen(id),
            Some(true) | None => Number::Claimable(id),
        }
    }

    /// Takes back what was proposed to a VPC; it can be proposed again at `until`.
    pub fn drop_proposal(&mut self, vpc: &V, until: Moment) {
        let dropped: Vec<NetworkId> = self.proposals.of(vpc).copied().collect();
        for id in dropped {
            self.proposals.remove(id);
            self.ids.free(id, until);
        }
    }

    /// An id that is claimed for the VPC already, else the one on the way to it, else a free one.
    fn propose(&mut self, vpc: &V, now: Moment) -> Number {
        let known = self.claimed_by(vpc).chain(self.proposals.of(vpc)).next().copied();
        if let Some(id) = known {
            return Number::Claimable(id);
        }
        match self.ids.propose(now) {
            Some(id) => {
                self.proposals.add(vpc.clone(), id);
                Number::Claimable(id)
            }
            None => Number::NoneFree,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const START: Moment = Moment::ZERO;

    fn id(number: u32) -> NetworkId {
        number.try_into().unwrap()
    }

    fn unused(numbers: &mut Numbers<&'static str>, vpc: &'static str) -> Number {
        numbers.number_of(&vpc, None, || false, START)
    }

    #[test]
    fn a_vpc_is_proposed_one_id_until_it_has_both_halves_of_it() {
        let mut numbers = Numbers::default();
        assert_eq!(unused(&mut numbers, "red"), Number::Claimable(id(1)));
        assert_eq!(unused(&mut numbers, "red"), Number::Claimable(id(1)));
        assert_eq!(unused(&mut numbers, "blue"), Number::Claimable(id(2)));
        numbers.claim(id(1), Some("red"));
        assert_eq!(unused(&mut numbers, "red"), Number::Claimable(id(1)));
        numbers.give_right("red", id(1));
        assert_eq!(unused(&mut numbers, "red"), Number::Held(id(1)));
    }

    #[test]
    fn whoever_was_not_first_is_proposed_another() {
        let mut numbers = Numbers::default();
        assert_eq!(unused(&mut numbers, "red"), Number::Claimable(id(1)));
        numbers.claim(id(1), None);
        assert_eq!(unused(&mut numbers, "red"), Number::Claimable(id(2)));
        numbers.release(id(1), Moment::from_secs(30));
        assert_eq!(unused(&mut numbers, "blue"), Number::Claimable(id(3)), "the first one rests");
    }

    #[test]
    fn a_number_that_was_told_is_claimed_again_whoever_lost_its_claims() {
        let mut numbers = Numbers::default();
        let told =
            |numbers: &mut Numbers<_>| numbers.number_of(&"red", Some(id(7)), || true, START);
        assert_eq!(told(&mut numbers), Number::Claimable(id(7)));
        numbers.claim(id(7), Some("red"));
        assert_eq!(told(&mut numbers), Number::Claimable(id(7)), "half of it");
        numbers.claim(id(7), Some("blue"));
        assert_eq!(told(&mut numbers), Number::Stolen(id(7)));
        assert_eq!(numbers.claimed_by(&"red").len(), 0);
    }

    #[test]
    fn a_right_to_anothers_id_is_unfounded_until_somebody_used_it() {
        let mut numbers = Numbers::default();
        numbers.claim(id(1), Some("blue"));
        numbers.give_right("blue", id(1));
        numbers.give_right("red", id(1));
        assert_eq!(unused(&mut numbers, "red"), Number::Unfounded(id(1)));
        assert_eq!(numbers.number_of(&"red", None, || true, START), Number::Stolen(id(1)));
        assert_eq!(numbers.rightful(id(1)).collect::<Vec<_>>(), [&"blue", &"red"]);
        numbers.take_right(&"red");
        assert_eq!(numbers.rightful(id(1)).collect::<Vec<_>>(), [&"blue"]);
        assert_eq!(unused(&mut numbers, "red"), Number::Claimable(id(2)));
    }

    #[test]
    fn what_was_proposed_to_a_vpc_that_got_another_id_is_free_again() {
        let mut numbers = Numbers::default();
        assert_eq!(unused(&mut numbers, "red"), Number::Claimable(id(1)));
        numbers.claim(id(9), Some("red"));
        numbers.give_right("red", id(9));
        assert_eq!(unused(&mut numbers, "red"), Number::Held(id(9)));
        assert_eq!(numbers.ids.taken(), 1);
    }

    proptest! {
        #[test]
        fn no_id_is_on_the_way_twice_and_none_is_lost(
            steps in prop::collection::vec((0..6_u8, 0..3_u8, 1..5_u32), 0..60)
        ) {
            let mut numbers = Numbers::<u8>::default();
            for (step, vpc, number) in steps {
                match step {
                    0 => numbers.claim(id(number), Some(vpc)),
                    1 => numbers.claim(id(number), None),
                    2 => numbers.release(id(number), START),
                    3 => numbers.give_right(vpc, id(number)),
                    4 => numbers.take_right(&vpc),
                    _ => match numbers.number_of(&vpc, None, || true, START) {
                        Number::Held(id) => prop_assert_eq!(numbers.claims[&id], Some(vpc)),
                        Number::Claimable(id) => {
                            prop_assert!(numbers.claims.get(&id).is_none_or(|it| *it == Some(vpc)));
                        }
                        Number::Stolen(id) | Number::Unfounded(id) => {
                            prop_assert_ne!(numbers.claims[&id], Some(vpc));
                        }
                        Number::NoneFree => prop_assert!(false, "there are enough"),
                    }
                }
                let coming: Vec<_> = (0..3).flat_map(|vpc| numbers.proposals.of(&vpc)).collect();
                let held: BTreeSet<_> = numbers.claims.keys().chain(coming.clone()).collect();
                prop_assert_eq!(held.len(), numbers.claims.len() + coming.len(), "twice");
                prop_assert_eq!(numbers.ids.taken(), held.len() as u128);
            }
        }
    }
}
