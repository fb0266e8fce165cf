//! A user of a ledger: hears what was claimed, late, and claims what the ledger says it may.

use std::collections::BTreeSet;
use std::net::IpAddr;

use atoll_types::{Cidr, NetAddr, NetworkId};
use atoll_vpc::{
    Ask, Count, Holder, Moment, Names, Network, NextBlock, Number, Refusal, Space, Stage, Subnet,
};

use crate::stage::{Answer, Books, Short, cidr, network, subnet};
use crate::store::{By, News, Store, Thing};

pub(crate) const VPCS: [&str; 3] = ["blue", "open", "red"];
pub(crate) const PORTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
pub(crate) const FLAT: [&str; 2] = ["mesh", "pool"];

/// Networks with ranges of their own: `late` cannot have its, which `db` has.
pub(crate) const NETWORKS: [(&str, &str, &[&str]); 4] = [
    ("web", "red", &["10.0.0.0/28", "fd00::/125"]),
    ("db", "red", &["10.0.0.16/29"]),
    ("late", "red", &["10.0.0.16/28"]),
    ("shop", "blue", &["10.0.0.0/29"]),
];

/// One of those who write into a store.
pub(crate) struct User {
    pub(crate) books: Books,
    heard: usize,
}

impl User {
    /// Somebody who knows the networks, and of no claim.
    pub(crate) fn new() -> Self {
        let ranges = ["100.64.0.0/29", "100.64.0.8/29", "100.64.0.16/29"].map(cidr);
        let mut books = Books::sharing(&ranges);
        for (age, (name, vpc, ranges)) in NETWORKS.into_iter().enumerate() {
            books.networks.put(name, network(vpc, ranges, u8::try_from(age).unwrap()));
        }
        for name in FLAT {
            books
                .networks
                .put(name, Network { space: Space::Blocks(0), ..network("open", &[], 0) });
        }
        for (name, _, _) in NETWORKS {
            for range in books.sort_ranges(&name).accepted {
                let own = subnet(name, &range.to_string(), Stage::Giving);
                books.put_subnet(&Short::own_subnet(&name, range), Some(own));
            }
        }
        User { books, heard: 0 }
    }

    /// Hears the next few news, each twice.
    pub(crate) fn hear(&mut self, store: &Store, most: usize, now: Moment) {
        let news = store.log.iter().skip(self.heard).take(most);
        for news in news {
            self.heard += 1;
            news.clone().tell(&mut self.books, now);
            news.clone().tell(&mut self.books, now);
        }
    }

    /// Hears only what there is, in this order.
    pub(crate) fn learn(&mut self, news: Vec<News>) {
        news.into_iter().for_each(|news| news.tell(&mut self.books, Moment::ZERO));
    }

    /// Looks after the number of a VPC.
    pub(crate) fn number(&mut self, vpc: &'static str, store: &mut Store, now: Moment) {
        let strays = self.books.numbers.claimed_by(&vpc).copied();
        let strays: Vec<NetworkId> = strays.filter(|id| !self.books.needs_id(&vpc, *id)).collect();
        store.release(|thing, by| {
            *by == By::Vpc(vpc) && strays.iter().any(|id| *thing == Thing::Id(*id))
        });
        match self.books.number_of(&vpc, None, |_| false, now) {
            Number::Claimable(id) => {
                if store.claim(Thing::Id(id), By::Vpc(vpc)) {
                    store.claim(Thing::Right(vpc), By::Id(id));
                }
            }
            Number::Unfounded(id) => {
                store.release(|thing, by| *thing == Thing::Right(vpc) && *by == By::Id(id));
            }
            Number::Held(_) | Number::Stolen(_) | Number::NoneFree => {}
        }
    }

    /// Looks after the blocks of a flat network.
    pub(crate) fn block(&mut self, name: &'static str, store: &mut Store, now: Moment) {
        let Some(id) = self.books.numbers.right_of(&"open") else { return };
        if let NextBlock::Claimable(block) = self.books.next_block(&name, id, now) {
            let holder = Holder { name, incarnation: 0 };
            store.claim(Thing::Block(block), By::Network(holder));
        }
    }

