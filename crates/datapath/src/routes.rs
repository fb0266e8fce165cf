//! The routes of a pod's interface, as netlink messages. Pure: nothing is asked of the kernel here.
//!
//! The rule: only the pod's first interface has default routes. Every interface has the gateway as
//! its next hop, which answers on each of them alone. In a pod with several interfaces, what starts
//! with the address of one leaves through that one, by a table of its own: no other would let it
//! pass.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use atoll_plan::{PodInterface, Reach};
use atoll_types::{Cidr, GATEWAY_V4, GATEWAY_V6};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
};
use rtnetlink::RouteMessageBuilder;

/// Interfaces' own tables have the number of their interface beyond this one.
const FIRST_OWN_TABLE: u32 = 0x61_74_00_00;

/// The routes that any packet of the pod may take through the interface that has number `index`
/// inside the pod.
pub(crate) fn of(wanted: &PodInterface, index: u32) -> Vec<RouteMessage> {
    let sources = wanted.guard.ips.iter();
    match &wanted.reach {
        Reach::Everything => sources.flat_map(|ip| defaults(*ip, index)).collect(),
        Reach::Only(ranges) => sources
            .flat_map(|ip| ranges.iter().filter_map(|range| through_gateway(*range, *ip, index)))
            .collect(),
    }
}

/// The table that an interface has for itself.
pub(crate) fn own_table(index: u32) -> u32 {
    FIRST_OWN_TABLE + index
}

/// The one route of that table for packets that start with `source`.
pub(crate) fn of_source(source: IpAddr, index: u32) -> RouteMessage {
    let table = own_table(index);
    match source {
        IpAddr::V4(_) => RouteMessageBuilder::<Ipv4Addr>::new()
            .table_id(table)
            .gateway(GATEWAY_V4)
            .output_interface(index)
            .onlink()
            .build(),
        IpAddr::V6(_) => RouteMessageBuilder::<Ipv6Addr>::new()
            .table_id(table)
            .gateway(GATEWAY_V6)
            .output_interface(index)
            .build(),
    }
}

/// The range of a route that [`of`] once gave for the interface with number `index`; none for
/// routes of others and for the default ones.
pub(crate) fn range_of(route: &RouteMessage, index: u32) -> Option<Cidr> {
    let header = &route.header;
    let is_ours = header.protocol == RouteProtocol::Static
        && header.table == RouteHeader::RT_TABLE_MAIN
        && route.attributes.contains(&RouteAttribute::Oif(index))
        && has_gateway(route);
    let first =
        route.attributes.iter().filter(|_| is_ours).find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some(IpAddr::from(*ip)),
            RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some(IpAddr::from(*ip)),
            _ => None,
        })?;
    format!("{first}/{}", header.destination_prefix_length).parse().ok()
}

fn has_gateway(route: &RouteMessage) -> bool {
    let gateways = [RouteAddress::Inet(GATEWAY_V4), RouteAddress::Inet6(GATEWAY_V6)];
    gateways.into_iter().any(|ip| route.attributes.contains(&RouteAttribute::Gateway(ip)))
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
