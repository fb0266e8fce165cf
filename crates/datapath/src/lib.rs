//! Makes the kernel of one node match an [`atoll_plan::NodePlan`]: links, programs and maps.
//!
//! [`Datapath::open`] loads the programs and takes over what an earlier run left, without a gap;
//! [`Datapath::observe`] says what the kernel has and [`Datapath::apply`] does one step. The rule of
//! this crate: it does and never decides. What should be done is `plan`'s matter, and a packet's way
//! is the kernel programs' (`bpf/`). Everything happens in the current thread's network namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use atoll_plan::{HostInterface, Observed, Reach, ServiceRoom, Step};
use atoll_policy::{Changes, Room, Tables};
use atoll_types::{Cidr, NetworkId};
use aya::include_bytes_aligned;
use aya::util::KernelVersion;
use tokio::sync::mpsc::Receiver;

mod announce;
mod apply;
mod clock;
mod config;
mod connections;
mod control_group;
mod encode;
mod error;
mod events;
mod held;
mod infra;
mod interface;
mod interfaces;
mod leaving;
mod maps;
mod migrate;
mod netlink;
mod networks;
mod news;
mod node_link;
mod node_ports;
mod node_sockets;
mod observe;
mod openings;
mod outside;
mod overlay;
mod pinned_link;
mod pins;
mod plain_drops;
mod plain_entrance;
mod plain_routes;
mod plain_services;
mod policy;
mod preflight;
mod program;
mod quiet;
mod remove;
mod routes;
mod rules;
mod sandbox;
mod seat;
mod service_pages;
mod services;
mod settle;
mod shares;
mod spread;
mod tap;
mod traffic;
mod trie;

pub use atoll_abi::{ConnectionState, DropReason};
pub use config::{Attachment, DatapathConfig};
pub use connections::Connection;
pub use error::{DatapathError, Remains, StepError};
pub use events::{Event, Events, Happening};
pub use maps::DropCount;
pub use plain_entrance::OutsideConfig;
pub use plain_services::PlainServices;
pub use preflight::PreflightError;
pub use tap::open as open_tap;
pub use traffic::Traffic;

use connections::Collector;
use error::Attempt;
use maps::Maps;
use migrate::Former;
use netlink::{Link, Netlink};
use node_link::{NodeLink, Speaker};
use outside::Uplink;
use pins::Pins;
use program::{Constants, Loader, Program};

static FROM_POD: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/from_pod.o"));
static FROM_NODE: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/from_node.o"));
static FROM_UPLINK: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/from_uplink.o"));
static FROM_OVERLAY: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/from_overlay.o"));

/// A node's datapath. The kernel goes on without it: dropping this value changes nothing.
pub struct Datapath {
    config: DatapathConfig,
    attachment: Attachment,
    netlink: Netlink,
    pins: Pins,
    maps: Maps,
    collector: Collector,
    from_overlay: Program,
    from_node: Program,
    from_uplink: Program,
    from_pod: Program,
    uplink: Uplink,
    overlay: Link,
    node_link: NodeLink,
    pod_mtu: u32,
    /// What pods with several interfaces reach through those made or routed since this was opened.
    routed: BTreeMap<HostInterface, Reach>,
}

impl Datapath {
    /// Whether this machine can run the datapath at all. Leaves nothing behind.
    pub fn preflight() -> Result<(), PreflightError> {
        preflight::preflight()
    }

    /// Opens the datapath in the current network namespace: the tunnel device and the maps are
    /// made or adopted, the programs of an earlier run are replaced in place. Repeatable.
    pub async fn open(config: &DatapathConfig) -> Result<Self, DatapathError> {
        let kernel = KernelVersion::current().attempt(|| "read the kernel's version".into())?;
        Self::open_with(config, Attachment::best_for(kernel)).await
    }

