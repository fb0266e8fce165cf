//! What networks say of their names.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use atoll_api::DnsMode;
use atoll_model::compile::{Answers, OwnResolver};
use atoll_plan::Resolver;
use atoll_types::NetworkId;

use super::Seen;

/// What a network says of its names. One that says nothing is answered by the agent, and asks
/// nobody outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkDns {
    /// The addresses at which its pods are answered, beside the one in their resolv.conf.
    pub(crate) addresses: Resolver,
    /// Who answers.
    pub(crate) mode: DnsMode,
    /// The service of the tenant's own resolver, by namespace and name.
    pub(crate) service: Option<(String, String)>,
    /// What it may ask outside.
    pub(crate) outside: Outside,
}

/// What a network may ask outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outside {
    /// Whom.
    pub(crate) upstreams: Upstreams,
    /// Whether an answer that points inside is refused.
    pub(crate) refuse_private: bool,
}

/// Whom a network asks for names that are not its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Upstreams {
    /// Nobody.
    #[default]
    Nobody,
    /// Those that the agent was started with.
    OfNode,
    /// Its own.
    Own(Vec<SocketAddr>),
}

impl Seen {
    /// What a network says of its names, once it was seen.
    pub(crate) fn dns_of(&self, network: &str) -> Option<NetworkDns> {
        let listed = self.dns.get(network)?.as_ref()?;
        Some(listed.get(network).cloned().unwrap_or_default())
    }

    /// The DNS addresses of each network that is here. Networks with one number have the same.
    /// A tenant's own answers where it is led to: without it, the agent does.
    pub(super) fn own_dns(&self, led: &BTreeSet<NetworkId>) -> BTreeMap<NetworkId, OwnResolver> {
        let own = self.own_ports.iter().flat_map(BTreeMap::values);
        let resolver = |network: NetworkId, dns: NetworkDns| {
            let answers = match dns.mode {
                DnsMode::Dedicated => Answers::Pods,
                DnsMode::Tenant if led.contains(&network) => Answers::Pods,
                DnsMode::Shared | DnsMode::Tenant => Answers::Agent,
            };
            (network, OwnResolver { at: dns.addresses, answers })
        };
        own.filter_map(|own| Some(resolver(own.network, self.dns_of(&own.name)?))).collect()
    }
}
