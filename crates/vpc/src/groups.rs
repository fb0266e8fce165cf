//! Which things belong together: an index from a key to a set, without empty sets.
//!
//! Most sets have one member: a VPC has one network, a port one address. The rule: a set of one takes
//! the room of one.

use std::borrow::Borrow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, btree_set};
use std::hash::Hash;
use std::slice;

/// Sets by key.
#[derive(Clone, Debug)]
pub struct Groups<K, V>(HashMap<K, Members<V>>);

/// The members of one group: never none.
#[derive(Clone, Debug)]
enum Members<V> {
    One(V),
    Many(BTreeSet<V>),
}

/// The members of a group, in order.
pub enum Each<'a, V> {
    /// None or one.
    Few(slice::Iter<'a, V>),
    /// More.
    Many(btree_set::Iter<'a, V>),
}

impl<V: Ord> Members<V> {
    fn add(&mut self, member: V) -> bool {
        match self {
            Members::One(only) if *only == member => false,
            Members::One(_) => {
                let mut all = BTreeSet::from([member]);
                if let Members::One(only) = std::mem::replace(self, Members::Many(BTreeSet::new()))
                {
                    all.insert(only);
                }
                *self = Members::Many(all);
                true
            }
            Members::Many(all) => all.insert(member),
        }
    }

    /// Whether none is left without this member.
    fn remove(&mut self, member: &V) -> bool {
        match self {
            Members::One(only) => *only == *member,
            Members::Many(all) => {
                all.remove(member);
                if all.len() == 1
                    && let Some(only) = all.pop_first()
                {
                    *self = Members::One(only);
                }
                false
            }
        }
    }
}

impl<K, V> Default for Groups<K, V> {
    fn default() -> Self {
        Groups(HashMap::new())
    }
}

impl<K: Hash + Eq, V: Ord> Groups<K, V> {
    /// Adds a member; says whether it is new.
    pub fn add(&mut self, key: K, member: V) -> bool {
        match self.0.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Members::One(member));
                true
            }
            Entry::Occupied(mut entry) => entry.get_mut().add(member),
        }
    }

    /// Takes a member out, if it is there.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, member: &V)
    where
        K: Borrow<Q>,
    {
        if self.0.get_mut(key).is_some_and(|members| members.remove(member)) {
            self.0.remove(key);
        }
    }

    /// Whether a group has this member.
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q, member: &V) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.get(key).is_some_and(|members| match members {
            Members::One(only) => only == member,
            Members::Many(all) => all.contains(member),
        })
    }

    /// The members of a group, in order.
    pub fn of<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Each<'_, V>
    where
        K: Borrow<Q>,
    {
        match self.0.get(key) {
            None => Each::Few([].iter()),
            Some(Members::One(only)) => Each::Few(slice::from_ref(only).iter()),
            Some(Members::Many(all)) => Each::Many(all.iter()),
        }
    }
}

impl<'a, V> Iterator for Each<'a, V> {
    type Item = &'a V;

    fn next(&mut self) -> Option<&'a V> {
        match self {
            Each::Few(members) => members.next(),
            Each::Many(members) => members.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Each::Few(members) => members.size_hint(),
            Each::Many(members) => members.size_hint(),
        }
    }
}

impl<V> ExactSizeIterator for Each<'_, V> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_group_that_lost_its_last_member_takes_no_room() {
        let mut groups = Groups::default();
        groups.add("network", "port");
        assert_eq!(groups.of("network").collect::<Vec<_>>(), [&"port"]);
        groups.remove("network", &"other");
        assert_eq!(groups.of("network").len(), 1);
        groups.remove("network", &"port");
        groups.remove("network", &"port");
        assert_eq!(groups.of("network").len(), 0);
        assert!(groups.0.is_empty());
    }

    proptest! {
        #[test]
        fn groups_are_as_sets_would_be(
            steps in prop::collection::vec((any::<bool>(), 0..3_u8, 0..4_u8), 0..60)
        ) {
            let (mut groups, mut sets) = (Groups::default(), HashMap::<u8, BTreeSet<u8>>::new());
            for (comes, key, member) in steps {
                let set = sets.entry(key).or_default();
                if comes {
                    prop_assert_eq!(groups.add(key, member), set.insert(member));
                } else {
                    groups.remove(&key, &member);
                    set.remove(&member);
                }
                prop_assert!(groups.of(&key).eq(set.iter()));
                prop_assert_eq!(groups.of(&key).len(), set.len());
                prop_assert_eq!(groups.contains(&key, &member), set.contains(&member));
                let is_one = matches!(groups.0.get(&key), Some(Members::One(_)));
                prop_assert_eq!(is_one, set.len() == 1, "one takes the room of one");
            }
        }
    }
}
