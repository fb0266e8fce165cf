//! The resolver of this node, kept true to what was seen and to the pods that are here.
//!
//! The rule of this file: an interface is known as an asker only once the names of its network
//! have been seen whole. Before that a question gets silence, and the asker asks again; a wrong
//! answer would be believed.

mod metrics;
mod reach;
mod report;
#[cfg(test)]
mod tests;
mod views;

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use atoll_abi::{DOOR_PORT, Door, aliased_interface};
use atoll_dns::{Asker, Feed, Forwarding, NetworkKey, PodId, Server, TenantId};
use atoll_model::compile::Occupant;
use atoll_model::export::ServiceName;
use atoll_plan::{HostInterface, Resolver};
use atoll_types::Cidr;
use atoll_zones::Settings;

use self::metrics::Directory;
pub(crate) use self::metrics::Metrics;
use self::reach::Reach;
use self::views::{Update, Views};
use crate::config::{NamesConfig, NamesLimits};
use crate::descriptors::Budget;
use crate::seen::{Change, Exported, Scope, Seen};

/// How many seconds an answer keeps: what changes is asked for anew soon.
const TTL: u32 = 5;

/// Who is behind each interface, by the index of its host side. The threads of the resolver read
/// it without a lock.
type Known = Arc<ArcSwap<HashMap<u32, Asker>>>;

/// The resolver, and what it answers from.
pub(crate) struct Names {
    cluster: Resolver,
    reach: Reach,
    views: Views,
    server: Server,
    known: Known,
    /// The link that it hears, once it hears one alone.
    heard: Option<u32>,
    directory: Directory,
    /// Of networks that have DNS pods of their own, what those follow.
    feeds: BTreeMap<NetworkKey, Arc<Feed>>,
    /// Makes numbers of pods and tenants that nobody can foresee.
    numbers: RandomState,
}

impl Names {
    /// Starts to listen behind the doors, where pods are told to ask at all.
    pub(crate) async fn start(config: &NamesConfig, budget: Budget) -> Result<Option<Names>> {
        if config.cluster_dns.is_empty() {
            return Ok(None);
        }
        let listen = listeners(&config.cluster_dns);
        Names::start_at(config, listen, budget).await.map(Some)
    }

    async fn start_at(
        config: &NamesConfig,
        listen: Vec<SocketAddr>,
        budget: Budget,
    ) -> Result<Names> {
        let known = Known::default();
        let server = start_server(server(listen, config.limits, budget), known.clone()).await?;
        let settings = Settings {
            zone: config.cluster_domain.clone(),
            cidrs: Vec::new(),
            resolver: config.cluster_dns.clone(),
            ttl: TTL,
        };
        Ok(Names {
            cluster: config.cluster_dns.iter().copied().collect(),
            reach: Reach::new(config.dns_upstream.clone()),
            views: Views::new(settings),
            server,
            known,
            heard: None,
            directory: Directory::default(),
            feeds: BTreeMap::new(),
            numbers: RandomState::new(),
        })
    }

    /// The resolver as pods know it.
    pub(crate) fn cluster(&self) -> Resolver {
        self.cluster
    }

    /// Keeps names of exactly these networks and namespaces.
    pub(crate) fn follow(&mut self, scope: &Scope, seen: &Seen) {
        self.views.follow(scope, seen);
    }

    /// Takes in what a change says of names.
    pub(crate) fn absorb(&mut self, change: &Change) {
        self.views.absorb(change);
    }

    /// Exactly these services of the cluster's own have names in tenants' networks.
    pub(crate) fn export(&mut self, exported: &BTreeMap<&ServiceName, &Exported>) {
        self.views.export(exported);
    }

