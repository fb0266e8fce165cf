//! What pods asked, by network, for Prometheus.
//!
//! The rule of this file: there is a series for each network that is on this node and for each
//! word of an enum, and for nothing else. No pod and no name that was asked for is a label.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_dns::{Answered, Counts, Ledger, NetworkKey, Refused};
use atoll_metrics::Page;

/// The object names of the networks that are answered, by the resolver's keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory(Arc<Mutex<BTreeMap<NetworkKey, String>>>);

impl Directory {
    pub(super) fn put(&self, network: NetworkKey, name: &str) {
        self.open().insert(network, name.to_owned());
    }

    pub(super) fn remove(&self, network: NetworkKey) {
        self.open().remove(&network);
    }

    /// A thread that panicked leaves names that are still names.
    fn open(&self) -> MutexGuard<'_, BTreeMap<NetworkKey, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was counted of questions.
pub(crate) struct Metrics {
    pub(super) ledger: Ledger,
    pub(super) directory: Directory,
}

impl Metrics {
    /// Writes all of it.
    pub(crate) fn write(&self, page: &mut Page) {
        let networks = self.directory.open().clone();
        let counts =
            |(key, name): (&NetworkKey, &String)| Some((name.clone(), self.ledger.counts(*key)?));
        let counted: Vec<(String, Counts)> = networks.iter().filter_map(counts).collect();
        write_totals(page, &counted);
        write_answers(page, &counted);
        write_refusals(page, &counted);
        page.counter("atoll_dns_strangers_total", "Questions that belong to no network, by why.");
        let strangers = self.ledger.strangers();
        for why in [Refused::UnknownAsker, Refused::NoView] {
            let labels = [("why", why.name().to_owned())];
            page.value("atoll_dns_strangers_total", &labels, strangers.refused(why));
        }
    }
}

fn network(name: &str) -> (&'static str, String) {
    ("network", name.to_owned())
}

fn write_totals(page: &mut Page, counted: &[(String, Counts)]) {
    page.counter("atoll_dns_queries_total", "Questions of a network's pods.");
    for (name, counts) in counted {
        page.value("atoll_dns_queries_total", &[network(name)], counts.queries);
    }
    page.counter("atoll_dns_truncated_total", "Answers that did not fit and were cut.");
    for (name, counts) in counted {
        page.value("atoll_dns_truncated_total", &[network(name)], counts.truncated);
    }
    page.counter(
        "atoll_dns_mismatched_total",
        "Packets that came instead of an upstream's answer.",
    );
    for (name, counts) in counted {
        page.value("atoll_dns_mismatched_total", &[network(name)], counts.mismatched);
    }
}

fn write_answers(page: &mut Page, counted: &[(String, Counts)]) {
    page.counter("atoll_dns_answers_total", "Questions answered, by how.");
    for (name, counts) in counted {
        for how in Answered::ALL {
            let labels = [network(name), ("how", how.name().to_owned())];
            page.value("atoll_dns_answers_total", &labels, counts.answered(*how));
        }
    }
}

fn write_refusals(page: &mut Page, counted: &[(String, Counts)]) {
    page.counter("atoll_dns_refusals_total", "Questions not answered, by why.");
    for (name, counts) in counted {
        for why in Refused::ALL {
            let labels = [network(name), ("why", why.name().to_owned())];
            page.value("atoll_dns_refusals_total", &labels, counts.refused(*why));
        }
    }
}
