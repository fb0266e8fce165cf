//! The paths that packets take: each a client, a server, and what is between them.

mod atoll;
mod nft;
mod peers;

use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Result;
use atoll_testkit::Namespace;
use serde::{Deserialize, Serialize};

pub(crate) use atoll::Cluster;

/// The contestant whose goals are ours.
pub(crate) const ATOLL: &str = "**Atoll**, two tenants";

/// Where the two ends are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// On one node.
    SameNode,
    /// On two.
    AcrossNodes,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::SameNode => "Same node",
            Place::AcrossNodes => "Across nodes",
        })
    }
}

/// A client and a server.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) client: Arc<Namespace>,
    pub(crate) server: Arc<Namespace>,
    pub(crate) target: IpAddr,
}

/// A way from clients to servers, up for as long as this value lives.
pub(crate) struct Path {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    /// One pair of ends, or one for each tenant; they take turns.
    pub(crate) ends: Vec<Ends>,
    _keeps: Vec<Arc<dyn Any>>,
}

/// Every path. The first of each place is its limit.
pub(crate) fn all() -> Result<Vec<Path>> {
    let [same_node, across_nodes] = ours()?;
    Ok(vec![
        peers::direct(),
        peers::bridge(false)?,
        peers::bridge(true)?,
        peers::routed(false)?,
        peers::routed(true)?,
        same_node,
        peers::across(peers::Link::Routing, false)?,
        peers::across(peers::Link::Vxlan, false)?,
        peers::across(peers::Link::Vxlan, true)?,
        across_nodes,
    ])
}

/// Our paths, each after its limit.
pub(crate) fn ours_and_limits() -> Result<Vec<Path>> {
    let [same_node, across_nodes] = ours()?;
    let routing = peers::across(peers::Link::Routing, false)?;
    Ok(vec![peers::direct(), same_node, routing, across_nodes])
}

/// Our path of each place, in one cluster.
fn ours() -> Result<[Path; 2]> {
    let cluster = Arc::new(Cluster::of_tenants(&[100, 200], 0)?);
    Ok([Place::SameNode, Place::AcrossNodes].map(|place| {
        let ends = cluster.ends(place);
        Path { name: ATOLL, place, ends, _keeps: vec![cluster.clone() as Arc<dyn Any>] }
    }))
}
