//! What a tenant of a measured cluster has beside its pods, so that packets meet all that Atoll
//! does: policies that deny by default and allow what is measured, and services.
//!
//! The rule: every tenant has the very same of it, at the very same addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use anyhow::{Context, Result};
use atoll_plan::{Backend, Service, ServiceKey, Side};
use atoll_policy::{Compiler, Event, Interface, Labels, Pod};
use atoll_types::{Label, NetAddr, NetworkId, PodRef, Protocol};
use serde_json::{Value, json};

use super::VIP;
use crate::traffic::PORTS;

const NAMESPACE: &str = "measured";

/// The policies of tenants whose pods have these addresses.
pub(super) fn policies(networks: &[u32], pods: &[Ipv4Addr]) -> Result<Compiler> {
    let mut compiler = Compiler::new();
    for network in networks {
        let tenant: Label = format!("tenant-{network}").parse()?;
        compiler.apply(Event::Namespace(tenant.clone(), NAMESPACE.into(), Some(Labels::new())));
        for ip in pods {
            let name = PodRef::new(NAMESPACE, format!("pod-{ip}"));
            compiler.apply(Event::Pod(tenant.clone(), name, Some(pod(*network, *ip)?)));
        }
        compiler.apply(policy(&tenant, "deny-all", &json!({ "podSelector": {} }))?);
        compiler.apply(policy(&tenant, "allow-measured", &measured())?);
    }
    Ok(compiler)
}

fn pod(network: u32, ip: Ipv4Addr) -> Result<Pod> {
    let id = NetworkId::try_from(network)?;
    let interface = Interface { network: "default".parse()?, id, ips: [ip.into()].into() };
    let labels = Labels::from([("app".to_owned(), "measured".to_owned())]);
    Ok(Pod { labels, interfaces: vec![interface], ..Pod::default() })
}

fn measured() -> Value {
    let peer = json!({ "podSelector": { "matchLabels": { "app": "measured" } } });
    let port =
        |(protocol, port): (Protocol, u16)| json!({ "port": port, "protocol": protocol.name() });
    let ports = PORTS.map(port);
    json!({
        "podSelector": { "matchLabels": { "app": "measured" } },
        "ingress": [{ "from": [peer], "ports": ports }],
        "egress": [{ "to": [peer], "ports": ports }],
    })
}

fn policy(tenant: &Label, name: &str, spec: &Value) -> Result<Event> {
    let mut object = json!({ "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec });
    object["spec"]["policyTypes"] = json!(["Ingress", "Egress"]);
    let object = serde_json::from_value(object).context("the policy is one")?;
    Ok(Event::network_policy(tenant, &object))
}

/// The services of a network: the measured one, which leads to `server`, and so many others with a
/// backend each.
pub(super) fn services(
    network: NetworkId,
    server: IpAddr,
    others: u32,
) -> Result<BTreeMap<ServiceKey, Service>> {
    let mut services = BTreeMap::new();
    for (protocol, port) in PORTS {
        let port = NonZeroU16::try_from(port)?;
        let key = ServiceKey { network, ip: VIP.into(), protocol, port, side: Side::Clients };
        services.insert(key, one(Backend { addr: NetAddr::new(network, server), port }));
    }
    let port = NonZeroU16::try_from(80)?;
    for number in 0..others {
        let at = |base: u32| IpAddr::V4(Ipv4Addr::from_bits(base + number));
        let (protocol, side) = (Protocol::Tcp, Side::Clients);
        let key = ServiceKey { network, ip: at(0xc612_0001), protocol, port, side };
        services.insert(key, one(Backend { addr: NetAddr::new(network, at(0x0ac8_0001)), port }));
    }
    Ok(services)
}

fn one(backend: Backend) -> Service {
    Service { backends: BTreeSet::from([backend]), ..Service::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_measured_is_allowed_and_by_a_rule() {
        let pods = [1, 2].map(|last| Ipv4Addr::new(10, 0, 0, last));
        let compiler = policies(&[100, 200], &pods).unwrap();
        assert_eq!(compiler.reports().count(), 0);
        for network in [100, 200] {
            let network = NetworkId::try_from(network).unwrap();
            let [one, two] = pods.map(|ip| NetAddr::new(network, ip.into()));
            for (protocol, port) in PORTS {
                let protocol = atoll_policy::Protocol::named(protocol.name()).unwrap();
                let asked = compiler.explain(one, two, protocol, port);
                assert!(asked.accepts() && asked.ingress.rule().is_some(), "{protocol:?} {port}");
            }
            assert!(!compiler.explain(one, two, atoll_policy::Protocol::Tcp, 80).accepts());
        }
    }

    #[test]
    fn the_measured_service_leads_to_the_server_at_every_measured_port() {
        let network = NetworkId::try_from(100).unwrap();
        let services = services(network, [10, 0, 0, 2].into(), 5).unwrap();
        assert_eq!(services.len(), PORTS.len() + 5);
        let measured = services.iter().filter(|(key, _)| key.ip == VIP);
        for (key, service) in measured {
            let addr = NetAddr::new(network, [10, 0, 0, 2].into());
            assert_eq!(service.backends, [Backend { addr, port: key.port }].into());
        }
    }
}
