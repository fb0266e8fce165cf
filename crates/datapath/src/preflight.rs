//! Whether this machine can run the datapath at all, each failure in one sentence that says what
//! to do. Everything is tried in a namespace that ends with its thread, so nothing is left behind.

use std::thread;

use aya::maps::{HashMap, MapData, MapError};
use nix::sched::{CloneFlags, unshare};
use rtnetlink::{LinkMessageBuilder, LinkVeth, LinkVxlan};

use crate::error::DatapathError;
use crate::netlink::Netlink;

/// The oldest kernel that has what the programs use.
const OLDEST_KERNEL: (u32, u32) = (6, 1);

/// Capabilities and their numbers.
const NEEDED: [(&str, u32); 4] =
    [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_SYS_ADMIN", 21), ("CAP_BPF", 39)];

/// Why this machine cannot run the datapath.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PreflightError {
    /// Not root, or root without its powers.
    #[error("run as root: {} missing", .0.join(", "))]
    Unprivileged(Vec<&'static str>),
    /// An old kernel.
    #[error("kernel {0} is too old: boot kernel {old}.{er} or newer", old = OLDEST_KERNEL.0, er = OLDEST_KERNEL.1)]
    OldKernel(String),
    /// No BPF.
    #[error("the kernel refuses BPF maps ({0}): boot one built with CONFIG_BPF_SYSCALL")]
    NoBpf(String),
    /// No network namespaces.
    #[error("the kernel refuses network namespaces ({0}): boot one built with CONFIG_NET_NS")]
    NoNamespaces(String),
    /// No veth.
    #[error("the kernel cannot make veth links ({0}): load the module with `modprobe veth`")]
    NoVeth(String),
    /// No VXLAN.
    #[error("the kernel cannot make VXLAN links ({0}): load the module with `modprobe vxlan`")]
    NoVxlan(String),
    /// The check itself failed.
    #[error("cannot look at this machine: {0}")]
    Blind(String),
}

/// Checks privileges, kernel version, BPF, veth and VXLAN, in this order.
pub(crate) fn preflight() -> Result<(), PreflightError> {
    check_capabilities(&read("/proc/self/status")?)?;
    check_kernel(read("/proc/sys/kernel/osrelease")?.trim())?;
    try_bpf()?;
    let links = thread::spawn(try_links).join();
    links.unwrap_or_else(|_| Err(PreflightError::Blind("a check ended early".into())))
}

fn read(path: &str) -> Result<String, PreflightError> {
    std::fs::read_to_string(path).map_err(|error| PreflightError::Blind(format!("{path}: {error}")))
}

fn check_capabilities(status: &str) -> Result<(), PreflightError> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let effective = effective.ok_or_else(|| PreflightError::Blind("no CapEff".into()))?;
    let has = |number: u32| effective >> number & 1 == 1;
    let missing: Vec<_> = NEEDED.iter().filter(|(_, number)| !has(*number)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(PreflightError::Unprivileged(missing.into_iter().map(|(name, _)| *name).collect()))
}

fn check_kernel(release: &str) -> Result<(), PreflightError> {
    match kernel_version(release) {
        Some(version) if version >= OLDEST_KERNEL => Ok(()),
        _ => Err(PreflightError::OldKernel(release.to_owned())),
    }
}

/// Major and minor number of a release such as `6.1.0-13-amd64`.
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn try_bpf() -> Result<(), PreflightError> {
    let made: Result<HashMap<MapData, u32, u32>, MapError> = HashMap::create(1, 0);
    made.map(drop).map_err(|error| PreflightError::NoBpf(causes(&error)))
}

fn try_links() -> Result<(), PreflightError> {
    let refused = |error: nix::Error| PreflightError::NoNamespaces(error.desc().to_owned());
    unshare(CloneFlags::CLONE_NEWNET).map_err(refused)?;
    let blind = |error: std::io::Error| PreflightError::Blind(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.map_err(blind)?.block_on(make_links())
}

async fn make_links() -> Result<(), PreflightError> {
    let blind = |error: DatapathError| PreflightError::Blind(causes(&error));
    let netlink = Netlink::open().map_err(blind)?;
    let veth = LinkMessageBuilder::<LinkVeth>::new("try0", "try1").build();
    let made = netlink.add(veth).await;
    made.map_err(|error| PreflightError::NoVeth(causes(&error)))?;
    let vxlan = LinkMessageBuilder::<LinkVxlan>::new("try2").collect_metadata(true).build();
    let made = netlink.add(vxlan).await;
    made.map_err(|error| PreflightError::NoVxlan(causes(&error)))
}

fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        let none = check_capabilities("Name:\tx\nCapEff:\t0000000000000000\n").unwrap_err();
        let sentence = "run as root: CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN, CAP_BPF missing";
        assert_eq!(none.to_string(), sentence);
        assert_eq!(check_capabilities("CapEff:\t000001ffffffffff\n"), Ok(()));
        let without_bpf = check_capabilities("CapEff:\t0000007fffffffff\n").unwrap_err();
        assert_eq!(without_bpf, PreflightError::Unprivileged(vec!["CAP_BPF"]));
    }

    #[test]
    fn kernels_below_the_floor_are_refused_with_the_floor() {
        for old in ["5.15.0-generic", "6.0.19", "4.4", "weird"] {
            let error = check_kernel(old).unwrap_err();
            let sentence = format!("kernel {old} is too old: boot kernel 6.1 or newer");
            assert_eq!(error.to_string(), sentence);
        }
        for fine in ["6.1.0-13-amd64", "6.18.44-fc", "7.2", "10.0.0"] {
            assert_eq!(check_kernel(fine), Ok(()), "{fine}");
        }
    }
}
