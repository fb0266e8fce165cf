//! Many services of ten pods each in one network: the facts as an agent reads them, and the book
//! that it keeps of them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use atoll_model::compile::{EndpointGroup, Followed, PlacedPort, ServiceBook, ServiceFront};
use atoll_plan::{Service, ServiceKey};
use atoll_types::NetworkId;
use serde_json::json;

use crate::paths::port;

/// How many pods are behind each service.
pub(super) const PODS_EACH: u32 = 10;
const FIRST_POD: u32 = 0x0a40_0000;
const FIRST_VIP: u32 = 0xc612_8001;

/// What the API says of so many services, parsed.
pub(super) struct Facts {
    ports: Vec<PlacedPort>,
    fronts: Vec<ServiceFront>,
    groups: Vec<EndpointGroup>,
}

impl Facts {
    pub(super) fn of(network: u32, services: u32) -> Result<Self> {
        let pods = 0..services * PODS_EACH;
        Ok(Facts {
            ports: pods.map(|pod| port(network, address(pod), "node2")).collect::<Result<_>>()?,
            fronts: (0..services).map(front).collect::<Result<_>>()?,
            groups: (0..services)
                .map(|service| group(network, service, own_pods(service)))
                .collect::<Result<_>>()?,
        })
    }
}

/// The book of an agent that has seen these services.
pub(super) struct Crowd {
    network: u32,
    book: ServiceBook,
}

impl Crowd {
    /// Compiles all of them.
    pub(super) fn compile(network: u32, facts: Facts) -> Result<Self> {
        let mut book = ServiceBook::new("node1");
        let name = name_of(network);
        let id = NetworkId::try_from(network)?;
        let followed = Followed { id, is_here: true, is_guest: false, is_shared: false };
        book.follow(&BTreeMap::from([(name.clone(), followed)]));
        for port in &facts.ports {
            book.put_port(&name, &(namespace_of(network), port.pod.name.clone()), Some(port));
        }
        for (number, (front, group)) in facts.fronts.into_iter().zip(facts.groups).enumerate() {
            let key = (namespace_of(network), format!("service-{number}"));
            book.put_service(&name, &key, Some(front));
            book.put_slice(&name, &key, Some(group));
        }
        book.take_touched(|_| true);
        Ok(Crowd { network, book })
    }

    /// What the node is to serve.
    pub(super) fn served(&self) -> BTreeMap<ServiceKey, Service> {
        self.book.served().clone()
    }

    /// Puts another slice behind a service; gives what that touches.
    pub(super) fn put_slice(
        &mut self,
        service: u32,
        group: EndpointGroup,
    ) -> Vec<(ServiceKey, Service)> {
        let key = (namespace_of(self.network), format!("service-{service}"));
        self.book.put_slice(&name_of(self.network), &key, Some(group));
        let touched = self.book.take_touched(|_| true);
        let served = self.book.served();
        touched.into_iter().filter_map(|key| Some((key, served.get(&key)?.clone()))).collect()
    }
}

/// The slice of a service, one of whose pods gave its place to a pod of `other`'s.
pub(super) fn changed_group(network: u32, service: u32, other: u32) -> Result<EndpointGroup> {
    let stays = own_pods(service).skip(1);
    group(network, service, stays.chain([other * PODS_EACH]))
}

fn name_of(network: u32) -> String {
    format!("tenant-{network}.default")
}

fn namespace_of(network: u32) -> String {
    format!("tenant-{network}")
}

fn own_pods(service: u32) -> impl Iterator<Item = u32> {
    service * PODS_EACH..(service + 1) * PODS_EACH
}

fn address(pod: u32) -> std::net::IpAddr {
    Ipv4Addr::from_bits(FIRST_POD + pod).into()
}

fn front(service: u32) -> Result<ServiceFront> {
    let vip = Ipv4Addr::from_bits(FIRST_VIP + service).to_string();
    let object = json!({
        "metadata": { "uid": format!("uid-{service}") },
        "spec": { "clusterIPs": [vip], "ports": [{ "port": 80 }] },
    });
    ServiceFront::read(&serde_json::from_value(object)?).context("the service is one")
}

fn group(network: u32, service: u32, pods: impl Iterator<Item = u32>) -> Result<EndpointGroup> {
    let endpoint = |pod: u32| {
        let name = format!("pod-{}", address(pod));
        json!({ "addresses": ["192.0.2.1"], "targetRef": { "kind": "Pod", "name": name } })
    };
    let labels = json!({ "kubernetes.io/service-name": format!("service-{service}") });
    let object = json!({
        "metadata": { "namespace": namespace_of(network), "labels": labels },
        "addressType": "IPv4",
        "ports": [{ "port": 8080 }],
        "endpoints": pods.map(endpoint).collect::<Vec<_>>(),
    });
    EndpointGroup::read(&serde_json::from_value(object)?).context("the slice is one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_leads_to_its_own_ten_pods() {
        let crowd = Crowd::compile(100, Facts::of(100, 3).unwrap()).unwrap();
        let served = crowd.served();
        assert_eq!(served.len(), 3);
        let backends = served.values().map(|service| service.backends.len());
        assert_eq!(backends.collect::<Vec<_>>(), [10; 3]);
    }

    #[test]
    fn a_changed_slice_touches_its_service_and_changes_one_backend() {
        let mut crowd = Crowd::compile(100, Facts::of(100, 3).unwrap()).unwrap();
        let before = crowd.served();
        let touched = crowd.put_slice(1, changed_group(100, 1, 2).unwrap());
        let [(key, service)] = touched.as_slice() else { panic!("{touched:?}") };
        assert_eq!(before[key].backends.difference(&service.backends).count(), 1);
        assert_eq!(service.backends.len(), 10);
    }
}
