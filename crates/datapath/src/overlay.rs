//! The node's one tunnel device.
//!
//! It is made down and raised only after its program is attached, so that no tunnel packet ever
//! reaches the node's own stack.

use std::net::IpAddr;

use atoll_plan::HostInterface;
use rtnetlink::{LinkMessageBuilder, LinkVxlan};

use crate::config::DatapathConfig;
use crate::error::{Attempt, DatapathError};
use crate::netlink::{Kind, Link, Netlink};
use crate::quiet::silence_host_side;

/// The device's name.
pub(crate) const OVERLAY: &str = "atoll-vx";

/// What the tunnel adds to a pod's packet: the outer IP, UDP and VXLAN headers and the inner
/// Ethernet header.
fn overhead(underlay: IpAddr) -> u32 {
    match underlay {
        IpAddr::V4(_) => 50,
        IpAddr::V6(_) => 70,
    }
}

/// Every IPv4 host must take packets of this size.
const SMALLEST_POD_MTU: u32 = 576;

/// The largest packet a pod may send: one that fits through the tunnel.
pub(crate) fn pod_mtu(uplink: &Link, underlay: IpAddr) -> Result<u32, DatapathError> {
    let left = uplink.mtu.checked_sub(overhead(underlay)).filter(|left| *left >= SMALLEST_POD_MTU);
    left.ok_or_else(|| DatapathError::UplinkTooNarrow {
        link: uplink.name.clone(),
        mtu: uplink.mtu,
    })
}

/// What to do about the device, given what is there.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Make,
    Adopt,
    Replace,
}

fn plan(found: Option<&Link>, port: u16) -> Result<Plan, DatapathError> {
    match found.map(|link| &link.kind) {
        None => Ok(Plan::Make),
        Some(Kind::Vxlan { external: true, port: Some(used) }) if *used == port => Ok(Plan::Adopt),
        Some(Kind::Vxlan { .. }) => Ok(Plan::Replace),
        Some(Kind::Veth | Kind::Tap | Kind::Other) => Err(DatapathError::OverlayNameTaken(OVERLAY)),
    }
}

/// The tunnel device, as it is or newly made, with the right MTU.
pub(crate) async fn ensure(
    netlink: &Netlink,
    config: &DatapathConfig,
    mtu: u32,
) -> Result<Link, DatapathError> {
    let found = netlink.link(OVERLAY).await?;
    match (plan(found.as_ref(), config.overlay_port)?, found) {
        (Plan::Adopt, Some(link)) => {
            if link.mtu != mtu {
                netlink.set_mtu(&link, mtu).await?;
            }
            return Ok(link);
        }
        (Plan::Replace, Some(link)) => netlink.remove(&link).await?,
        _ => {}
    }
    make(netlink, config.overlay_port, mtu).await
}

async fn make(netlink: &Netlink, port: u16, mtu: u32) -> Result<Link, DatapathError> {
    let message = LinkMessageBuilder::<LinkVxlan>::new(OVERLAY)
        .collect_metadata(true)
        .learning(false)
        .port(port)
        .mtu(mtu)
        .arp(false)
        .udp_zero_csum6_rx(true)
        .build();
    netlink.add(message).await.attempt(|| {
        format!("make the VXLAN device {OVERLAY} on port {port} (is another one using the port?)")
    })?;
    silence_host_side(OVERLAY)?;
    let made = netlink.link(OVERLAY).await?;
    made.ok_or(std::io::Error::from(std::io::ErrorKind::NotFound))
        .attempt(|| format!("find the VXLAN device {OVERLAY} just made"))
}

/// Whether a link is one of ours, by its name and kind.
pub(crate) fn is_ours(link: &Link) -> bool {
    match link.kind {
        Kind::Veth => link.name.parse::<HostInterface>().is_ok(),
        Kind::Vxlan { .. } => link.name == OVERLAY,
        Kind::Tap | Kind::Other => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(kind: Kind, mtu: u32) -> Link {
        Link {
            index: 3,
            name: OVERLAY.into(),
            up: true,
            mtu,
            kind,
            mac: vec![],
            group: 0,
            peer: None,
            peer_namespace: None,
            sends: true,
        }
    }

    fn vxlan(external: bool, port: u16) -> Kind {
        Kind::Vxlan { external, port: Some(port) }
    }

    #[test]
    fn a_device_as_we_make_it_is_adopted_and_another_replaced() {
        let planned = |kind| plan(Some(&link(kind, 1450)), 4789).unwrap();
        assert_eq!(plan(None, 4789).unwrap(), Plan::Make);
        assert_eq!(planned(vxlan(true, 4789)), Plan::Adopt);
        assert_eq!(planned(vxlan(true, 4790)), Plan::Replace);
        assert_eq!(planned(vxlan(false, 4789)), Plan::Replace);
    }

    #[test]
    fn a_foreign_device_of_that_name_is_left_alone() {
        let error = plan(Some(&link(Kind::Other, 1500)), 4789).unwrap_err();
        assert!(error.to_string().starts_with("link atoll-vx exists"), "{error}");
    }

    #[test]
    fn pods_get_what_the_tunnel_leaves() {
        let [ipv4, ipv6] = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().unwrap());
        let left = |mtu, underlay| pod_mtu(&link(Kind::Other, mtu), underlay);
        assert_eq!(left(1500, ipv4).unwrap(), 1450);
        assert_eq!(left(1500, ipv6).unwrap(), 1430);
        assert_eq!(left(9000, ipv4).unwrap(), 8950);
        assert!(left(600, ipv4).is_err());
        assert!(left(40, ipv6).is_err());
    }

    #[test]
    fn only_our_names_on_our_kinds_of_link_are_ours() {
        let named = |name: &str, kind| Link { name: name.into(), ..link(kind, 1500) };
        assert!(is_ours(&named("atl0123456789ab", Kind::Veth)));
        assert!(is_ours(&named(OVERLAY, vxlan(true, 4789))));
        assert!(!is_ours(&named("atl0123456789ab", Kind::Other)));
        assert!(!is_ours(&named("eth0", Kind::Veth)));
        assert!(!is_ours(&named("flannel.1", vxlan(false, 8472))));
    }
}
