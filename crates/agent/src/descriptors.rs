//! How many files and connections the agent may have open at once, and how many of them pods can make
//! it open.
//!
//! The rule of this file: whatever pods ask for, half of it stays for the agent itself: the runtime's
//! questions, the API, the kernel.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What pods can make the agent have open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Calls that are passed on to services of the cluster's own. Each has two ends.
    pub(crate) calls: usize,
    /// Connections with the resolver.
    pub(crate) dns_connections: usize,
    /// Questions that wait for an upstream.
    pub(crate) dns_forwards: usize,
    /// Ports at which the outside asks how services fare, of tenants and of others alike.
    pub(crate) health_ports: usize,
}

impl Budget {
    /// What this process has to give.
    pub(crate) fn of_process() -> Budget {
        Budget::of(getrlimit(Resource::RLIMIT_NOFILE).map_or(LEAST, |(most, _)| most))
    }

    fn of(most: u64) -> Budget {
        let part = usize::try_from(most / 8).unwrap_or(usize::MAX);
        Budget { calls: part, dns_connections: part, dns_forwards: part, health_ports: part }
    }
}

/// What every process may have open that was told nothing else.
const LEAST: u64 = 1024;

/// Lets this process have as much open as it may ask for. Where many programs are started, each is told
/// to make do with little, for the sake of old ones that cannot count further.
pub(crate) fn raise() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot have more files open than it was started with");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_was_started_with_little_has_what_it_may_ask_for() {
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, most - 1, most).unwrap();
        raise();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (most, most));
    }

    #[test]
    fn half_of_what_may_be_open_is_out_of_the_reach_of_pods() {
        for most in [64, LEAST, 524_288] {
            let Budget { calls, dns_connections, dns_forwards, health_ports } = Budget::of(most);
            let by_pods = 2 * calls + dns_connections + dns_forwards;
            assert!(calls > 0 && by_pods as u64 <= most / 2, "{by_pods} of {most}");
            assert!(health_ports as u64 <= most / 8, "and they are of the agent's own half");
        }
    }
}
