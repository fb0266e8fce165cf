//! Those who want to hear what happens to packets. The kernel tells for as long as there is one of
//! them, and nobody else waits for a listener: who is too slow misses some, and is told how many.

use atoll_cni::EventFilter;
use atoll_cni::wire::Word;
use atoll_datapath::Event;
use tokio::sync::mpsc::{Receiver, Sender};

use super::Reconciler;
use super::requests::failed;
use crate::directory::Directory;
use crate::kernel::Kernel;
use crate::policy::Policies;

/// Word of those who listen.
#[derive(Debug)]
pub(crate) enum Audience {
    /// One more.
    Joins(Listener),
    /// One has closed its channel.
    Left,
}

/// One who listens.
#[derive(Debug)]
pub(crate) struct Listener {
    filter: EventFilter,
    words: Sender<Word>,
    missed: u64,
}

/// All who listen, and what they listen to.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    all: Vec<Listener>,
    events: Option<Receiver<Vec<Event>>>,
    /// Who is who, as long as that is known to be so.
    directory: Option<Directory>,
}

impl Listener {
    /// One who wants to hear of what `filter` lets through.
    pub(crate) fn new(filter: EventFilter, words: Sender<Word>) -> Self {
        Listener { filter, words, missed: 0 }
    }

    /// Tells one word, and before it how many were missed, as far as there is room.
    fn tell(&mut self, word: Word) {
        if self.missed > 0 && self.words.try_send(Word::Missed(self.missed)).is_ok() {
            self.missed = 0;
        }
        if self.missed > 0 || self.words.try_send(word).is_err() {
            self.missed += 1;
        }
    }
}

