//! The resolver of this node, kept true to what was seen and to the pods that are here.
//!
//! The rule of this file: an interface is known as an asker only once the names of its network
//! have been seen whole. Before that a question gets silence, and the asker asks again; a wrong
//! answer would be believed.

mod metrics;
mod reach;
mod report;
mod views;

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
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
    directory: Directory,
    /// Of networks that have DNS pods of their own, what those follow.
    feeds: BTreeMap<NetworkKey, Arc<Feed>>,
    /// Makes numbers of pods and tenants that nobody can foresee.
    numbers: RandomState,
}

impl Names {
    /// Starts to listen behind the doors, where pods are told to ask at all.
    pub(crate) async fn start(config: &NamesConfig) -> Result<Option<Names>> {
        if config.cluster_dns.is_empty() {
            return Ok(None);
        }
        let listen = listeners(&config.cluster_dns);
        Names::start_at(config, listen).await.map(Some)
    }

    async fn start_at(config: &NamesConfig, listen: Vec<SocketAddr>) -> Result<Names> {
        let known = Known::default();
        let server = start_server(listen, config.limits, known.clone()).await?;
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

/// The server has a runtime of its own, which must not be made or dropped inside of ours.
async fn start_server(
    listen: Vec<SocketAddr>,
    limits: NamesLimits,
    known: Known,
) -> Result<Server> {
    let askers = move |from: SocketAddr| {
        let index = aliased_interface(from.ip())?;
        known.load().get(&index).copied()
    };
    let limits = limits.into();
    let config = atoll_dns::Config { listen, limits, ..atoll_dns::Config::default() };
    let started = tokio::task::spawn_blocking(move || Server::new(config, askers)).await;
    started.context("the start of the resolver was interrupted")?.context("cannot answer names")
}

#[cfg(test)]
mod tests {
    use atoll_cni::wire::NameQuestion;
    use atoll_types::{Label, NetworkId, PodRef};
    use atoll_zones::{Backing, DomainName, Service, ServiceKey};

    use super::*;
    use crate::seen::{Delta, Presence};

    fn network(number: u32) -> NetworkId {
        number.try_into().unwrap()
    }

    fn config() -> NamesConfig {
        NamesConfig {
            cluster_dns: vec![[10, 96, 0, 10].into()],
            cluster_domain: DomainName::parse("cluster.local").unwrap(),
            dns_upstream: Vec::new(),
            limits: NamesLimits::default(),
        }
    }

    async fn names() -> Names {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut names = Names::start_at(&config(), vec![anywhere]).await.unwrap();
        names.export(&BTreeMap::new());
        names
    }

    fn occupant(tenant: &str, pod: &str) -> Occupant {
        Occupant {
            network_name: format!("{tenant}.default"),
            pod: PodRef::new("shop", pod),
            pod_uid: pod.to_owned(),
        }
    }

    /// Two networks with one number, as open networks of two tenants have.
    fn scope() -> Scope {
        let acme = Presence { id: network(1), namespaces: ["shop".to_owned()].into() };
        let globex = Presence { id: network(1), namespaces: [].into() };
        let networks = [("acme.default".to_owned(), acme), ("globex.default".to_owned(), globex)];
        Scope { networks: networks.into(), is_whole: true, ..Scope::default() }
    }

    fn shop() -> (String, String) {
        ("acme.default".into(), "shop".into())
    }

    fn see_ports_and_slices(names: &mut Names) {
        names.absorb(&Change::NetworkPorts(network(1), Delta::All(BTreeMap::new())));
        names.absorb(&Change::Slices(shop(), Delta::All(BTreeMap::new())));
        for network in ["acme.default", "globex.default"] {
            names.absorb(&Change::Network(network.into(), Delta::All(BTreeMap::new())));
        }
    }

    fn see_services(names: &mut Names) {
        let label = |text: &str| text.parse::<Label>().unwrap();
        let key = ServiceKey { namespace: label("shop"), name: label("web") };
        let backing = Backing::Vip { addresses: vec![[10, 96, 0, 9].into()], ports: vec![] };
        let services = [("web".to_owned(), Service { key, backing })];
        names.absorb(&Change::Services(shop(), Delta::All(services.into())));
    }

    #[tokio::test]
    async fn a_pod_is_an_asker_once_the_names_of_its_network_were_seen_whole() {
        let mut names = names().await;
        let host_side = HostInterface::for_attachment("sandbox", "eth0");
        let interfaces = [(7, host_side.clone())].into();
        let occupants = [(host_side, occupant("acme", "web"))].into();
        names.follow(&scope(), &Seen::default());
        see_ports_and_slices(&mut names);
        names.publish();
        names.know(&interfaces, &occupants);
        assert!(names.known.load().is_empty(), "services are still to come");
        see_services(&mut names);
        names.publish();
        names.know(&interfaces, &occupants);
        let published = names.views.published("acme.default");
        assert_eq!(Some(names.known.load()[&7].network), published);
    }

    #[tokio::test]
    async fn an_interface_that_is_nobodys_or_not_in_the_kernel_is_no_asker() {
        let mut names = names().await;
        names.follow(&scope(), &Seen::default());
        see_ports_and_slices(&mut names);
        see_services(&mut names);
        names.publish();
        let [one, other] = ["one", "other"].map(|it| HostInterface::for_attachment(it, "eth0"));
        let occupants = [(one.clone(), occupant("acme", "web"))].into();
        names.know(&[(7, other)].into(), &occupants);
        assert!(names.known.load().is_empty());
        names.know(&[(7, one)].into(), &occupants);
        assert_eq!(names.known.load().len(), 1);
    }

    #[tokio::test]
    async fn interfaces_of_one_pod_and_pods_of_one_tenant_share_their_limits() {
        let mut names = names().await;
        names.follow(&scope(), &Seen::default());
        see_ports_and_slices(&mut names);
        see_services(&mut names);
        names.publish();
        let asker = |occupant: Occupant| names.asker(&occupant).unwrap();
        let [web, db] = ["web", "db"].map(|pod| asker(occupant("acme", pod)));
        assert_eq!(web, asker(occupant("acme", "web")));
        assert_eq!(web.tenant, db.tenant);
        assert_ne!(web.pod, db.pod);
        let stranger = asker(occupant("globex", "web"));
        assert_ne!(web.tenant, stranger.tenant);
        assert_ne!(web.network, stranger.network, "one number, and names of their own");
    }

    #[tokio::test]
    async fn people_see_each_name_of_the_search_list_until_one_answers() {
        let mut names = names().await;
        names.follow(&scope(), &Seen::default());
        let web = occupant("acme", "web");
        let question = |name: &str| NameQuestion {
            pod: web.pod.clone(),
            name: name.to_owned(),
            kind: "A".to_owned(),
        };
        let too_early = names.report(&web, &question("web")).unwrap_err().to_string();
        assert!(too_early.contains("acme.default"), "{too_early}");
        see_ports_and_slices(&mut names);
        see_services(&mut names);
        names.publish();
        let tried = |name: &str| {
            let report = names.report(&web, &question(name)).unwrap();
            let tries = report.tries.into_iter();
            tries.map(|it| (it.name, it.records.concat())).collect::<Vec<_>>()
        };
        let [first, second, third] =
            ["shop.svc.cluster.local.", "svc.cluster.local.", "cluster.local."];
        let hit = |name: String| (name, "A 10.96.0.9".to_owned());
        let miss = |name: String| (name, String::new());
        assert_eq!(tried("web"), [hit(format!("web.{first}"))]);
        let nested = [miss(format!("web.shop.{first}")), hit(format!("web.shop.{second}"))];
        assert_eq!(tried("web.shop"), nested);
        let nowhere = [first, second, third, ""].map(|zone| miss(format!("nobody.{zone}")));
        assert_eq!(tried("nobody"), nowhere);
        assert_eq!(tried("nobody."), [miss("nobody.".to_owned())]);
    }

    #[test]
    fn the_families_that_pods_ask_and_those_of_networks_are_listened_on() {
        let texts = |ips: &[&str]| {
            let ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
            listeners(&ips).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let own = ["169.254.1.3:61053", "[fd61:746f:6c6c::3]:61053"];
        assert_eq!(texts(&["10.96.0.10"]), ["169.254.1.2:61053", own[0], own[1]]);
        let both = ["169.254.1.2:61053", "[fd61:746f:6c6c::2]:61053", own[0], own[1]];
        assert_eq!(texts(&["10.96.0.10", "fd96::a"]), both);
    }

    #[tokio::test]
    async fn questions_are_told_by_network_and_by_what_became_of_them() {
        let mut names = names().await;
        names.follow(&scope(), &Seen::default());
        see_ports_and_slices(&mut names);
        see_services(&mut names);
        names.publish();
        let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.send_to(b"no alias of anybody", names.server.addresses()[0]).unwrap();
        let metrics = names.metrics();
        let text = || {
            let mut page = atoll_metrics::Page::default();
            metrics.write(&mut page);
            page.text()
        };
        while !text().contains("atoll_dns_strangers_total{why=\"unknown_asker\"} 1") {
            tokio::task::yield_now().await;
        }
        for line in [
            "atoll_dns_queries_total{network=\"acme.default\"} 0",
            "atoll_dns_answers_total{network=\"globex.default\",how=\"no_name\"} 0",
            "atoll_dns_refusals_total{network=\"acme.default\",why=\"tenant_rate\"} 0",
        ] {
            assert!(text().lines().any(|it| it == line), "{line} is not in {}", text());
        }
        names.follow(&Scope { is_whole: true, ..Scope::default() }, &Seen::default());
        names.publish();
        assert!(!text().contains("acme.default"), "a network that left is told no more");
    }

    #[tokio::test]
    async fn without_a_resolver_to_be_nobody_listens() {
        let silent = NamesConfig { cluster_dns: Vec::new(), ..config() };
        assert!(Names::start(&silent).await.unwrap().is_none());
    }
}
