//! Why goals are missed, as far as it was found out.
//!
//! The rule of this file: a cause is what a profile or a count showed. Ratios stand in the tables, which
//! are measured, and not here, where they would grow old. Whoever removes a cause removes its line here;
//! a goal that is met shows none.

/// What is judged, and why it is behind its goal.
const KNOWN: [(&str, &str); 8] = [
    ("Same node, connect-request-close", OPENING),
    ("Same node, connect-request-close through a service", OPENING_A_SERVICE),
    ("Same node, blocks", EACH_PACKET),
    ("Same node, stream", ELSEWHERE),
    ("Same node, streams", ELSEWHERE),
    ("Across nodes, stream", ELSEWHERE_ACROSS),
    ("Across nodes, streams", ELSEWHERE_ACROSS),
    ("start of the controller, against 10 s, kube-apiserver", THE_API),
];

const OPENING: &str = "the eight runs of our program for a connection take what is lost (counted by the kernel): \
    the first packet is decided by policy, and the connection is put into a hash map, the dearest \
    thing on a packet's way (ADR 0067)";
const OPENING_A_SERVICE: &str = "the eight runs of our program for a connection take what is lost (counted by the \
    kernel): opening puts two entries into hash maps, the lead and the connection (ADR 0068)";
const EACH_PACKET: &str = "our program runs twice for each 64 KiB, once and a quarter for data and else for \
    confirmations, and its time is what is lost (counted by the kernel)";
const ELSEWHERE: &str = "not in our programs, which take two or three hundredths of the time of 64 KiB, and not in \
    frames or turns, of which there are as many as at the limit (counted by the kernel); every other path \
    through a host loses as much or more, and how much hangs on what lies under way: plain routed veths, \
    without a program of ours, lose little or a quarter as only the largest buffers of the sockets change";
const ELSEWHERE_ACROSS: &str = "not in our programs, which take two or three hundredths of the time of 64 KiB, and \
    not in frames or turns, of which there are as many as at the limit (counted by the kernel); where in \
    the kernel it goes is not known yet";
const THE_API: &str = "kube-apiserver has three quarters of the CPU that a start takes, on the cores that it shares \
    with the controller: half of that to write objects as JSON, else to collect garbage and to copy objects (its \
    own profile); asked for lists in the place of streams, it takes hardly less";

/// The known cause of a miss, by what is judged.
pub(crate) fn known(what: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(judged, _)| *judged == what).map(|(_, cause)| *cause)
}

/// Everything whose cause is known.
#[cfg(test)]
pub(crate) fn judged() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|(what, _)| *what)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::paths::Place;
    use crate::traffic::Kind;

    #[test]
    fn a_cause_is_found_by_the_whole_of_what_is_judged() {
        assert_eq!(known("Same node, connect-request-close"), Some(OPENING));
        assert_eq!(known("Same node, connect"), None);
        assert_eq!(known("Across nodes, connect-request-close"), None);
    }

    #[test]
    fn every_goal_has_one_cause_that_fits_into_a_cell() {
        let judged: BTreeSet<_> = KNOWN.iter().map(|(what, _)| what).collect();
        assert_eq!(judged.len(), KNOWN.len());
        assert!(KNOWN.iter().all(|(_, cause)| !cause.contains(['|', '\n'])));
    }

    #[test]
    fn what_a_packet_costs_is_named_as_it_is_judged() {
        let places = [Place::SameNode, Place::AcrossNodes];
        let judged: BTreeSet<String> = places
            .into_iter()
            .flat_map(|place| Kind::ALL.map(|kind| (kind, place)))
            .filter(|(kind, place)| kind.goal(*place).is_some())
            .map(|(kind, place)| format!("{place}, {}", kind.name()))
            .collect();
        let of_packets = KNOWN.iter().map(|(what, _)| *what);
        let of_packets =
            of_packets.filter(|what| what.contains("node") && !what.contains("service"));
        for what in of_packets {
            assert!(judged.contains(what), "{what} is not judged: {judged:?}");
        }
    }
}
