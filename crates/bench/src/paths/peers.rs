//! The paths of others, built as they build them, from the kernel's own parts.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use atoll_testkit::Namespace;

use super::{Ends, Path, Place, VIP, nft};

/// What connects two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// A route to the other node's pods.
    Routing,
    /// A VXLAN device with a fixed neighbour for each node, as flannel sets it up.
    Vxlan,
}

/// What VXLAN over IPv4 takes from each packet.
const VXLAN_OVERHEAD: u32 = 50;
pub(super) const UNDERLAY_MTU: u32 = 1500;

/// The two sides of a veth, both up.
pub(super) fn pair(here: &Namespace, name: &str, there: &Namespace, peer: &str, mtu: u32) {
    let path = there.path();
    let other = format!("type veth peer name {peer} mtu {mtu} netns {}", path.display());
    here.ip(&format!("link add {name} mtu {mtu} {other}"));
    here.ip(&format!("link set {name} up"));
    there.ip(&format!("link set {peer} up"));
}

pub(super) fn namespaces<const N: usize>() -> [Arc<Namespace>; N] {
    std::array::from_fn(|_| Arc::new(Namespace::new()))
}

fn forward(namespace: &Namespace) -> Result<()> {
    let done = namespace.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"));
    done.context("cannot make a namespace forward packets")
}

