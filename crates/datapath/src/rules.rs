//! Which of a pod's interfaces a packet leaves through, by the address that it starts with.
//!
//! The rule: an address has one rule of ours, which leads to the table of the interface that has
//! it. Rules do not go with their interface, so one that points elsewhere is a former one's.

use std::net::IpAddr;

use futures::TryStreamExt;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use nix::errno::Errno;
use rtnetlink::IpVersion;

use crate::error::{Attempt, DatapathError};
use crate::netlink::{Link, Netlink, is};
use crate::routes;

/// Before the tables that everybody shares (32766), after the addresses of the pod itself (0).
const PRIORITY: u32 = 1000;

/// Leads what starts with `source` through `link`. Repeatable.
pub(crate) async fn lead(
    netlink: &Netlink,
    link: &Link,
    source: IpAddr,
) -> Result<(), DatapathError> {
    let table = routes::own_table(link.index);
    for former in rules_for(netlink, source).await? {
        if !former.attributes.contains(&RuleAttribute::Table(table)) {
            let removed = netlink.handle.rule().del(former).execute().await;
            removed.attempt(|| format!("remove a former rule for {source}"))?;
        }
    }
    let request = netlink.handle.rule().add().action(RuleAction::ToTable);
    let request = request.table_id(table).priority(PRIORITY);
    let added = match source {
        IpAddr::V4(ip) => request.v4().source_prefix(ip, 32).execute().await,
        IpAddr::V6(ip) => request.v6().source_prefix(ip, 128).execute().await,
    };
    match added {
        Err(error) if is(&error, Errno::EEXIST) => Ok(()),
        done => done.attempt(|| format!("add a rule for {source} to {}", link.name)),
    }
}

/// Our rules for an address, wherever they lead.
async fn rules_for(netlink: &Netlink, source: IpAddr) -> Result<Vec<RuleMessage>, DatapathError> {
    let family = if source.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 };
    let all: Result<Vec<RuleMessage>, _> =
        netlink.handle.rule().get(family).execute().try_collect().await;
    let mut all = all.attempt(|| "list rules inside a pod".into())?;
    all.retain(|rule| {
        rule.attributes.contains(&RuleAttribute::Priority(PRIORITY))
            && rule.attributes.contains(&RuleAttribute::Source(source))
    });
    Ok(all)
}