    /// Opens the datapath with the tunnel's program attached in this way. All openings of one node
    /// must agree. Pods' programs are always filters: a tcx link makes the kernel wait for all its
    /// CPUs, at ADD and at DEL.
    pub async fn open_with(
        config: &DatapathConfig,
        attachment: Attachment,
    ) -> Result<Self, DatapathError> {
        let pins = Pins::new(&config.bpf_root);
        pins.prepare()?;
        let former = Former::find(&pins);
        if let Some(former) = &former {
            former.check()?;
            former.share_maps(&pins.maps())?;
        }
        maps::check_pinned(&pins.maps())?;
        let netlink = Netlink::open()?;
        let uplink = Uplink::find(&netlink, config.underlay).await?;
        let pod_mtu = overlay::pod_mtu(&uplink.link, config.underlay)?;
        let overlay = overlay::ensure(&netlink, config, pod_mtu).await?;
        let node_link = node_link::ensure(&netlink, pod_mtu).await?;
        let constants = constants(config, &uplink, &overlay, &node_link, pod_mtu);
        let by = |attachment| Loader::new(&constants, attachment, &pins);
        let mut from_overlay = by(attachment).load("from_overlay", FROM_OVERLAY)?;
        let mut from_node = by(attachment).load("from_node", FROM_NODE)?;
        let from_uplink = by(attachment).load("from_uplink", FROM_UPLINK)?;
        let from_pod = by(Attachment::Clsact).load("from_pod", FROM_POD)?;
        let maps = open_maps(&pins, former.as_ref())?;
        from_overlay.put_on(&netlink, &overlay).await?;
        from_node.put_on(&netlink, &node_link.door).await?;
        let config = config.clone();
        let mut datapath = Datapath {
            config,
            attachment,
            netlink,
            pins,
            maps,
            collector: Collector::default(),
            from_overlay,
            from_node,
            from_uplink,
            from_pod,
            uplink,
            overlay,
            node_link,
            pod_mtu,
            routed: BTreeMap::new(),
        };
        datapath.renew_programs().await?;
        datapath.mind_uplink().await?;
        let speaker = datapath.speaker()?;
        node_link::raise(&datapath.netlink, &datapath.node_link, speaker).await?;
        datapath.netlink.raise(&datapath.overlay).await?;
        former.map_or(Ok(()), |former| pins::remove_all(former.root()))?;
        Ok(datapath)
    }

    /// Looks after what all pods share: the tunnel device and the node's link with their programs, and the size of packets
    /// that the underlay leaves to pods. Where anything is not as it was opened, it is opened anew,
    /// in place.
    pub async fn tend(&mut self) -> Result<Tended, DatapathError> {
        if self.is_in_order().await? {
            return Ok(Tended::InOrder);
        }
        let is_watched = events::is_watched(&self.pins.maps()).unwrap_or(false);
        *self = Self::open_with(&self.config.clone(), self.attachment).await?;
        if is_watched {
            events::resume(&self.pins.maps())?;
        }
        Ok(Tended::OpenedAnew)
    }

    /// A word whenever somebody may have touched what is ours, so that a look is worth it.
    pub fn news() -> Result<Receiver<()>, DatapathError> {
        news::listen()
    }

    /// Has the program at the uplink while there is anything for it to do, and not otherwise: what
    /// the nodes say to each other passes there, too.
    async fn mind_uplink(&mut self) -> Result<(), DatapathError> {
        let link = &self.uplink.link;
        match self.needs_uplink()? {
            true if self.from_uplink.is_on(&self.netlink, link).await? => Ok(()),
            true => self.from_uplink.put_on(&self.netlink, link).await,
            false => self.from_uplink.take_off(&self.netlink, link).await,
        }
    }

    /// Pods that reach this node expect answers from the address that they asked.
    fn speaker(&self) -> Result<Speaker, DatapathError> {
        let Uplink { ipv4, ipv6, .. } = self.uplink;
        Ok(if self.maps.infra.is_needed()? { Speaker { ipv4, ipv6 } } else { Speaker::default() })
    }

    /// What a network that reaches infra, or does so no longer, changes beside the maps.
    async fn mind_infra(&mut self) -> Result<(), DatapathError> {
        node_link::put_routes(&self.netlink, &self.node_link, self.speaker()?).await?;
        self.mind_uplink().await
    }

    fn needs_uplink(&self) -> Result<bool, DatapathError> {
        Ok(self.maps.outside.is_needed()?
            || self.maps.infra.is_needed()?
            || self.maps.node_ports.is_needed()?
            || self.maps.held.is_needed()?)
    }

