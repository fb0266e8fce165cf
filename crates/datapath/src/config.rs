//! What the datapath must be told.

use std::net::IpAddr;
use std::path::PathBuf;

use aya::util::KernelVersion;

/// Where a node's datapath lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatapathConfig {
    /// A directory on a mounted BPF file system, such as `/sys/fs/bpf/atoll`, that is this node's
    /// alone. Maps and program links are pinned below it.
    pub bpf_root: PathBuf,
    /// This node's tunnel address, of the family that all nodes meet over. The link that has it is
    /// the uplink.
    pub underlay: IpAddr,
    /// The UDP port of the tunnel, on all nodes alike; 4789 is VXLAN's own.
    pub overlay_port: u16,
}

/// How a program is attached to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// By tcx links, pinned and replaced in place. Needs kernel 6.6.
    Tcx,
    /// By filters on a clsact queueing discipline, which live and die with their link.
    Clsact,
}

impl Attachment {
    /// The better one of those that `kernel` has.
    pub(crate) fn best_for(kernel: KernelVersion) -> Self {
        if kernel >= KernelVersion::new(6, 6, 0) { Attachment::Tcx } else { Attachment::Clsact }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcx_is_used_where_the_kernel_has_it() {
        let best = |major, minor| Attachment::best_for(KernelVersion::new(major, minor, 9));
        assert_eq!(best(6, 1), Attachment::Clsact);
        assert_eq!(best(6, 5), Attachment::Clsact);
        assert_eq!(best(6, 6), Attachment::Tcx);
        assert_eq!(best(7, 0), Attachment::Tcx);
    }
}
