//! A resolver elsewhere follows a network, and knows its names whole or not at all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use atoll_dns::{Asker, Feed, Forwarding, PodId, Secondary, Server, TenantId};
use atoll_zones::{Backing, DomainName, Fact, Service, ServiceKey, Settings};

use crate::client::{Client, summary};
use crate::shop::{self, ACME, config, network};

/// The port of resolvers at an address that no other server has.
fn nowhere_else() -> SocketAddr {
    SocketAddr::new(shop::nowhere_else(), 5353)
}

fn settings() -> Settings {
    let zone = DomainName::parse("cluster.local").unwrap();
    Settings { zone, cidrs: vec![], resolver: vec![], ttl: 5 }
}

fn service(name: &str, last: u8) -> Fact {
    let key = ServiceKey { namespace: "shop".parse().unwrap(), name: name.parse().unwrap() };
    let backing = Backing::Vip { addresses: vec![[10, 1, 0, last].into()], ports: vec![] };
    Fact::Service(key.clone(), Some(Service { key, backing }))
}

fn gone(name: &str) -> Fact {
    Fact::gone(&format!("service shop/{name}")).unwrap()
}

/// A server at `listen` that takes everybody for a pod of the one network, and hands its feed on.
fn source(listen: SocketAddr, feed: &Arc<Feed>) -> Server {
    let asker = Asker { network: network(ACME), pod: PodId(1), tenant: TenantId(1) };
    let config = atoll_dns::Config { listen: vec![listen], ..config() };
    let server = Server::new(config, move |_| Some(asker)).unwrap();
    server.forward(network(ACME), Forwarding::default());
    server.feed(network(ACME), Some(feed.clone()));
    server
}

/// Runs a follower for as long as the process lives.
fn follow(source: SocketAddr) -> SocketAddr {
    let listen = nowhere_else();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Secondary::new(vec![listen], source).run())
    });
    listen
}

/// Asks until the answer is this one.
fn eventually(address: SocketAddr, name: &str, wanted: &str) {
    let start = Instant::now();
    let mut last = String::new();
    while start.elapsed() < Duration::from_secs(60) {
        let client = Client::new(address, 1, 9);
        last = client.try_ask(name, "A").map_or_else(String::new, |answer| summary(&answer));
        if last == wanted {
            return;
        }
    }
    panic!("{name} at {address}: {last:?} and never {wanted:?}");
}

fn name(service: &str) -> String {
    format!("{service}.shop.svc.cluster.local")
}

#[test]
fn a_follower_answers_what_its_source_knows_and_follows_each_change() {
    let feed = Arc::new(Feed::new(&settings()));
    feed.learn([service("web", 1), service("db", 2)]);
    let at = nowhere_else();
    let _source = source(at, &feed);
    let follower = follow(at);
    eventually(follower, &name("web"), "10.1.0.1");
    eventually(follower, &name("db"), "10.1.0.2");
    let outside = |answer: &str| eventually(follower, "example.com", answer);
    outside("REFUSED");
    feed.reach_outside(true);
    outside("SERVFAIL");
    feed.reach_outside(false);
    outside("REFUSED");
    feed.learn([service("web", 9), gone("db")]);
    eventually(follower, &name("web"), "10.1.0.9");
    let answer = Client::new(follower, 1, 9).ask(&name("db"), "A");
    assert!(summary(&answer).contains("NXDOMAIN"), "{}", summary(&answer));
}

#[test]
fn a_follower_goes_on_without_its_source_and_follows_the_next_one() {
    let feed = Arc::new(Feed::new(&settings()));
    feed.learn([service("web", 1)]);
    let at = nowhere_else();
    let first = source(at, &feed);
    let follower = follow(at);
    eventually(follower, &name("web"), "10.1.0.1");
    drop(first);
    assert_eq!(summary(&Client::new(follower, 1, 9).ask(&name("web"), "A")), "10.1.0.1");
    let other = Arc::new(Feed::new(&settings()));
    other.learn([service("shop", 3)]);
    let _second = source(at, &other);
    eventually(follower, &name("shop"), "10.1.0.3");
    let former = Client::new(follower, 1, 9).ask(&name("web"), "A");
    assert!(summary(&former).contains("NXDOMAIN"), "what the first knew does not count any more");
}

#[test]
fn where_there_is_no_feed_to_follow_the_question_for_it_is_refused() {
    let feed = Arc::new(Feed::new(&settings()));
    let at = nowhere_else();
    let server = source(at, &feed);
    server.feed(network(ACME), None);
    let follower = follow(at);
    let refused = || server.counts(network(ACME)).unwrap().refused(atoll_dns::Refused::NotOffered);
    while refused() < 2 {
        thread::yield_now();
    }
    let nobody = std::net::TcpStream::connect(follower);
    assert!(nobody.is_err(), "one that knows nothing does not listen");
}
