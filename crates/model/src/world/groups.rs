//! Which things belong together: an index from a key to a set, without empty sets.

use std::borrow::Borrow;
use std::collections::btree_set::Iter;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Sets by key.
#[derive(Clone, Debug)]
pub(crate) struct Groups<K, V>(HashMap<K, BTreeSet<V>>);

impl<K, V> Default for Groups<K, V> {
    fn default() -> Self {
        Groups(HashMap::new())
    }
}

impl<K: Hash + Eq, V: Ord> Groups<K, V> {
    /// Adds a member; says whether it is new.
    pub(crate) fn add(&mut self, key: K, member: V) -> bool {
        self.0.entry(key).or_default().insert(member)
    }

    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, member: &V)
    where
        K: Borrow<Q>,
    {
        if let Some(set) = self.0.get_mut(key) {
            set.remove(member);
            if set.is_empty() {
                self.0.remove(key);
            }
        }
    }

    pub(crate) fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q, member: &V) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.get(key).is_some_and(|set| set.contains(member))
    }

    /// The members of a group, in order.
    pub(crate) fn of<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Iter<'_, V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key).map(BTreeSet::iter).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_lost_its_last_member_takes_no_room() {
        let mut groups = Groups::default();
        groups.add("network", "pod");
        assert_eq!(groups.of("network").collect::<Vec<_>>(), [&"pod"]);
        groups.remove("network", &"pod");
        groups.remove("network", &"pod");
        assert_eq!(groups.of("network").len(), 0);
        assert!(groups.0.is_empty());
    }
}
