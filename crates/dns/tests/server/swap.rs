//! A network's names change whole, at once, and only for that network.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use atoll_dns::Refused;
use atoll_zones::ZoneSet;

use crate::client::{Client, summary};
use crate::shop::{ACME, UMBRELLA, config, network, open, zones};

/// A service that only this version has, and a door that leads to it.
fn version(n: u32) -> ZoneSet {
    let service = |name: &str| {
        format!(
            "---\nkind: Service\napiVersion: v1\nmetadata: {{namespace: shop, name: {name}}}\n\
             spec: {{clusterIP: 10.1.0.{n}, clusterIPs: [10.1.0.{n}, \"fd00::{n}\"]}}\n"
        )
    };
    let door = format!(
        "---\nkind: Service\napiVersion: v1\nmetadata: {{namespace: shop, name: door}}\n\
         spec: {{type: ExternalName, externalName: only-{n}.shop.svc.cluster.local}}\n"
    );
    zones(ACME, &format!("{door}{}", service(&format!("only-{n}"))))
}

#[test]
fn an_answer_comes_from_one_set_of_names_while_they_are_swapped_under_load() {
    let (server, address) = open(crate::hostile::free());
    let sets: Vec<Arc<ZoneSet>> = [1, 2].map(|n| Arc::new(version(n))).into();
    server.swap(network(ACME), sets[0].clone());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                server.swap(network(ACME), sets[n % 2].clone());
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let client = Client::new(address, 1, 9);
        let ask = |_| summary(&client.ask("door.shop.svc.cluster.local", "A"));
        let mut answers: Vec<String> = (0..3_000).map(ask).collect();
        stop.store(true, Ordering::Relaxed);
        answers.sort();
        answers.dedup();
        let whole = |n| format!("10.1.0.{n}; only-{n}.shop.svc.cluster.local.");
        assert_eq!(answers, [whole(1), whole(2)], "both were seen, and nothing between");
    });
}

#[test]
fn a_change_is_answered_at_once_and_leaves_the_other_network_alone() {
    let (server, address) = open(config());
    let (acme, umbrella) = (Client::new(address, 1, 9), Client::new(address, 2, 9));
    for n in 1..50 {
        server.swap(network(ACME), Arc::new(version(n)));
        let own = acme.ask(&format!("only-{n}.shop.svc.cluster.local"), "A");
        assert_eq!(summary(&own), format!("10.1.0.{n}"));
        let last = acme.ask(&format!("only-{}.shop.svc.cluster.local", n - 1), "A");
        assert_eq!(summary(&last), "NXDOMAIN");
        let other = umbrella.ask("web.shop.svc.cluster.local", "A");
        assert_eq!(summary(&other), "198.18.1.10");
    }
}

#[test]
fn a_network_that_was_removed_is_answered_no_more_and_the_other_is() {
    let (server, address) = open(config());
    server.remove(network(ACME));
    let gone = Client::new(address, 1, 9).impatient();
    assert_eq!(gone.raw(&crate::client::question("web.shop.svc.cluster.local", 1, None)), None);
    let count = || server.strangers().refused(Refused::NoView);
    atoll_testkit::eventually("it was counted", || (count() == 1).then_some(()));
    let other = Client::new(address, 2, 9).ask("web.shop.svc.cluster.local", "A");
    assert_eq!(summary(&other), "198.18.1.10");
    assert!(server.counts(network(ACME)).is_none() && server.counts(network(UMBRELLA)).is_some());
}