    async fn is_uplink_in_order(&self) -> Result<bool, DatapathError> {
        let is_on = self.from_uplink.is_on(&self.netlink, &self.uplink.link).await?;
        Ok(is_on == self.needs_uplink()?)
    }

    async fn is_in_order(&self) -> Result<bool, DatapathError> {
        let uplink = Uplink::find(&self.netlink, self.config.underlay).await?;
        let mtu = overlay::pod_mtu(&uplink.link, self.config.underlay)?;
        let Some(overlay) = self.netlink.link(overlay::OVERLAY).await? else { return Ok(false) };
        let is_as_made = overlay.index == self.overlay.index && overlay.kind == self.overlay.kind;
        Ok(mtu == self.pod_mtu
            && is_as_made
            && uplink.is_as(&self.uplink)
            && self.is_uplink_in_order().await?
            && overlay.up
            && overlay.mtu == mtu
            && self.from_overlay.is_on(&self.netlink, &overlay).await?
            && node_link::is_in_order(&self.netlink, &self.node_link, mtu).await?
            && self.from_node.is_on(&self.netlink, &self.node_link.door).await?)
    }

    /// Puts the newly loaded program in the place of the one that an earlier run left.
    async fn renew_programs(&mut self) -> Result<(), DatapathError> {
        for link in observe::our_links(self.netlink.links().await?).values() {
            if self.from_pod.was_on(&self.netlink, link).await? {
                self.from_pod.put_on(&self.netlink, link).await?;
            }
        }
        Ok(())
    }

    /// The largest packet a pod may send: the underlay's, less the tunnel's headers.
    pub fn pod_mtu(&self) -> u32 {
        self.pod_mtu
    }

    /// The index of the node's side of its link, where pods are heard by their aliases.
    pub fn node_link(&self) -> u32 {
        self.node_link.node.index
    }

    /// What the kernel has.
    pub async fn observe(&self) -> Result<Observed, DatapathError> {
        observe::observe(self).await
    }

    /// Does one step. Done twice, it is done.
    pub async fn apply(&mut self, step: &Step) -> Result<(), StepError> {
        let done = apply::apply(self, step).await;
        done.map_err(|source| StepError { step: step.to_string(), source })
    }

    /// How much room there is for tables of policy.
    pub fn policy_room(&self) -> Room {
        self.maps.policy.room()
    }

    /// How much room there is for services.
    pub fn service_room(&self) -> ServiceRoom {
        self.maps.services.room()
    }

    /// Exchanges all tables of policy at once.
    pub fn replace_policy(&mut self, tables: &Tables) -> Result<(), DatapathError> {
        self.maps.policy.replace(tables)
    }

    /// Changes the tables of policy that are in force.
    pub fn change_policy(&mut self, changes: &Changes) -> Result<(), DatapathError> {
        self.maps.policy.change(changes)
    }

    /// Has every connection of these networks decided anew with its next packet.
    pub fn decide_anew(&mut self, networks: &BTreeSet<NetworkId>) -> Result<(), DatapathError> {
        let mut networks = networks.iter();
        networks.try_for_each(|network| self.maps.raise(network.get()))
    }

    /// The compiler's number of the rule that an event names; none where its tables were exchanged
    /// meanwhile.
    pub fn policy_rule(&self, number: u32) -> Result<Option<u32>, DatapathError> {
        self.maps.policy.rule(number)
    }

    /// The pods' interfaces by the index of their host side, from which their aliases follow.
    pub fn askers(&self) -> Result<BTreeMap<u32, HostInterface>, DatapathError> {
        observe::askers(self)
    }

    /// What was dropped since the maps were made, by network and reason, with what plain pods lost among
    /// that of no network.
    pub fn drops(&self) -> Result<Vec<DropCount>, DatapathError> {
        let of_plain_pods = PlainServices::drops(&self.config.bpf_root)?;
        Ok(plain_drops::add(self.maps.drops()?, of_plain_pods))
    }

    /// What each pod of this node has sent and received.
    pub fn traffic(&self) -> Result<Vec<Traffic>, DatapathError> {
        observe::traffic(self)
    }

