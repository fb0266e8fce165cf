//! A small tenant for tests: pods `a` and `b` of namespace `x`.

// Each test file uses a part of the stage; what it builds wrongly ends the test.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod crowd;

use atoll_policy::{Compiler, Event, Interface, Labels, Pod, Protocol};
use atoll_types::{Label, NetAddr, NetworkId, PodRef};

pub(crate) fn label(text: &str) -> Label {
    text.parse().unwrap()
}

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// An address in network 7.
pub(crate) fn at(ip: &str) -> NetAddr {
    NetAddr::new(NetworkId::try_from(7).unwrap(), ip.parse().unwrap())
}

/// A pod in network 7, called `default`.
pub(crate) fn pod(pairs: &[(&str, &str)], ip: &str) -> Pod {
    let address = at(ip);
    let interface =
        Interface { network: label("default"), id: address.network, ips: [address.ip].into() };
    Pod {
        labels: labels(pairs),
        ports: [].into(),
        interfaces: vec![interface],
        node: None,
        host_network: false,
    }
}

pub(crate) fn pod_event(namespace: &str, name: &str, pod: Pod) -> Event {
    Event::Pod(label("acme"), PodRef::new(namespace, name), Some(pod))
}

pub(crate) fn namespace_event(name: &str, pairs: &[(&str, &str)]) -> Event {
    Event::Namespace(label("acme"), name.to_owned(), Some(labels(pairs)))
}

/// A compiler that knows pods `a` and `b` of namespace `x` of tenant `acme`, and no policy.
pub(crate) fn two_pods() -> Compiler {
    let mut compiler = Compiler::new();
    compiler.apply(namespace_event("x", &[("ns", "x")]));
    compiler.apply(pod_event("x", "a", pod(&[("pod", "a")], "10.0.0.1")));
    compiler.apply(pod_event("x", "b", pod(&[("pod", "b")], "10.0.0.2")));
    compiler
}

/// Whether `a` reaches TCP port 80 of `b`.
pub(crate) fn a_reaches_b(compiler: &Compiler) -> bool {
    compiler.explain(at("10.0.0.1"), at("10.0.0.2"), Protocol::Tcp, 80).accepts()
}
