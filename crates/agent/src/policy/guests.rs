//! Guests: pods in a network that is open to several tenants, of a tenant that has no pod here.
//!
//! The rule of this file: a guest is an address and no more. What its labels and policies are is
//! asked where it runs. As soon as its tenant has a pod here, it is known as a pod, or not at all.

use std::collections::{BTreeMap, BTreeSet};

use atoll_policy::Event;
use atoll_types::{Label, NetAddr, NetworkName, PodRef};

use super::Policies;
use crate::seen::{Scope, Seen, Tenancy};

/// What the compiler was told of guests, and whose namespaces may have some.
#[derive(Debug, Default)]
pub(super) struct Guests {
    /// The namespaces of tenants that have no network here.
    homes: BTreeMap<String, Label>,
    told: BTreeMap<PodRef, (Label, BTreeSet<NetAddr>)>,
}

impl Policies {
    /// Learns whose namespaces may have guests, and tells anew those of namespaces that others have
    /// now.
    pub(super) fn follow_guests(&mut self, scope: &Scope, seen: &Seen) {
        let wards: BTreeSet<&String> = scope.wards.iter().map(|(_, name)| name).collect();
        let strange = seen.namespaces().filter(|(name, _)| !wards.contains(name));
        let homes: BTreeMap<String, Label> = strange
            .filter_map(|(name, namespace)| Some((name.clone(), owner(&namespace.tenancy)?)))
            .collect();
        let before = std::mem::replace(&mut self.guests.homes, homes);
        let namespaces: BTreeSet<&String> = before.keys().chain(self.guests.homes.keys()).collect();
        let changed =
            namespaces.into_iter().filter(|name| before.get(*name) != self.guests.homes.get(*name));
        let pods: Vec<PodRef> = changed.flat_map(|name| self.ends.pods_in(name)).cloned().collect();
        pods.iter().for_each(|pod| self.tell_guest(pod));
    }

    /// Tells the compiler of the addresses of a pod whose tenant is not here.
    pub(super) fn tell_guest(&mut self, pod: &PodRef) {
        let home = self.guests.homes.get(&pod.namespace).cloned();
        let now = home.map(|tenant| (tenant, self.ends.addresses_of(pod)));
        let now = now.filter(|(_, addresses)| !addresses.is_empty());
        let before = match &now {
            Some(guest) => self.guests.told.insert(pod.clone(), guest.clone()),
            None => self.guests.told.remove(pod),
        };
        if before == now {
            return;
        }
        for (guests, is_there) in [(before, false), (now, true)] {
            let Some((tenant, addresses)) = guests else { continue };
            for address in addresses {
                self.apply(Some(&tenant), Event::Guest(tenant.clone(), address, is_there));
            }
        }
    }
}

fn owner(tenancy: &Tenancy) -> Option<Label> {
    match tenancy {
        Tenancy::Tenant(network) => Some(network.parse::<NetworkName>().ok()?.tenant),
        Tenancy::Nobody => None,
    }
}
