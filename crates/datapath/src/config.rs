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
    /// How many questions one interface of a pod may put to its resolvers in a second; after a pause,
    /// half as many at once.
    pub pod_questions: u32,
}

impl DatapathConfig {
    /// What each question takes of a pod's time. Nobody is limited to none.
    pub(crate) fn nanos_per_question(&self) -> u64 {
        1_000_000_000 / u64::from(self.pod_questions.max(1))
    }
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
    fn a_pods_second_is_shared_by_its_questions_and_none_takes_more_than_all_of_it() {
        let nanos = |pod_questions| {
            let (bpf_root, underlay) = (PathBuf::new(), IpAddr::from([192, 0, 2, 1]));
            let config = DatapathConfig { bpf_root, underlay, overlay_port: 4789, pod_questions };
            config.nanos_per_question()
        };
        assert_eq!(nanos(8_000), 125_000);
        assert_eq!([nanos(1), nanos(0)], [1_000_000_000; 2]);
    }

    #[test]
    fn tcx_is_used_where_the_kernel_has_it() {
        let best = |major, minor| Attachment::best_for(KernelVersion::new(major, minor, 9));
        assert_eq!(best(6, 1), Attachment::Clsact);
        assert_eq!(best(6, 5), Attachment::Clsact);
        assert_eq!(best(6, 6), Attachment::Tcx);
        assert_eq!(best(7, 0), Attachment::Tcx);
    }
}
