//! What was seen of one network, and the names that follow from it, change by change.
//!
//! Its rule: a change compiles the services that it touches and no others, and leads to the names
//! that a new start with the same objects would lead to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_types::{Label, PodRef};
use serde::{Deserialize, Serialize};

use crate::apex::Settings;
use crate::endpoints::{Homes, Slice};
use crate::fact::Fact;
use crate::service::{Names, Service, ServiceKey};
use crate::set::ZoneSet;

/// A namespaced object by namespace and name.
pub(crate) type ObjectKey = (String, String);

/// Where a pod lives: one interface of it in the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The pod.
    pub pod: PodRef,
    /// The addresses of the interface.
    pub ips: Vec<IpAddr>,
}

/// The objects of one network, and its names.
#[derive(Debug)]
pub struct View {
    zones: ZoneSet,
    homes: Homes,
    interfaces: BTreeMap<PodRef, BTreeMap<ObjectKey, Vec<IpAddr>>>,
    pods: BTreeMap<ObjectKey, PodRef>,
    services: BTreeMap<ServiceKey, Service>,
    slices: BTreeMap<ServiceKey, BTreeMap<ObjectKey, Slice>>,
    served: BTreeMap<ObjectKey, ServiceKey>,
    /// The services that a pod is behind.
    backed: BTreeMap<PodRef, BTreeSet<ServiceKey>>,
}

impl View {
    /// A network of which nothing was seen.
    pub fn new(settings: Settings) -> Self {
        View {
            zones: ZoneSet::new(settings),
            homes: Homes::default(),
            interfaces: BTreeMap::new(),
            pods: BTreeMap::new(),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            served: BTreeMap::new(),
            backed: BTreeMap::new(),
        }
    }

    /// The names as they follow from all that was seen.
    pub fn zones(&self) -> &ZoneSet {
        &self.zones
    }

    /// The names of the ports that have a home here.
    pub fn homes(&self) -> impl Iterator<Item = &ObjectKey> {
        self.pods.keys()
    }

    /// The names of the services of a namespace.
    pub fn services_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a ServiceKey> {
        let first =
            || Some(ServiceKey { namespace: namespace.parse().ok()?, name: first_label()? });
        let from = first().map(|first| self.services.range(first..)).into_iter().flatten();
        from.map(|(key, _)| key).take_while(move |key| key.namespace.as_str() == namespace)
    }

