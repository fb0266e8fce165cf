//! Sets of things that are watched.
//!
//! The rule of this file: a watch begins with a list, and what comes before it counts for nothing.

use std::collections::BTreeMap;

use super::Delta;

/// A watched set; `None` until it was listed once.
pub(super) type Listed<K, V> = Option<BTreeMap<K, V>>;

pub(super) fn absorb_known<K: Ord, V>(known: &mut BTreeMap<K, V>, delta: Delta<K, V>) {
    match delta {
        Delta::All(all) => *known = all,
        Delta::Put(key, value) => drop(known.insert(key, value)),
        Delta::Gone(key) => drop(known.remove(&key)),
    }
}

/// What is not followed any more is passed over.
pub(super) fn absorb_followed<K: Ord, V>(known: Option<&mut Listed<K, V>>, delta: Delta<K, V>) {
    if let Some(known) = known {
        absorb(known, delta);
    }
}

/// A watch begins with a list. What comes before it is a late word of an earlier watch, and must
/// not pass for a list of one.
pub(super) fn absorb<K: Ord, V>(listed: &mut Listed<K, V>, delta: Delta<K, V>) {
    match (delta, listed) {
        (Delta::All(all), listed) => *listed = Some(all),
        (Delta::Put(key, value), Some(known)) => drop(known.insert(key, value)),
        (Delta::Gone(key), Some(known)) => drop(known.remove(&key)),
        (Delta::Put(..) | Delta::Gone(_), None) => {}
    }
}

/// Whether exactly this is listed.
pub(super) fn says<K: Ord, V: PartialEq>(listed: &Listed<K, V>, key: &K, value: &V) -> bool {
    listed.as_ref().and_then(|known| known.get(key)) == Some(value)
}
