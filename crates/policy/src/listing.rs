//! The tables in words: every number replaced by what it stands for.
//!
//! The rule kept here: equal facts give equal listings, however they were learned.

use std::collections::BTreeMap;

use crate::compiler::Compiler;
use crate::policy::PolicyKey;

impl Compiler {
    /// Every entry of every table in words, in an order of its own.
    pub fn listing(&self) -> Vec<String> {
        let words = Words::of(self);
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
            format!("{set} for {identity}: {:?}", words.columns.get(column))
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
    columns: BTreeMap<u32, Vec<String>>,
}

impl<'a> Words<'a> {
    fn of(compiler: &'a Compiler) -> Self {
        let tables = compiler.tables();
        let mut columns: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (key, verdict) in tables.ports.iter() {
            let rule = tables.rules.get(&verdict.rule).map(ToString::to_string);
            let words = format!("{:?} {:?} {} {rule:?}", key.protocol, key.ports, verdict.accept);
            columns.entry(key.column).or_default().push(words);
        }
        Words { compiler, revisions: compiler.revisions(), columns }
    }

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
}