fn path(
    (name, place): (&'static str, Place),
    client: Arc<Namespace>,
    server: Arc<Namespace>,
    target: [u8; 4],
    hosts: Vec<Arc<Namespace>>,
) -> Path {
    let target = IpAddr::V4(Ipv4Addr::from(target));
    let keeps = hosts.into_iter().map(|host| host as Arc<dyn std::any::Any>).collect();
    Path { name, place, ends: vec![Ends { client, server, target }], _keeps: keeps }
}

/// The limit on one node: nothing but a veth pair.
pub(super) fn direct() -> Path {
    veth_pair("direct veth pair (the limit)")
}

/// The very same once more, behind all others: what differs between both is chance.
pub(super) fn direct_again() -> Path {
    veth_pair("direct veth pair, once more")
}

fn veth_pair(name: &'static str) -> Path {
    let [client, server] = namespaces();
    pair(&client, "eth0", &server, "eth0", UNDERLAY_MTU);
    client.ip("address add 10.0.0.1/24 dev eth0");
    server.ip("address add 10.0.0.2/24 dev eth0");
    path((name, Place::SameNode), client, server, [10, 0, 0, 2], vec![])
}

/// Puts a bridge with `address` into a host and these pods on it.
fn bridged(host: &Namespace, address: &str, pods: &[(&Namespace, &str)], mtu: u32) {
    host.ip(&format!("link add br0 mtu {mtu} type bridge"));
    host.ip(&format!("address add {address}/24 dev br0"));
    host.ip("link set br0 up");
    for (number, (pod, ip)) in pods.iter().enumerate() {
        pair(host, &format!("port{number}"), pod, "eth0", mtu);
        host.ip(&format!("link set port{number} master br0"));
        pod.ip(&format!("address add {ip}/24 dev eth0"));
        pod.ip(&format!("route add default via {address}"));
    }
}

/// A Linux bridge between two pods; with nft, bridged packets pass its rules as kube-proxy needs.
pub(super) fn bridge(with_nft: bool) -> Result<Path> {
    let [host, client, server] = namespaces();
    let pods: [(&Namespace, &str); 2] = [(&client, "10.0.0.1"), (&server, "10.0.0.2")];
    bridged(&host, "10.0.0.254", &pods, UNDERLAY_MTU);
    if with_nft {
        let setting = "/proc/sys/net/bridge/bridge-nf-call-iptables";
        host.run(|| std::fs::write(setting, "1"))
            .context("this kernel cannot show bridged packets to nft")?;
        nft::load(&host, [10, 0, 0, 2].into())?;
    }
    let name = if with_nft { "bridge with nft" } else { "bridge" };
    Ok(path((name, Place::SameNode), client, server, [10, 0, 0, 2], vec![host]))
}

/// Pods behind veths that the host routes to, as ptp and Calico do.
pub(super) fn routed(with_nft: bool) -> Result<Path> {
    let [host, client, server] = namespaces();
    forward(&host)?;
    for (number, pod) in [(1, &client), (2, &server)] {
        pair(&host, &format!("port{number}"), pod, "eth0", UNDERLAY_MTU);
        host.ip(&format!("address add 169.254.1.1/32 dev port{number}"));
        host.ip(&format!("route add 10.0.0.{number} dev port{number}"));
        pod.ip(&format!("address add 10.0.0.{number}/32 dev eth0"));
        pod.ip("route add 169.254.1.1 dev eth0 scope link");
        pod.ip("route add default via 169.254.1.1");
    }
    if with_nft {
        nft::load(&host, [10, 0, 0, 2].into())?;
    }
    let name = if with_nft { "routed veths with nft" } else { "routed veths" };
    Ok(path((name, Place::SameNode), client, server, [10, 0, 0, 2], vec![host]))
}

/// The same with nft, where the client speaks to a service.
pub(super) fn routed_service() -> Result<Path> {
    let mut path = routed(true)?;
    path.name = "routed veths with nft, service";
    path.ends.iter_mut().for_each(|ends| ends.target = VIP.into());
    Ok(path)
}

/// A bridge on each of two hosts, connected by `link`.
pub(super) fn across(link: Link, with_nft: bool) -> Result<Path> {
    let [first, second, client, server] = namespaces();
    pair(&first, "uplink", &second, "uplink", UNDERLAY_MTU);
    let mtu = match link {
        Link::Routing => UNDERLAY_MTU,
        Link::Vxlan => UNDERLAY_MTU - VXLAN_OVERHEAD,
    };
    for (host, pod, own, other) in [(&first, &client, 1, 2), (&second, &server, 2, 1)] {
        forward(host)?;
        host.ip(&format!("address add 192.168.77.{own}/24 dev uplink"));
        bridged(host, &format!("10.0.{own}.254"), &[(pod, &format!("10.0.{own}.1"))], mtu);
        connect(host, link, own, other)?;
        if with_nft {
            nft::load(host, [10, 0, 2, 1].into())?;
        }
    }
    let name = match (link, with_nft) {
        (Link::Routing, _) => "routing without overlay (the limit)",
        (Link::Vxlan, false) => "VXLAN as flannel's",
        (Link::Vxlan, true) => "VXLAN as flannel's, with nft",
    };
    let name = (name, Place::AcrossNodes);
    Ok(path(name, client, server, [10, 0, 2, 1], vec![first, second]))
}

fn connect(host: &Namespace, link: Link, own: u8, other: u8) -> Result<()> {
    match link {
        Link::Routing => {
            host.ip(&format!("route add 10.0.{other}.0/24 via 192.168.77.{other}"));
        }
        Link::Vxlan => {
            let mtu = UNDERLAY_MTU - VXLAN_OVERHEAD;
            let tunnel = format!("id 1 local 192.168.77.{own} dev uplink dstport 8472 nolearning");
            host.ip(&format!(
                "link add flannel.1 address 02:ff:00:00:00:0{own} mtu {mtu} type vxlan {tunnel}"
            ));
            host.ip(&format!("address add 10.0.{own}.0/32 dev flannel.1"));
            host.ip("link set flannel.1 up");
            let neighbour = format!("lladdr 02:ff:00:00:00:0{other} dev flannel.1 nud permanent");
            host.ip(&format!("neighbour add 10.0.{other}.0 {neighbour}"));
            let there = format!("02:ff:00:00:00:0{other} dev flannel.1 dst 192.168.77.{other}");
            let arguments: Vec<_> = ["fdb", "add"].into_iter().chain(there.split(' ')).collect();
            let output = host.command("bridge", &arguments);
            ensure!(output.status.success(), "bridge {arguments:?} failed");
            host.ip(&format!(
                "route add 10.0.{other}.0/24 via 10.0.{other}.0 dev flannel.1 onlink"
            ));
        }
    }
    Ok(())
}