    /// The names of the slices of a namespace.
    pub fn slices_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        let from = self.served.range((namespace.to_owned(), String::new())..);
        from.map(|(key, _)| key).take_while(move |key| key.0 == namespace)
    }

    /// Takes in one object as it is, or that it is gone.
    pub fn learn(&mut self, fact: Fact) {
        match fact {
            Fact::Home(key, home) => self.put_home(&key, home),
            Fact::Service(key, service) => self.put_service(&key, service),
            Fact::Slice(key, slice) => self.put_slice(&key, slice),
        }
    }

    /// Everything that was learned and holds, from which another view can be made.
    pub fn facts(&self) -> impl Iterator<Item = Fact> {
        let homes = self.pods.iter().map(|(key, pod)| {
            let ips = self.interfaces.get(pod).and_then(|ports| ports.get(key));
            let ips = ips.cloned().unwrap_or_default();
            Fact::Home(key.clone(), Some(Home { pod: pod.clone(), ips }))
        });
        let services = self.services.iter();
        let services = services.map(|(key, it)| Fact::Service(key.clone(), Some(it.clone())));
        let slices = self.slices.values().flatten();
        let slices = slices.map(|(key, slice)| Fact::Slice(key.clone(), Some(slice.clone())));
        homes.chain(services).chain(slices)
    }

    /// The port `key` is at `home`, or nowhere any more.
    pub fn put_home(&mut self, key: &ObjectKey, home: Option<Home>) {
        if home.as_ref().is_some_and(|home| self.is_at(key, home)) {
            return;
        }
        if let Some(former) = self.pods.remove(key) {
            self.change_pod(&former, |interfaces| drop(interfaces.remove(key)));
        }
        let Some(Home { pod, ips }) = home else { return };
        self.change_pod(&pod, |interfaces| drop(interfaces.insert(key.clone(), ips)));
        self.pods.insert(key.clone(), pod);
    }

    /// The service `key` is this one, or is gone.
    pub fn put_service(&mut self, key: &ServiceKey, service: Option<Service>) {
        match service {
            Some(service) => drop(self.services.insert(key.clone(), service)),
            None => drop(self.services.remove(key)),
        }
        self.compile(key);
    }

    /// The slice `key` is this one, or is gone.
    pub fn put_slice(&mut self, key: &ObjectKey, slice: Option<Slice>) {
        if let Some(former) = self.served.remove(key) {
            self.change_slices(&former, |slices| drop(slices.remove(key)));
        }
        let Some(slice) = slice else { return };
        let service = slice.service.clone();
        self.change_slices(&service, |slices| drop(slices.insert(key.clone(), slice)));
        self.served.insert(key.clone(), service);
    }

    fn is_at(&self, key: &ObjectKey, home: &Home) -> bool {
        let interfaces = self.interfaces.get(&home.pod);
        interfaces.and_then(|interfaces| interfaces.get(key)) == Some(&home.ips)
    }

    fn change_pod(
        &mut self,
        pod: &PodRef,
        change: impl FnOnce(&mut BTreeMap<ObjectKey, Vec<IpAddr>>),
    ) {
        let interfaces = self.interfaces.entry(pod.clone()).or_default();
        change(interfaces);
        let after: Vec<IpAddr> = interfaces.values().flatten().copied().collect();
        if interfaces.is_empty() {
            self.interfaces.remove(pod);
        }
        self.name_pod(pod, &after);
        self.homes.put(pod, after);
        for service in self.backed.get(pod).cloned().unwrap_or_default() {
            self.compile(&service);
        }
    }

    fn name_pod(&mut self, pod: &PodRef, after: &[IpAddr]) {
        let Ok(namespace) = pod.namespace.parse::<Label>() else { return };
        let before = self.homes.addresses(pod);
        for ip in before.iter().filter(|ip| !after.contains(ip)) {
            self.zones.remove_pod(&namespace, *ip);
        }
        for ip in after {
            self.zones.put_pod(&namespace, *ip);
        }
    }

    fn change_slices(
        &mut self,
        service: &ServiceKey,
        change: impl FnOnce(&mut BTreeMap<ObjectKey, Slice>),
    ) {
        let slices = self.slices.entry(service.clone()).or_default();
        let before = pods_behind(slices);
        change(slices);
        let after = pods_behind(slices);
        if slices.is_empty() {
            self.slices.remove(service);
        }
        before.difference(&after).for_each(|pod| self.stands_back(pod, service));
        for pod in after {
            self.backed.entry(pod).or_default().insert(service.clone());
        }
        self.compile(service);
    }

    fn stands_back(&mut self, pod: &PodRef, service: &ServiceKey) {
        let Some(services) = self.backed.get_mut(pod) else { return };
        services.remove(service);
        if services.is_empty() {
            self.backed.remove(pod);
        }
    }

    fn compile(&mut self, key: &ServiceKey) {
        let slices = self.slices.get(key).into_iter().flat_map(BTreeMap::values);
        let service = self.services.get(key);
        let settings = self.zones.settings();
        let names =
            service.and_then(|service| Names::compile(service, slices, &self.homes, settings));
        self.zones.put_service(key, names);
    }
}

/// The label that comes before all others.
fn first_label() -> Option<Label> {
    "0".parse().ok()
}

fn pods_behind(slices: &BTreeMap<ObjectKey, Slice>) -> BTreeSet<PodRef> {
    let endpoints = slices.values().flat_map(|slice| &slice.endpoints);
    endpoints.filter_map(|endpoint| endpoint.pod.clone()).collect()
}
