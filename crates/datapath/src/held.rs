//! Addresses of the outside that this node answers for: each is an address of the uplink, alone,
//! and the neighbours are told when it comes.
//!
//! The rules: an address is ours by its protocol's number alone, so that those of others are never
//! touched and ours are found again after any restart. The node itself never speaks from one.

use std::collections::BTreeSet;
use std::net::IpAddr;

use futures::TryStreamExt;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, AddressScope, CacheInfo,
};
use nix::errno::Errno;

use crate::announce;
use crate::error::{Attempt, DatapathError, Remains};
use crate::netlink::{Link, Netlink, is};

/// The number by which the kernel knows who gave a link an address; none that programs in use have.
const OURS: AddressProtocol = AddressProtocol::Other(174);

/// Makes our addresses exactly these, on the link that has `underlay`, and says which of them are
/// new. It goes on after a failure and reports all.
pub(crate) async fn set(
    netlink: &Netlink,
    underlay: IpAddr,
    wanted: &BTreeSet<IpAddr>,
) -> Result<BTreeSet<IpAddr>, DatapathError> {
    let uplink = uplink(netlink, underlay).await?;
    let mut errors = vec![];
    let (mut there, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for message in list(netlink).await? {
        let kept = address(&message).filter(|ip| wanted.contains(ip));
        match kept.filter(|_| message.header.index == uplink.index) {
            Some(ip) => drop(there.insert(ip)),
            None => errors.extend(remove(netlink, message).await.err()),
        }
    }
    for ip in wanted.difference(&there) {
        match add(netlink, &uplink, *ip).await {
            Ok(()) => drop(taken.insert(*ip)),
            Err(error) => errors.push(error),
        }
    }
    match errors.is_empty() {
        true => Ok(taken),
        false => Err(DatapathError::NotHeld(Remains(errors))),
    }
}

/// Tells the neighbours of the link that has `underlay` that these addresses are here.
pub(crate) async fn announce(
    netlink: &Netlink,
    underlay: IpAddr,
    addresses: &BTreeSet<IpAddr>,
) -> Result<(), DatapathError> {
    let uplink = uplink(netlink, underlay).await?;
    let Ok(mac) = <[u8; 6]>::try_from(uplink.mac.as_slice()) else { return Ok(()) };
    let frames = addresses.iter().map(|ip| announce::frame(mac, *ip)).collect::<Vec<_>>();
    let sent = announce::send(&uplink.name, &frames);
    sent.attempt(|| format!("announce addresses of the outside on link {}", uplink.name))
}

async fn uplink(netlink: &Netlink, underlay: IpAddr) -> Result<Link, DatapathError> {
    let found = netlink.link_with_address(underlay).await?;
    found.ok_or(DatapathError::NoUplink(underlay))
}

/// Our addresses, as they are.
pub(crate) async fn list(netlink: &Netlink) -> Result<Vec<AddressMessage>, DatapathError> {
    let all = netlink.handle.address().get().execute();
    let all: Vec<_> = all.try_collect().await.attempt(|| "list addresses".into())?;
    let ours = AddressAttribute::Protocol(OURS);
    Ok(all.into_iter().filter(|message| message.attributes.contains(&ours)).collect())
}

/// An address of ours in words.
pub(crate) fn told(message: &AddressMessage) -> String {
    address(message).map_or_else(|| "an address".into(), |ip| format!("address {ip}"))
}

fn address(message: &AddressMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(ip) => Some(*ip),
        _ => None,
    })
}

/// With a scope or an age at which the kernel does not choose it for what the node itself says.
async fn add(netlink: &Netlink, uplink: &Link, ip: IpAddr) -> Result<(), DatapathError> {
    let length = if ip.is_ipv4() { 32 } else { 128 };
    let mut request = netlink.handle.address().add(uplink.index, ip, length);
    let message = request.message_mut();
    message.attributes.push(AddressAttribute::Protocol(OURS));
    if ip.is_ipv4() {
        message.header.scope = AddressScope::Link;
    } else {
        let mut age = CacheInfo::default();
        (age.ifa_preferred, age.ifa_valid) = (0, u32::MAX);
        message.attributes.push(AddressAttribute::CacheInfo(age));
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    let name = &uplink.name;
    request.execute().await.attempt(|| format!("give link {name} the address {ip} of the outside"))
}

/// One that is gone already is as good.
pub(crate) async fn remove(
    netlink: &Netlink,
    message: AddressMessage,
) -> Result<(), DatapathError> {
    let told = told(&message);
    match netlink.handle.address().del(message).execute().await {
        Err(error) if is(&error, Errno::EADDRNOTAVAIL) => Ok(()),
        done => done.attempt(|| format!("remove the {told} of the outside")),
    }
}
