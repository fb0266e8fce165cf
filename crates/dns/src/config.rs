//! What the resolver of a node is started with, and what each network may ask outside.

use std::net::SocketAddr;
use std::time::Duration;

/// What the resolver of a node is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where questions are taken, over UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// How many threads answer UDP at each of those addresses.
    pub threads: usize,
    /// What one pod and one tenant may take.
    pub limits: Limits,
    /// How long one upstream is waited for before the next is asked.
    pub upstream_wait: Duration,
    /// How many times upstreams are asked before the question fails.
    pub upstream_tries: usize,
    /// How many bytes of answers from outside are kept for one network.
    pub cache_bytes: usize,
    /// How long a TCP connection may be silent, or take to bring one question.
    pub tcp_idle: Duration,
    /// How many TCP connections may be open. A tenant has no more of them than it leaves to others.
    pub tcp_connections: usize,
    /// How many questions may wait for upstreams at one moment, likewise.
    pub forwards: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: vec![],
            threads: 1,
            limits: Limits::default(),
            upstream_wait: Duration::from_millis(1500),
            upstream_tries: 3,
            cache_bytes: 2 << 20,
            tcp_idle: Duration::from_secs(10),
            tcp_connections: 1024,
            forwards: 16_384,
        }
    }
}

/// What one pod and one tenant may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Questions of one pod.
    pub pod: Rate,
    /// Questions of all pods of one tenant on this node.
    pub tenant: Rate,
    /// Questions of one pod that wait for an upstream at one moment.
    pub pod_forwards: usize,
    /// Those of all pods of one tenant on this node.
    pub tenant_forwards: usize,
    /// Open TCP connections of one pod.
    pub pod_connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            pod: Rate { per_second: 2_000, burst: 2_000 },
            tenant: Rate { per_second: 20_000, burst: 20_000 },
            pod_forwards: 100,
            tenant_forwards: 1_000,
            pod_connections: 16,
        }
    }
}

/// How many a second, and how many at once.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// In the long run, in one second.
    pub per_second: u32,
    /// At once, after a pause.
    pub burst: u32,
}

/// What a network may ask outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// The servers that are asked for names that are not the network's own, in this order. With
    /// none, such a question is refused.
    pub upstreams: Vec<SocketAddr>,
    /// Whether answers from outside that point to private addresses, or to the network's own
    /// names, are refused.
    pub refuse_private: bool,
}
