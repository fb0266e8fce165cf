//! Prints how long a crowd of policies takes to compile, and what the kernel's maps would hold.
//!
//! `cargo run --release --package atoll-policy --example crowd -- 1000`

// What the example writes wrongly ends it.
#![allow(clippy::unwrap_used)]

#[path = "../tests/stage/mod.rs"]
mod stage;

use std::time::Instant;

use atoll_policy::{Compiler, Tables};

use stage::crowd::{app_pod, app_policy, crowd};
use stage::{pod, pod_event};

/// Bytes of keys and values, with addresses of 16 bytes and no padding.
fn bytes(tables: &Tables) -> [(&'static str, usize, usize); 5] {
    [
        ("endpoints", tables.endpoints.len(), 4 + 16 + 4),
        ("outside", tables.outside.len(), 4 + 4 + 16 + 4),
        ("identities", tables.identities.len(), 4 + 12),
        ("peers", tables.peers.len(), 8 + 4),
        ("ports", tables.ports.len(), 4 + 4 + 1 + 2 + 8),
    ]
}

fn main() {
    let apps = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    let events = crowd(apps, 1);
    let mut compiler = Compiler::new();
    let start = Instant::now();
    for event in events {
        compiler.apply(event);
    }
    println!("{apps} policies over {apps} pods: {:?}", start.elapsed());
    for (table, entries, size) in bytes(compiler.tables()) {
        println!("  {table:<10} {entries:>7} entries {:>9} bytes", entries * size);
    }
    println!("  {:?}", compiler.counts());
    for (what, event) in [
        ("a pod like another", app_pod(apps / 2, 1)),
        ("a pod of a new kind", pod_event("team-0", "new", pod(&[("app", "new")], "10.200.0.1"))),
        ("a changed policy", app_policy(apps / 2, 8081)),
    ] {
        let start = Instant::now();
        let changes = compiler.apply(event);
        println!("{what}: {:?}, {} entries", start.elapsed(), changes.len());
    }
}
