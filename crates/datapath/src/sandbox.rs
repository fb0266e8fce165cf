//! Work inside a pod's network namespace.
//!
//! The rule: a foreign namespace is entered only by a thread that ends there.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::thread;

use atoll_plan::PodInterface;
use atoll_types::{GATEWAY_V4, GATEWAY_V6};
use netlink_packet_route::address::{AddressAttribute, AddressFlags};
use netlink_packet_route::route::RouteScope;
use nix::sched::{CloneFlags, setns};
use rtnetlink::RouteMessageBuilder;
use tokio::sync::oneshot;

use crate::error::{Attempt, DatapathError};
use crate::netlink::{Link, Netlink};
use crate::quiet::silence_pod_side;

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
        .enable_io()
        .build()
        .attempt(|| "start a runtime inside a pod's namespace".into())?;
    runtime.block_on(async { job(Netlink::open()?).await })
}

/// The link called `name` inside the pod.
pub(crate) async fn link(sandbox: &File, name: &str) -> Result<Option<Link>, DatapathError> {
    let name = name.to_owned();
    inside(sandbox, async move |netlink| netlink.link(&name).await).await
}

/// Gives the pod's side its addresses and routes and sets it up. Repeatable.
pub(crate) async fn configure(
    sandbox: &File,
    interface: &PodInterface,
) -> Result<(), DatapathError> {
    let interface = interface.clone();
    inside(sandbox, async move |netlink| configure_here(&netlink, &interface).await).await
}

async fn configure_here(netlink: &Netlink, wanted: &PodInterface) -> Result<(), DatapathError> {
    let link = netlink.link(&wanted.name).await?;
    let link = link
        .ok_or(std::io::Error::from(std::io::ErrorKind::NotFound))
        .attempt(|| format!("find interface {} inside the pod", wanted.name))?;
    silence_pod_side(&wanted.name)?;
    netlink.raise(&link).await?;
    for ip in &wanted.guard.ips {
        add_address(netlink, &link, *ip).await?;
    }
    if wanted.guard.ips.iter().any(IpAddr::is_ipv4) {
        route_ipv4(netlink, &link).await?;
    }
    if wanted.guard.ips.iter().any(IpAddr::is_ipv6) {
        route_ipv6(netlink, &link).await?;
    }
    Ok(())
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

async fn route_ipv4(netlink: &Netlink, link: &Link) -> Result<(), DatapathError> {
    let to_gateway = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(GATEWAY_V4, 32)
        .scope(RouteScope::Link)
        .output_interface(link.index)
        .build();
    let through_gateway = RouteMessageBuilder::<Ipv4Addr>::new()
        .gateway(GATEWAY_V4)
        .output_interface(link.index)
        .build();
    for route in [to_gateway, through_gateway] {
        netlink
            .handle
            .route()
            .add(route)
            .replace()
            .execute()
            .await
            .attempt(|| format!("add the route through {GATEWAY_V4} to {}", link.name))?;
    }
    Ok(())
}

async fn route_ipv6(netlink: &Netlink, link: &Link) -> Result<(), DatapathError> {
    let through_gateway = RouteMessageBuilder::<Ipv6Addr>::new()
        .gateway(GATEWAY_V6)
        .output_interface(link.index)
        .build();
    let added = netlink.handle.route().add(through_gateway).replace().execute().await;
    added.attempt(|| format!("add the route through {GATEWAY_V6} to {}", link.name))
}
