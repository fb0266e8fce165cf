//! The wires between the nodes: one bridge in a namespace of its own, and an `eth0` in each node.
//!
//! The same addresses serve every lab, because no lab's fabric touches another's or the host's.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use anyhow::Context;
use futures::TryStreamExt;
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth};

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

const PREFIX: u8 = 24;
const MTU: u32 = 1500;
const BRIDGE: &str = "fabric0";
const UPLINK: &str = "eth0";

/// The name of the node with this number, from 1.
pub(crate) fn node_name(number: u8) -> String {
    format!("node{number}")
}

/// The address of the node with this number.
pub(crate) fn node_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(172, 30, 0, 10 + number)
}

/// Makes the fabric's namespace with its bridge.
pub(crate) fn create(home: &Home) -> anyhow::Result<()> {
    let path = home.namespace(NAMESPACE);
    namespace::create(&path)?;
    namespace::within_async(&path, make_bridge).context("cannot make the fabric's bridge")
}

/// Makes a node's namespace and plugs it into the fabric.
pub(crate) fn plug(home: &Home, node: &NodeHome, address: Ipv4Addr) -> anyhow::Result<()> {
    let cannot = || format!("cannot plug {} into the fabric", node.name);
    namespace::create(&node.namespace)?;
    let target = std::fs::File::open(&node.namespace).with_context(cannot)?;
    namespace::within_async(&home.namespace(NAMESPACE), || {
        make_wire(&node.name, target.as_raw_fd())
    })
    .with_context(cannot)?;
    namespace::within_async(&node.namespace, || raise(UPLINK, address)).with_context(cannot)
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
    raise(BRIDGE, API_ADDRESS).await
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

async fn raise(link: &str, address: Ipv4Addr) -> anyhow::Result<()> {
    let handle = namespace::netlink()?;
    let index = index_of(&handle, link).await?;
    let added = handle.address().add(index, address.into(), PREFIX).execute().await;
    added.with_context(|| format!("cannot give {link} the address {address}"))?;
    let up = LinkUnspec::new_with_index(index).up().build();
    handle.link().set(up).execute().await.with_context(|| format!("cannot bring {link} up"))
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
        fn with_nodes(count: u8) -> Self {
            let root = tempfile::tempdir().unwrap();
            let home = Home::below(root.path(), &"wired".parse().unwrap());
            home.create().unwrap();
            let wired = Wired { home, _root: root };
            create(&wired.home).expect("this test needs root");
            for number in 1..=count {
                let node = wired.home.node(&node_name(number));
                plug(&wired.home, &node, node_address(number)).unwrap();
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
    fn nodes_reach_each_other_and_the_api_over_the_fabric() {
        let wired = Wired::with_nodes(2);
        let node2 = wired.home.node("node2").namespace;
        let server =
            namespace::within(&node2, || Ok(std::net::TcpListener::bind((node_address(2), 7000))?));
        let servers =
            [(server.unwrap(), node_address(2)), (listen(&wired.home).unwrap(), API_ADDRESS)];
        for (server, address) in servers {
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
        let _first = Wired::with_nodes(1);
        let second = Wired::with_nodes(1);
        assert!(listen(&second.home).is_ok());
    }
}
