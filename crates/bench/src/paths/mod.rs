//! The paths that packets take: each a client, a server, and what is between them.

mod atoll;
mod everything;
mod nft;
mod ovn;
mod peers;

use std::any::Any;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::Result;
use atoll_testkit::Namespace;
use serde::{Deserialize, Serialize};

pub(crate) use atoll::{Cluster, Setting, port};
pub(crate) use ovn::{MODULES as OVN_MODULES, PACKAGES as OVN_PACKAGES};

/// The contestant whose goals are ours.
pub(crate) const ATOLL: &str = "**Atoll**, two tenants";
/// The same through a service.
pub(crate) const ATOLL_SERVICE: &str = "**Atoll**, two tenants, service";
/// The address of the measured service, in every tenant's network and in nft's rules.
pub(crate) const VIP: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 1);

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

impl Path {
    fn of_cluster(cluster: &Arc<Cluster>, place: Place) -> Self {
        let keeps = vec![cluster.clone() as Arc<dyn Any>];
        Path { name: ATOLL, place, ends: cluster.ends(place), _keeps: keeps }
    }

    fn through_service(cluster: &Arc<Cluster>) -> Self {
        let mut path = Path::of_cluster(cluster, Place::SameNode);
        path.name = ATOLL_SERVICE;
        path.ends.iter_mut().for_each(|ends| ends.target = VIP.into());
        path
    }
}

/// Every path from pod to pod. The first of each place is its limit, and that of one node is the
/// last, too.
pub(crate) fn all() -> Result<Vec<Path>> {
    let mut paths = with_cluster(&cluster()?)?;
    paths.push(peers::direct_again());
    Ok(paths)
}

/// The same, those through a service, and those of OVN, whose switch is a part of few kernels.
pub(crate) fn all_with_services_and_ovn() -> Result<Vec<Path>> {
    let cluster = cluster()?;
    let mut paths = with_cluster(&cluster)?;
    paths.extend([peers::routed_service()?, Path::through_service(&cluster)]);
    paths.extend(ovn::paths()?);
    Ok(paths)
}

/// The paths through a service, after their limit.
pub(crate) fn services() -> Result<Vec<Path>> {
    let cluster = cluster()?;
    Ok(vec![peers::direct(), peers::routed_service()?, Path::through_service(&cluster)])
}

/// Our own paths, and what each is compared with.
pub(crate) fn ours_and_limits() -> Result<Vec<Path>> {
    let cluster = cluster()?;
    Ok(vec![
        peers::direct(),
        Path::of_cluster(&cluster, Place::SameNode),
        Path::through_service(&cluster),
        peers::across(peers::Link::Routing, false)?,
        Path::of_cluster(&cluster, Place::AcrossNodes),
    ])
}

/// What paths are compared with, of each place.
pub(crate) fn limits() -> Result<Vec<Path>> {
    Ok(vec![peers::direct(), peers::across(peers::Link::Routing, false)?])
}

/// Two tenants with everything on.
pub(crate) fn cluster() -> Result<Arc<Cluster>> {
    Ok(Arc::new(Cluster::new(&Setting::everything(&[100, 200]))?))
}

fn with_cluster(cluster: &Arc<Cluster>) -> Result<Vec<Path>> {
    Ok(vec![
        peers::direct(),
        peers::bridge(false)?,
        peers::bridge(true)?,
        peers::routed(false)?,
        peers::routed(true)?,
        Path::of_cluster(cluster, Place::SameNode),
        peers::across(peers::Link::Routing, false)?,
        peers::across(peers::Link::Vxlan, false)?,
        peers::across(peers::Link::Vxlan, true)?,
        Path::of_cluster(cluster, Place::AcrossNodes),
    ])
}
