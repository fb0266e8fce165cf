//! A column: what a set of rules decides about one identity, for every protocol and port.
//!
//! The rule kept here: rules paint in their order, and paint that is dry is not painted over.

use std::collections::{BTreeMap, BTreeSet};

use crate::decision::Verdict;
use crate::facts::{NamedPort, Protocol};
use crate::policy::Action;
use crate::ports::{PortMatch, PortPrefix, PortRange};

/// Verdicts by protocol and block of ports; the longest block counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Column(pub(crate) BTreeMap<(Option<Protocol>, PortPrefix), Verdict>);

/// Ports of every protocol, painted rule by rule.
#[derive(Clone, Debug)]
pub(crate) struct Canvas<V> {
    strips: [Vec<(PortRange, Paint<V>)>; 4],
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Paint<V> {
    Open,
    Passed,
    Dry(V),
}

/// The part of all traffic that a rule's ports match.
pub(crate) fn matched(
    ports: Option<&[PortMatch]>,
    names: &BTreeSet<NamedPort>,
) -> Vec<(Protocol, PortRange)> {
    let Some(ports) = ports else {
        return Protocol::ALL.map(|protocol| (protocol, PortRange::ALL)).into();
    };
    ports.iter().flat_map(|port| numbers(port, names)).collect()
}

fn numbers(port: &PortMatch, names: &BTreeSet<NamedPort>) -> Vec<(Protocol, PortRange)> {
    match port {
        PortMatch::Numbers(protocol, range) => vec![(*protocol, *range)],
        PortMatch::Named(protocol, name) => names
            .iter()
            .filter(|port| port.name == *name && protocol.is_none_or(|p| p == port.protocol))
            .map(|port| (port.protocol, PortRange::one(port.port)))
            .collect(),
    }
}

impl<V: Clone + Eq> Canvas<V> {
    pub(crate) fn new() -> Self {
        Canvas { strips: Protocol::ALL.map(|_| vec![(PortRange::ALL, Paint::Open)]) }
    }

    /// A rule does its action to what it matches and nobody has decided.
    pub(crate) fn rule(&mut self, action: Action, by: &V, parts: &[(Protocol, PortRange)]) {
        for (protocol, range) in parts {
            let paint = match action {
                Action::Pass => Paint::Passed,
                Action::Accept | Action::Deny => Paint::Dry(by.clone()),
            };
            self.paint(*protocol, *range, &paint);
        }
    }

    /// The end of a tier: what was passed is open to the next.
    pub(crate) fn end_tier(&mut self) {
        for (_, paint) in self.strips.iter_mut().flatten() {
            if *paint == Paint::Passed {
                *paint = Paint::Open;
            }
        }
    }

    /// Everything that nobody has decided is decided.
    pub(crate) fn rest(&mut self, by: &V) {
        for protocol in Protocol::ALL {
            self.paint(protocol, PortRange::ALL, &Paint::Dry(by.clone()));
        }
    }

    fn paint(&mut self, protocol: Protocol, wanted: PortRange, paint: &Paint<V>) {
        let strip = &mut self.strips[protocol as usize];
        let before = std::mem::take(strip);
        for (range, old) in before {
            let overlap =
                PortRange::new(range.first().max(wanted.first()), range.last().min(wanted.last()));
            match overlap {
                Some(overlap) if old == Paint::Open => {
                    strip.extend(below(range, overlap).map(|part| (part, Paint::Open)));
                    strip.push((overlap, paint.clone()));
                    strip.extend(above(range, overlap).map(|part| (part, Paint::Open)));
                }
                _ => strip.push((range, old)),
            }
        }
    }

    /// Everything that decides a port.
    pub(crate) fn dry(&self) -> BTreeSet<&V>
    where
        V: Ord,
    {
        let paints = self.strips.iter().flatten().map(|(_, paint)| paint);
        let dry = paints.filter_map(|paint| match paint {
            Paint::Dry(by) => Some(by),
            Paint::Open | Paint::Passed => None,
        });
        dry.collect()
    }

