//! Watching a collection: what a change means to one watcher, and the stream of it.
//! A watcher reads the collection's feed at its own speed; one that falls behind what the feed
//! keeps gets `Expired` and has to list again.

use crate::failure::Failure;
use crate::selector::Selector;
use crate::store::{Change, Feed, Stored};
use crate::verbs::{Api, Target, matches, parse_version};
use futures::Stream;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Interval};

/// How often an idle watcher that wants bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(30);

/// What to watch, and from where.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchOptions {
    pub(crate) selector: Selector,
    pub(crate) resource_version: String,
    pub(crate) bookmarks: bool,
    /// Send what exists first, then a bookmark that says so.
    pub(crate) initial_events: bool,
    pub(crate) timeout: Duration,
}

/// One thing a watcher is told.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Added(Arc<Stored>),
    Modified(Arc<Stored>),
    Deleted(Arc<Stored>),
    /// Everything up to this version was seen; `true` at the end of the initial events.
    Bookmark(u64, bool),
    Failed(Failure),
}

/// What a change means to someone who sees only objects that `selects` holds for.
fn judge(change: &Change, selects: impl Fn(&Stored) -> bool) -> Option<Event> {
    let before = change.before.as_deref().is_some_and(&selects);
    let after = change.after().is_some_and(|stored| selects(stored));
    let object = Arc::clone(&change.object);
    match (before, after) {
        (false, true) => Some(Event::Added(object)),
        (true, true) => Some(Event::Modified(object)),
        (true, false) => Some(Event::Deleted(object)),
        (false, false) => None,
    }
}

/// The real API does not call a bad version of a watch a bad request.
fn without_reason(failure: &Failure) -> Failure {
    Failure::unexplained(failure.message.trim_start_matches("invalid resource version: "))
}

struct Watcher {
    api: Api,
    target: Target,
    options: WatchOptions,
    feed: Arc<Feed>,
    newest: watch::Receiver<u64>,
    seen: u64,
    ready: VecDeque<Event>,
    bookmark: Interval,
    deadline: Instant,
    ended: bool,
}

impl Api {
    /// Watches the target's collection.
    pub(crate) fn watch(
        &self,
        target: &Target,
        options: WatchOptions,
    ) -> Result<impl Stream<Item = Event> + Send + use<>, Failure> {
        let watcher = Watcher::start(self, target, options)?;
        Ok(futures::stream::unfold(watcher, |mut watcher| async move {
            let event = watcher.next().await?;
            Some((event, watcher))
        }))
    }
}

impl Watcher {
    fn start(api: &Api, target: &Target, options: WatchOptions) -> Result<Watcher, Failure> {
        let asked =
            parse_version(&options.resource_version).map_err(|failure| without_reason(&failure))?;
        let feed = api.store.feed(&target.resource.collection);
        let now = Instant::now();
        let mut watcher = Watcher {
            api: api.clone(),
            target: target.clone(),
            newest: feed.subscribe(),
            feed,
            seen: asked,
            ready: VecDeque::new(),
            bookmark: tokio::time::interval_at(now + BOOKMARK_EVERY, BOOKMARK_EVERY),
            deadline: now + options.timeout,
            ended: false,
            options,
        };
        if asked == 0 || watcher.options.initial_events {
            watcher.begin_with_everything();
        } else {
            watcher.read_feed();
        }
        Ok(watcher)
    }

    fn begin_with_everything(&mut self) {
        let state = self.api.store.read();
        let objects = state.list(&self.target.resource.collection, &self.target.namespace);
        let selected: VecDeque<Event> = objects
            .filter(|stored| matches(&self.target, &self.options.selector, stored))
            .map(|stored| Event::Added(Arc::clone(stored)))
            .collect();
        self.seen = state.revision();
        drop(state);
        self.ready = selected;
        if self.options.initial_events && self.options.bookmarks {
            self.ready.push_back(Event::Bookmark(self.seen, true));
        }
    }

    /// Takes what the feed has; falling behind, or coming from the future, ends the watch.
    fn read_feed(&mut self) {
        let current = self.api.store.read().revision();
        let changes = if self.seen > current {
            Err(Failure::expired(format!("too large resource version: {} ({current})", self.seen)))
        } else {
            self.feed.since(self.seen)
        };
        match changes {
            Ok(changes) => {
                for change in &changes {
                    self.seen = change.revision();
                    self.ready.extend(judge(change, |stored| self.selects(stored)));
                }
            }
            Err(failure) => {
                self.ready.push_back(Event::Failed(failure));
                self.ended = true;
            }
        }
    }

    fn selects(&self, stored: &Stored) -> bool {
        let namespace = &self.target.namespace;
        (namespace.is_empty() || stored.key.namespace == *namespace)
            && matches(&self.target, &self.options.selector, stored)
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            tokio::select! {
                changed = self.newest.changed() => {
                    changed.ok()?;
                    self.read_feed();
                }
                _ = self.bookmark.tick(), if self.options.bookmarks => self.add_bookmark(),
                () = tokio::time::sleep_until(self.deadline) => return None,
            }
        }
    }

    /// Tells the newest version, after everything that belongs before it.
    fn add_bookmark(&mut self) {
        let newest = self.api.store.read().revision();
        self.read_feed();
        if !self.ended {
            self.seen = self.seen.max(newest);
            self.ready.push_back(Event::Bookmark(self.seen, false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Key;
    use serde_json::json;

    fn stored(label: &str) -> Arc<Stored> {
        let value = json!({"metadata": {"labels": {"app": label}}});
        let key = Key::new("pods", "default", "web");
        Arc::new(Stored { key, revision: 1, json: value.to_string().into(), value })
    }

    fn told(before: Option<&str>, after: Option<&str>) -> &'static str {
        let change = Change {
            before: before.map(stored),
            object: stored(after.or(before).unwrap()),
            deleted: after.is_none(),
        };
        let selects = |stored: &Stored| stored.value["metadata"]["labels"]["app"] == "web";
        match judge(&change, selects) {
            Some(Event::Added(_)) => "added",
            Some(Event::Modified(_)) => "modified",
            Some(Event::Deleted(_)) => "deleted",
            Some(_) => "other",
            None => "nothing",
        }
    }

    #[test]
    fn a_watcher_sees_objects_come_into_and_leave_its_selection() {
        assert_eq!(told(None, Some("web")), "added");
        assert_eq!(told(Some("db"), Some("web")), "added");
        assert_eq!(told(Some("web"), Some("web")), "modified");
        assert_eq!(told(Some("web"), Some("db")), "deleted");
        assert_eq!(told(Some("web"), None), "deleted");
        assert_eq!(told(Some("db"), None), "nothing");
        assert_eq!(told(None, Some("db")), "nothing");
    }
}
