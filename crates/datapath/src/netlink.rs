//! Links, addresses and routes of one network namespace, over one netlink socket.
//!
//! The socket belongs to the namespace of the thread that opened it and stays there. Functions
//! here do one thing each and decide nothing.

use std::net::IpAddr;

use futures::{StreamExt, TryStreamExt};
use netlink_packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State,
};
use netlink_packet_route::tc::{TcAttribute, TcFilterBpfOption, TcMessage, TcOption};
use nix::errno::Errno;
use rtnetlink::{Handle, LinkUnspec};
use tokio::task::JoinHandle;

use crate::error::{Attempt, DatapathError};

/// The group of links that are about to be removed, by a number that nobody gives by hand.
pub(crate) const DOOMED: u32 = 0x61_74_6f_6c;

/// A netlink socket and the task that reads it.
#[derive(Debug)]
pub(crate) struct Netlink {
    pub(crate) handle: Handle,
    reader: JoinHandle<()>,
}

/// What we want to know of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) up: bool,
    pub(crate) mtu: u32,
    pub(crate) kind: Kind,
    pub(crate) mac: Vec<u8>,
    /// The group that it was put into; 0 is none.
    pub(crate) group: u32,
    /// The other side of a veth pair, by its index in its own namespace.
    pub(crate) peer: Option<u32>,
    /// The namespace of the other side, by the number that this one has for it; none: this one.
    pub(crate) peer_namespace: Option<i32>,
    /// Whether the kernel takes what it is given to send.
    pub(crate) sends: bool,
}

/// The kinds of link that concern us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Veth,
    Tap,
    Vxlan { external: bool, port: Option<u16> },
    Other,
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Netlink {
    /// Opens a socket in the current thread's network namespace.
    pub(crate) fn open() -> Result<Self, DatapathError> {
        let (connection, handle, _) =
            rtnetlink::new_connection().attempt(|| "open a netlink socket".into())?;
        Ok(Netlink { handle, reader: tokio::spawn(connection) })
    }

    /// The link called `name`, if there is one.
    pub(crate) async fn link(&self, name: &str) -> Result<Option<Link>, DatapathError> {
        let mut found = Box::pin(self.handle.link().get().match_name(name).execute());
        match found.try_next().await {
            Ok(message) => Ok(message.map(Link::from)),
            Err(error) if is(&error, Errno::ENODEV) => Ok(None),
            Err(error) => Err(error).attempt(|| format!("look up link {name}")),
        }
    }

    /// The other side of a veth pair, wherever it is.
    pub(crate) async fn other_side(&self, link: &Link) -> Result<Option<Link>, DatapathError> {
        let Some(index) = link.peer else { return Ok(None) };
        let mut request = self.handle.link().get().match_index(index);
        let namespace = link.peer_namespace.map(LinkAttribute::IfNetnsId);
        request.message_mut().attributes.extend(namespace);
        let mut found = Box::pin(request.execute());
        match found.try_next().await {
            Ok(message) => Ok(message.map(Link::from)),
            Err(error) if is(&error, Errno::ENODEV) => Ok(None),
            Err(error) => Err(error).attempt(|| format!("look up the other side of {}", link.name)),
        }
    }

    /// All links.
    pub(crate) async fn links(&self) -> Result<Vec<Link>, DatapathError> {
        let all = self.handle.link().get().execute().map_ok(Link::from);
        all.try_collect().await.attempt(|| "list links".into())
    }

    /// The link that has `address`.
    pub(crate) async fn link_with_address(
        &self,
        address: IpAddr,
    ) -> Result<Option<Link>, DatapathError> {
        let wanted = AddressAttribute::Address(address);
        let mut all = Box::pin(self.handle.address().get().execute());
        let mut owner = None;
        while let Some(message) = all.next().await {
            let message = message.attempt(|| "list addresses".into())?;
            if message.attributes.contains(&wanted) {
                owner = Some(message.header.index);
            }
        }
        Ok(self.links().await?.into_iter().find(|link| Some(link.index) == owner))
    }

    /// The addresses of a link that the world may know and that are in use, in the kernel's order.
    pub(crate) async fn global_addresses(&self, link: &Link) -> Result<Vec<IpAddr>, DatapathError> {
        let request = self.handle.address().get().set_link_index_filter(link.index);
        let all: Result<Vec<AddressMessage>, _> = request.execute().try_collect().await;
        let all = all.attempt(|| format!("list the addresses of link {}", link.name))?;
        Ok(all.iter().filter(|it| is_global(it)).filter_map(address_in).collect())
    }

    /// Makes a link.
    pub(crate) async fn add(&self, message: LinkMessage) -> Result<(), rtnetlink::Error> {
        self.handle.link().add(message).execute().await
    }

    /// Sets the largest packet a link sends.
    pub(crate) async fn set_mtu(&self, link: &Link, mtu: u32) -> Result<(), DatapathError> {
        let message = LinkUnspec::new_with_index(link.index).mtu(mtu).build();
        let done = self.handle.link().set(message).execute().await;
        done.attempt(|| format!("set the MTU of link {} to {mtu}", link.name))
    }

    /// Labels a link for people.
    pub(crate) async fn set_alias(&self, name: &str, alias: String) -> Result<(), DatapathError> {
        let message = LinkUnspec::new_with_name(name).alias(alias).build();
        let done = self.handle.link().set(message).execute().await;
        done.attempt(|| format!("label link {name}"))
    }

    /// Sets a link up.
    pub(crate) async fn raise(&self, link: &Link) -> Result<(), DatapathError> {
        let message = LinkUnspec::new_with_index(link.index).up().build();
        let done = self.handle.link().set(message).execute().await;
        done.attempt(|| format!("set link {} up", link.name))
    }

    /// Removes a link; one that is gone already is as good.
    pub(crate) async fn remove(&self, link: &Link) -> Result<(), DatapathError> {
        match self.handle.link().del(link.index).execute().await {
            Err(error) if is(&error, Errno::ENODEV) => Ok(()),
            done => done.attempt(|| format!("remove link {}", link.name)),
        }
    }

    /// Removes many links in the time of one: for each removal the kernel waits until nobody uses
    /// what was removed any more, and for a group it waits once.
    pub(crate) async fn remove_all(&self, links: &[Link]) -> Result<(), DatapathError> {
        self.doom(links).await?;
        if links.len() > 1 && self.are_alone_doomed(links).await? {
            return self.remove_doomed().await;
        }
        for link in links {
            self.remove(link).await?;
        }
        Ok(())
    }

    /// Puts the links into the group that is removed next. So the kernel's word of their end says
    /// that it came by our own hand.
    async fn doom(&self, links: &[Link]) -> Result<(), DatapathError> {
        for link in links {
            let message = LinkUnspec::new_with_index(link.index).link_group(DOOMED).build();
            match self.handle.link().set(message).execute().await {
                Err(error) if is(&error, Errno::ENODEV) => {}
                done => done.attempt(|| format!("put link {} into a group", link.name))?,
            }
        }
        Ok(())
    }

    /// Whether no other link is in that group: links of others are never touched.
    async fn are_alone_doomed(&self, links: &[Link]) -> Result<bool, DatapathError> {
        let known = |found: &Link| links.iter().any(|link| link.index == found.index);
        Ok(self.links().await?.iter().filter(|link| link.group == DOOMED).all(known))
    }

    async fn remove_doomed(&self) -> Result<(), DatapathError> {
        let mut request = self.handle.link().del(0);
        request.message_mut().attributes.push(LinkAttribute::Group(DOOMED));
        match request.execute().await {
            Err(error) if is(&error, Errno::ENODEV) => Ok(()),
            done => done.attempt(|| "remove a group of links".into()),
        }
    }

    /// The id of the BPF program in the filter with `priority` on a link's ingress or egress.
    pub(crate) async fn filter_program(
        &self,
        link: &Link,
        at_egress: bool,
        priority: u16,
    ) -> Result<Option<u32>, DatapathError> {
        let index = i32::try_from(link.index).attempt(|| format!("use index {}", link.index))?;
        let all = self.handle.traffic_filter(index).get();
        let all = if at_egress { all.egress() } else { all.ingress() };
        let found: Result<Vec<TcMessage>, _> = all.execute().try_collect().await;
        let filters = match found {
            // The link has no queueing discipline that filters could be on.
            Err(error) if is(&error, Errno::EINVAL) => vec![],
            found => found.attempt(|| format!("list the filters of link {}", link.name))?,
        };
        Ok(filters.iter().filter(|filter| has_priority(filter, priority)).find_map(program_of))
    }
}

