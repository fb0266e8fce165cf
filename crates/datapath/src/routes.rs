//! The routes of a pod's interface, as netlink messages. Pure: nothing is asked of the kernel here.
//!
//! The rule: only the pod's first interface has default routes. Every interface has the gateway as
//! its next hop, which answers on each of them alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use atoll_plan::{PodInterface, Reach};
use atoll_types::{Cidr, GATEWAY_V4, GATEWAY_V6};
use netlink_packet_route::route::{RouteMessage, RouteScope};
use rtnetlink::RouteMessageBuilder;

/// All routes of the interface that has number `index` inside the pod.
pub(crate) fn of(wanted: &PodInterface, index: u32) -> Vec<RouteMessage> {
    let sources = wanted.guard.ips.iter();
    match &wanted.reach {
        Reach::Everything => sources.flat_map(|ip| defaults(*ip, index)).collect(),
        Reach::Only(ranges) => sources
            .flat_map(|ip| ranges.iter().filter_map(|range| through_gateway(*range, *ip, index)))
            .collect(),
    }
}

/// The default route of a family, for the address that packets start with.
fn defaults(source: IpAddr, index: u32) -> Vec<RouteMessage> {
    match source {
        IpAddr::V4(_) => vec![to_gateway(index), default_ipv4(index)],
        IpAddr::V6(_) => vec![default_ipv6(index)],
    }
}

fn to_gateway(index: u32) -> RouteMessage {
    RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(GATEWAY_V4, 32)
        .scope(RouteScope::Link)
        .output_interface(index)
        .build()
}

fn default_ipv4(index: u32) -> RouteMessage {
    RouteMessageBuilder::<Ipv4Addr>::new().gateway(GATEWAY_V4).output_interface(index).build()
}

fn default_ipv6(index: u32) -> RouteMessage {
    RouteMessageBuilder::<Ipv6Addr>::new().gateway(GATEWAY_V6).output_interface(index).build()
}

/// A range behind the gateway of one interface; `None` for the other family. The next hop is said
/// to be on the link, because only one interface can have the route to its address.
fn through_gateway(range: Cidr, source: IpAddr, index: u32) -> Option<RouteMessage> {
    match (range.first(), source) {
        (IpAddr::V4(first), IpAddr::V4(source)) => Some(
            RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(first, range.prefix_len())
                .gateway(GATEWAY_V4)
                .pref_source(source)
                .output_interface(index)
                .onlink()
                .build(),
        ),
        (IpAddr::V6(first), IpAddr::V6(source)) => Some(
            RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(first, range.prefix_len())
                .gateway(GATEWAY_V6)
                .pref_source(source)
                .output_interface(index)
                .build(),
        ),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
    }
}
