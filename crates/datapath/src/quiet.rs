//! Links on which the node's own network stack neither speaks nor listens.
//!
//! A second line behind the programs: should a program be taken off a link by hand, strict reverse
//! path filtering (no route leads to such a link) and the missing IPv6 stop the pod's packets.

use std::io;
use std::path::Path;

use crate::error::{Attempt, DatapathError};

const HOST_SIDE: [(&str, &str); 4] = [
    ("ipv6/conf/{}/disable_ipv6", "1"),
    ("ipv6/conf/{}/accept_ra", "0"),
    ("ipv4/conf/{}/rp_filter", "1"),
    ("ipv4/conf/{}/forwarding", "0"),
];

const POD_SIDE: [(&str, &str); 3] = [
    ("ipv6/conf/{}/accept_ra", "0"),
    ("ipv6/conf/{}/autoconf", "0"),
    ("ipv6/conf/{}/addr_gen_mode", "1"),
];

/// Keeps the node's stack off one of our links in the current thread's namespace.
pub(crate) fn silence_host_side(link: &str) -> Result<(), DatapathError> {
    HOST_SIDE.iter().try_for_each(|(setting, value)| set(setting, link, value))
}

/// Keeps a pod's stack from configuring itself, in the current thread's namespace.
pub(crate) fn silence_pod_side(link: &str) -> Result<(), DatapathError> {
    POD_SIDE.iter().try_for_each(|(setting, value)| set(setting, link, value))
}

/// Keeps a pod from forwarding what comes in through one of its interfaces: its own, which it may
/// have from the node, does not hold for this one.
pub(crate) fn stop_forwarding(link: &str) -> Result<(), DatapathError> {
    set("ipv4/conf/{}/forwarding", link, "0")?;
    set("ipv6/conf/{}/forwarding", link, "0")
}

/// The kernel's settings of the network. In a container its own are read-only, unless it may do
/// everything; then the node's are mounted beside them. Either shows the current namespace.
fn settings() -> &'static Path {
    let of_node = Path::new("/host/proc/sys/net");
    if of_node.exists() { of_node } else { Path::new("/proc/sys/net") }
}

/// A kernel without IPv6 lacks those settings, and needs none.
fn set(setting: &str, link: &str, value: &str) -> Result<(), DatapathError> {
    let path = settings().join(setting.replace("{}", link));
    match std::fs::write(&path, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && setting.starts_with("ipv6") => {
            Ok(())
        }
        done => done.attempt(|| format!("write {value} to {}", path.display())),
    }
}
