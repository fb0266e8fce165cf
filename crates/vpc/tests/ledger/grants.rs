//! Who gets which address, and why somebody gets none.

use atoll_types::NetworkId;
use atoll_vpc::{Ask, Count, Exhausted, Holder, Layout, Moment, Refused, Stage, Subnet};

use crate::stage::{RED, START, address, any, ask, cidr, give, ip, network, port, web};

#[test]
fn a_port_gets_one_address_of_each_family_in_the_order_of_its_networks_ranges() {
    let mut books = web(&["fd00::/64", "10.0.0.0/24"]);
    assert_eq!(any(&mut books, "a"), ["fd00::2", "10.0.0.2"]);
    let subnet = ask(&mut books, port("a", 1), &[]).unwrap().subnet;
    assert_eq!(subnet, "web fd00::/64");
}

#[test]
fn who_asks_again_gets_the_same_and_another_gets_another() {
    let mut books = web(&["10.0.0.0/24"]);
    assert_eq!(any(&mut books, "a"), ["10.0.0.2"]);
    assert_eq!(any(&mut books, "b"), ["10.0.0.3"]);
    assert_eq!(any(&mut books, "a"), ["10.0.0.2"]);
    books.claim_address(address("10.0.0.2"), Some(port("a", 1)));
    assert_eq!(any(&mut books, "a"), ["10.0.0.2"]);
}

#[test]
fn what_an_earlier_incarnation_holds_is_not_the_next_ones() {
    let mut books = web(&["10.0.0.0/24"]);
    books.claim_address(address("10.0.0.2"), Some(port("a", 0)));
    assert_eq!(any(&mut books, "a"), ["10.0.0.3"]);
    assert_eq!(books.holdings().held_by(&"a").collect::<Vec<_>>(), [address("10.0.0.2")]);
    let refused = ask(&mut books, port("a", 1), &["10.0.0.2"]);
    assert_eq!(refused, Err(Refused::InUse(ip("10.0.0.2"))));
}

#[test]
fn whoever_was_not_first_is_granted_another() {
    let mut books = web(&["10.0.0.0/24"]);
    assert_eq!(any(&mut books, "a"), ["10.0.0.2"]);
    books.claim_address(address("10.0.0.2"), Some(port("b", 1)));
    assert_eq!(any(&mut books, "a"), ["10.0.0.3"]);
    books.release_address(address("10.0.0.2"), Some(port("b", 1)), Moment::from_secs(30));
    assert_eq!(any(&mut books, "b"), ["10.0.0.4"], "the first one rests");
}

#[test]
fn each_refusal_has_its_name() {
    let mut books = web(&["10.0.0.0/29"]);
    let outside = |text| {
        let ranges = vec![cidr("10.0.0.0/29")];
        Err(Refused::Outside { ip: ip(text), ranges })
    };
    for text in ["10.0.0.9", "fd00::5"] {
        assert_eq!(ask(&mut books, port("a", 1), &[text]), outside(text));
    }
    let reserved = Refused::Reserved { ip: ip("10.0.0.1"), subnet: "web 10.0.0.0/29".into() };
    assert_eq!(ask(&mut books, port("a", 1), &["10.0.0.1"]), Err(reserved));
    assert!(ask(&mut books, port("a", 1), &["10.0.0.6"]).is_ok());
    assert_eq!(ask(&mut books, port("b", 1), &["10.0.0.6"]), Err(Refused::InUse(ip("10.0.0.6"))));
    assert_eq!(books.holdings().on_the_way_to(address("10.0.0.6")), Some(&"a"));
    for name in ["b", "c", "d", "e"] {
        any(&mut books, name);
    }
    let full = Exhausted::Full(cidr("10.0.0.0/29"));
    assert_eq!(ask(&mut books, port("f", 1), &[]), Err(Refused::Exhausted(Some(full))));
}

#[test]
fn a_subnet_that_is_coming_is_waited_for_and_one_that_is_closed_is_not() {
    let mut books = web(&["10.0.0.0/24", "fd00::/64"]);
    give(&mut books, "fd00::/64", Stage::Coming);
    assert_eq!(ask(&mut books, port("a", 1), &[]), Err(Refused::NoSubnet));
    give(&mut books, "fd00::/64", Stage::Closed);
    assert_eq!(any(&mut books, "a"), ["10.0.0.2"]);
    give(&mut books, "10.0.0.0/24", Stage::Closed);
    assert_eq!(ask(&mut books, port("a", 1), &[]), Err(Refused::NoSubnet));
}

#[test]
fn a_port_may_choose_a_subnet_and_the_narrowest_one_has_an_address() {
    let mut books = web(&["10.0.0.0/24", "fd00::/64"]);
    let layout = Layout::whole(cidr("10.0.0.8/29")).into();
    let carved = Subnet { network: "web", layout, own: false, stage: Stage::Giving, age: 1 };
    books.put_subnet(&"carved".into(), Some(carved));
    let mut choose = |name: &'static str, subnets: &[String]| {
        let ask = Ask { holder: port(name, 1), network: &"web", vpc: RED, subnets, ips: &[] };
        books.grant(&ask, START)
    };
    let granted = choose("a", &["carved".into(), "web carved".into()]).unwrap();
    assert_eq!((granted.subnet.as_str(), granted.ips[0]), ("carved", ip("10.0.0.10")));
    assert_eq!(granted.ips.len(), 2, "it has nothing to say of the other family");
    assert_eq!(choose("b", &["unknown".into()]), Err(Refused::NoSubnet));
    let exact = ask(&mut books, port("c", 1), &["10.0.0.12"]).unwrap();
    assert_eq!(exact.subnet, "carved");
}

#[test]
fn what_is_given_back_or_dropped_is_counted_as_free() {
    let mut books = web(&["10.0.0.0/29"]);
    let subnet = "web 10.0.0.0/29".to_owned();
    assert_eq!(any(&mut books, "a"), ["10.0.0.2"]);
    assert_eq!(any(&mut books, "b"), ["10.0.0.3"]);
    assert_eq!(books.count(&subnet, RED), Some(Count { used: 2, free: 3 }));
    books.claim_address(address("10.0.0.2"), Some(port("a", 1)));
    books.drop_proposals(&"a", START);
    books.drop_proposals(&"b", START);
    assert_eq!(books.count(&subnet, RED), Some(Count { used: 1, free: 4 }));
    books.release_address(address("10.0.0.2"), Some(port("a", 1)), Moment::from_secs(30));
    assert_eq!(books.count(&subnet, RED), Some(Count { used: 0, free: 5 }));
    assert_eq!(books.holdings().count(RED), 0);
}

#[test]
fn two_vpcs_may_use_the_same_addresses_and_never_meet() {
    let mut books = web(&["10.0.0.0/24"]);
    books.networks.put("db", network("blue", &["10.0.0.0/24"], 0));
    let layout = Layout::whole(cidr("10.0.0.0/24")).into();
    let own = Subnet { network: "db", layout, own: true, stage: Stage::Giving, age: 0 };
    books.put_subnet(&"db 10.0.0.0/24".into(), Some(own));
    assert_eq!(any(&mut books, "a"), ["10.0.0.2"]);
    let holder = Holder { name: "b", incarnation: 1 };
    let ask = Ask { holder, network: &"db", vpc: NetworkId::MAX, subnets: &[], ips: &[] };
    assert_eq!(books.grant(&ask, START).unwrap().ips, [ip("10.0.0.2")]);
}
