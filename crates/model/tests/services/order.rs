//! The order of what is seen does not matter, nor what was seen in between.

use atoll_model::compile::{Followed, ServiceBook};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::stage::{News, by_hand, here, number_of, pods, tell, web};

/// Two that share a number, and two of one tenant.
const NETWORKS: [&str; 4] = ["acme.open", "globex.open", "acme.front", "acme.back"];
const NAMES: [&str; 3] = ["web", "web-0", "web-1"];

fn book() -> ServiceBook {
    let mut book = ServiceBook::new("node1");
    let followed = |network: &str| {
        let is_shared = network.ends_with(".open");
        (network.to_owned(), Followed { is_shared, ..here(number_of(network)) })
    };
    book.follow(&NETWORKS.map(followed).into());
    book
}

fn any_service() -> impl Strategy<Value = Value> {
    let external = json!({"externalIPs": ["10.96.0.9", "10.0.0.5"], "ports": [{"port": 80}]});
    let mut local = web();
    local["internalTrafficPolicy"] = json!("Local");
    local["annotations"] = json!({"atoll.dev/vip": "198.18.0.1"});
    prop::sample::select(vec![web(), external, local])
}

fn any_slice() -> impl Strategy<Value = Value> {
    let all = vec![pods(&["web-0"]), pods(&["web-0", "web-1"]), by_hand(&["10.0.0.5", "10.0.0.6"])];
    (prop::sample::select(all), prop::sample::select(&NAMES[..])).prop_map(
        |(mut slice, service)| {
            slice["service"] = json!(service);
            slice
        },
    )
}

fn any_news() -> impl Strategy<Value = News> {
    let named = || (prop::sample::select(&NETWORKS[..]), prop::sample::select(&NAMES[..]));
    let ip = prop::sample::select(&["10.0.0.5", "10.0.0.6", "10.96.0.9"][..]);
    let outside = || prop::sample::select(&["192.0.2.5", "10.0.0.5"][..]);
    let node = prop::option::of(prop::sample::select(&["node1", "node2"][..]));
    prop_oneof![
        (named(), node, ip).prop_map(|((net, name), node, ip)| News::Port(net, name, node, ip)),
        named().prop_map(|(net, name)| News::NoPort(net, name)),
        (named(), any_service()).prop_map(|((net, name), it)| News::Service(net, name, it)),
        named().prop_map(|(net, name)| News::NoService(net, name)),
        (named(), any_slice()).prop_map(|((net, name), it)| News::Slice(net, name, it)),
        named().prop_map(|(net, name)| News::NoSlice(net, name)),
        (named(), outside()).prop_map(|((net, name), ip)| News::Held(net, ip, name)),
        (named(), outside()).prop_map(|((net, _), ip)| News::NotHeld(net, ip)),
    ]
}

/// What the news are about: the last word on each thing is what counts.
fn about(news: &News) -> (u8, &'static str, &'static str) {
    match *news {
        News::Port(net, name, ..) | News::NoPort(net, name) => (0, net, name),
        News::Service(net, name, _) | News::NoService(net, name) => (1, net, name),
        News::Slice(net, name, _) | News::NoSlice(net, name) => (2, net, name),
        News::Held(net, ip, _) | News::NotHeld(net, ip) => (3, net, ip),
    }
}

proptest! {
    #[test]
    fn the_last_word_on_each_thing_in_any_order_leads_to_the_same(
        news in prop::collection::vec(any_news(), 0..40),
        seed in any::<u64>(),
    ) {
        let mut in_order = book();
        news.iter().for_each(|it| tell(&mut in_order, it));
        let is_last = |(at, it): &(usize, &News)| {
            !news[at + 1..].iter().any(|later| about(later) == about(it))
        };
        let mut last: Vec<&News> =
            news.iter().enumerate().filter(is_last).map(|(_, it)| it).collect();
        let len = last.len().max(1);
        last.rotate_left(usize::try_from(seed % len as u64).unwrap());
        if seed % 2 == 0 {
            last.reverse();
        }
        let mut afresh = book();
        last.iter().for_each(|it| tell(&mut afresh, it));
        prop_assert_eq!(in_order.served(), afresh.served());
    }
}
