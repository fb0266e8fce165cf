//! Two networks that share names and addresses, and a server that answers for both.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use atoll_api::Port;
use atoll_dns::{Asker, Config, NetworkKey, PodId, Server, TenantId};
use atoll_zones::{DomainName, Homes, Names, Service, Settings, Slice, ZoneSet};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Deserialize;

/// The network of those who ask from 127.0.1.x.
pub(crate) const ACME: u32 = 1;
/// The network of those who ask from 127.0.2.x.
pub(crate) const UMBRELLA: u32 = 2;

pub(crate) fn network(number: u32) -> NetworkKey {
    NetworkKey(number.into())
}

/// 127.0.N.P is pod P of network N and of tenant N; 127.0.0.x is nobody.
pub(crate) fn asker(from: SocketAddr) -> Option<Asker> {
    let IpAddr::V4(ip) = from.ip() else { return None };
    let [_, _, number, pod] = ip.octets();
    let network = NetworkKey(u64::from(number));
    let pod = PodId(u64::from(number) << 8 | u64::from(pod));
    (number != 0).then(|| Asker { network, pod, tenant: TenantId(number.into()) })
}

/// An address of this machine that no other server of these tests has. Servers share a port with others
/// of their address, so that the kernel may draw one for two of them.
pub(crate) fn nowhere_else() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    [127, high | 0x80, low, NEXT.fetch_add(1, Ordering::Relaxed)].into()
}

pub(crate) fn config() -> Config {
    Config { listen: vec![SocketAddr::new(nowhere_else(), 0)], ..Config::default() }
}

/// A server with both networks.
#[expect(clippy::needless_pass_by_value, reason = "each test makes its own")]
pub(crate) fn open(config: Config) -> (Server, SocketAddr) {
    let server = listen(&config);
    server.swap(network(ACME), Arc::new(zones(ACME, include_str!("acme.yaml"))));
    server.swap(network(UMBRELLA), Arc::new(zones(UMBRELLA, include_str!("umbrella.yaml"))));
    let address = server.addresses()[0];
    (server, address)
}

/// A server at a port that is free over UDP and TCP: one that the kernel draws for UDP may be that
/// of somebody's TCP connection.
fn listen(config: &Config) -> Server {
    let tries = (0..20).map(|_| Server::new(config.clone(), asker));
    tries.flatten().next().expect("no port is free over both")
}

/// A network without names.
pub(crate) fn empty() -> ZoneSet {
    ZoneSet::new(Settings {
        zone: DomainName::parse("cluster.local").unwrap(),
        cidrs: vec!["203.0.114.0/24".parse().unwrap()],
        resolver: vec!["10.96.0.10".parse().unwrap()],
        ttl: 5,
    })
}

/// A network with the names of these objects.
pub(crate) fn zones(number: u32, objects: &str) -> ZoneSet {
    let (mut services, mut slices, mut ports) = (vec![], vec![], vec![]);
    for document in serde_yaml_ng::Deserializer::from_str(objects) {
        let object = serde_yaml_ng::Value::deserialize(document).unwrap();
        match object.get("kind").and_then(|kind| kind.as_str()) {
            Some("Service") => services.push(read::<core::Service>(object)),
            Some("EndpointSlice") => {
                slices.push(Slice::read(&read::<EndpointSlice>(object)).unwrap());
            }
            Some("Port") => ports.push(read::<Port>(object)),
            other => assert_eq!(other, None),
        }
    }
    let homes = Homes::of(number.try_into().unwrap(), &ports);
    let mut set = empty();
    for service in services.iter().map(|service| Service::read(service).unwrap()) {
        let own: Vec<Slice> =
            slices.iter().filter(|it| it.service == service.key).cloned().collect();
        let names = Names::compile(&service, &own, &homes, set.settings());
        set.put_service(&service.key, names);
    }
    for (pod, ips) in homes.iter() {
        ips.iter().for_each(|ip| set.put_pod(&pod.namespace.parse().unwrap(), *ip));
    }
    set
}

fn read<T: for<'a> Deserialize<'a>>(value: serde_yaml_ng::Value) -> T {
    serde_yaml_ng::from_value(value).unwrap()
}
