//! The objects of one kind that were seen, newest version each.
//!
//! News comes twice (as the answer to a write and again through the watch), late and out of
//! order. The rule: an older version never replaces a newer one, and what is known to be gone
//! does not come back by a late message.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::intent::{Meta, ObjectName};

/// How many of the last objects that went away are remembered.
const GRAVES: usize = 8192;

/// Objects of one kind, by name.
#[derive(Clone, Debug)]
pub(crate) struct Shelf<V> {
    items: HashMap<ObjectName, Arc<V>>,
    gone: HashSet<String>,
    order_of_going: VecDeque<String>,
}

/// What a message changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change<V> {
    /// Nothing: it was older than what is known.
    Stale,
    /// The object is there, and this is what stood in its place before.
    Put(Option<Arc<V>>),
}

/// Anything that has metadata.
pub(crate) trait HasMeta {
    fn meta(&self) -> &Meta;
}

impl<V> Default for Shelf<V> {
    fn default() -> Self {
        Shelf { items: HashMap::new(), gone: HashSet::new(), order_of_going: VecDeque::new() }
    }
}

impl<V: HasMeta> Shelf<V> {
    pub(crate) fn get(&self, name: &ObjectName) -> Option<&V> {
        self.items.get(name).map(Arc::as_ref)
    }

    /// The same, for as long as it is held, whatever is put in its place meanwhile.
    pub(crate) fn hold(&self, name: &ObjectName) -> Option<Arc<V>> {
        self.items.get(name).cloned()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &ObjectName> {
        self.items.keys()
    }

    /// All of them, in no order.
    pub(crate) fn items(&self) -> impl ExactSizeIterator<Item = &V> {
        self.items.values().map(Arc::as_ref)
    }

    /// Puts an object in its place unless something newer is known.
    pub(crate) fn put(&mut self, item: V) -> Change<V> {
        let meta = item.meta();
        if self.gone.contains(&meta.uid) || self.holds_newer(meta) {
            return Change::Stale;
        }
        Change::Put(self.items.insert(meta.name.clone(), Arc::new(item)))
    }

    /// Takes away the incarnation `uid` of an object and remembers that it is gone. Another
    /// incarnation of that name stays.
    pub(crate) fn remove(&mut self, name: &ObjectName, uid: &str) -> Option<Arc<V>> {
        self.remember(uid);
        self.take_if(name, |item| item.meta().uid == uid)
    }

    /// Takes away whatever has that name, which a full list did not show. It may have been made
    /// after the list, so that it may come back.
    pub(crate) fn forget(&mut self, name: &ObjectName) -> Option<Arc<V>> {
        self.take_if(name, |_| true)
    }

    fn take_if(&mut self, name: &ObjectName, condition: impl Fn(&V) -> bool) -> Option<Arc<V>> {
        if self.get(name).is_some_and(condition) { self.items.remove(name) } else { None }
    }

    fn holds_newer(&self, meta: &Meta) -> bool {
        let known = self.get(&meta.name).map(HasMeta::meta);
        known.is_some_and(|known| meta.revision != 0 && meta.revision <= known.revision)
    }

    fn remember(&mut self, uid: &str) {
        if uid.is_empty() || !self.gone.insert(uid.to_owned()) {
            return;
        }
        self.order_of_going.push_back(uid.to_owned());
        if self.order_of_going.len() > GRAVES
            && let Some(oldest) = self.order_of_going.pop_front()
        {
            self.gone.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Item(Meta);

    impl HasMeta for Item {
        fn meta(&self) -> &Meta {
            &self.0
        }
    }

    fn item(uid: &str, revision: u64) -> Item {
        Item(Meta { name: name(), uid: uid.into(), revision, ..Meta::default() })
    }

    fn name() -> ObjectName {
        ObjectName::cluster("thing")
    }

    #[test]
    fn an_older_version_never_replaces_a_newer_one() {
        let mut shelf = Shelf::default();
        assert_eq!(shelf.put(item("a", 5)), Change::Put(None));
        assert_eq!(shelf.put(item("a", 4)), Change::Stale);
        assert_eq!(shelf.put(item("a", 5)), Change::Stale);
        assert_eq!(shelf.put(item("a", 6)), Change::Put(Some(Arc::new(item("a", 5)))));
    }

    #[test]
    fn what_is_gone_does_not_come_back_by_a_late_message() {
        let mut shelf = Shelf::default();
        assert_eq!(shelf.remove(&name(), "a"), None);
        assert_eq!(shelf.put(item("a", 5)), Change::Stale);
        assert_eq!(shelf.put(item("b", 7)), Change::Put(None));
        assert_eq!(shelf.remove(&name(), "a"), None, "the next incarnation stays");
        assert_eq!(shelf.get(&name()), Some(&item("b", 7)));
    }

    #[test]
    fn what_a_list_did_not_show_may_come_back() {
        let mut shelf = Shelf::default();
        shelf.put(item("a", 5));
        assert_eq!(shelf.forget(&name()).as_deref(), Some(&item("a", 5)));
        assert_eq!(shelf.put(item("a", 5)), Change::Put(None));
    }

    #[test]
    fn what_is_held_stays_as_it_was() {
        let mut shelf = Shelf::default();
        shelf.put(item("a", 5));
        let held = shelf.hold(&name());
        shelf.put(item("a", 6));
        assert_eq!(held.as_deref(), Some(&item("a", 5)));
        assert_eq!(shelf.get(&name()), Some(&item("a", 6)));
    }

    #[test]
    fn only_so_many_graves_are_kept() {
        let mut shelf = Shelf::<Item>::default();
        for grave in 0..=GRAVES {
            shelf.remove(&name(), &grave.to_string());
        }
        assert_eq!(shelf.gone.len(), GRAVES);
        assert!(!shelf.gone.contains("0"));
    }
}
