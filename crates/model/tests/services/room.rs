//! Services on a node that has only so much room for them.

use std::collections::BTreeMap;

use atoll_model::compile::ServiceBook;
use atoll_plan::{Service, ServiceKey, ServiceRoom};
use proptest::prelude::*;
use serde_json::json;

use crate::stage::{News, complaints, here, leads, pods, tcp, tell, web};

const ACME: &str = "acme.default";
const GLOBEX: &str = "globex.default";
const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// A node with so much room, and two tenants.
fn book(services: usize) -> ServiceBook {
    let room = ServiceRoom { services, slots: services, backends: services, sources: services };
    let mut book = ServiceBook::new("node1").within(Some(room));
    book.follow(&[(ACME.to_owned(), here(1)), (GLOBEX.to_owned(), here(2))].into());
    book
}

fn settle(book: &mut ServiceBook, there: &BTreeMap<ServiceKey, Service>) {
    book.look(there);
    book.settle(|_| true, |key| there.contains_key(key));
}

/// Settles where the kernel has what it had, and then has what it is to have.
fn program(book: &mut ServiceBook, there: &mut BTreeMap<ServiceKey, Service>) {
    for _ in 0..2 {
        settle(book, there);
        there.clone_from(book.served());
    }
    book.look(there);
}

/// A service with an address of its own.
fn service(network: &'static str, number: usize) -> News {
    let mut spec = web();
    spec["clusterIPs"] = json!([format!("10.96.0.{}", number + 1)]);
    News::Service(network, NAMES[number], spec)
}

fn served(book: &ServiceBook, network: u32) -> Vec<usize> {
    let is_served = |number: &usize| {
        leads(book, &tcp(network, &format!("10.96.0.{}", number + 1), 80)).is_some()
    };
    (0..NAMES.len()).filter(is_served).collect()
}

#[test]
fn a_tenant_with_more_services_than_fit_leaves_another_tenants_to_be_served() {
    let (mut book, mut there) = (book(16), BTreeMap::new());
    (0..12).for_each(|number| tell(&mut book, &service(ACME, number)));
    program(&mut book, &mut there);
    assert_eq!(served(&book, 1), [0, 1, 2, 3, 4, 5, 6, 7], "half of what there is");
    (0..3).for_each(|number| tell(&mut book, &service(GLOBEX, number)));
    program(&mut book, &mut there);
    assert_eq!(served(&book, 2), [0, 1, 2]);
    assert_eq!(served(&book, 1).len(), 8, "who is in stays in");
    assert_eq!(book.held(), 4);
}

#[test]
fn who_has_no_room_is_told_once_and_comes_in_by_itself_when_there_is_some() {
    let (mut book, mut there) = (book(4), BTreeMap::new());
    (0..3).for_each(|number| tell(&mut book, &service(ACME, number)));
    program(&mut book, &mut there);
    assert_eq!(served(&book, 1), [0, 1]);
    let told = complaints(&mut book);
    assert!(told.len() == 1 && told[0].starts_with("c: its tenant has as many"), "{told:?}");
    let pod = News::Port(ACME, "web-0", Some("node1"), "10.0.0.5");
    tell(&mut book, &pod);
    let mut slice = pods(&["web-0"]);
    slice["service"] = json!("c");
    tell(&mut book, &News::Slice(ACME, "c-1", slice));
    program(&mut book, &mut there);
    assert_eq!(complaints(&mut book), [""; 0], "it is as it was");
    tell(&mut book, &News::NoService(ACME, "a"));
    program(&mut book, &mut there);
    assert_eq!(served(&book, 1), [1, 2]);
    assert_eq!((book.held(), leads(&book, &tcp(1, "10.96.0.3", 80)).unwrap().len()), (0, 1));
}

#[test]
fn what_goes_makes_room_only_once_the_kernel_has_forgotten_it() {
    let (mut book, mut there) = (book(4), BTreeMap::new());
    (0..3).for_each(|number| tell(&mut book, &service(ACME, number)));
    program(&mut book, &mut there);
    tell(&mut book, &News::NoService(ACME, "a"));
    settle(&mut book, &there);
    assert_eq!(served(&book, 1), [1]);
    book.gone(tcp(1, "10.96.0.1", 80));
    book.settle(|_| true, |_| false);
    assert_eq!(served(&book, 1), [1, 2]);
}

