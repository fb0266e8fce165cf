//! What is on the way to whom: proposed, and not claimed yet.
//!
//! The rule: a thing is on the way to one holder at most.

use std::collections::HashMap;
use std::hash::Hash;

use crate::groups::{Each, Groups};

/// Things on the way to their holders.
#[derive(Clone, Debug)]
pub(crate) struct Proposals<H, T> {
    things: Groups<H, T>,
    holders: HashMap<T, H>,
}

impl<H, T> Default for Proposals<H, T> {
    fn default() -> Self {
        Proposals { things: Groups::default(), holders: HashMap::new() }
    }
}

impl<H: Clone + Eq + Hash, T: Copy + Ord + Hash> Proposals<H, T> {
    /// Notes that a thing is on the way to a holder, and to nobody else any more.
    pub(crate) fn add(&mut self, holder: H, thing: T) {
        self.remove(thing);
        self.holders.insert(thing, holder.clone());
        self.things.add(holder, thing);
    }

    /// A thing is on the way no longer; says whether it was.
    pub(crate) fn remove(&mut self, thing: T) -> bool {
        let Some(holder) = self.holders.remove(&thing) else { return false };
        self.things.remove(&holder, &thing);
        true
    }

    /// To whom a thing is on the way.
    pub(crate) fn holder(&self, thing: T) -> Option<&H> {
        self.holders.get(&thing)
    }

    /// What is on the way to a holder, in order.
    pub(crate) fn of(&self, holder: &H) -> Each<'_, T> {
        self.things.of(holder)
    }

    /// Everything that is on the way, in no order.
    pub(crate) fn things(&self) -> impl Iterator<Item = &T> {
        self.holders.keys()
    }
}
