//! Two users of one store, in any history: what is given is given once, nothing is forgotten, every
//! count is true, and whoever hears all of it, in whatever order, knows the same.

use std::net::IpAddr;

use atoll_vpc::{Holder, Moment, Refused};
use proptest::prelude::*;
use proptest::sample::select;

use crate::stage::{REST, START, ip};
use crate::store::{By, Store, Thing};
use crate::user::{FLAT, NETWORKS, PORTS, User, VPCS};

/// What can happen. The first number says to which user.
#[derive(Clone, Debug)]
enum Step {
    Hear(usize, usize),
    Number(usize, &'static str),
    Block(usize, &'static str),
    Grant(usize, Holder<&'static str, u8>, &'static str, Option<IpAddr>),
    Drop(usize, &'static str),
    End(Holder<&'static str, u8>),
    GiveUpBlocks(&'static str),
    GiveUpNumber(&'static str),
    Carve(bool),
    Wait(u64),
}

fn holder() -> impl Strategy<Value = Holder<&'static str, u8>> {
    (select(&PORTS), 0..2_u8).prop_map(|(name, incarnation)| Holder { name, incarnation })
}

fn step() -> impl Strategy<Value = Step> {
    let user = 0..2_usize;
    let networks: Vec<&str> = NETWORKS.map(|(name, _, _)| name).into_iter().chain(FLAT).collect();
    let wishes = ["10.0.0.2", "10.0.0.9", "10.0.0.20", "fd00::3"].map(ip);
    let wish = prop::option::weighted(0.3, select(wishes.to_vec()));
    prop_oneof![
        4 => (user.clone(), 1..9_usize).prop_map(|(user, most)| Step::Hear(user, most)),
        4 => (user.clone(), select(&VPCS)).prop_map(|(user, vpc)| Step::Number(user, vpc)),
        2 => (user.clone(), select(&FLAT)).prop_map(|(user, it)| Step::Block(user, it)),
        8 => (user.clone(), holder(), select(networks), wish)
            .prop_map(|(user, holder, network, wish)| Step::Grant(user, holder, network, wish)),
        1 => (user, select(&PORTS)).prop_map(|(user, port)| Step::Drop(user, port)),
        2 => holder().prop_map(Step::End),
        1 => select(&FLAT).prop_map(Step::GiveUpBlocks),
        1 => select(&VPCS).prop_map(Step::GiveUpNumber),
        1 => any::<bool>().prop_map(Step::Carve),
        1 => (0..40_u64).prop_map(Step::Wait),
    ]
}

/// Two users, what they wrote, and the time.
struct History {
    store: Store,
    users: [User; 2],
    now: Moment,
}

impl History {
    fn new() -> Self {
        History { store: Store::default(), users: [User::new(), User::new()], now: START }
    }

    fn go(&mut self, step: Step) {
        let (store, now) = (&mut self.store, self.now);
        match step {
            Step::Hear(user, most) => self.users[user].hear(store, most, now),
            Step::Number(user, vpc) => self.users[user].number(vpc, store, now),
            Step::Block(user, network) => self.users[user].block(network, store, now),
            Step::Grant(user, holder, network, wish) => {
                let wishes: Vec<IpAddr> = wish.into_iter().collect();
                self.users[user].grant(&holder, network, &wishes, store, now);
            }
            Step::Drop(user, port) => self.users[user].books.drop_proposals(&port, now),
            Step::End(port) => store.release(|_, by| *by == By::Port(port.clone())),
            Step::GiveUpBlocks(network) => {
                store.release(|_, by| matches!(by, By::Network(it) if it.name == network));
            }
            Step::GiveUpNumber(vpc) => self.give_up_number(vpc),
            Step::Carve(carved) => store.carve(carved),
            Step::Wait(seconds) => self.now += Moment::from_secs(seconds),
        }
        self.users.iter_mut().for_each(User::check_counts);
    }

    /// The last network of a VPC gives its number back, once everybody knows that no address of it
    /// is held.
    fn give_up_number(&mut self, vpc: &'static str) {
        self.hear_all();
        let Some(By::Id(id)) = self.store.claims.get(&Thing::Right(vpc)).cloned() else { return };
        let is_of = |it: &Thing| matches!(it, Thing::Address(address) if address.network == id);
        if !self.store.claims.keys().any(is_of) {
            self.store.release(|thing, _| *thing == Thing::Right(vpc));
            self.store.release(|thing, by| *thing == Thing::Id(id) && *by == By::Vpc(vpc));
            self.hear_all();
        }
    }

    fn hear_all(&mut self) {
        for user in &mut self.users {
            user.hear(&self.store, usize::MAX, self.now);
            VPCS.iter().for_each(|vpc| user.books.numbers.drop_proposal(vpc, self.now));
            PORTS.iter().for_each(|port| user.books.drop_proposals(port, self.now));
        }
    }

    /// Everything is given back.
    fn end(&mut self) {
        self.hear_all();
        self.store.release(|_, _| true);
        self.hear_all();
        self.now += REST + REST;
        for user in &mut self.users {
            for name in FLAT {
                user.books.shares.drop_proposal(&Holder { name, incarnation: 0 }, self.now);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whoever_heard_everything_knows_the_same_in_whatever_order(
        steps in prop::collection::vec(step(), 0..80),
        order in any::<prop::sample::Index>(),
    ) {
        let mut history = History::new();
        steps.into_iter().for_each(|step| history.go(step));
        history.hear_all();
        let mut news = history.store.state();
        let place = order.index(news.len());
        news.rotate_left(place);
        let mut fresh = User::new();
        fresh.learn(news.iter().rev().cloned().collect());
        fresh.learn(news);
        fresh.check_counts();
        let told = fresh.tell();
        for user in &mut history.users {
            user.check_counts();
            prop_assert_eq!(&user.tell(), &told);
        }
    }

    #[test]
    fn what_was_given_back_can_be_given_to_the_last_address(
        steps in prop::collection::vec(step(), 0..80)
    ) {
        let mut history = History::new();
        steps.into_iter().for_each(|step| history.go(step));
        history.end();
        let History { store, users: [user, _], now } = &mut history;
        for vpc in ["red", "open"] {
            user.number(vpc, store, *now);
        }
        user.hear(store, usize::MAX, *now);
        let given = PORTS.map(|name| {
            let holder = Holder { name, incarnation: 9 };
            user.grant(&holder, "db", &[], store, *now).unwrap()
        });
        prop_assert_eq!(given.iter().filter(|answer| answer.is_ok()).count(), 5);
        prop_assert!(matches!(given.last(), Some(Err(Refused::Exhausted(_)))));
        for network in FLAT {
            user.block(network, store, *now);
        }
        let blocks = store.claims.keys().filter(|thing| matches!(thing, Thing::Block(_)));
        prop_assert_eq!(blocks.count(), 2);
    }
}

#[test]
fn of_two_who_race_for_an_address_one_has_it_and_the_other_gets_another() {
    let mut history = History::new();
    history.go(Step::Number(0, "blue"));
    history.hear_all();
    let port = |name| Holder { name, incarnation: 0 };
    for (user, name) in ["a", "b"].into_iter().enumerate() {
        history.go(Step::Grant(user, port(name), "shop", None));
    }
    let held = |history: &History| {
        let claims = history.store.claims.iter();
        claims.filter(|(thing, _)| matches!(thing, Thing::Address(_))).count()
    };
    assert_eq!(held(&history), 1, "both were proposed the same");
    history.hear_all();
    history.go(Step::Grant(1, port("b"), "shop", None));
    assert_eq!(held(&history), 2);
}