/// Whether an address is in use, and of more than this link.
fn is_global(message: &AddressMessage) -> bool {
    let unusable = AddressHeaderFlags::Tentative
        | AddressHeaderFlags::Dadfailed
        | AddressHeaderFlags::Deprecated;
    message.header.scope == AddressScope::Universe && !message.header.flags.intersects(unusable)
}

fn address_in(message: &AddressMessage) -> Option<IpAddr> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(ip) => Some(*ip),
            _ => None,
        })
    })
}

/// Whether the kernel's answer was `errno`.
pub(crate) fn is(error: &rtnetlink::Error, errno: Errno) -> bool {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.raw_code() == -(errno as i32),
        _ => false,
    }
}

impl From<LinkMessage> for Link {
    fn from(message: LinkMessage) -> Self {
        let mut link = Link {
            index: message.header.index,
            name: String::new(),
            up: message.header.flags.contains(LinkFlags::Up),
            mtu: 0,
            kind: Kind::Other,
            mac: vec![],
            group: 0,
            peer: None,
            peer_namespace: None,
            sends: false,
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::LinkInfo(infos) => link.kind = Kind::of(&infos),
                LinkAttribute::Address(mac) => link.mac = mac,
                LinkAttribute::Group(group) => link.group = group,
                LinkAttribute::Link(peer) => link.peer = Some(peer),
                LinkAttribute::LinkNetNsId(number) => link.peer_namespace = Some(number),
                LinkAttribute::OperState(state) => link.sends = state == State::Up,
                _ => {}
            }
        }
        link
    }
}

impl Kind {
    fn of(infos: &[LinkInfo]) -> Self {
        let is_veth = infos.contains(&LinkInfo::Kind(InfoKind::Veth));
        let vxlan = infos.iter().find_map(|info| match info {
            LinkInfo::Data(InfoData::Vxlan(settings)) => Some(settings),
            _ => None,
        });
        match vxlan {
            Some(settings) => Kind::Vxlan {
                external: settings.contains(&InfoVxlan::CollectMetadata(true)),
                port: settings.iter().find_map(|setting| match setting {
                    InfoVxlan::Port(port) => Some(*port),
                    _ => None,
                }),
            },
            None if is_veth => Kind::Veth,
            None if infos.contains(&LinkInfo::Kind(InfoKind::Tun)) => Kind::Tap,
            None => Kind::Other,
        }
    }
}

fn has_priority(filter: &TcMessage, priority: u16) -> bool {
    filter.header.info >> 16 == u32::from(priority)
}

/// The id of the program in a BPF filter.
fn program_of(filter: &TcMessage) -> Option<u32> {
    let options = filter.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    })?;
    options.iter().find_map(|option| match option {
        TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => Some(*id),
        _ => None,
    })
}
