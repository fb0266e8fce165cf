//! A map that shares what did not change: a hash trie of 32-way branches.
//!
//! Its rule: a clone costs nothing, and a change copies only the few branches on its way, so that
//! the clone that is being asked is never disturbed. The hash is keyed: a tenant cannot choose
//! names that meet.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// What can be kept in a [`Trie`]: it knows the bytes by which it is found.
pub(crate) trait Entry {
    /// The bytes.
    fn key(&self) -> &[u8];
}

/// The map.
#[derive(Debug)]
pub(crate) struct Trie<V> {
    root: Branch<V>,
    len: usize,
    seed: RandomState,
}

/// Which of its 32 places are taken, and what stands in those. It lies in the slot above, so that a
/// level costs one step through memory.
#[derive(Debug)]
struct Branch<V> {
    present: u32,
    slots: Arc<[Slot<V>]>,
}

#[derive(Debug)]
enum Slot<V> {
    Branch(Branch<V>),
    Leaf(Arc<V>),
}

/// The branches that lead to a key, five bits of its hash at a time; a new hash when they end.
struct Path<'a> {
    seed: &'a RandomState,
    key: &'a [u8],
    bits: u64,
    left: u8,
    round: u8,
}

impl<'a> Path<'a> {
    fn of(seed: &'a RandomState, key: &'a [u8]) -> Self {
        Path { seed, key, bits: 0, left: 0, round: 0 }
    }

    fn step(&mut self) -> u32 {
        if self.left == 0 {
            self.bits = self.seed.hash_one((self.round, self.key));
            self.round = self.round.wrapping_add(1);
            self.left = 12;
        }
        let index = (self.bits & 31) as u32;
        self.bits >>= 5;
        self.left -= 1;
        index
    }

    fn after(mut self, steps: usize) -> Self {
        (0..steps).for_each(|_| {
            self.step();
        });
        self
    }
}

impl<V> Clone for Slot<V> {
    fn clone(&self) -> Self {
        match self {
            Slot::Branch(branch) => Slot::Branch(branch.clone()),
            Slot::Leaf(value) => Slot::Leaf(value.clone()),
        }
    }
}

impl<V> Clone for Branch<V> {
    fn clone(&self) -> Self {
        Branch { present: self.present, slots: self.slots.clone() }
    }
}

impl<V> Branch<V> {
    fn empty() -> Self {
        Branch { present: 0, slots: Arc::new([]) }
    }

    fn place(&self, index: u32) -> (bool, usize) {
        let bit = 1 << index;
        (self.present & bit != 0, (self.present & (bit - 1)).count_ones() as usize)
    }

    fn at(&self, index: u32) -> Option<&Slot<V>> {
        let (present, place) = self.place(index);
        if present { self.slots.get(place) } else { None }
    }

    /// A place that is taken, for a change that others do not see.
    fn change(&mut self, index: u32) -> Option<&mut Slot<V>> {
        let (present, place) = self.place(index);
        if present { Arc::make_mut(&mut self.slots).get_mut(place) } else { None }
    }

    /// Takes a free place.
    fn add(&mut self, index: u32, slot: Slot<V>) {
        let (early, late) = self.slots.split_at(self.place(index).1);
        let all = early.iter().cloned().chain([slot]).chain(late.iter().cloned());
        self.slots = all.collect::<Vec<_>>().into();
        self.present |= 1 << index;
    }

    /// Frees a place that is taken.
    fn free(&mut self, index: u32) {
        let (early, late) = self.slots.split_at(self.place(index).1);
        self.slots = early.iter().chain(&late[1..]).cloned().collect();
        self.present &= !(1 << index);
    }

    fn only_leaf(&self) -> Option<Arc<V>> {
        match &*self.slots {
            [Slot::Leaf(value)] => Some(value.clone()),
            _ => None,
        }
    }
}

impl<V> Clone for Trie<V> {
    fn clone(&self) -> Self {
        Trie { root: self.root.clone(), len: self.len, seed: self.seed.clone() }
    }
}