    /// Answers from what was taken in.
    pub(crate) fn publish(&mut self) {
        for update in self.views.updates() {
            match update {
                Update::First(network, name, zones, outside) => {
                    self.directory.put(network, &name);
                    self.server.forward(network, self.reach.of(network, outside));
                    self.server.swap(network, zones);
                }
                Update::Outside(network, outside) => {
                    let forwarding = self.reach.of(network, outside);
                    self.forward(network, forwarding);
                }
                Update::Next(network, zones) => self.server.swap(network, zones),
                Update::Facts(network, facts) => {
                    let settings = self.views.settings();
                    let fresh = || Arc::new(Feed::new(settings));
                    let feed = self.feeds.entry(network).or_insert_with(fresh);
                    feed.learn(facts);
                    self.server.feed(network, Some(feed.clone()));
                }
                Update::Unfollowed(network) => {
                    self.feeds.remove(&network);
                    self.server.feed(network, None);
                }
                Update::Gone(network) => {
                    self.feeds.remove(&network);
                    self.reach.forget(network);
                    self.directory.remove(network);
                    self.server.remove(network);
                }
            }
        }
    }

    /// What was counted, as it is whenever somebody looks.
    pub(crate) fn metrics(&self) -> Metrics {
        Metrics { ledger: self.server.ledger(), directory: self.directory.clone() }
    }

    /// Exactly this is closed to networks that name their upstreams themselves.
    pub(crate) fn close(&mut self, closed: BTreeSet<Cidr>) {
        for (network, forwarding) in self.reach.close(closed) {
            self.forward(network, forwarding);
        }
    }

    fn forward(&self, network: NetworkKey, forwarding: Forwarding) {
        let feed = self.feeds.get(&network).into_iter();
        feed.for_each(|it| it.reach_outside(!forwarding.upstreams.is_empty()));
        self.server.forward(network, forwarding);
    }

    /// From now on pods are heard by this link alone.
    pub(crate) fn hear(&mut self, link: u32) -> io::Result<()> {
        if self.heard != Some(link) {
            self.server.hear(link)?;
            self.heard = Some(link);
        }
        Ok(())
    }

    /// From now on these interfaces are known, each by who is behind it.
    pub(crate) fn know(
        &self,
        interfaces: &BTreeMap<u32, HostInterface>,
        occupants: &BTreeMap<HostInterface, Occupant>,
    ) {
        let asker = |(index, name): (&u32, _)| Some((*index, self.asker(occupants.get(name)?)?));
        let known: HashMap<u32, Asker> = interfaces.iter().filter_map(asker).collect();
        if **self.known.load() != known {
            self.known.store(Arc::new(known));
        }
    }

    fn asker(&self, occupant: &Occupant) -> Option<Asker> {
        if !self.views.answers(&occupant.network_name, &occupant.pod.namespace) {
            return None;
        }
        let tenant = occupant.network_name.split('.').next()?;
        Some(Asker {
            network: self.views.published(&occupant.network_name)?,
            pod: PodId(self.numbers.hash_one(&occupant.pod_uid)),
            tenant: TenantId(self.numbers.hash_one(tenant)),
        })
    }
}

/// Where questions to these resolvers, and to those that networks have of their own, come out on
/// the node.
fn listeners(cluster_dns: &[IpAddr]) -> Vec<SocketAddr> {
    let is_asked = |ip: &IpAddr| cluster_dns.iter().any(|dns| dns.is_ipv4() == ip.is_ipv4());
    let behind = Door::Cluster.listeners().into_iter().filter(is_asked);
    behind.chain(Door::Own.listeners()).map(|ip| SocketAddr::new(ip, DOOR_PORT)).collect()
}

/// What the server is started with.
fn server(listen: Vec<SocketAddr>, limits: NamesLimits, budget: Budget) -> atoll_dns::Config {
    let usual = atoll_dns::Config::default();
    atoll_dns::Config {
        listen,
        limits: limits.into(),
        tcp_connections: usual.tcp_connections.min(budget.dns_connections),
        forwards: usual.forwards.min(budget.dns_forwards),
        ..usual
    }
}

/// The server has a runtime of its own, which must not be made or dropped inside of ours.
async fn start_server(config: atoll_dns::Config, known: Known) -> Result<Server> {
    let askers = move |from: SocketAddr| {
        let index = aliased_interface(from.ip())?;
        known.load().get(&index).copied()
    };
    let started = tokio::task::spawn_blocking(move || Server::new(config, askers)).await;
    started.context("the start of the resolver was interrupted")?.context("cannot answer names")
}
