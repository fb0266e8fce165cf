//! A pod's interface: the pair of links between node and pod.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;

use atoll_plan::{Device, HostInterface, PodInterface};
use netlink_packet_route::link::{InfoData, InfoVeth, LinkMessage};
use nix::errno::Errno;
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVeth};

use crate::error::{Attempt, DatapathError};
use crate::leaving;
use crate::netlink::{Link, Netlink, is};
use crate::quiet::silence_host_side;
use crate::sandbox;

/// Room for queueing disciplines that a pod or an operator may add.
const QUEUE_LENGTH: u32 = 1000;

/// Makes the pair with the pod's side inside the pod, addressed and routed; the host side stays
/// down. What exists and fits is completed, what does not fit is made anew, and what cannot be
/// completed is taken away again.
pub(crate) async fn create(
    netlink: &Netlink,
    name: &HostInterface,
    wanted: &PodInterface,
) -> Result<(), DatapathError> {
    let sandbox = sandbox::open(&wanted.sandbox)?;
    if !is_paired(netlink, name, wanted, &sandbox).await? {
        remove(netlink, name).await?;
        make_pair(netlink, name, wanted, &sandbox).await?;
    }
    let completed = complete(netlink, name, wanted, &sandbox).await;
    if completed.is_err() {
        remove(netlink, name).await?;
    }
    completed
}

/// Sets the largest packet of the pod's side.
pub(crate) async fn resize_pod_side(
    name: &HostInterface,
    wanted: &PodInterface,
) -> Result<(), DatapathError> {
    let sandbox = sandbox::open(&wanted.sandbox)?;
    sandbox::resize(&sandbox, wanted.pod_side(name), wanted.mtu).await?;
    match wanted.device {
        Device::Veth => Ok(()),
        Device::Tap => sandbox::resize(&sandbox, &wanted.name, wanted.mtu).await,
    }
}

/// Leads what the pod reaches through its side there, and nothing else of it. A machine behind a tap
/// finds its way by itself.
pub(crate) async fn route_pod_side(wanted: &PodInterface) -> Result<(), DatapathError> {
    match wanted.device {
        Device::Veth => sandbox::route(&sandbox::open(&wanted.sandbox)?, wanted).await,
        Device::Tap => Ok(()),
    }
}

/// Removes the pair; one that is gone already is as good.
pub(crate) async fn remove(netlink: &Netlink, name: &HostInterface) -> Result<(), DatapathError> {
    let link = netlink.link(name.as_str()).await?;
    leaving::remove_together(netlink, link.into_iter().collect()).await
}

/// Removes pairs together; those that are gone already are as good.
pub(crate) async fn remove_all(
    netlink: &Netlink,
    names: &BTreeSet<HostInterface>,
) -> Result<(), DatapathError> {
    let mut links = vec![];
    for name in names {
        links.extend(netlink.link(name.as_str()).await?);
    }
    leaving::remove_together(netlink, links).await
}

/// Whether the host side is there and its other side is the wanted interface in the wanted pod.
async fn is_paired(
    netlink: &Netlink,
    name: &HostInterface,
    wanted: &PodInterface,
    sandbox: &File,
) -> Result<bool, DatapathError> {
    let Some(host_side) = netlink.link(name.as_str()).await? else { return Ok(false) };
    let pod_side = sandbox::link(sandbox, wanted.pod_side(name)).await?;
    Ok(pod_side.is_some_and(|pod_side| fits(&host_side, &pod_side, wanted)))
}

fn fits(host_side: &Link, pod_side: &Link, wanted: &PodInterface) -> bool {
    host_side.peer == Some(pod_side.index)
        && pod_side.peer == Some(host_side.index)
        && pod_side.mac == wanted.guard.mac.octets()
        && pod_side.mtu == wanted.mtu
}

async fn make_pair(
    netlink: &Netlink,
    name: &HostInterface,
    wanted: &PodInterface,
    sandbox: &File,
) -> Result<(), DatapathError> {
    match netlink.add(pair(name, wanted, sandbox)).await {
        Err(error) if is(&error, Errno::EEXIST) => Err(DatapathError::InterfaceTaken {
            name: wanted.name.clone(),
            sandbox: wanted.sandbox.clone(),
        }),
        done => done.attempt(|| format!("make the pair of links {name} and {}", wanted.name)),
    }
}

fn pair(name: &HostInterface, wanted: &PodInterface, sandbox: &File) -> LinkMessage {
    let pod_side = LinkMessageBuilder::<LinkUnspec>::default()
        .name(wanted.pod_side(name).to_owned())
        .mtu(wanted.mtu)
        .address(wanted.guard.mac.octets().to_vec())
        .txqueuelen(QUEUE_LENGTH)
        .setns_by_fd(sandbox.as_raw_fd())
        .build();
    LinkMessageBuilder::<LinkVeth>::new(name.as_str(), wanted.pod_side(name))
        .set_info_data(InfoData::Veth(InfoVeth::Peer(pod_side)))
        .mtu(wanted.mtu)
        .txqueuelen(QUEUE_LENGTH)
        .arp(false)
        .build()
}

async fn complete(
    netlink: &Netlink,
    name: &HostInterface,
    wanted: &PodInterface,
    sandbox: &File,
) -> Result<(), DatapathError> {
    silence_host_side(name.as_str())?;
    netlink.set_alias(name.as_str(), alias(&wanted.description)).await?;
    sandbox::configure(sandbox, name, wanted).await
}

/// The kernel keeps 255 bytes of an alias.
fn alias(description: &str) -> String {
    description
        .chars()
        .scan(0, |bytes, letter| {
            *bytes += letter.len_utf8();
            (*bytes < 256).then_some(letter)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_cut_between_letters_to_what_the_kernel_keeps() {
        assert_eq!(alias("acme/web eth0"), "acme/web eth0");
        assert_eq!(alias(&"a".repeat(300)).len(), 255);
        assert_eq!(alias(&"ä".repeat(300)).len(), 254);
    }
}
