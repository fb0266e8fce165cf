//! What was claimed, written down where a name can exist once, and what is told of it.

use std::collections::BTreeMap;

use atoll_types::{Cidr, NetAddr, NetworkId};
use atoll_vpc::{Holder, Moment, Names, Stage, Subnet};

use crate::stage::{Books, REST, Short, subnet};

/// The name of a subnet that is carved out of one of `web`.
const CARVED: &str = "carved";

/// What can be claimed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thing {
    Id(NetworkId),
    Right(&'static str),
    Block(Cidr),
    Address(NetAddr),
}

/// Who claims it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum By {
    Vpc(&'static str),
    Id(NetworkId),
    Network(Holder<&'static str, u8>),
    Port(Holder<&'static str, u8>),
}

/// What is told of a claim.
#[derive(Clone, Debug)]
pub(crate) enum News {
    There(Thing, By),
    Gone(Thing, By),
    /// A subnet inside one of `web` comes, or goes.
    Carved(bool),
}

/// The claims that are there, and all that was ever told of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub(crate) claims: BTreeMap<Thing, By>,
    pub(crate) carved: bool,
    pub(crate) log: Vec<News>,
}

impl Store {
    /// Claims a thing, of which whoever is not first gets nothing; says whether it is the claimant's.
    pub(crate) fn claim(&mut self, thing: Thing, by: By) -> bool {
        if let Some(first) = self.claims.get(&thing) {
            return *first == by;
        }
        self.claims.insert(thing.clone(), by.clone());
        self.log.push(News::There(thing, by));
        true
    }

    /// Gives back everything that was claimed so.
    pub(crate) fn release(&mut self, which: impl Fn(&Thing, &By) -> bool) {
        let gone = self.claims.extract_if(.., |thing, by| which(thing, by));
        self.log.extend(gone.map(|(thing, by)| News::Gone(thing, by)));
    }

    /// Carves a subnet out of one of `web`, or gives it back.
    pub(crate) fn carve(&mut self, carved: bool) {
        self.carved = carved;
        self.log.push(News::Carved(carved));
    }

    /// What has to be told to somebody who heard nothing.
    pub(crate) fn state(&self) -> Vec<News> {
        let claims = self.claims.clone().into_iter();
        let there = claims.map(|(thing, by)| News::There(thing, by));
        there.chain([News::Carved(self.carved)]).collect()
    }
}

impl News {
    /// Writes the news into a ledger.
    pub(crate) fn tell(self, books: &mut Books, now: Moment) {
        match self {
            News::There(Thing::Id(id), by) => books.numbers.claim(id, by.vpc()),
            News::There(Thing::Right(vpc), By::Id(id)) => books.numbers.give_right(vpc, id),
            News::There(Thing::Block(block), by) => {
                let holder = by.holder();
                holder.iter().for_each(|it| give(books, it.name, block));
                books.shares.claim(block, holder);
            }
            News::There(Thing::Address(it), by) => books.claim_address(it, by.holder()),
            News::Gone(Thing::Id(id), _) => books.numbers.release(id, now + REST),
            News::Gone(Thing::Right(vpc), _) => books.numbers.take_right(&vpc),
            News::Gone(Thing::Block(block), by) => {
                let holder = by.holder().unwrap();
                books.remove_subnet(&Short::own_subnet(&holder.name, block));
                books.shares.release(block, now + REST);
            }
            News::Gone(Thing::Address(it), by) => {
                books.release_address(it, by.holder(), now + REST);
            }
            News::Carved(true) => {
                let carved = subnet("web", "10.0.0.8/30", Stage::Giving);
                let carved = Subnet { own: false, age: 1, ..carved };
                books.put_subnet(&CARVED.to_owned(), Some(carved));
            }
            News::Carved(false) => books.remove_subnet(&CARVED.to_owned()),
            News::There(Thing::Right(_), _) => {}
        }
    }
}

impl By {
    fn vpc(self) -> Option<&'static str> {
        match self {
            By::Vpc(vpc) => Some(vpc),
            By::Id(_) | By::Network(_) | By::Port(_) => None,
        }
    }

    fn holder(self) -> Option<Holder<&'static str, u8>> {
        match self {
            By::Network(holder) | By::Port(holder) => Some(holder),
            By::Vpc(_) | By::Id(_) => None,
        }
    }
}

/// Puts the subnet of a block into its place.
fn give(books: &mut Books, network: &'static str, block: Cidr) {
    let own = Short::own_subnet(&network, block);
    books.put_subnet(&own, Some(subnet(network, &block.to_string(), Stage::Giving)));
}