#[test]
fn after_a_restart_what_the_kernel_has_stays_though_others_have_grown_meanwhile() {
    let (mut first, mut there) = (book(16), BTreeMap::new());
    (4..12).for_each(|number| tell(&mut first, &service(ACME, number)));
    program(&mut first, &mut there);
    (0..4).for_each(|number| tell(&mut first, &service(GLOBEX, number)));
    (0..4).for_each(|number| tell(&mut first, &service(ACME, number)));
    program(&mut first, &mut there);
    let before = there.clone();
    let mut second = book(16);
    (0..12).for_each(|number| tell(&mut second, &service(ACME, number)));
    (0..4).for_each(|number| tell(&mut second, &service(GLOBEX, number)));
    program(&mut second, &mut there);
    assert_eq!(there, before);
    assert_eq!(served(&second, 1), [4, 5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn a_service_that_grows_beyond_its_room_leads_to_as_many_as_it_has_room_for() {
    const PODS: [&str; 20] = [
        "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "q0", "q1", "q2", "q3", "q4",
        "q5", "q6", "q7", "q8", "q9",
    ];
    const IPS: [&str; 20] = [
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
        "10.0.0.4",
        "10.0.0.5",
        "10.0.0.6",
        "10.0.0.7",
        "10.0.0.8",
        "10.0.0.9",
        "10.0.0.10",
        "10.0.0.11",
        "10.0.0.12",
        "10.0.0.13",
        "10.0.0.14",
        "10.0.0.15",
        "10.0.0.16",
        "10.0.0.17",
        "10.0.0.18",
        "10.0.0.19",
        "10.0.0.20",
    ];
    let (mut book, mut there) = (book(2), BTreeMap::new());
    for (pod, ip) in PODS.iter().zip(IPS) {
        tell(&mut book, &News::Port(ACME, pod, Some("node1"), ip));
    }
    let behind = |book: &mut ServiceBook, names: &[&str]| {
        let mut slice = pods(names);
        slice["service"] = json!("a");
        tell(book, &News::Slice(ACME, "a-1", slice));
    };
    tell(&mut book, &service(ACME, 0));
    behind(&mut book, &PODS[..1]);
    program(&mut book, &mut there);
    behind(&mut book, &PODS);
    program(&mut book, &mut there);
    let at = tcp(1, "10.96.0.1", 80);
    assert_eq!(leads(&book, &at).unwrap().len(), 16, "a page of them");
    assert_eq!(book.held(), 1);
    behind(&mut book, &PODS[10..]);
    program(&mut book, &mut there);
    assert_eq!((leads(&book, &at).unwrap().len(), book.held()), (10, 0));
}

proptest! {
    #[test]
    fn whatever_one_tenant_does_as_much_is_left_as_it_takes(
        news in prop::collection::vec((any::<bool>(), 0..12_usize, any::<bool>()), 0..60),
        whole in 1..20_usize,
    ) {
        let (mut book, mut there) = (book(whole), BTreeMap::new());
        for (is_acme, number, comes) in news {
            let network = if is_acme { ACME } else { GLOBEX };
            let gone = News::NoService(network, NAMES[number]);
            let before = (served(&book, 1).len(), served(&book, 2).len());
            tell(&mut book, &if comes { service(network, number) } else { gone });
            program(&mut book, &mut there);
            let (acme, globex) = (served(&book, 1).len(), served(&book, 2).len());
            let free = whole - acme - globex;
            prop_assert!(acme <= before.0 || acme <= free, "{acme} and {free} are free");
            prop_assert!(globex <= before.1 || globex <= free, "{globex} and {free} are free");
            prop_assert_eq!(book.held() == 0, acme + globex == wanted(&book));
        }
    }
}

fn wanted(book: &ServiceBook) -> usize {
    book.services_of(ACME).count() + book.services_of(GLOBEX).count()
}
