//! What a network's names are made from, handed on to resolvers elsewhere, change by change.
//!
//! Its rule: a follower is told whole commits. Whenever it heard [`Word::Whole`], it knows exactly
//! what was committed at one moment; after a pause of any length it hears only what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use atoll_zones::{Fact, Settings};
use serde::Serialize;
use tokio::sync::watch;

use crate::limits::lock;

/// The type of question, of those that are for private use, that asks for the feed of the asker's
/// network.
pub(crate) const FEED: u16 = 65_400;
/// More things that are gone than this, and more than those that are there, are forgotten: who
/// followed before that begins anew.
const MOST_GONE: usize = 1_024;

/// One thing a follower hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// All that was heard before does not count.
    Anew,
    /// This is so.
    Put(String, Vec<u8>),
    /// This is gone.
    Gone(String),
    /// What was heard up to here is whole.
    Whole,
}

/// Things by name, and the order in which they changed.
#[derive(Debug, Default)]
struct Inside {
    /// How many commits there were.
    commit: u64,
    /// The first commit after which followers need not begin anew.
    floor: u64,
    things: BTreeMap<String, (u64, Option<Vec<u8>>)>,
    order: BTreeSet<(u64, String)>,
    gone: usize,
}

/// The name of the thing that every other rests on; it comes before them.
pub(crate) const SETTINGS: &str = " settings";

/// The thing that is there while names outside can be asked for.
pub(crate) const OUTSIDE: &str = " outside";

/// What a network's names are made from.
#[derive(Debug)]
pub struct Feed {
    inside: Mutex<Inside>,
    news: watch::Sender<u64>,
}

impl Default for Feed {
    fn default() -> Self {
        Feed { inside: Mutex::default(), news: watch::channel(0).0 }
    }
}

impl Feed {
    /// A feed for names with these settings.
    pub fn new(settings: &Settings) -> Self {
        let feed = Feed::default();
        feed.commit([(SETTINGS.to_owned(), Some(text(settings)))]);
        feed
    }

    /// Whether names outside can be asked for.
    pub fn reach_outside(&self, reaches: bool) {
        self.commit([(OUTSIDE.to_owned(), reaches.then(Vec::new))]);
    }

    /// Takes in facts, all at once.
    pub fn learn(&self, facts: impl IntoIterator<Item = Fact>) {
        self.commit(facts.into_iter().map(|fact| {
            let thing = (!fact.is_gone()).then(|| text(&fact));
            (fact.about(), thing)
        }));
    }

    /// Takes in changes, all at once: things by their names, none where a thing is gone.
    pub(crate) fn commit(&self, changes: impl IntoIterator<Item = (String, Option<Vec<u8>>)>) {
        let mut inside = lock(&self.inside);
        inside.commit += 1;
        for (name, thing) in changes {
            inside.put(name, thing);
        }
        inside.forget_gone();
        self.news.send_replace(inside.commit);
    }

    /// What a follower that heard everything up to a commit has to hear, and the commit that it
    /// then has heard. One that heard nothing begins with 0.
    pub(crate) fn since(&self, heard: u64) -> (Vec<Word>, u64) {
        let inside = lock(&self.inside);
        let (anew, from) = match heard < inside.floor {
            true => (Some(Word::Anew), 0),
            false => (None, heard),
        };
        let changed = inside.order.range((from + 1, String::new())..).map(|(_, name)| name);
        let words = changed.filter_map(|name| {
            let (_, thing) = inside.things.get(name)?;
            Some(match thing {
                Some(thing) => Word::Put(name.clone(), thing.clone()),
                None => Word::Gone(name.clone()),
            })
        });
        (anew.into_iter().chain(words).chain([Word::Whole]).collect(), inside.commit)
    }

    /// The number of the newest commit, as it grows.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }
}