impl<V: Entry> Trie<V> {
    pub(crate) fn new() -> Self {
        Trie { root: Branch::empty(), len: 0, seed: RandomState::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&V> {
        let mut path = Path::of(&self.seed, key);
        let mut branch = &self.root;
        loop {
            match branch.at(path.step())? {
                Slot::Branch(next) => branch = next,
                Slot::Leaf(value) => return (value.key() == key).then_some(value),
            }
        }
    }

    /// Puts a value in, and gives back the one that had its key.
    pub(crate) fn insert(&mut self, value: V) -> Option<Arc<V>> {
        let value = Arc::new(value);
        let mut path = Path::of(&self.seed, value.key());
        let old = insert(&mut self.root, &value, &mut path, 1);
        self.len += usize::from(old.is_none());
        old
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Arc<V>> {
        self.get(key)?;
        let removed = remove(&mut self.root, &mut Path::of(&self.seed, key));
        self.len -= usize::from(removed.is_some());
        removed
    }
}

#[cfg(test)]
impl<V> Trie<V> {
    /// How many branches it has for itself and does not share with what it came from.
    pub(crate) fn branches_beside(&self, former: &Self) -> usize {
        self.root.beside(Some(&former.root))
    }
}

#[cfg(test)]
impl<V> Branch<V> {
    fn beside(&self, former: Option<&Self>) -> usize {
        if former.is_some_and(|former| Arc::ptr_eq(&self.slots, &former.slots)) {
            return 0;
        }
        let below = (0..32).map(|index| match (self.at(index), former.map(|it| it.at(index))) {
            (Some(Slot::Branch(own)), Some(Some(Slot::Branch(other)))) => own.beside(Some(other)),
            (Some(Slot::Branch(own)), _) => own.beside(None),
            _ => 0,
        });
        1 + below.sum::<usize>()
    }
}

fn insert<V: Entry>(
    branch: &mut Branch<V>,
    value: &Arc<V>,
    path: &mut Path<'_>,
    depth: usize,
) -> Option<Arc<V>> {
    let index = path.step();
    let Some(slot) = branch.change(index) else {
        branch.add(index, Slot::Leaf(value.clone()));
        return None;
    };
    match slot {
        Slot::Branch(next) => insert(next, value, path, depth + 1),
        Slot::Leaf(leaf) if leaf.key() == value.key() => {
            Some(std::mem::replace(leaf, value.clone()))
        }
        Slot::Leaf(other) => {
            let mut below = Branch::empty();
            let mut its_path = Path::of(path.seed, other.key()).after(depth);
            insert(&mut below, other, &mut its_path, depth + 1);
            insert(&mut below, value, path, depth + 1);
            *slot = Slot::Branch(below);
            None
        }
    }
}

fn remove<V>(branch: &mut Branch<V>, path: &mut Path<'_>) -> Option<Arc<V>> {
    let index = path.step();
    match branch.change(index)? {
        Slot::Leaf(value) => {
            let removed = value.clone();
            branch.free(index);
            Some(removed)
        }
        Slot::Branch(below) => {
            let removed = remove(below, path);
            let left = below.only_leaf();
            if let (Some(leaf), Some(slot)) = (left, branch.change(index)) {
                *slot = Slot::Leaf(leaf);
            }
            removed
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Numbers = Trie<(Vec<u8>, u32)>;

    impl Entry for (Vec<u8>, u32) {
        fn key(&self) -> &[u8] {
            &self.0
        }
    }

    proptest! {
        #[test]
        fn it_holds_what_an_ordinary_map_holds(
            steps in prop::collection::vec((any::<bool>(), any::<u8>(), any::<u32>()), 1..600),
        ) {
            let (mut trie, mut map) = (Trie::new(), BTreeMap::new());
            for (put, key, value) in steps {
                let key = vec![key];
                if put {
                    let old = trie.insert((key.clone(), value)).map(|old| old.1);
                    prop_assert_eq!(old, map.insert(key, value));
                } else {
                    let old = trie.remove(&key).map(|old| old.1);
                    prop_assert_eq!(old, map.remove(&key));
                }
                prop_assert_eq!(trie.len(), map.len());
            }
            for key in 0..=255u8 {
                prop_assert_eq!(trie.get(&[key]).map(|found| found.1), map.get(&vec![key]).copied());
            }
        }
    }

    #[test]
    fn a_change_copies_as_many_branches_among_ten_as_among_a_million() {
        let mut trie = Trie::new();
        let mut next = 0..;
        for len in [10, 1_000, 1_000_000] {
            while trie.len() < len {
                let n: u32 = next.next().unwrap();
                trie.insert((n.to_be_bytes().to_vec(), n));
            }
            let copied = |change: &dyn Fn(&mut Numbers, u32)| {
                let one = |n: u32| {
                    let mut changed = trie.clone();
                    change(&mut changed, n % len as u32);
                    changed.branches_beside(&trie)
                };
                (0..500).map(|n| one(n * 1_999)).sum::<usize>()
            };
            let key = |n: u32| n.to_be_bytes().to_vec();
            let changed = copied(&|trie, n| drop(trie.insert((key(n), n + 1))));
            let added = copied(&|trie, n| drop(trie.insert((key(u32::MAX - n), 0))));
            let removed = copied(&|trie, n| drop(trie.remove(&key(n))));
            for (what, branches) in [("change", changed), ("add", added), ("remove", removed)] {
                let fine = (500..=500 * 6).contains(&branches);
                assert!(fine, "500 times {what} among {len}: {branches} branches");
            }
        }
    }

    #[test]
    fn a_clone_is_not_disturbed_by_what_comes_later() {
        let mut trie = Trie::new();
        (0..5_000u32).for_each(|n| assert!(trie.insert((n.to_be_bytes().to_vec(), n)).is_none()));
        let before = trie.clone();
        (0..5_000u32).for_each(|n| assert!(trie.remove(&n.to_be_bytes()).is_some()));
        assert_eq!((trie.len(), before.len()), (0, 5_000));
        assert!((0..5_000u32).all(|n| before.get(&n.to_be_bytes()).is_some_and(|it| it.1 == n)));
    }
}
