//! Which nodes have pods of a network, and which of them have attached all of theirs.
//!
//! Counted as ports come, are attached and go, so that it costs the same for one node and for
//! thousands, and no object is needed for each node and network.

use std::collections::HashMap;

use atoll_api::NetworkNodes;

use crate::intent::Port;

/// The nodes that have pods of one network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    nodes: HashMap<String, Tally>,
    ready: u32,
}

/// The ports of one network on one node.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    placed: u32,
    attached: u32,
}

impl Tally {
    fn is_ready(self) -> bool {
        self.placed > 0 && self.placed == self.attached
    }
}

/// Whether a port comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Comes,
    Goes,
}

impl Hosts {
    /// Counts a port in or out.
    pub(super) fn count(&mut self, port: &Port, change: Change) {
        let Some(node) = port.node() else { return };
        let tally = self.nodes.entry(node.to_owned()).or_default();
        self.ready -= u32::from(tally.is_ready());
        match change {
            Change::Comes => {
                tally.placed += 1;
                tally.attached += u32::from(port.attached);
            }
            Change::Goes => {
                tally.placed = tally.placed.saturating_sub(1);
                tally.attached = tally.attached.saturating_sub(u32::from(port.attached));
            }
        }
        self.ready += u32::from(tally.is_ready());
        if tally.placed == 0 {
            self.nodes.remove(node);
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many there are.
    pub(crate) fn summary(&self) -> NetworkNodes {
        NetworkNodes {
            ready: self.ready,
            total: u32::try_from(self.nodes.len()).unwrap_or(u32::MAX),
        }
    }

    /// Those that have a pod which is not attached, by name.
    pub(crate) fn unready(&self) -> Vec<String> {
        let unready = self.nodes.iter().filter(|(_, tally)| !tally.is_ready());
        let mut names: Vec<String> = unready.map(|(node, _)| node.clone()).collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use atoll_api as api;
    use proptest::prelude::*;

    use super::*;

    fn port(node: Option<&str>, attached: bool) -> Port {
        let spec = api::PortSpec {
            pod_uid: "u1".into(),
            node: node.map(str::to_owned),
            ..Default::default()
        };
        let mut object = api::Port::new("web.eth0", spec);
        let phase = if attached { api::PortPhase::Attached } else { api::PortPhase::Allocated };
        object.status = Some(api::PortStatus { phase, ..Default::default() });
        Port::from(&object)
    }

    #[test]
    fn a_node_is_ready_when_all_its_ports_are_attached() {
        let mut hosts = Hosts::default();
        let told = |hosts: &Hosts| (hosts.summary().ready, hosts.summary().total);
        hosts.count(&port(None, false), Change::Comes);
        assert_eq!(told(&hosts), (0, 0), "a port on no node");
        hosts.count(&port(Some("a"), false), Change::Comes);
        hosts.count(&port(Some("b"), true), Change::Comes);
        assert_eq!((told(&hosts), hosts.unready()), ((1, 2), vec!["a".to_owned()]));
        hosts.count(&port(Some("a"), false), Change::Goes);
        assert_eq!(told(&hosts), (1, 1));
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_ports_that_are_there(
            steps in prop::collection::vec((0_usize..9, 0_u8..3, any::<bool>()), 0..60)
        ) {
            let (mut hosts, mut there) = (Hosts::default(), Vec::new());
            for (position, node, attached) in steps {
                if position < there.len() {
                    hosts.count(&there.remove(position), Change::Goes);
                } else {
                    let made = port(Some(&node.to_string()), attached);
                    hosts.count(&made, Change::Comes);
                    there.push(made);
                }
            }
            let of = |node: u8| there.iter().filter(move |it| it.node() == Some(&node.to_string()));
            let total = (0..3).filter(|node| of(*node).count() > 0);
            let ready = total.clone().filter(|node| of(*node).all(|port| port.attached));
            let wanted = (ready.count(), total.count());
            let told = hosts.summary();
            prop_assert_eq!((told.ready as usize, told.total as usize), wanted);
        }
    }
}
