//! What happened to the questions of a network, counted under names from enums.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counted {
    ($(#[$doc:meta])* $name:ident { $($(#[$what:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$what])* $variant,)+ }

        impl $name {
            /// Every one.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// The name, as a metric's label has it.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }
    };
}

counted! {
    /// How a question was answered.
    Answered {
        /// With records of the network.
        Records = "records",
        /// The name exists, without such a record.
        NoData = "no_data",
        /// There is no such name.
        NoName = "no_name",
        /// By an upstream.
        Forwarded = "forwarded",
        /// By what an upstream said before.
        Cached = "cached",
    }
}

counted! {
    /// Why a question was not answered.
    Refused {
        /// It came from an address that no pod has.
        UnknownAsker = "unknown_asker",
        /// The asker's network has no names yet.
        NoView = "no_view",
        /// It cannot be read.
        Malformed = "malformed",
        /// It asks for what is not offered: another class, a transfer, another operation.
        NotOffered = "not_offered",
        /// The pod asks too often.
        PodRate = "pod_rate",
        /// The tenant's pods ask too often.
        TenantRate = "tenant_rate",
        /// Too many questions of the pod wait for upstreams.
        PodForwards = "pod_forwards",
        /// Too many questions of the tenant wait for upstreams.
        TenantForwards = "tenant_forwards",
        /// Too many connections of the pod are open.
        PodConnections = "pod_connections",
        /// Too many connections of the tenant are open.
        TenantConnections = "tenant_connections",
        /// Too many questions of all wait for upstreams.
        Busy = "busy",
        /// The name is not the network's own, and the network asks nobody outside.
        NotForwarded = "not_forwarded",
        /// No upstream gave an answer that can be used.
        UpstreamFailed = "upstream_failed",
        /// The answer from outside points to a private address, or to a name of the network's own.
        Rebinding = "rebinding",
    }
}

/// Counters that any thread may raise.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    queries: AtomicU64,
    answered: [AtomicU64; Answered::ALL.len()],
    refused: [AtomicU64; Refused::ALL.len()],
    truncated: AtomicU64,
    mismatched: AtomicU64,
}

impl Counters {
    pub(crate) fn query(&self) {
        self.queries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn answered(&self, how: Answered) {
        self.answered[how as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, why: Refused) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn truncated(&self) {
        self.truncated.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn mismatched(&self) {
        self.mismatched.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn look(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            queries: read(&self.queries),
            answered: self.answered.iter().map(read).collect(),
            refused: self.refused.iter().map(read).collect(),
            truncated: read(&self.truncated),
            mismatched: read(&self.mismatched),
        }
    }
}

/// What was counted up to a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Questions.
    pub queries: u64,
    answered: Vec<u64>,
    refused: Vec<u64>,
    /// Answers that were cut because they did not fit.
    pub truncated: u64,
    /// Packets that came instead of an upstream's answer: another id or another question.
    pub mismatched: u64,
}

impl Counts {
    /// Questions that were answered in this way.
    pub fn answered(&self, how: Answered) -> u64 {
        self.answered.get(how as usize).copied().unwrap_or(0)
    }

    /// Questions that were refused for this reason.
    pub fn refused(&self, why: Refused) -> u64 {
        self.refused.get(why as usize).copied().unwrap_or(0)
    }
}
