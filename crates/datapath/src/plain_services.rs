//! The services of plain pods, those of no tenant, where no kube-proxy runs: two programs at the host
//! side of each such pod's pair, those of the node's own processes ([`crate::node_sockets`]) and of node
//! ports ([`crate::plain_entrance`]), and maps that are theirs alone.
//!
//! The rules: nothing of a tenant's maps is touched, and no link but plain pods' and the uplink. The
//! programs live with their links and the maps in pins, so that services go on while the agent is away;
//! whoever comes after puts newer programs in the place of those that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use atoll_abi::{NodeFront, NodeFrontKey, PLAIN_NETWORK, PlainKey, PlainWay};
use atoll_plan::{HostInterface, PLAIN, Service, ServiceKey};
use atoll_types::Cidr;
use aya::include_bytes_aligned;
use aya::programs::TcAttachType;
use futures::TryStreamExt;
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage};
use rtnetlink::RouteMessageBuilder;

use crate::error::{Attempt, DatapathError};
use crate::maps::{DropCount, check_shape};
use crate::netlink::{Kind, Link, Netlink};
use crate::plain_entrance::{self, Entrance, OutsideConfig};
use crate::plain_routes::range;
use crate::program::{Loader, Program, remove_filter};
use crate::service_pages::{self, ServicePages};
use crate::{node_sockets, pins, plain_drops};

static PROGRAMS: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/plain.o"));

const _: () = assert!(PLAIN.get() == PLAIN_NETWORK, "both sides have one number");

const FROM_PLAIN: &str = "from_plain";
const TO_PLAIN: &str = "to_plain";

/// The services of this node's plain pods. Packets go on without this value.
pub struct PlainServices {
    netlink: Netlink,
    from_plain: Program,
    to_plain: Program,
    services: ServicePages,
    entrance: Entrance,
    maps: PathBuf,
}

impl PlainServices {
    /// Opens them in the current network namespace: maps are made or taken over. No link has a program
    /// by this alone.
    pub async fn open(bpf_root: &Path, outside: OutsideConfig) -> Result<Self, DatapathError> {
        let maps = folder(bpf_root);
        if check_pinned(&maps).is_err() {
            // Those of another version. Nothing in them cannot be learned anew.
            pins::remove_all(&maps)?;
        }
        let make = std::fs::create_dir_all(&maps);
        make.attempt(|| format!("make the directory {}", maps.display()))?;
        let tunnel_port = outside.overlay_port.into();
        let from_plain = Loader::beside_tunnel(&maps, &tunnel_port).load(FROM_PLAIN, PROGRAMS)?;
        let to_plain = Loader::of_plain_pods(&maps).load(TO_PLAIN, PROGRAMS)?.of_egress();
        let services = ServicePages::open(&maps)?;
        let (netlink, entrance) = (Netlink::open()?, Entrance::new(outside, &maps));
        Ok(PlainServices { netlink, from_plain, to_plain, services, entrance, maps })
    }

    /// Serves every pod that has an address of one of these ranges on a link of its own.
    pub async fn serve_all(&mut self, ranges: &[Cidr]) -> Result<(), DatapathError> {
        let indexes = links_of_pods(&self.netlink, ranges).await?;
        for link in self.netlink.links().await? {
            if indexes.contains(&link.index) && can_be_plain(&link) {
                self.put_on(&link).await?;
            }
        }
        Ok(())
    }

    /// Serves the pod behind the link of this name, which must be one side of a pair and no tenant's.
    pub async fn serve(&mut self, name: &str) -> Result<(), DatapathError> {
        match self.netlink.link(name).await? {
            Some(link) if can_be_plain(&link) => self.put_on(&link).await,
            _ => Err(DatapathError::NoPodsLink(name.to_owned())),
        }
    }

    /// What answers first: what comes back is understood before anything is sent.
    async fn put_on(&mut self, link: &Link) -> Result<(), DatapathError> {
        for program in [&mut self.to_plain, &mut self.from_plain] {
            if !program.is_on(&self.netlink, link).await? {
                program.put_on(&self.netlink, link).await?;
            }
        }
        Ok(())
    }

    /// Serves the node's own processes, and pods that use its network. It needs control groups of
    /// version 2, which no pod does.
    pub fn serve_node(&self) -> Result<(), DatapathError> {
        node_sockets::lead(&self.maps)
    }

    /// The node's addresses that its node ports are served at, for clients from outside.
    pub async fn outside_addresses(&self) -> Result<Vec<IpAddr>, DatapathError> {
        self.entrance.addresses(&self.netlink).await
    }

    /// Serves clients from outside, or does not. To be repeated from time to time: the uplink may have
    /// become another.
    pub async fn serve_outside(&mut self, is_needed: bool) -> Result<(), DatapathError> {
        self.entrance.mind(&self.netlink, is_needed).await
    }