    /// The painted ports as entries of a longest-prefix map. What is still open is left out.
    pub(crate) fn column(&self, verdict: impl Fn(&V) -> Verdict) -> Column {
        let strips = Protocol::ALL
            .map(|protocol| (protocol, merged(&self.strips[protocol as usize], &verdict)));
        let mut entries = BTreeMap::new();
        let all = PortPrefix { port: 0, bits: 0 };
        let any = widest(&strips[Protocol::Other as usize].1);
        entries.extend(any.map(|verdict| ((None, all), verdict)));
        for (protocol, strip) in &strips[..Protocol::WITH_PORTS.len()] {
            let ground = widest(strip);
            if strip.len() == 1 && ground == any {
                continue;
            }
            entries.extend(ground.map(|verdict| ((Some(*protocol), all), verdict)));
            for (range, verdict) in strip.iter().filter(|(_, verdict)| Some(*verdict) != ground) {
                let prefixes = range.prefixes().into_iter();
                entries.extend(prefixes.map(|prefix| ((Some(*protocol), prefix), *verdict)));
            }
        }
        Column(entries)
    }
}

fn below(range: PortRange, cut: PortRange) -> Option<PortRange> {
    PortRange::new(range.first(), cut.first().checked_sub(1)?)
}

fn above(range: PortRange, cut: PortRange) -> Option<PortRange> {
    PortRange::new(cut.last().checked_add(1)?, range.last())
}

fn merged<V>(
    strip: &[(PortRange, Paint<V>)],
    verdict: &impl Fn(&V) -> Verdict,
) -> Vec<(PortRange, Verdict)> {
    let mut merged: Vec<(PortRange, Verdict)> = Vec::new();
    for (range, paint) in strip {
        let Paint::Dry(by) = paint else { continue };
        let verdict = verdict(by);
        match merged.last_mut() {
            Some((last, same))
                if *same == verdict && last.last().checked_add(1) == Some(range.first()) =>
            {
                *last = PortRange::new(last.first(), range.last()).unwrap_or(*last);
            }
            _ => merged.push((*range, verdict)),
        }
    }
    merged
}

/// The verdict of most ports; the smaller verdict where two have as many.
fn widest(strip: &[(PortRange, Verdict)]) -> Option<Verdict> {
    let mut sizes: BTreeMap<Verdict, u32> = BTreeMap::new();
    for (range, verdict) in strip {
        *sizes.entry(*verdict).or_default() += range.size();
    }
    sizes
        .into_iter()
        .max_by_key(|(verdict, size)| (*size, std::cmp::Reverse(*verdict)))
        .map(|(verdict, _)| verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: (Protocol, PortRange) = (Protocol::Tcp, PortRange::one(80));

    fn column(paint: impl Fn(&mut Canvas<u32>)) -> Vec<(Option<Protocol>, u16, u8, u32)> {
        let mut canvas = Canvas::new();
        paint(&mut canvas);
        let verdict = |by: &u32| Verdict { accept: true, tier: None, rule: *by };
        let Column(entries) = canvas.column(verdict);
        entries.into_iter().map(|((p, at), v)| (p, at.port, at.bits, v.rule)).collect()
    }

    #[test]
    fn one_verdict_for_everything_is_one_entry() {
        assert_eq!(column(|canvas| canvas.rest(&7)), [(None, 0, 0, 7)]);
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let entries = column(|canvas| {
            canvas.rule(Action::Accept, &1, &[WEB]);
            canvas.rule(Action::Deny, &2, &[WEB, (Protocol::Tcp, PortRange::one(81))]);
            canvas.rest(&9);
        });
        let tcp = Some(Protocol::Tcp);
        assert_eq!(entries, [(None, 0, 0, 9), (tcp, 0, 0, 9), (tcp, 80, 16, 1), (tcp, 81, 16, 2)]);
    }

    #[test]
    fn what_is_passed_skips_the_tier_and_no_further() {
        let entries = column(|canvas| {
            canvas.rule(Action::Pass, &1, &[WEB]);
            canvas.rule(Action::Deny, &2, &[WEB]);
            canvas.end_tier();
            canvas.rule(Action::Accept, &3, &[WEB]);
            canvas.rest(&9);
        });
        let tcp = Some(Protocol::Tcp);
        assert_eq!(entries, [(None, 0, 0, 9), (tcp, 0, 0, 9), (tcp, 80, 16, 3)]);
    }

    #[test]
    fn a_named_port_is_the_number_that_the_pod_gives_it() {
        let port = |name: &str, protocol, port| NamedPort { name: name.to_owned(), protocol, port };
        let names = [port("web", Protocol::Tcp, 80), port("web", Protocol::Udp, 81)].into();
        let named =
            |protocol| matched(Some(&[PortMatch::Named(protocol, "web".to_owned())]), &names);
        assert_eq!(named(Some(Protocol::Tcp)), [WEB]);
        assert_eq!(named(None), [WEB, (Protocol::Udp, PortRange::one(81))]);
        assert_eq!(named(Some(Protocol::Sctp)), []);
    }
}
