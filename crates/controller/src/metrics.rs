//! What can be measured of the controller, for Prometheus.
//!
//! The rule: every label is one of a closed set. No name of a tenant or an object is a label, so
//! that the number of series does not grow with the cluster.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use atoll_metrics::Page;
use atoll_model::intent::Kind;
use atoll_model::{Addresses, Key, Tally};

use crate::queue::Outcome;

/// What is counted while the controller works.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    decisions: Mutex<BTreeMap<(Kind, Outcome), u64>>,
}

impl Counters {
    /// Counts that an object was looked at.
    pub(crate) fn count(&self, key: &Key, outcome: Outcome) {
        let mut counts = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((key.kind, outcome)).or_default() += 1;
    }

    /// Everything, as Prometheus reads it.
    pub(crate) fn text(&self, tally: &Tally, depth: usize, leading: bool) -> String {
        let mut page = Page::default();
        self.tell_decisions(&mut page);
        tell_objects(&mut page, tally);
        tell_addresses(&mut page, tally);
        page.counter(
            "atoll_leaks_repaired_total",
            "Claims that nobody held any more and that were given back.",
        );
        page.value("atoll_leaks_repaired_total", &[], tally.repaired);
        page.gauge(
            "atoll_waiting_pods",
            "Pods, ports and services that wait for a network or an address.",
        );
        page.value("atoll_waiting_pods", &[], tally.waiting_pods);
        page.gauge("atoll_queue_depth", "Objects that are looked at or wait for it.");
        page.value("atoll_queue_depth", &[], depth);
        page.gauge("atoll_leading", "Whether this controller is the one that works.");
        page.value("atoll_leading", &[], u8::from(leading));
        page.text()
    }

    fn tell_decisions(&self, page: &mut Page) {
        let counts = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        page.counter("atoll_decisions_total", "Objects looked at, by what came of it.");
        for ((kind, outcome), count) in counts.iter() {
            let labels = [("kind", label(kind)), ("outcome", label(outcome))];
            page.value("atoll_decisions_total", &labels, count);
        }
    }
}

fn tell_objects(page: &mut Page, tally: &Tally) {
    page.gauge("atoll_objects", "Objects, by kind.");
    for (kind, count) in &tally.objects {
        page.value("atoll_objects", &[("kind", label(kind))], count);
    }
    page.gauge("atoll_networks", "Networks, by phase.");
    for (phase, count) in &tally.networks {
        page.value("atoll_networks", &[("phase", label(phase))], count);
    }
    page.gauge("atoll_subnets", "Subnets, by phase.");
    for (phase, count) in &tally.subnets {
        page.value("atoll_subnets", &[("phase", label(phase))], count);
    }
    page.gauge("atoll_exhausted_subnets", "Subnets without a free address.");
    page.value("atoll_exhausted_subnets", &[], tally.exhausted_subnets);
}

fn tell_addresses(page: &mut Page, tally: &Tally) {
    page.gauge("atoll_addresses", "Addresses of Active subnets, by family and state.");
    for (family, Addresses { used, free }) in [("ipv4", tally.ipv4), ("ipv6", tally.ipv6)] {
        for (state, count) in [("used", used), ("free", free)] {
            let labels = [("family", family.to_owned()), ("state", state.to_owned())];
            page.value("atoll_addresses", &labels, count);
        }
    }
}

/// The label of a value of a closed set: its name in lower case.
fn label(value: impl Debug) -> String {
    format!("{value:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use atoll_model::intent::ObjectName;

    use super::*;

    #[test]
    fn what_was_counted_is_told_with_labels_of_closed_sets() {
        let counters = Counters::default();
        let key = |kind| Key::new(kind, ObjectName::cluster("acme-secret"));
        counters.count(&key(Kind::Pod), Outcome::Acted);
        counters.count(&key(Kind::Pod), Outcome::Acted);
        let tally = Tally {
            exhausted_subnets: 3,
            repaired: 1,
            ipv4: Addresses { used: 7, free: 9 },
            ..Tally::default()
        };
        let text = counters.text(&tally, 5, true);
        for line in [
            "# TYPE atoll_decisions_total counter",
            "atoll_decisions_total{kind=\"pod\",outcome=\"acted\"} 2",
            "atoll_leaks_repaired_total 1",
            "atoll_exhausted_subnets 3",
            "atoll_addresses{family=\"ipv4\",state=\"free\"} 9",
            "atoll_addresses{family=\"ipv6\",state=\"used\"} 0",
            "atoll_queue_depth 5",
            "atoll_leading 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in:\n{text}");
        }
        assert!(!text.contains("acme-secret"), "no name of a tenant is told");
    }
}
