//! Which network has which range, and where subnets may lie.

use atoll_types::Cidr;
use atoll_vpc::{Layout, Misplaced, Names, NextBlock, Number, Overlap, Space, Stage, Subnet};

use crate::stage::{Books, RED, START, Short, cidr, network, subnet, web};

fn own(network: &'static str, range: &str) -> String {
    Short::own_subnet(&network, cidr(range))
}

fn accepted(books: &Books, network: &'static str) -> Vec<Cidr> {
    books.sort_ranges(&network).accepted
}

#[test]
fn a_range_is_the_older_networks_until_one_has_a_subnet_for_it() {
    let mut books = Books::default();
    books.networks.put("old", network("red", &["10.0.0.0/16"], 1));
    books.networks.put("new", network("red", &["10.0.1.0/24", "10.1.0.0/16"], 2));
    books.networks.put("else", network("blue", &["10.0.0.0/8"], 0));
    let sorted = books.sort_ranges(&"new");
    assert_eq!(sorted.accepted, [cidr("10.1.0.0/16")]);
    let (range, other_range) = (cidr("10.0.1.0/24"), cidr("10.0.0.0/16"));
    assert_eq!(sorted.conflicts, [Overlap { range, other_range, other: "old" }]);
    books.put_subnet(&own("new", "10.0.1.0/24"), None);
    assert_eq!(accepted(&books, "new").len(), 2, "whatever is known of that subnet");
    assert_eq!(accepted(&books, "old"), []);
    books.remove_subnet(&own("new", "10.0.1.0/24"));
    assert_eq!(accepted(&books, "old"), [cidr("10.0.0.0/16")]);
    assert_eq!(accepted(&books, "unknown"), []);
}

#[test]
fn a_network_lacks_a_subnet_for_each_range_of_its_own() {
    let mut books = web(&["10.0.0.0/24"]);
    books.networks.put("web", network("red", &["10.0.0.0/24", "10.0.1.0/24"], 0));
    let ranges = accepted(&books, "web");
    let missing = books.missing_subnets(&"web", &ranges);
    assert_eq!(missing, [(own("web", "10.0.1.0/24"), cidr("10.0.1.0/24"))]);
}

#[test]
fn a_subnet_that_cannot_be_where_it_is_hears_why() {
    let mut books = web(&["10.0.0.0/16"]);
    books.networks.put("late", network("red", &["10.0.9.0/24"], 9));
    let mut put = |name: &str, network, range: &str, age| {
        let layout = Layout::whole(cidr(range)).into();
        let made = Subnet { network, layout, own: false, stage: Stage::Giving, age };
        books.put_subnet(&name.to_owned(), Some(made));
    };
    put("far", "web", "10.1.0.0/24", 1);
    put("first", "web", "10.0.1.0/24", 1);
    put("second", "web", "10.0.1.0/24", 2);
    put("hidden", "late", "10.0.9.0/28", 1);
    let why = |name: &str| books.misplaced(&name.to_owned());
    assert_eq!(why("far"), Some(Misplaced::Outside(vec![cidr("10.0.0.0/16")])));
    assert_eq!(why("first"), None);
    assert_eq!(why("second"), Some(Misplaced::Twin("first".into())));
    assert_eq!(why("hidden"), Some(Misplaced::Unusable));
    assert_eq!(why("web 10.0.0.0/16"), None);
}

#[test]
fn a_flat_network_has_the_blocks_that_it_holds_and_one_more_when_they_are_full() {
    let mut books = Books::sharing(&[cidr("100.64.0.0/29"), cidr("100.65.0.0/29")]);
    let mut flat = network("open", &[], 0);
    flat.space = Space::Blocks(7);
    books.networks.put("mesh", flat);
    let first = cidr("100.64.0.0/29");
    assert_eq!(books.next_block(&"mesh", RED, START), NextBlock::Claimable(first));
    let mesh = atoll_vpc::Holder { name: "mesh", incarnation: 7 };
    books.shares.claim(first, Some(mesh.clone()));
    assert_eq!(accepted(&books, "mesh"), [first]);
    books.put_subnet(
        &own("mesh", "100.64.0.0/29"),
        Some(subnet("mesh", "100.64.0.0/29", Stage::Giving)),
    );
    assert_eq!(books.next_block(&"mesh", RED, START), NextBlock::Enough);
    for last in 2..=6 {
        let address = crate::stage::address(&format!("100.64.0.{last}"));
        books.claim_address(address, None);
    }
    assert_eq!(books.next_block(&"mesh", RED, START), NextBlock::Claimable(cidr("100.65.0.0/29")));
    assert_eq!(
        books.next_block(&"web", RED, START),
        NextBlock::Enough,
        "it has ranges, or nothing"
    );
}

#[test]
fn a_number_is_needed_by_a_vpc_that_has_the_right_to_it_or_networks() {
    let mut books = Books::default();
    assert!(!books.needs_id(&"red", RED));
    books.networks.put("web", network("red", &["10.0.0.0/16"], 0));
    assert!(books.needs_id(&"red", RED), "it will have the right");
    let number = books.number_of(&"red", None, |_| false, START);
    assert_eq!(number, Number::Claimable(RED));
    books.numbers.give_right("red", 2.try_into().unwrap());
    assert!(!books.needs_id(&"red", RED));
}
