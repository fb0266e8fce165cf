//! Why a packet was dropped.

use std::fmt;

/// Declares the reasons once: number, name and meaning cannot drift apart.
macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $number:literal, $name:literal;)+) => {
        /// Why the datapath dropped a packet. The numbers and names are stable: they are in the
        /// kernel's counters, in metrics and in what people grep for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $variant = $number,)+
        }

        impl DropReason {
            /// All reasons, by number.
            pub const ALL: &[DropReason] = &[$(DropReason::$variant),+];

            /// The stable name, in kebab case.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)+ }
            }

            /// What it means, in one line.
            pub const fn meaning(self) -> &'static str {
                match self { $(DropReason::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

drop_reasons! {
    /// a reason that this version does not know: the kernel programs are of another version
    Unknown = 0, "unknown";
    /// the frame came from an interface that nothing is known of
    UnknownInterface = 1, "unknown-interface";
    /// a header is cut off or contradicts itself
    Malformed = 2, "malformed";
    /// the source MAC is not the pod's own
    SpoofedMac = 3, "spoofed-mac";
    /// the source address is not one of the pod's own
    SpoofedAddress = 4, "spoofed-address";
    /// an ARP message names a sender that is not the pod itself
    SpoofedArp = 5, "spoofed-arp";
    /// an ARP message that is no question: a reply, an announcement, another protocol
    UnwantedArp = 6, "unwanted-arp";
    /// neither IP nor ARP
    NotIp = 7, "not-ip";
    /// IPv6 from a pod that has no IPv6 address
    Ipv6NotServed = 8, "ipv6-not-served";
    /// broadcast or multicast, which a network of ours does not carry
    Multicast = 9, "multicast";
    /// an IP option or header wants to choose the route
    SourceRouted = 10, "source-routed";
    /// nobody in the sender's network has the destination address
    NoEndpoint = 11, "no-endpoint";
    /// larger than the path to the destination's node allows
    TooBig = 12, "too-big";
    /// a tunnel packet from an address that is no node of ours
    OverlayStranger = 13, "overlay-stranger";
    /// a tunnel packet whose inner sender does not live on the node that sent it
    OverlaySpoof = 14, "overlay-spoof";
    /// a frame with a VLAN tag
    VlanTagged = 15, "vlan-tagged";
    /// the kernel refused to change or send the packet, usually for want of memory
    KernelRefused = 16, "kernel-refused";
    /// a neighbour solicitation names a sender that is not the pod itself
    SpoofedNd = 17, "spoofed-nd";
    /// neighbour discovery that is no question: advertisements, redirects, routers' messages
    UnwantedNd = 18, "unwanted-nd";
    /// neither TCP, UDP, SCTP nor ICMP: it might carry another packet that nobody checks
    Protocol = 19, "protocol";
    /// it belongs to no connection and cannot start one
    NoConnection = 20, "no-connection";
    /// an ICMP message that speaks of no connection between its sender and its receiver
    UnrelatedIcmp = 21, "unrelated-icmp";
    /// an ICMP redirect, which only a router may send
    IcmpRedirect = 22, "icmp-redirect";
    /// a fragment that cuts the header with the ports in two
    TinyFragment = 23, "tiny-fragment";
    /// a fragment that would overwrite the one with the ports
    OverlappingFragment = 24, "overlapping-fragment";
    /// the network's share of the connections has no room, or is not there
    ConnectionsExhausted = 25, "connections-exhausted";
    /// policy applies, and nobody knows who one of both ends is
    PolicyUnknown = 26, "policy-unknown";
    /// a policy of the connection's opener does not let it out
    PolicyDeniedEgress = 27, "policy-denied-egress";
    /// a policy of the other end does not let it in
    PolicyDeniedIngress = 28, "policy-denied-ingress";
    /// the destination is a service that has no backend
    NoBackend = 29, "no-backend";
    /// nothing leaves for this address: a node's, the cluster's own, or one that is denied
    OutsideClosed = 30, "outside-closed";
    /// every port tried for the outside, or for another network, is taken towards this destination
    NatPortsSpent = 31, "nat-ports-spent";
    /// it came to an address that a node answers for, where nothing is served so
    NotServed = 32, "not-served";
    /// the service does not let clients of this address in
    SourceRefused = 33, "source-refused";
    /// more questions to its resolvers, or datagrams to exported services, than one interface of a pod may put
    TooManyQuestions = 34, "too-many-questions";
    /// a pod of no tenant sent it to the port at which nodes hear each other
    TunnelPort = 35, "tunnel-port";
    /// a pod of no tenant speaks with this end from this port already, by a service
    PortTaken = 36, "port-taken";
}

impl DropReason {
    /// The stable number.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The reason with this number, or [`DropReason::Unknown`].
    pub fn from_number(number: u32) -> Self {
        let known = Self::ALL.iter().find(|reason| reason.number() == number);
        known.copied().unwrap_or(DropReason::Unknown)
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_are_dense_and_round_trip() {
        for (place, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(reason.number() as usize, place, "{reason}");
            assert_eq!(DropReason::from_number(reason.number()), *reason);
        }
    }

    #[test]
    fn a_number_of_another_version_is_unknown_and_no_error() {
        assert_eq!(DropReason::from_number(4711), DropReason::Unknown);
    }

    #[test]
    fn names_are_distinct_kebab_case() {
        let names: BTreeSet<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), DropReason::ALL.len());
        for name in names {
            let kebab =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(name.bytes().all(kebab), "{name}");
        }
    }

    #[test]
    fn every_meaning_is_one_line() {
        for reason in DropReason::ALL {
            let meaning = reason.meaning();
            assert!(!meaning.is_empty() && !meaning.contains('\n'), "{reason}: {meaning}");
        }
    }
}
