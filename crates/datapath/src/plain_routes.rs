//! Routes from this node to the plain pods of others: each node's range by way of the node.
//!
//! The rule: a route is ours by its protocol's number alone, so that routes of others are never
//! touched, and ours are found again after any restart.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_types::Cidr;
use futures::TryStreamExt;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol,
};
use nix::errno::Errno;
use rtnetlink::RouteMessageBuilder;

use crate::error::{Attempt, DatapathError};
use crate::netlink::{Netlink, is};

/// The number by which the kernel knows who made a route; none that programs in use have.
const OURS: RouteProtocol = RouteProtocol::Other(174);

/// Makes our routes exactly these: each range by way of the node that has it.
pub(crate) async fn set(
    netlink: &Netlink,
    wanted: &BTreeMap<Cidr, IpAddr>,
) -> Result<(), DatapathError> {
    let there = list(netlink).await?;
    let known: BTreeSet<_> =
        there.iter().filter_map(|route| Some((range(route)?, via(route)?))).collect();
    for (range, node) in wanted.iter().filter(|(range, node)| !known.contains(&(**range, **node))) {
        add(netlink, *range, *node).await?;
    }
    for route in there {
        let is_wanted = range(&route).is_some_and(|range| wanted.contains_key(&range));
        if !is_wanted {
            remove(netlink, route).await?;
        }
    }
    Ok(())
}

/// Our routes, as they are.
pub(crate) async fn list(netlink: &Netlink) -> Result<Vec<RouteMessage>, DatapathError> {
    let mut ours = Vec::new();
    for any in [
        RouteMessageBuilder::<std::net::Ipv4Addr>::new().build(),
        RouteMessageBuilder::<std::net::Ipv6Addr>::new().build(),
    ] {
        let all = netlink.handle.route().get(any).execute();
        let found: Vec<_> = all.try_collect().await.attempt(|| "list routes".into())?;
        let is_ours = |route: &RouteMessage| {
            route.header.protocol == OURS && route.header.table == RouteHeader::RT_TABLE_MAIN
        };
        ours.extend(found.into_iter().filter(is_ours));
    }
    Ok(ours)
}

/// In the place of one that leads elsewhere.
async fn add(netlink: &Netlink, range: Cidr, node: IpAddr) -> Result<(), DatapathError> {
    let what = || {
        format!("add the route to {range} by way of {node}, which must be on a link of this node")
    };
    let route = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(range.first(), range.prefix_len())
        .attempt(what)?
        .gateway(node)
        .attempt(what)?
        .protocol(OURS)
        .build();
    netlink.handle.route().add(route).replace().execute().await.attempt(what)
}

/// One that is gone already is as good.
async fn remove(netlink: &Netlink, route: RouteMessage) -> Result<(), DatapathError> {
    let told = told(&route);
    match netlink.handle.route().del(route).execute().await {
        Err(error) if is(&error, Errno::ESRCH) => Ok(()),
        done => done.attempt(|| format!("remove the {told}")),
    }
}

/// `route to 10.244.1.0/24`
pub(crate) fn told(route: &RouteMessage) -> String {
    match range(route) {
        Some(range) => format!("route to {range}"),
        None => "route of ours".to_owned(),
    }
}

pub(crate) fn range(route: &RouteMessage) -> Option<Cidr> {
    let to = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => ip(address),
        _ => None,
    })?;
    format!("{to}/{}", route.header.destination_prefix_length).parse().ok()
}

fn via(route: &RouteMessage) -> Option<IpAddr> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        _ => None,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use atoll_testkit::Namespace;

    use super::*;

    /// A node with one link and a route of somebody else.
    fn node() -> Namespace {
        let node = Namespace::new();
        node.ip("link add eth0 type veth peer name wire");
        node.ip("address add 192.0.2.1/24 dev eth0");
        node.ip("link set eth0 up");
        node.ip("link set wire up");
        node.ip("route add 10.9.0.0/24 via 192.0.2.9");
        node
    }

    fn set_on(node: &Namespace, wanted: &[(&str, &str)]) -> Result<(), DatapathError> {
        let parsed = |(range, via): &(&str, &str)| (range.parse().unwrap(), via.parse().unwrap());
        let wanted: BTreeMap<Cidr, IpAddr> = wanted.iter().map(parsed).collect();
        node.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async { set(&Netlink::open()?, &wanted).await })
        })
    }

    #[test]
    fn routes_follow_the_nodes_and_those_of_others_stay() {
        let node = node();
        let ours = || node.ip("-4 route show proto 174").trim().replace("  ", " ");
        set_on(&node, &[("10.244.1.0/24", "192.0.2.2"), ("10.244.2.0/24", "192.0.2.3")]).unwrap();
        assert_eq!(ours().lines().count(), 2);
        set_on(&node, &[("10.244.1.0/24", "192.0.2.4")]).unwrap();
        assert!(ours().starts_with("10.244.1.0/24 via 192.0.2.4 dev eth0"), "{}", ours());
        assert_eq!(ours().lines().count(), 1);
        for _ in 0..2 {
            set_on(&node, &[]).unwrap();
            assert_eq!(ours(), "");
        }
        assert!(node.ip("route").contains("10.9.0.0/24 via 192.0.2.9"));
    }

    #[test]
    fn a_node_that_is_on_no_link_is_named() {
        let refused = set_on(&node(), &[("10.244.1.0/24", "198.51.100.1")]).unwrap_err();
        assert!(refused.to_string().contains("by way of 198.51.100.1"), "{refused}");
    }
}
