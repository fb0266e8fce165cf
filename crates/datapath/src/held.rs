//! Addresses of the outside that this node answers for: each is an address of the uplink, alone,
//! with an entry that says which network it is for.
//!
//! The rules: an address is ours by its protocol's number alone, so that those of others are never
//! touched and ours are found again after any restart. The node itself never speaks from one. The
//! entry is there for as long as the address is, and longer: with it, nothing that comes to the
//! address reaches the node's own programs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use atoll_abi::{Held as Entry, HeldKey};
use atoll_types::NetworkId;
use futures::TryStreamExt;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, AddressScope, CacheInfo,
};
use nix::errno::Errno;

use crate::announce;
use crate::error::{Attempt, DatapathError};
use crate::maps::{Table, check_shape};
use crate::netlink::{Link, Netlink, is};

/// The number by which the kernel knows who gave a link an address; none that programs in use have.
const OURS: AddressProtocol = AddressProtocol::Other(174);

/// Refuses pinned maps whose entries have other sizes than ours.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    check_shape::<HeldKey, Entry>(&dir.join("held_addresses"))
}

/// Whose each address of the outside is.
pub(crate) struct Held {
    entries: Table<HeldKey, Entry>,
}

impl Held {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        Ok(Held { entries: Table::open(dir, "held_addresses")? })
    }

    /// Whether this node answers for any.
    pub(crate) fn is_needed(&self) -> Result<bool, DatapathError> {
        Ok(!self.entries.keys()?.is_empty())
    }

    /// Says whose an address is, before it is there.
    pub(crate) fn put(&mut self, ip: IpAddr, network: NetworkId) -> Result<(), DatapathError> {
        self.entries.put(key(ip), Entry { network: network.get() })
    }

    /// Forgets it, after it is gone.
    pub(crate) fn remove(&mut self, ip: IpAddr) -> Result<(), DatapathError> {
        self.entries.remove(key(ip))
    }

    /// The addresses that have an entry or that any link has from us; with the network, those that
    /// have an entry and are on the uplink.
    pub(crate) async fn seen(
        &self,
        netlink: &Netlink,
        uplink: &Link,
    ) -> Result<BTreeMap<IpAddr, Option<NetworkId>>, DatapathError> {
        let ours = list(netlink).await?;
        let there = on(&ours, uplink);
        let mut seen: BTreeMap<_, _> =
            ours.iter().filter_map(address).map(|ip| (ip, None)).collect();
        for (key, entry) in self.entries.entries()? {
            let ip = IpAddr::from(key.address);
            let network = NetworkId::try_from(entry.network).ok();
            seen.insert(ip, network.filter(|_| there.contains(&ip)));
        }
        Ok(seen)
    }
}

fn key(ip: IpAddr) -> HeldKey {
    HeldKey { address: ip.into() }
}

/// Gives the uplink the address, unless it has it from us.
pub(crate) async fn take(
    netlink: &Netlink,
    uplink: &Link,
    ip: IpAddr,
) -> Result<(), DatapathError> {
    match on(&list(netlink).await?, uplink).contains(&ip) {
        true => Ok(()),
        false => add(netlink, uplink, ip).await,
    }
}

/// Takes the address from every link that has it from us.
pub(crate) async fn give_up(netlink: &Netlink, ip: IpAddr) -> Result<(), DatapathError> {
    for message in list(netlink).await?.into_iter().filter(|it| address(it) == Some(ip)) {
        remove(netlink, message).await?;
    }
    Ok(())
}

/// Those among our addresses that a link has.
fn on(ours: &[AddressMessage], link: &Link) -> BTreeSet<IpAddr> {
    ours.iter().filter(|it| it.header.index == link.index).filter_map(address).collect()
}

/// Tells the neighbours of the uplink that these addresses are here.
pub(crate) fn announce(uplink: &Link, addresses: &BTreeSet<IpAddr>) -> Result<(), DatapathError> {
    let Ok(mac) = <[u8; 6]>::try_from(uplink.mac.as_slice()) else { return Ok(()) };
    let frames = addresses.iter().map(|ip| announce::frame(mac, *ip)).collect::<Vec<_>>();
    let sent = announce::send(&uplink.name, &frames);
    sent.attempt(|| format!("announce addresses of the outside on link {}", uplink.name))
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
