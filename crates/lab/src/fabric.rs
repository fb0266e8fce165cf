//! The wires between the nodes: one bridge in a namespace of its own, and an `eth0` in each node.
//!
//! The same addresses serve every lab, because no lab's fabric touches another's or the host's. The API
//! is always found by IPv4; nodes may have IPv6 besides, and meet by it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use anyhow::Context;
use futures::TryStreamExt;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth};

use crate::args::Underlay;
use crate::home::{Home, NodeHome};
use crate::namespace;

/// The name of the fabric's namespace.
pub(crate) const NAMESPACE: &str = "fabric";
/// Where nodes find the API.
pub(crate) const API_ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 1);
/// The port of the API on the fabric.
pub(crate) const API_PORT: u16 = 6443;
/// The address of the service `kubernetes`, by which pods call the API.
pub(crate) const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// Nodes that the fabric's addresses have room for.
pub(crate) const MOST_NODES: u8 = 200;

const PREFIX_V4: u8 = 24;
const PREFIX_V6: u8 = 64;
const MTU: u32 = 1500;
const BRIDGE: &str = "fabric0";
const UPLINK: &str = "eth0";

/// The name of the node with this number, from 1.
pub(crate) fn node_name(number: u8) -> String {
    format!("node{number}")
}

/// The addresses of a node on the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeAddresses {
    /// The one by which nodes meet.
    pub(crate) first: IpAddr,
    other: Option<IpAddr>,
}

impl NodeAddresses {
    /// Those of the node with this number.
    pub(crate) fn of(number: u8, underlay: Underlay) -> Self {
        let ipv4 = Ipv4Addr::new(172, 30, 0, 10 + number).into();
        match underlay {
            Underlay::Ipv4 => NodeAddresses { first: ipv4, other: None },
            Underlay::Ipv6 => NodeAddresses { first: node_ipv6(number).into(), other: Some(ipv4) },
        }
    }

    /// All of them, in this order.
    pub(crate) fn iter(self) -> impl Iterator<Item = IpAddr> {
        [self.first].into_iter().chain(self.other)
    }
}

/// Ends in the same digits as the node's other address: fd30::11 beside 172.30.0.11.
fn node_ipv6(number: u8) -> Ipv6Addr {
    let last = 10 + u16::from(number);
    let read_as_hex = last / 100 * 0x100 + last / 10 % 10 * 0x10 + last % 10;
    Ipv6Addr::new(0xfd30, 0, 0, 0, 0, 0, 0, read_as_hex)
}

/// Makes the fabric's namespace with its bridge.
pub(crate) fn create(home: &Home) -> anyhow::Result<()> {
    let path = home.namespace(NAMESPACE);
    namespace::create(&path)?;
    namespace::within_async(&path, make_bridge).context("cannot make the fabric's bridge")
}

/// Makes a node's namespace and plugs it into the fabric.
pub(crate) fn plug(home: &Home, node: &NodeHome, addresses: NodeAddresses) -> anyhow::Result<()> {
    let cannot = || format!("cannot plug {} into the fabric", node.name);
    namespace::create(&node.namespace)?;
    let target = std::fs::File::open(&node.namespace).with_context(cannot)?;
    namespace::within_async(&home.namespace(NAMESPACE), || {
        make_wire(&node.name, target.as_raw_fd())
    })
    .with_context(cannot)?;
    namespace::within_async(&node.namespace, || raise(UPLINK, addresses.iter()))
        .with_context(cannot)
}

/// A listener that is reached over the fabric.
pub(crate) fn listen(home: &Home) -> anyhow::Result<std::net::TcpListener> {
    namespace::within(&home.namespace(NAMESPACE), || {
        std::net::TcpListener::bind((API_ADDRESS, API_PORT))
            .with_context(|| format!("cannot listen on {API_ADDRESS}:{API_PORT} of the fabric"))
    })
}

async fn make_bridge() -> anyhow::Result<()> {
    let bridge = LinkBridge::new(BRIDGE).mcast_snooping(false).mtu(MTU).build();
    namespace::netlink()?.link().add(bridge).execute().await?;
    raise(BRIDGE, [API_ADDRESS.into()].into_iter()).await
}

/// A veth pair with one end on the bridge and the other, called `eth0`, in the node.
async fn make_wire(node: &str, target: std::os::fd::RawFd) -> anyhow::Result<()> {
    let handle = namespace::netlink()?;
    let bridge = index_of(&handle, BRIDGE).await?;
    let far_end = LinkUnspec::new_with_name(UPLINK).setns_by_fd(target).mtu(MTU).build();
    let pair = LinkVeth::new(node, UPLINK)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(far_end)))
        .controller(bridge)
        .mtu(MTU)
        .up()
        .build();
    handle.link().add(pair).execute().await.with_context(|| format!("cannot add the link {node}"))
}