    /// Makes the services exactly these.
    pub fn set(&mut self, wanted: &BTreeMap<ServiceKey, Service>) -> Result<(), DatapathError> {
        let there = self.services.all()?;
        for (key, service) in wanted.iter().filter(|(key, it)| there.get(key) != Some(it)) {
            self.services.put(*key, service)?;
        }
        for key in there.keys().filter(|key| !wanted.contains_key(key)) {
            self.services.remove(*key)?;
        }
        Ok(())
    }

    /// Makes one service this one, or none.
    pub fn put(&mut self, key: ServiceKey, service: Option<&Service>) -> Result<(), DatapathError> {
        match service {
            Some(service) => self.services.put(key, service),
            None => self.services.remove(key),
        }
    }

    /// What the programs did not let pass, since the maps were made.
    pub fn drops(bpf_root: &Path) -> Result<Vec<DropCount>, DatapathError> {
        plain_drops::read(&folder(bpf_root))
    }

    /// Takes programs and maps off this node; where there are none, nothing is done.
    pub async fn withdraw(bpf_root: &Path) -> Result<(), DatapathError> {
        if !folder(bpf_root).exists() {
            return Ok(());
        }
        let links = Netlink::open()?.links().await?;
        let taken_off: Vec<_> = links.iter().map(take_off).collect();
        let unpinned = pins::remove_all(&folder(bpf_root));
        taken_off.into_iter().chain([unpinned]).collect()
    }
}

impl fmt::Debug for PlainServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlainServices({:?}, {:?})", self.from_plain, self.to_plain)
    }
}

/// A tenant's link has a program that must stay where it is.
fn can_be_plain(link: &Link) -> bool {
    link.kind == Kind::Veth && link.name.parse::<HostInterface>().is_err()
}

/// Where the maps are pinned.
pub(crate) fn folder(bpf_root: &Path) -> PathBuf {
    bpf_root.join("plain")
}

/// Takes all programs, of any version, off a link.
pub(crate) fn take_off(link: &Link) -> Result<(), DatapathError> {
    let at_pods = [(FROM_PLAIN, TcAttachType::Ingress), (TO_PLAIN, TcAttachType::Egress)];
    let at_pods = at_pods.map(|(program, hook)| remove_filter(program, &link.name, hook));
    [plain_entrance::take_off(link)].into_iter().chain(at_pods).collect()
}

fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    service_pages::check_pinned(dir)?;
    plain_entrance::check_pinned(dir)?;
    plain_drops::check_pinned(dir)?;
    check_shape::<PlainKey, PlainWay>(&dir.join("plain_ways"))?;
    check_shape::<NodeFrontKey, NodeFront>(&dir.join("node_fronts"))
}

/// The links that a single address of these ranges is behind, by their indexes.
async fn links_of_pods(netlink: &Netlink, ranges: &[Cidr]) -> Result<BTreeSet<u32>, DatapathError> {
    let mut links = BTreeSet::new();
    for any in [
        RouteMessageBuilder::<Ipv4Addr>::new().build(),
        RouteMessageBuilder::<Ipv6Addr>::new().build(),
    ] {
        let all = netlink.handle.route().get(any).execute();
        let found: Vec<_> = all.try_collect().await.attempt(|| "list routes".into())?;
        let to_pods = found.iter().filter(|route| is_to_pod(route, ranges));
        links.extend(to_pods.filter_map(link_of));
    }
    Ok(links)
}

fn is_to_pod(route: &RouteMessage, ranges: &[Cidr]) -> bool {
    let is_one = |to: &Cidr| to.size() == 1 && ranges.iter().any(|all| all.contains_cidr(to));
    route.header.table == RouteHeader::RT_TABLE_MAIN && range(route).is_some_and(|to| is_one(&to))
}

fn link_of(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use atoll_testkit::Namespace;

    use super::*;

    #[test]
    fn a_plain_pods_link_is_known_by_the_route_to_its_address() {
        let node = Namespace::new();
        for (name, range) in [("pod1", "10.244.1.2/32"), ("other", "10.9.0.2/32")] {
            node.ip(&format!("link add {name} type veth peer name {name}-in"));
            node.ip(&format!("link set {name} up"));
            node.ip(&format!("route add {range} dev {name}"));
        }
        node.ip("link add wide type veth peer name wide-in");
        node.ip("link set wide up");
        node.ip("route add 10.244.1.128/25 dev wide");
        let names = node.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let netlink = Netlink::open().unwrap();
                let ranges = ["10.244.1.0/24".parse().unwrap(), "fd00::/64".parse().unwrap()];
                let found = links_of_pods(&netlink, &ranges).await.unwrap();
                let links = netlink.links().await.unwrap().into_iter();
                let found = links.filter(|link| found.contains(&link.index));
                found.map(|link| link.name).collect::<Vec<_>>()
            })
        });
        assert_eq!(names, ["pod1"]);
    }
}