    /// Asks for addresses of a port and claims them, if the VPC has a number.
    pub(crate) fn grant(
        &mut self,
        holder: &Holder<&'static str, u8>,
        network: &'static str,
        ips: &[IpAddr],
        store: &mut Store,
        now: Moment,
    ) -> Option<Answer> {
        let vpc = self.number_under(network)?;
        let ask = Ask { holder: holder.clone(), network: &network, vpc, subnets: &[], ips };
        let answer = self.books.grant(&ask, now);
        match &answer {
            Ok(granted) => granted.ips.iter().for_each(|ip| {
                let address = NetAddr::new(vpc, *ip);
                assert!(self.is_of(address, holder.name), "{address:?} is another's");
                store.claim(Thing::Address(address), By::Port(holder.clone()));
            }),
            Err(_) => self.books.drop_proposals(&holder.name, now),
        }
        Some(answer)
    }

    fn is_of(&self, address: NetAddr, port: &'static str) -> bool {
        let holdings = self.books.holdings();
        let on_the_way = holdings.on_the_way_to(address) == Some(&port);
        on_the_way || holdings.held_by(&port).any(|held| held == address)
    }

    fn number_under(&self, network: &'static str) -> Option<NetworkId> {
        let vpc = &self.books.networks.get(&network)?.vpc;
        self.books.numbers.right_of(vpc)
    }

    /// What every subnet counts is what can be counted.
    pub(crate) fn check_counts(&mut self) {
        for (name, subnet) in self.subnets() {
            let Some(vpc) = self.number_under(subnet.network) else { continue };
            let givable = self.givable(&name, &subnet);
            let taken = self.taken(vpc, subnet.cidr());
            let used = givable.iter().filter(|ip| taken.contains(ip)).count();
            let count = Count { used: used as u128, free: (givable.len() - used) as u128 };
            assert_eq!(self.books.count(&name, vpc), Some(count), "{name}");
        }
    }

    /// The addresses of a range that somebody holds, or that are on the way: none is both.
    fn taken(&self, vpc: NetworkId, range: Cidr) -> BTreeSet<IpAddr> {
        let holdings = self.books.holdings();
        let on_the_way = |ip: &IpAddr| holdings.on_the_way_to(NetAddr::new(vpc, *ip)).is_some();
        let held: BTreeSet<IpAddr> = holdings.held_in(vpc, range).collect();
        assert_eq!(held.iter().find(|ip| on_the_way(ip)), None);
        let all = (0..range.size()).filter_map(|place| range.nth(place));
        all.filter(|ip| held.contains(ip) || on_the_way(ip)).collect()
    }

    fn subnets(&self) -> Vec<(String, Subnet<Short>)> {
        let networks = NETWORKS.map(|(name, _, _)| name).into_iter().chain(FLAT);
        let names = networks.flat_map(|name| self.books.subnets().of_network(&name));
        names.map(|name| (name.clone(), self.books.subnets().get(name).unwrap().clone())).collect()
    }

    /// The addresses that a subnet may give.
    fn givable(&self, name: &str, subnet: &Subnet<Short>) -> Vec<IpAddr> {
        let own = subnet.cidr();
        let siblings = self.subnets().into_iter().filter(|(other, it)| {
            other != name && it.network == subnet.network && own.contains_cidr(&it.cidr())
        });
        let pool = subnet.layout.pool(siblings.map(|(_, it)| it.cidr()));
        let all = (0..own.size()).filter_map(|place| own.nth(place));
        all.filter(|ip| pool.check(*ip) != Err(Refusal::Reserved)).collect()
    }

    /// All that can be asked of a ledger when nothing is on the way.
    pub(crate) fn tell(&mut self) -> Vec<String> {
        let books = &mut self.books;
        let numbers = VPCS.map(|vpc| {
            let claimed: Vec<_> = books.numbers.claimed_by(&vpc).collect();
            format!("{vpc}: {:?} {claimed:?}", books.numbers.right_of(&vpc))
        });
        let networks = NETWORKS.map(|(name, _, _)| name).into_iter().chain(FLAT);
        let ranges: Vec<_> =
            networks.map(|name| format!("{name}: {:?}", books.sort_ranges(&name))).collect();
        let ports = PORTS.map(|port| {
            let held: BTreeSet<_> = books.holdings().held_by(&port).collect();
            format!("{port}: {held:?}")
        });
        let subnets = self.subnets().into_iter().map(|(name, subnet)| {
            let count =
                self.number_under(subnet.network).and_then(|id| self.books.count(&name, id));
            format!("{name}: {count:?}")
        });
        numbers.into_iter().chain(ranges).chain(ports).chain(subnets).collect()
    }
}
