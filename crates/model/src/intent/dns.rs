//! Who answers the names of a network, and what its pods may ask outside.

use std::net::{IpAddr, SocketAddr};

use atoll_api::{self as api, Reason};

use super::Malformed;
use crate::compile::never_outside;

/// Who answers the names of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsPlan {
    /// Who shall.
    pub mode: api::DnsMode,
    /// The servers that are asked for names outside; those of the agents where it is not said.
    pub upstreams: Option<Vec<SocketAddr>>,
    /// Whether an answer from outside that points inside is refused.
    pub refuse_private: bool,
    /// The service of the tenant's own resolver.
    pub service: Option<api::DnsService>,
}

impl DnsPlan {
    /// What a network's `spec.dns` says.
    pub fn parse(dns: Option<&api::NetworkDns>) -> Result<Self, Malformed> {
        let Some(dns) = dns else { return Ok(DnsPlan::default()) };
        if (dns.mode == api::DnsMode::Tenant) != dns.service.is_some() {
            let message = "spec.dns.service: mode tenant needs it, and no other mode takes it";
            return Err(Malformed::new(Reason::RequestMalformed, message));
        }
        let upstreams = dns
            .upstreams
            .as_ref()
            .map(|all| all.iter().enumerate().map(|(place, text)| upstream(place, text)).collect());
        Ok(DnsPlan {
            mode: dns.mode,
            upstreams: upstreams.transpose()?,
            refuse_private: dns.refuse_private,
            service: dns.service.clone(),
        })
    }
}

/// An address of a DNS server, at port 53 where none is given. The agents ask it as their nodes: what
/// is never outside is none of a tenant's business.
fn upstream(place: usize, text: &str) -> Result<SocketAddr, Malformed> {
    let without_port = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53));
    let server = without_port.or_else(|_| text.parse());
    let wrong = match server {
        Ok(server) if !is_never_outside(server.ip()) => return Ok(server),
        Ok(_) => "is never outside: it means a node itself, its links or a group",
        Err(_) => "is no address",
    };
    let message = format!(
        "spec.dns.upstreams[{place}]: {text:?} {wrong}; give one like 192.0.2.53 or 192.0.2.53:5353"
    );
    Err(Malformed::new(Reason::RequestMalformed, message))
}

fn is_never_outside(ip: IpAddr) -> bool {
    never_outside().any(|range| range.contains(ip.to_canonical()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_are_addresses_and_an_empty_list_is_not_the_same_as_none() {
        let dns = |upstreams: Option<&[&str]>| {
            let upstreams = upstreams.map(|all| all.iter().map(ToString::to_string).collect());
            DnsPlan::parse(Some(&api::NetworkDns { upstreams, ..api::NetworkDns::default() }))
        };
        let both = dns(Some(&["192.0.2.53", "[2001:db8::53]:5353"])).unwrap().upstreams.unwrap();
        let texts: Vec<String> = both.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["192.0.2.53:53", "[2001:db8::53]:5353"]);
        assert_eq!(dns(Some(&[])).unwrap().upstreams, Some(vec![]));
        assert_eq!(dns(None).unwrap().upstreams, None);
        let message = dns(Some(&["192.0.2.53", "resolver"])).unwrap_err().message;
        assert!(message.starts_with("spec.dns.upstreams[1]: \"resolver\" is no"), "{message}");
    }

    #[test]
    fn the_tenants_resolver_is_named_in_mode_tenant_and_in_no_other() {
        let service = api::DnsService { namespace: "acme".into(), name: "dns".into() };
        let dns = |mode, service| {
            DnsPlan::parse(Some(&api::NetworkDns { mode, service, ..api::NetworkDns::default() }))
        };
        assert_eq!(
            dns(api::DnsMode::Tenant, Some(service.clone())).unwrap().service,
            Some(service.clone())
        );
        for (mode, service) in [(api::DnsMode::Tenant, None), (api::DnsMode::Shared, Some(service))]
        {
            assert!(dns(mode, service).unwrap_err().message.starts_with("spec.dns.service: "));
        }
    }
}
