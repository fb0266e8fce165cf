//! The networks of a node, each with its names, what it may ask outside, and its own counters.
//!
//! Its rule: a question is answered from one [`ZoneSet`] that was current at its moment, whole.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwap, ArcSwapOption};
use atoll_zones::ZoneSet;

use crate::asker::NetworkKey;
use crate::cache::Cache;
use crate::config::Forwarding;
use crate::counters::Counters;
use crate::feed::Feed;
use crate::forward::Pending;
use crate::limits::lock;
use crate::numbers::ByNumber;

const SHARDS: usize = 64;

/// One network.
pub(crate) struct Network {
    pub(crate) zones: ArcSwapOption<ZoneSet>,
    pub(crate) forwarding: ArcSwap<Forwarding>,
    pub(crate) cache: Cache,
    pub(crate) pending: Pending,
    pub(crate) counters: Counters,
    /// What its names are made from, where others follow it.
    pub(crate) feed: ArcSwapOption<Feed>,
}

impl Network {
    pub(crate) fn new(cache_bytes: usize) -> Self {
        Network {
            zones: ArcSwapOption::empty(),
            forwarding: ArcSwap::default(),
            cache: Cache::new(cache_bytes),
            pending: Pending::default(),
            counters: Counters::default(),
            feed: ArcSwapOption::empty(),
        }
    }
}

type Shard = ArcSwap<HashMap<NetworkKey, Arc<Network>, ByNumber>>;

/// All networks. Reading never waits; a network that comes or goes copies one shard.
pub(crate) struct Networks {
    shards: Vec<Shard>,
    writing: Mutex<()>,
    cache_bytes: usize,
}

impl Networks {
    pub(crate) fn new(cache_bytes: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Networks { shards, writing: Mutex::new(()), cache_bytes }
    }

    fn shard(&self, id: NetworkKey) -> &Shard {
        &self.shards[id.0 as usize % SHARDS]
    }

    pub(crate) fn get(&self, id: NetworkKey) -> Option<Arc<Network>> {
        self.shard(id).load().get(&id).cloned()
    }

    /// Does something with a network, without taking it along.
    pub(crate) fn with<T>(
        &self,
        id: NetworkKey,
        work: impl FnOnce(&Arc<Network>) -> T,
    ) -> Option<T> {
        self.shard(id).load().get(&id).map(work)
    }

    /// The network, made where it is new.
    pub(crate) fn make(&self, id: NetworkKey) -> Arc<Network> {
        let _one_at_a_time = lock(&self.writing);
        if let Some(network) = self.get(id) {
            return network;
        }
        let network = Arc::new(Network::new(self.cache_bytes));
        let mut all = HashMap::clone(&self.shard(id).load());
        all.insert(id, network.clone());
        self.shard(id).store(Arc::new(all));
        network
    }

    pub(crate) fn remove(&self, id: NetworkKey) {
        let _one_at_a_time = lock(&self.writing);
        let mut all = HashMap::clone(&self.shard(id).load());
        all.remove(&id);
        self.shard(id).store(Arc::new(all));
    }
}