impl Listeners {
    /// The next events; never, while nobody listens.
    pub(super) async fn next(&mut self) -> Option<Vec<Event>> {
        match &mut self.events {
            Some(events) => events.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Names are looked up anew with the next event.
    pub(super) fn forget_names(&mut self) {
        self.directory = None;
    }

    /// With the last listener goes the receiver of events, and so the kernel falls silent.
    fn leave(&mut self) {
        self.all.retain(|listener| !listener.words.is_closed());
        if self.all.is_empty() {
            *self = Listeners::default();
        }
    }
}

impl<K: Kernel, F> Reconciler<K, F> {
    pub(super) fn on_audience(&mut self, who: Audience) {
        match who {
            Audience::Joins(listener) => self.join(listener),
            Audience::Left => self.listeners.leave(),
        }
    }

    fn join(&mut self, mut listener: Listener) {
        if self.listeners.events.is_none() {
            match self.kernel.events() {
                Ok(events) => self.listeners.events = Some(events),
                Err(error) => return listener.tell(Word::Failed(failed("listen", &error))),
            }
        }
        listener.tell(Word::Listening);
        self.listeners.all.push(listener);
    }

    /// Tells each listener what it wants to hear of.
    pub(super) fn tell(&mut self, events: &[Event]) {
        if self.listeners.directory.is_none() {
            let interfaces = self.kernel.askers().unwrap_or_else(|error| {
                tracing::warn!(error = format!("{error:#}"), "events have no senders");
                Default::default()
            });
            let directory = Directory::of(&self.seen, &self.occupants, &interfaces);
            self.listeners.directory = Some(directory);
        }
        let Listeners { all, directory, .. } = &mut self.listeners;
        let Some(directory) = directory else { return };
        for event in events {
            let mut report = directory.report(event);
            report.rules = rules(&self.kernel, self.attendants.policies.as_ref(), event);
            for listener in all.iter_mut().filter(|listener| listener.filter.wants(&report)) {
                listener.tell(Word::Happened(Box::new(report.clone())));
            }
        }
    }
}

/// The rules that decided about the event's connection, in words. One of tables that were exchanged
/// meanwhile has no name any more.
fn rules(kernel: &impl Kernel, policies: Option<&Policies>, event: &Event) -> Vec<String> {
    let numbers = [event.egress_rule, event.ingress_rule].into_iter().filter(|it| *it != 0);
    let known = numbers.filter_map(|number| kernel.policy_rule(number).ok()?);
    known.filter_map(|number| policies?.rule(number)).collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::SystemTime;

    use atoll_cni::{EventKind, EventReport};
    use atoll_datapath::{DropReason, Happening};
    use atoll_types::PodRef;
    use tokio::sync::mpsc::channel;

    use super::super::tests::{Agent, add, network, port};
    use super::*;

    /// A drop on the interface that the kernel knows by this number.
    fn drop(ifindex: u32, source: &str, destination: &str) -> Event {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        Event {
            at: SystemTime::UNIX_EPOCH,
            network: Some(network(1)),
            ifindex,
            source: end(source),
            destination: end(destination),
            protocol: 17,
            what: Happening::Dropped(DropReason::SpoofedAddress),
            egress_rule: 0,
            ingress_rule: 0,
        }
    }

    /// An agent with the pod web here, which has interface 1, and db on another node.
    async fn agent() -> Agent {
        let agent = Agent::start();
        agent.see(&[port("web", 5, "node1"), port("db", 6, "node2")]).await;
        agent.ask(add("web")).await;
        agent
    }

    async fn listen(agent: &Agent, filter: EventFilter, room: usize) -> Receiver<Word> {
        let (words, mut told) = channel(room);
        agent.audience.send(Audience::Joins(Listener::new(filter, words))).await.unwrap();
        assert_eq!(told.recv().await, Some(Word::Listening));
        told
    }

    async fn happen(agent: &Agent, events: Vec<Event>) {
        let sender = agent.kernel.0.lock().unwrap().events.clone();
        sender.expect("somebody listens").send(events).await.unwrap();
    }

    async fn report(told: &mut Receiver<Word>) -> EventReport {
        match told.recv().await {
            Some(Word::Happened(report)) => *report,
            other => panic!("an event, not {other:?}"),
        }
    }

    #[tokio::test]
    async fn the_interface_says_who_sent_and_addresses_have_the_names_of_their_pods() {
        let agent = agent().await;
        let mut told = listen(&agent, EventFilter::default(), 8).await;
        happen(&agent, vec![drop(1, "10.0.0.6:1", "10.0.0.77:2")]).await;
        let told = report(&mut told).await;
        assert_eq!(told.kind, EventKind::Dropped);
        assert_eq!(told.network.as_deref(), Some("acme.default"));
        assert_eq!(told.reason.as_deref(), Some("spoofed-address"));
        assert_eq!(told.sender, Some(PodRef::new("acme", "web")), "who lied");
        assert_eq!(told.source.unwrap().pod, Some(PodRef::new("acme", "db")), "about whom");
        assert_eq!(told.destination.unwrap().pod, None);
        assert_eq!(told.time, "1970-01-01T00:00:00.000000Z");
    }

    #[tokio::test]
    async fn a_listener_hears_what_its_filter_lets_through() {
        let agent = agent().await;
        let pod = Some(PodRef::new("acme", "db"));
        let mut told = listen(&agent, EventFilter { pod, ..EventFilter::default() }, 8).await;
        let [other, own] = ["10.0.0.77:2", "10.0.0.6:2"].map(|to| drop(1, "10.0.0.5:1", to));
        happen(&agent, vec![other, own]).await;
        assert_eq!(report(&mut told).await.destination.unwrap().address, own.destination.ip());
    }

    #[tokio::test]
    async fn pods_that_come_while_somebody_listens_have_names() {
        let agent = agent().await;
        let mut told = listen(&agent, EventFilter::default(), 8).await;
        happen(&agent, vec![drop(9, "10.0.0.7:1", "10.0.0.5:2")]).await;
        assert_eq!(report(&mut told).await.source.unwrap().pod, None);
        agent.see(&[port("web", 5, "node1"), port("new", 7, "node2")]).await;
        let mut pod = None;
        while pod.is_none() {
            happen(&agent, vec![drop(9, "10.0.0.7:1", "10.0.0.5:2")]).await;
            pod = report(&mut told).await.source.unwrap().pod;
        }
        assert_eq!(pod, Some(PodRef::new("acme", "new")));
    }

    #[tokio::test]
    async fn who_is_too_slow_is_told_how_much_was_missed_and_holds_nobody_up() {
        let agent = agent().await;
        let mut slow = listen(&agent, EventFilter::default(), 1).await;
        let mut quick = listen(&agent, EventFilter::default(), 8).await;
        let one = drop(1, "10.0.0.5:1", "10.0.0.77:2");
        happen(&agent, vec![one; 4]).await;
        for _ in 0..4 {
            report(&mut quick).await;
        }
        report(&mut slow).await;
        happen(&agent, vec![one]).await;
        assert_eq!(slow.recv().await, Some(Word::Missed(3)));
    }

    #[tokio::test]
    async fn with_the_last_listener_the_kernel_falls_silent() {
        let agent = agent().await;
        let told = [listen(&agent, EventFilter::default(), 8).await];
        let last = listen(&agent, EventFilter::default(), 8).await;
        let sender = agent.kernel.0.lock().unwrap().events.clone().unwrap();
        std::mem::drop(told);
        agent.audience.send(Audience::Left).await.unwrap();
        happen(&agent, vec![]).await;
        assert!(!sender.is_closed(), "one is left");
        std::mem::drop(last);
        agent.audience.send(Audience::Left).await.unwrap();
        sender.closed().await;
    }
}
