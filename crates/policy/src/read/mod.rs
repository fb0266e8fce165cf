//! From API objects to policies: read once, then trusted.

mod cluster_policy;
mod network_policy;
mod networks;
mod pod;

pub use cluster_policy::read_cluster_policy;
pub use network_policy::read_network_policy;
pub use pod::{read_node, read_pod};

use atoll_types::Cidr;
use ipnet::IpNet;

/// A range as the API takes it: bits beyond the prefix do not count.
fn range(text: &str) -> Result<Cidr, String> {
    let wrong = || format!("{text:?} is not a range like 10.0.0.0/16");
    let written: IpNet = text.parse().map_err(|_| wrong())?;
    written.trunc().to_string().parse().map_err(|_| wrong())
}

/// A port's number.
fn port(number: i64) -> Result<u16, String> {
    u16::try_from(number)
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| format!("{number} is not a port between 1 and 65535"))
}
