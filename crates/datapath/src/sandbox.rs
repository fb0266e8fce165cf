//! Work inside a pod's network namespace.
//!
//! The rule: a foreign namespace is entered only by a thread that ends there.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::thread;

use atoll_plan::{Device, HostInterface, PodInterface, Reach};
use atoll_types::Cidr;
use futures::TryStreamExt;
use netlink_packet_route::address::{AddressAttribute, AddressFlags};
use netlink_packet_route::route::RouteMessage;
use nix::sched::{CloneFlags, setns};
use rtnetlink::RouteMessageBuilder;
use tokio::sync::oneshot;

use crate::error::{Attempt, DatapathError};
use crate::netlink::{Link, Netlink};
use crate::quiet::{silence_pod_side, stop_forwarding};
use crate::{routes, rules, settle, tap};

/// Opens a pod's namespace.
pub(crate) fn open(path: &Path) -> Result<File, DatapathError> {
    File::open(path).map_err(|source| DatapathError::NoSandbox { path: path.to_owned(), source })
}

/// Runs `job` on a thread of its own inside `sandbox`, with a netlink socket there.
async fn inside<T: Send + 'static>(
    sandbox: &File,
    job: impl AsyncFnOnce(Netlink) -> Result<T, DatapathError> + Send + 'static,
) -> Result<T, DatapathError> {
    let sandbox = sandbox.try_clone().attempt(|| "keep a pod's namespace open".into())?;
    let (answer, result) = oneshot::channel();
    let work = move || {
        // Nobody waits for the answer any more when the caller was cancelled.
        let _ = answer.send(enter_and_run(&sandbox, job));
    };
    let name = "pod-namespace".to_owned();
    thread::Builder::new().name(name).spawn(work).attempt(|| "start a thread".into())?;
    result.await.attempt(|| "work inside a pod's namespace".into())?
}

fn enter_and_run<T>(
    sandbox: &File,
    job: impl AsyncFnOnce(Netlink) -> Result<T, DatapathError>,
) -> Result<T, DatapathError> {
    setns(sandbox, CloneFlags::CLONE_NEWNET).attempt(|| "enter a pod's namespace".into())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .attempt(|| "start a runtime inside a pod's namespace".into())?;
    runtime.block_on(async { job(Netlink::open()?).await })
}

/// The link called `name` inside the pod.
pub(crate) async fn link(sandbox: &File, name: &str) -> Result<Option<Link>, DatapathError> {
    let name = name.to_owned();
    inside(sandbox, async move |netlink| netlink.link(&name).await).await
}

/// Sets the largest packet of the pod's side.
pub(crate) async fn resize(sandbox: &File, name: &str, mtu: u32) -> Result<(), DatapathError> {
    let name = name.to_owned();
    inside(sandbox, async move |netlink| {
        let link = in_pod(&netlink, &name).await?;
        netlink.set_mtu(&link, mtu).await
    })
    .await
}

/// Gives the pod's side its addresses and routes, or a tap, and sets it up. Repeatable.
pub(crate) async fn configure(
    sandbox: &File,
    host_side: &HostInterface,
    wanted: &PodInterface,
) -> Result<(), DatapathError> {
    let (host_side, wanted) = (host_side.clone(), wanted.clone());
    inside(sandbox, async move |netlink| match wanted.device {
        Device::Veth => configure_here(&netlink, &wanted).await,
        Device::Tap => {
            let pod_side = in_pod(&netlink, wanted.pod_side(&host_side)).await?;
            tap::complete(&netlink, &wanted.name, &pod_side).await
        }
    })
    .await
}

async fn configure_here(netlink: &Netlink, wanted: &PodInterface) -> Result<(), DatapathError> {
    let link = in_pod(netlink, &wanted.name).await?;
    silence_pod_side(&wanted.name)?;
    if wanted.has_siblings {
        stop_forwarding(&wanted.name)?;
    }
    netlink.raise(&link).await?;
    for ip in &wanted.guard.ips {
        add_address(netlink, &link, *ip).await?;
    }
    route_here(netlink, &link, wanted).await?;
    settle::addresses(netlink, &wanted.guard.ips).await
}

/// Leads what the pod reaches through one of its interfaces there, and nothing else of it.
pub(crate) async fn route(sandbox: &File, interface: &PodInterface) -> Result<(), DatapathError> {
    let interface = interface.clone();
    inside(sandbox, async move |netlink| {
        let link = in_pod(&netlink, &interface.name).await?;
        route_here(&netlink, &link, &interface).await
    })
    .await
}

/// New routes first, then those go that are not wanted.
async fn route_here(
    netlink: &Netlink,
    link: &Link,
    wanted: &PodInterface,
) -> Result<(), DatapathError> {
    for route in routes::of(wanted, link.index) {
        add_route(netlink, link, route).await?;
    }
    if wanted.has_siblings {
        for source in &wanted.guard.ips {
            add_route(netlink, link, routes::of_source(*source, link.index)).await?;
            rules::lead(netlink, link, *source).await?;
        }
    }
    match &wanted.reach {
        Reach::Everything => Ok(()),
        Reach::Only(ranges) => remove_routes_beside(netlink, link, ranges).await,
    }
}

async fn add_route(
    netlink: &Netlink,
    link: &Link,
    route: RouteMessage,
) -> Result<(), DatapathError> {
    let added = netlink.handle.route().add(route).replace().execute().await;
    added.attempt(|| format!("add a route through the gateway to {}", link.name))
}

/// Removes our routes of an interface to ranges that are none of these.
async fn remove_routes_beside(
    netlink: &Netlink,
    link: &Link,
    ranges: &BTreeSet<Cidr>,
) -> Result<(), DatapathError> {
    let families = [
        RouteMessageBuilder::<Ipv4Addr>::new().build(),
        RouteMessageBuilder::<Ipv6Addr>::new().build(),
    ];
    for family in families {
        let listed = netlink.handle.route().get(family).execute().try_collect::<Vec<_>>().await;
        for route in listed.attempt(|| format!("list the routes of {}", link.name))? {
            let range = routes::range_of(&route, link.index);
            if let Some(range) = range.filter(|range| !ranges.contains(range)) {
                let removed = netlink.handle.route().del(route).execute().await;
                removed.attempt(|| format!("remove the route to {range} from {}", link.name))?;
            }
        }
    }
    Ok(())
}

/// The pod's side, which must be there.
async fn in_pod(netlink: &Netlink, name: &str) -> Result<Link, DatapathError> {
    let link = netlink.link(name).await?;
    link.ok_or(std::io::Error::from(std::io::ErrorKind::NotFound))
        .attempt(|| format!("find interface {name} inside the pod"))
}

/// The address alone, without a range around it: every other address is behind the gateway. No
/// search for duplicates: the controller gave the address to nobody else.
pub(crate) async fn add_address(
    netlink: &Netlink,
    link: &Link,
    ip: IpAddr,
) -> Result<(), DatapathError> {
    let length = if ip.is_ipv4() { 32 } else { 128 };
    let mut request = netlink.handle.address().add(link.index, ip, length).replace();
    if ip.is_ipv6() {
        request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    request.execute().await.attempt(|| format!("add address {ip} to {}", link.name))
}
