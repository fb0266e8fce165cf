//! What the kernel does in its own time after it has said yes, waited for.
//!
//! A link that was raised sends nothing, without a word, until the kernel has noticed that its other
//! side is up; an IPv6 address that was added hears nothing until the kernel has led it to its own
//! stack. Both happen in the background, on a busy machine much later. The rule: whoever is told that
//! an interface is there can speak and be spoken to.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use netlink_packet_route::route::RouteType;
use nix::errno::Errno;
use rtnetlink::RouteMessageBuilder;

use crate::error::{Attempt, DatapathError};
use crate::netlink::{Link, Netlink, is};

/// How long is waited. What takes longer does not become right by waiting, and other pods wait behind.
const PATIENCE: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(1);
/// How often is asked without a pause in between: mostly it is a matter of microseconds.
const AT_ONCE: usize = 20;

/// Waits until the other side of `link` sends. One that its pod has set down never will.
pub(crate) async fn other_side(netlink: &Netlink, link: &Link) -> Result<(), DatapathError> {
    let mut patience = Patience::new();
    loop {
        let other = netlink.other_side(link).await?;
        let is_waiting = other.is_some_and(|other| other.up && !other.sends);
        if !is_waiting || !patience.lasts().await {
            return Ok(());
        }
    }
}

/// Waits until each of these addresses of the current namespace hears what is sent to it.
pub(crate) async fn addresses(
    netlink: &Netlink,
    ips: &BTreeSet<IpAddr>,
) -> Result<(), DatapathError> {
    for ip in ips {
        let IpAddr::V6(ip) = ip else { continue };
        let mut patience = Patience::new();
        while !leads_here(netlink, *ip).await? && patience.lasts().await {}
    }
    Ok(())
}

async fn leads_here(netlink: &Netlink, ip: Ipv6Addr) -> Result<bool, DatapathError> {
    let asked = RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(ip, 128).build();
    let mut found = Box::pin(netlink.handle.route().get(asked).execute());
    match found.try_next().await {
        Ok(route) => Ok(route.is_some_and(|route| route.header.kind == RouteType::Local)),
        Err(error) if is(&error, Errno::ENETUNREACH) => Ok(false),
        Err(error) => Err(error).attempt(|| format!("look up the way to {ip}")),
    }
}

/// What lies between one look and the next.
struct Patience {
    looks: usize,
    since: Instant,
}

impl Patience {
    fn new() -> Self {
        Patience { looks: 0, since: Instant::now() }
    }

    /// Lets some time pass, and says whether another look is worth it.
    async fn lasts(&mut self) -> bool {
        self.looks += 1;
        if self.looks > AT_ONCE {
            tokio::time::sleep(MOMENT).await;
        }
        self.since.elapsed() < PATIENCE
    }
}
