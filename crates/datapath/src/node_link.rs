//! The node's link: a pair of links whose one side the node's own stack has, for the agent to speak
//! with pods by their aliases, and whose other side has the program that translates.
//!
//! The rule: the node's side answers nobody but through a door, or whom a pod called that may call
//! nodes. What the node only forwards there is no agent's: it has fewer hops left than what the node
//! itself sends. Both sides stay down until the program is attached.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use atoll_abi::{ALIASES_V4, ALIASES_V6, DOOR_LINK, Door, NODE_LINK, NODE_MAC};
use atoll_types::{GATEWAY_V4, GATEWAY_V6};
use netlink_packet_route::link::{InfoData, InfoVeth};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric,
};
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};

use crate::error::{Attempt, DatapathError};
use crate::netlink::{Kind, Link, Netlink};
use crate::quiet::{has_ipv6, silence_host_side, silence_pod_side};
use crate::sandbox::add_address;

/// Both sides of the link.
#[derive(Clone, Debug)]
pub(crate) struct NodeLink {
    /// The node's side.
    pub(crate) node: Link,
    /// The side with the program.
    pub(crate) door: Link,
}

/// The link as it is, or newly made, with the MTU of pods.
pub(crate) async fn ensure(netlink: &Netlink, mtu: u32) -> Result<NodeLink, DatapathError> {
    if !find(netlink).await?.is_some_and(|link| fits(&link)) {
        make_anew(netlink, mtu).await?;
    }
    let found = find(netlink).await?;
    let found = found
        .ok_or(io::Error::from(io::ErrorKind::NotFound))
        .attempt(|| format!("find the links {NODE_LINK} and {DOOR_LINK} just made"))?;
    for side in [&found.node, &found.door] {
        if side.mtu != mtu {
            netlink.set_mtu(side, mtu).await?;
        }
    }
    Ok(found)
}

/// Whether the link is still as it was opened.
pub(crate) async fn is_in_order(
    netlink: &Netlink,
    opened: &NodeLink,
    mtu: u32,
) -> Result<bool, DatapathError> {
    let Some(found) = find(netlink).await? else { return Ok(false) };
    let is_ready = |side: &Link| side.up && side.mtu == mtu;
    Ok(found.node.index == opened.node.index
        && fits(&found)
        && is_ready(&found.node)
        && is_ready(&found.door))
}

async fn find(netlink: &Netlink) -> Result<Option<NodeLink>, DatapathError> {
    let node = netlink.link(NODE_LINK).await?;
    let door = netlink.link(DOOR_LINK).await?;
    Ok(node.zip(door).map(|(node, door)| NodeLink { node, door }))
}

fn fits(link: &NodeLink) -> bool {
    link.node.peer == Some(link.door.index)
        && link.node.mac == NODE_MAC
        && [&link.node, &link.door].iter().all(|side| side.kind == Kind::Veth)
}

async fn make_anew(netlink: &Netlink, mtu: u32) -> Result<(), DatapathError> {
    for name in [NODE_LINK, DOOR_LINK] {
        match netlink.link(name).await? {
            Some(link) if link.kind == Kind::Veth => netlink.remove(&link).await?,
            Some(_) => return Err(DatapathError::OverlayNameTaken(name)),
            None => {}
        }
    }
    let door = LinkMessageBuilder::<LinkUnspec>::default()
        .name(DOOR_LINK.to_owned())
        .mtu(mtu)
        .arp(false)
        .build();
    let pair = LinkMessageBuilder::<LinkVeth>::new(NODE_LINK, DOOR_LINK)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(door)))
        .address(NODE_MAC.to_vec())
        .mtu(mtu)
        .arp(false)
        .build();
    let made = netlink.add(pair).await;
    made.attempt(|| format!("make the pair of links {NODE_LINK} and {DOOR_LINK}"))?;
    silence_host_side(DOOR_LINK)?;
    silence_pod_side(NODE_LINK)
}

/// The addresses by which the node itself speaks with aliases where a process does not choose one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Speaker {
    pub(crate) ipv4: Option<Ipv4Addr>,
    pub(crate) ipv6: Option<Ipv6Addr>,
}

/// Sets both sides up and gives the node's side its addresses and the way to all aliases.
/// Repeatable.
pub(crate) async fn raise(
    netlink: &Netlink,
    link: &NodeLink,
    speaker: Speaker,
) -> Result<(), DatapathError> {
    netlink.raise(&link.door).await?;
    netlink.raise(&link.node).await?;
    for ip in Door::ALL.iter().flat_map(|door| door.listeners()) {
        if ip.is_ipv4() || has_ipv6() {
            add_address(netlink, &link.node, ip).await?;
        }
    }
    put_routes(netlink, link, speaker).await
}

/// The ways to all aliases, in the place of those that are there.
pub(crate) async fn put_routes(
    netlink: &Netlink,
    link: &NodeLink,
    speaker: Speaker,
) -> Result<(), DatapathError> {
    put_route(netlink, to_aliases_v4(link.node.index, speaker.ipv4)).await?;
    if has_ipv6() {
        put_route(netlink, to_aliases_v6(link.node.index, speaker.ipv6)).await?;
    }
    Ok(())
}

async fn put_route(netlink: &Netlink, route: RouteMessage) -> Result<(), DatapathError> {
    let added = netlink.handle.route().add(route).replace().execute().await;
    added.attempt(|| format!("add the route to aliases to {NODE_LINK}"))
}

/// The most there can be. The program knows by it what the node itself has sent.
const OWN_HOPS: RouteMetric = RouteMetric::Hoplimit(255);

/// By way of one neighbour, so that the node keeps one entry and not one for each pod.
fn to_aliases_v4(index: u32, source: Option<Ipv4Addr>) -> RouteMessage {
    let mut route = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(ALIASES_V4.0, ALIASES_V4.1)
        .gateway(GATEWAY_V4)
        .output_interface(index)
        .build();
    route.header.flags |= RouteFlags::Onlink;
    route.attributes.push(RouteAttribute::Metrics(vec![OWN_HOPS]));
    let source = source.map(|ip| RouteAttribute::PrefSource(RouteAddress::Inet(ip)));
    route.attributes.extend(source);
    route
}

fn to_aliases_v6(index: u32, source: Option<Ipv6Addr>) -> RouteMessage {
    let mut route = RouteMessageBuilder::<Ipv6Addr>::new()
        .destination_prefix(ALIASES_V6.0, ALIASES_V6.1)
        .gateway(GATEWAY_V6)
        .output_interface(index)
        .build();
    route.attributes.push(RouteAttribute::Metrics(vec![OWN_HOPS]));
    let source = source.map(|ip| RouteAttribute::PrefSource(RouteAddress::Inet6(ip)));
    route.attributes.extend(source);
    route
}

/// Whether a link is one of these two, by its name and kind.
pub(crate) fn is_ours(link: &Link) -> bool {
    link.kind == Kind::Veth && [NODE_LINK, DOOR_LINK].contains(&link.name.as_str())
}
