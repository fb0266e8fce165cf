//! Who is there: turns a watch stream, with its restarts, into objects seen and objects gone.

use std::collections::HashSet;

use kube::ResourceExt;
use kube::runtime::watcher::Event;

/// The objects of one watch, by their uid.
#[derive(Debug, Default)]
pub(crate) struct Roll {
    present: HashSet<String>,
    listed: HashSet<String>,
}

/// One thing that a watch event means.
#[derive(Debug, PartialEq)]
pub(crate) enum Change<K> {
    /// The object looks like this now.
    Seen(Box<K>),
    /// The object with this uid is gone.
    Gone(String),
}

impl Roll {
    /// What `event` means. A list that a restarted watch begins with also tells who is missing.
    pub(crate) fn take_in<K: ResourceExt>(&mut self, event: Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Apply(object) => {
                self.present.insert(uid(&object));
                vec![Change::Seen(Box::new(object))]
            }
            Event::InitApply(object) => {
                self.listed.insert(uid(&object));
                vec![Change::Seen(Box::new(object))]
            }
            Event::Delete(object) => {
                self.present.remove(&uid(&object));
                vec![Change::Gone(uid(&object))]
            }
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitDone => self.compare(),
        }
    }

    fn compare<K>(&mut self) -> Vec<Change<K>> {
        let before = std::mem::replace(&mut self.present, std::mem::take(&mut self.listed));
        before.into_iter().filter(|uid| !self.present.contains(uid)).map(Change::Gone).collect()
    }
}

fn uid<K: ResourceExt>(object: &K) -> String {
    object.uid().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn pod(uid: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        pod
    }

    fn seen(uid: &str) -> Vec<Change<Pod>> {
        vec![Change::Seen(Box::new(pod(uid)))]
    }

    #[test]
    fn a_watch_that_starts_again_tells_who_is_missing() {
        let mut roll = Roll::default();
        assert_eq!(roll.take_in(Event::Apply(pod("a"))), seen("a"));
        assert_eq!(roll.take_in(Event::Apply(pod("b"))), seen("b"));
        assert_eq!(roll.take_in(Event::<Pod>::Init), []);
        assert_eq!(roll.take_in(Event::InitApply(pod("b"))), seen("b"));
        assert_eq!(roll.take_in(Event::InitApply(pod("c"))), seen("c"));
        assert_eq!(roll.take_in(Event::<Pod>::InitDone), [Change::Gone("a".into())]);
    }

    #[test]
    fn who_was_deleted_is_not_missed_again() {
        let mut roll = Roll::default();
        roll.take_in(Event::Apply(pod("a")));
        assert_eq!(roll.take_in(Event::Delete(pod("a"))), [Change::Gone("a".into())]);
        roll.take_in(Event::<Pod>::Init);
        assert_eq!(roll.take_in(Event::<Pod>::InitDone), []);
    }
}