async fn raise(link: &str, addresses: impl Iterator<Item = IpAddr>) -> anyhow::Result<()> {
    let handle = namespace::netlink()?;
    let index = index_of(&handle, link).await?;
    for address in addresses {
        let added = give(&handle, index, address).await;
        added.with_context(|| format!("cannot give {link} the address {address}"))?;
    }
    let up = LinkUnspec::new_with_index(index).up().build();
    handle.link().set(up).execute().await.with_context(|| format!("cannot bring {link} up"))
}

/// Gives a link an address that can be used at once: nobody else on the fabric has it.
async fn give(handle: &Handle, link: u32, address: IpAddr) -> Result<(), rtnetlink::Error> {
    let prefix = if address.is_ipv4() { PREFIX_V4 } else { PREFIX_V6 };
    let mut request = handle.address().add(link, address, prefix);
    request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
    request.execute().await
}

async fn index_of(handle: &Handle, link: &str) -> anyhow::Result<u32> {
    let found = handle.link().get().match_name(link.to_owned()).execute().try_next().await;
    let message = found.with_context(|| format!("cannot look up the link {link}"))?;
    Ok(message.with_context(|| format!("there is no link {link}"))?.header.index)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    /// A home whose namespaces are removed when the test ends.
    struct Wired {
        home: Home,
        _root: tempfile::TempDir,
    }

    impl Wired {
        fn with_nodes(count: u8, underlay: Underlay) -> Self {
            let root = tempfile::tempdir().unwrap();
            let home = Home::below(root.path(), &"wired".parse().unwrap());
            home.create().unwrap();
            let wired = Wired { home, _root: root };
            create(&wired.home).expect("this test needs root");
            for number in 1..=count {
                let node = wired.home.node(&node_name(number));
                plug(&wired.home, &node, NodeAddresses::of(number, underlay)).unwrap();
            }
            wired
        }
    }

    impl Drop for Wired {
        fn drop(&mut self) {
            for entry in std::fs::read_dir(self.home.namespaces()).unwrap() {
                namespace::remove(&entry.unwrap().path()).unwrap();
            }
        }
    }

    #[test]
    fn nodes_reach_each_other_and_the_api_over_the_fabric_of_either_family() {
        nodes_and_the_api_are_reached(Underlay::Ipv4);
        nodes_and_the_api_are_reached(Underlay::Ipv6);
    }

    fn nodes_and_the_api_are_reached(underlay: Underlay) {
        let wired = Wired::with_nodes(2, underlay);
        let node2 = wired.home.node("node2").namespace;
        let serve = |address: IpAddr| {
            let bind = || Ok(std::net::TcpListener::bind((address, 7000))?);
            (namespace::within(&node2, bind).unwrap(), address)
        };
        let nodes = NodeAddresses::of(2, underlay).iter().map(serve);
        let api = (listen(&wired.home).unwrap(), API_ADDRESS.into());
        for (server, address) in nodes.chain([api]) {
            let port = server.local_addr().unwrap().port();
            let greeter =
                std::thread::spawn(move || server.accept().unwrap().0.write_all(b"hello"));
            let said = namespace::within(&wired.home.node("node1").namespace, || {
                let mut said = String::new();
                TcpStream::connect((address, port))?.read_to_string(&mut said)?;
                Ok(said)
            });
            greeter.join().unwrap().unwrap();
            assert_eq!(said.unwrap(), "hello");
        }
    }

    #[test]
    fn two_fabrics_with_the_same_addresses_stand_side_by_side() {
        let _first = Wired::with_nodes(1, Underlay::Ipv6);
        let second = Wired::with_nodes(1, Underlay::Ipv6);
        assert!(listen(&second.home).is_ok());
    }

    #[test]
    fn nodes_meet_by_the_first_of_their_addresses_and_every_node_has_its_own() {
        let of = |number, underlay| {
            let addresses = NodeAddresses::of(number, underlay);
            addresses.iter().map(|address| address.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(1, Underlay::Ipv4), ["172.30.0.11"]);
        assert_eq!(of(1, Underlay::Ipv6), ["fd30::11", "172.30.0.11"]);
        assert_eq!(of(MOST_NODES, Underlay::Ipv6), ["fd30::210", "172.30.0.210"]);
        let all: std::collections::BTreeSet<_> = (1..=MOST_NODES).map(node_ipv6).collect();
        assert_eq!(all.len(), usize::from(MOST_NODES));
    }
}
