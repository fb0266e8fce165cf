//! Whom the networks of this node ask for names that are not theirs.
//!
//! Its rule: the agent asks as its node, so whom a network names itself is asked only where a pod
//! with egress could reach it, too: never a node, what nodes answer for, or what an administrator
//! denies; and nobody before that is known. Whom the administrator names is asked wherever it is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use atoll_dns::{Forwarding, NetworkKey};
use atoll_types::Cidr;

use crate::seen::{Outside, Upstreams};

/// Whom each network asks.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// Whom networks ask that name nobody themselves.
    of_node: Vec<SocketAddr>,
    /// What of the outside is closed to everybody, once it is known.
    closed: Option<BTreeSet<Cidr>>,
    /// What the networks say that name somebody, and whom they ask of those.
    named: BTreeMap<NetworkKey, (Outside, Forwarding)>,
}

impl Reach {
    pub(super) fn new(of_node: Vec<SocketAddr>) -> Self {
        Reach { of_node, ..Reach::default() }
    }

    /// Whom a network asks that says this.
    pub(super) fn of(&mut self, network: NetworkKey, outside: Outside) -> Forwarding {
        let forwarding = self.forwarding(&outside);
        self.log_closed(&outside);
        match &outside.upstreams {
            Upstreams::Own(_) => drop(self.named.insert(network, (outside, forwarding.clone()))),
            Upstreams::Nobody | Upstreams::OfNode => self.forget(network),
        }
        forwarding
    }

    pub(super) fn forget(&mut self, network: NetworkKey) {
        self.named.remove(&network);
    }

    /// Closes exactly this. Tells of the networks that ask others from now on.
    pub(super) fn close(&mut self, closed: BTreeSet<Cidr>) -> Vec<(NetworkKey, Forwarding)> {
        if self.closed.as_ref() == Some(&closed) {
            return vec![];
        }
        self.closed = Some(closed);
        let mut named = std::mem::take(&mut self.named);
        let mut changed = vec![];
        for (network, (outside, told)) in &mut named {
            let now = self.forwarding(outside);
            if *told != now {
                self.log_closed(outside);
                told.clone_from(&now);
                changed.push((*network, now));
            }
        }
        self.named = named;
        changed
    }

    fn forwarding(&self, outside: &Outside) -> Forwarding {
        let upstreams = match &outside.upstreams {
            Upstreams::Nobody => vec![],
            Upstreams::OfNode => self.of_node.clone(),
            Upstreams::Own(own) => own.iter().copied().filter(|it| self.is_open(*it)).collect(),
        };
        Forwarding { upstreams, refuse_private: outside.refuse_private }
    }

    fn is_open(&self, server: SocketAddr) -> bool {
        let ip = server.ip().to_canonical();
        self.closed.as_ref().is_some_and(|closed| !closed.iter().any(|range| range.contains(ip)))
    }

    fn log_closed(&self, outside: &Outside) {
        if let (Upstreams::Own(own), Some(_)) = (&outside.upstreams, &self.closed) {
            for server in own.iter().filter(|server| !self.is_open(**server)) {
                tracing::warn!(%server, "an upstream that is closed to networks is not asked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACME: NetworkKey = NetworkKey(1);
    const GLOBEX: NetworkKey = NetworkKey(2);

    fn servers(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn own(texts: &[&str]) -> Outside {
        Outside { upstreams: Upstreams::Own(servers(texts)), refuse_private: true }
    }

    fn ranges(texts: &[&str]) -> BTreeSet<Cidr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_network_asks_its_own_upstreams_or_those_of_the_node_or_nobody() {
        let mut reach = Reach::new(servers(&["192.0.2.53:53"]));
        reach.close(BTreeSet::new());
        let mut asks = |outside: Outside| reach.of(ACME, outside);
        let of_node = Outside { upstreams: Upstreams::OfNode, refuse_private: false };
        assert_eq!(asks(of_node).upstreams, servers(&["192.0.2.53:53"]));
        let own = asks(own(&["192.0.2.54:53"]));
        assert_eq!((own.upstreams, own.refuse_private), (servers(&["192.0.2.54:53"]), true));
        assert_eq!(asks(Outside::default()), Forwarding::default());
    }

    #[test]
    fn what_is_closed_is_asked_by_no_network_that_names_it_and_by_the_node_still() {
        let mut reach = Reach::new(servers(&["172.30.0.11:53"]));
        assert_eq!(reach.close(ranges(&["172.30.0.11/32", "10.96.0.0/16"])), []);
        let named =
            own(&["172.30.0.11:53", "10.96.0.10:53", "[::ffff:10.96.0.10]:53", "9.9.9.9:53"]);
        assert_eq!(reach.of(ACME, named).upstreams, servers(&["9.9.9.9:53"]));
        let of_node = Outside { upstreams: Upstreams::OfNode, refuse_private: true };
        assert_eq!(reach.of(GLOBEX, of_node).upstreams, servers(&["172.30.0.11:53"]));
    }

    #[test]
    fn before_it_is_known_what_is_closed_nobody_is_asked_but_whom_the_node_names() {
        let mut reach = Reach::new(servers(&["192.0.2.53:53"]));
        assert_eq!(reach.of(ACME, own(&["9.9.9.9:53"])).upstreams, []);
        let of_node = Outside { upstreams: Upstreams::OfNode, refuse_private: true };
        assert_eq!(reach.of(GLOBEX, of_node).upstreams, servers(&["192.0.2.53:53"]));
        let told = reach.close(ranges(&["172.30.0.11/32"]));
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].0, &told[0].1.upstreams), (ACME, &servers(&["9.9.9.9:53"])));
    }

    #[test]
    fn a_network_is_told_when_somebody_it_names_is_closed_or_opened_and_others_are_not() {
        let mut reach = Reach::default();
        reach.close(BTreeSet::new());
        reach.of(ACME, own(&["172.30.0.12:53", "9.9.9.9:53"]));
        reach.of(GLOBEX, own(&["9.9.9.9:53"]));
        let told = |told: Vec<(NetworkKey, Forwarding)>| -> Vec<(NetworkKey, Vec<SocketAddr>)> {
            told.into_iter().map(|(network, it)| (network, it.upstreams)).collect()
        };
        let closed = ranges(&["172.30.0.12/32"]);
        let left = servers(&["9.9.9.9:53"]);
        assert_eq!(told(reach.close(closed.clone())), [(ACME, left)]);
        assert_eq!(told(reach.close(closed)), []);
        reach.forget(GLOBEX);
        let all = servers(&["172.30.0.12:53", "9.9.9.9:53"]);
        assert_eq!(told(reach.close(BTreeSet::new())), [(ACME, all)]);
        reach.forget(ACME);
        assert_eq!(told(reach.close(ranges(&["9.9.9.9/32"]))), []);
    }
}
