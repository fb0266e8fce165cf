//! Every reason for which a packet is dropped is the reason of a row in some table, or stands here with
//! why it is not.

use std::collections::BTreeSet;

use atoll_datapath::DropReason;

use super::{
    from_node, from_overlay, from_overlay_ways, from_plain, from_pod, from_pod_limits, from_uplink,
    policy,
};

/// The reasons of all tables. Each table says itself that its rows have exactly these.
const TABLES: &[&[DropReason]] = &[
    from_pod::WHO,
    from_pod::MIDDLE,
    from_pod::CARRIED,
    from_pod::PARTS,
    from_pod::GATEWAYS,
    from_pod_limits::SERVICES,
    from_pod_limits::OUTSIDE,
    from_pod_limits::QUESTIONS,
    from_pod_limits::PLACES,
    from_overlay::BELIEVED,
    from_overlay::RECEIVERS,
    from_overlay::CARRIED,
    from_overlay::PARTS,
    from_overlay::BY_IPV6,
    from_overlay_ways::ACROSS,
    from_overlay_ways::LEAVING,
    from_uplink::HELD,
    from_node::ANSWERS,
    from_plain::SENT,
    policy::JUDGED,
];

/// The reasons that no packet of a test comes to, and why.
const UNREACHED: &[(DropReason, &str)] = &[
    (DropReason::Unknown, "no program counts it: it is the name of a number that is not known"),
    (DropReason::KernelRefused, "a helper of the kernel fails for want of memory, or never"),
];

#[test]
fn every_reason_is_that_of_a_row_or_stands_beside_why_it_is_not() {
    let reached: BTreeSet<_> = TABLES.iter().copied().flatten().copied().collect();
    let unreached: BTreeSet<_> = UNREACHED.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(reached.intersection(&unreached).collect::<Vec<_>>(), Vec::<&DropReason>::new());
    let missing =
        DropReason::ALL.iter().filter(|it| !reached.contains(it) && !unreached.contains(it));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&DropReason>::new());
}
