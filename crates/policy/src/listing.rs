//! The tables in words: every number replaced by what it stands for.
//!
//! The rule kept here: equal facts give equal listings, however they were learned.

use std::collections::BTreeMap;

use crate::compiler::Compiler;
use crate::policy::PolicyKey;

impl Compiler {
    /// Every entry of every table in words, in an order of its own.
    pub fn listing(&self) -> Vec<String> {
        let words = Words { compiler: self, revisions: self.revisions() };
        let tables = self.tables();
        let endpoints = tables.endpoints.iter().map(|(address, identity)| {
            format!("endpoint {address} is {}", words.identity(*identity))
        });
        let outside = tables.outside.iter().map(|(key, identity)| {
            format!(
                "range {} seen by {} is {}",
                key.range,
                words.tenant(key.tenant),
                words.identity(*identity)
            )
        });
        let identities = tables.identities.iter().map(|(identity, entry)| {
            let (ingress, egress) = (words.set(entry.ingress), words.set(entry.egress));
            format!("{} has ingress {ingress}, egress {egress}", words.identity(*identity))
        });
        let peers = tables.peers.iter().map(|(key, column)| {
            let (set, identity) = (words.set(key.set), words.identity(key.identity));
            format!("{set} for {identity}: {:?}", words.column(*column))
        });
        let mut lines: Vec<String> =
            endpoints.chain(outside).chain(identities).chain(peers).collect();
        lines.sort();
        lines
    }
}

struct Words<'a> {
    compiler: &'a Compiler,
    revisions: BTreeMap<u64, PolicyKey>,
}

impl Words<'_> {
    fn tenant(&self, number: u32) -> String {
        self.compiler.tenant_named(number).map_or_else(String::new, ToString::to_string)
    }

    fn identity(&self, number: u32) -> String {
        let identity = self.compiler.shared().identities.key(number);
        identity.map_or_else(|| "anybody".to_owned(), |identity| format!("{identity:?}"))
    }

    fn set(&self, number: u32) -> String {
        let Some(key) = self.compiler.shared().sets.key(number) else { return "none".to_owned() };
        let policies: Vec<_> = key.policies.iter().map(|at| self.revisions.get(at)).collect();
        format!("{} {} {policies:?} {:?}", key.tenant, key.direction, key.names)
    }

    fn column(&self, number: u32) -> Vec<String> {
        let tables = self.compiler.tables();
        let entries = tables.ports.iter().filter(|(key, _)| key.column == number);
        let worded = entries.map(|(key, verdict)| {
            let rule = tables.rules.get(&verdict.rule).map(ToString::to_string);
            format!("{:?} {:?} {} {rule:?}", key.protocol, key.ports, verdict.accept)
        });
        worded.collect()
    }
}