/// These values are of strings, numbers and lists alone, which can always be written.
fn text(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

impl Inside {
    fn put(&mut self, name: String, thing: Option<Vec<u8>>) {
        let former = self.things.get(&name);
        if former.is_some_and(|(_, former)| *former == thing) || former.is_none() && thing.is_none()
        {
            return;
        }
        self.gone += usize::from(thing.is_none());
        self.order.insert((self.commit, name.clone()));
        if let Some((commit, former)) = self.things.insert(name.clone(), (self.commit, thing)) {
            self.gone -= usize::from(former.is_none());
            if commit != self.commit {
                self.order.remove(&(commit, name));
            }
        }
    }

    fn forget_gone(&mut self) {
        if self.gone <= MOST_GONE.max(self.things.len() / 2) {
            return;
        }
        let gone = self.things.extract_if(.., |_, (_, thing)| thing.is_none());
        for (name, (commit, _)) in gone {
            self.order.remove(&(commit, name));
        }
        self.gone = 0;
        self.floor = self.commit;
    }
}

impl Word {
    /// As it goes over a connection: its length, what it is, and what it says.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let (tag, name, thing): (u8, &str, &[u8]) = match self {
            Word::Anew => (0, "", &[]),
            Word::Put(name, thing) => (1, name, thing),
            Word::Gone(name) => (2, name, &[]),
            Word::Whole => (3, "", &[]),
        };
        out.extend(((3 + name.len() + thing.len()) as u32).to_be_bytes());
        out.push(tag);
        out.extend((name.len() as u16).to_be_bytes());
        out.extend(name.as_bytes());
        out.extend(thing);
    }

    /// Reads what came after the length.
    pub(crate) fn read(bytes: &[u8]) -> Option<Word> {
        let (head, rest) = bytes.split_first_chunk::<3>()?;
        let name_len = u16::from_be_bytes([head[1], head[2]]);
        let (name, thing) = rest.split_at_checked(name_len.into())?;
        let name = std::str::from_utf8(name).ok()?.to_owned();
        match head[0] {
            0 => Some(Word::Anew),
            1 => Some(Word::Put(name, thing.to_vec())),
            2 => Some(Word::Gone(name)),
            3 => Some(Word::Whole),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(name: &str, thing: &str) -> (String, Option<Vec<u8>>) {
        (name.into(), Some(thing.into()))
    }

    fn heard(words: &[Word]) -> Vec<String> {
        let text = |word: &Word| match word {
            Word::Anew => "anew".into(),
            Word::Put(name, thing) => format!("{name}={}", String::from_utf8_lossy(thing)),
            Word::Gone(name) => format!("-{name}"),
            Word::Whole => "whole".into(),
        };
        words.iter().map(text).collect()
    }

    #[test]
    fn a_follower_hears_all_that_is_so_and_then_what_changes() {
        let feed = Feed::default();
        feed.commit([put("a", "1"), put("b", "1")]);
        feed.commit([put("a", "2"), ("c".into(), None)]);
        let (words, commit) = feed.since(0);
        assert_eq!(heard(&words), ["b=1", "a=2", "whole"]);
        feed.commit([("b".into(), None), put("a", "2")]);
        let (words, next) = feed.since(commit);
        assert_eq!(heard(&words), ["-b", "whole"], "what is as it was is no news");
        assert_eq!(heard(&feed.since(next).0), ["whole"]);
    }

    #[test]
    fn a_thing_that_comes_and_goes_in_one_commit_leaves_the_last_word() {
        let feed = Feed::default();
        feed.commit([put("a", "1"), ("a".into(), None), put("a", "3")]);
        assert_eq!(heard(&feed.since(0).0), ["a=3", "whole"]);
        feed.commit([put("a", "4"), ("a".into(), None)]);
        assert_eq!(heard(&feed.since(1).0), ["-a", "whole"]);
    }

    #[test]
    fn what_is_gone_is_forgotten_in_time_and_who_missed_it_begins_anew() {
        let feed = Feed::default();
        feed.commit([put("stays", "1")]);
        for n in 0..2 * MOST_GONE {
            feed.commit([put(&format!("n{n}"), "1")]);
            feed.commit([(format!("n{n}"), None)]);
        }
        let kept = lock(&feed.inside).things.len();
        assert!(kept <= MOST_GONE + 2, "{kept} are kept");
        let (words, commit) = feed.since(1);
        assert_eq!(heard(&words)[..2], ["anew", "stays=1"]);
        assert_eq!(heard(&feed.since(commit).0), ["whole"]);
    }

    #[test]
    fn words_are_read_as_they_were_written_and_others_are_none() {
        let put = Word::Put("service shop/web".into(), b"{}".to_vec());
        for word in [Word::Anew, put, Word::Gone("home a/b".into()), Word::Whole] {
            let mut bytes = vec![];
            word.write(&mut bytes);
            assert_eq!(bytes[..4], ((bytes.len() - 4) as u32).to_be_bytes());
            assert_eq!(Word::read(&bytes[4..]), Some(word));
        }
        for bad in [&[][..], &[1, 0], &[1, 0, 9, b'a'], &[9, 0, 0], &[1, 0, 1, 0xff]] {
            assert_eq!(Word::read(bad), None, "{bad:?}");
        }
    }
}