    /// The connections of a network that this node knows.
    pub fn connections(&self, network: NetworkId) -> Result<Vec<Connection>, DatapathError> {
        self.maps.connections.list(network)
    }

    /// Begins to listen to drops, and to connections that come and go.
    pub fn events(&self) -> Result<Events, DatapathError> {
        Events::open(&self.pins.maps())
    }

    /// Forgets the drop counters of networks that have no pod here any more, and begins to take away
    /// connections that are over. To be called from time to time.
    pub fn collect(&mut self) -> Result<(), DatapathError> {
        let census = self.maps.networks.census(clock::now()?);
        self.collector.start(self.pins.maps(), census)?;
        self.maps.collect()
    }

    /// Makes this node's routes to the plain pods of other nodes exactly these: each range by way of
    /// a node that is on a link of this one.
    pub async fn set_plain_routes(routes: &BTreeMap<Cidr, IpAddr>) -> Result<(), DatapathError> {
        plain_routes::set(&Netlink::open()?, routes).await
    }

    /// The addresses of the uplink that are the node's own: the one that nodes meet by, and its first global
    /// one of the other family.
    pub fn own_addresses(&self) -> Vec<IpAddr> {
        let Uplink { ipv4, ipv6, .. } = self.uplink;
        ipv4.map(IpAddr::V4).into_iter().chain(ipv6.map(IpAddr::V6)).collect()
    }

    /// Tells the neighbours on the uplink that these addresses are here.
    pub fn announce(&self, addresses: &BTreeSet<IpAddr>) -> Result<(), DatapathError> {
        held::announce(&self.uplink.link, addresses)
    }

    /// Uninstalls: removes every link, route, address and device of ours in this network namespace and every pin
    /// below `bpf_root`, going on after errors.
    pub async fn remove(bpf_root: &Path) -> Result<(), DatapathError> {
        remove::remove(bpf_root).await
    }

    /// What [`Datapath::remove`] would remove, in words.
    pub async fn traces(bpf_root: &Path) -> Result<Vec<String>, DatapathError> {
        remove::traces(bpf_root).await
    }
}

impl fmt::Debug for Datapath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Datapath({:?}, pods' MTU {})", self.pins, self.pod_mtu)
    }
}

/// The maps as the programs need them, with what an earlier version left in its own.
fn open_maps(pins: &Pins, former: Option<&Former>) -> Result<Maps, DatapathError> {
    let mut maps = Maps::open(&pins.maps())?;
    if let Some(former) = former {
        former.copy_turns(&mut maps)?;
        former.move_links(&pins.links())?;
    }
    maps.learn_anew()?;
    events::silence(&pins.maps())?;
    Ok(maps)
}

/// What [`Datapath::tend`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Tended {
    /// Nothing to do.
    InOrder,
    /// Something was missing or had changed, and is right again.
    OpenedAnew,
}

fn constants(
    config: &DatapathConfig,
    uplink: &Uplink,
    overlay: &Link,
    node_link: &NodeLink,
    pod_mtu: u32,
) -> Constants {
    let (underlay_ipv4, underlay_ipv6) = match config.underlay {
        IpAddr::V4(ip) => (ip.to_bits(), [0; 4]),
        IpAddr::V6(ip) => (0, as_words(ip.octets())),
    };
    Constants {
        overlay_ifindex: overlay.index,
        underlay_ipv4,
        underlay_ipv6,
        pod_mtu,
        node_ifindex: node_link.node.index,
        uplink_ifindex: uplink.link.index,
        overlay_port: config.overlay_port.into(),
        question_nanos: config.nanos_per_question(),
    }
}

/// An address in network byte order, as the programs hold it.
fn as_words(octets: [u8; 16]) -> [u32; 4] {
    let (words, _) = octets.as_chunks::<4>();
    std::array::from_fn(|place| u32::from_ne_bytes(words[place]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sendable<T: Send>(_: impl FnOnce(Datapath) -> T) {}

    #[test]
    fn the_datapath_and_its_work_may_move_between_threads() {
        sendable(|datapath| datapath);
        sendable(|mut datapath| async move {
            let step = Step::AddPeer([127, 0, 0, 1].into());
            datapath.apply(&step).await.map_err(drop)?;
            datapath.observe().await.map_err(drop)
        });
    }
}
