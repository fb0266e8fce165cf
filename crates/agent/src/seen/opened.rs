//! Services whose owners open their doors to the outside to networks that are here.
//!
//! The rules of this file: whose a service is, its namespace says, and which address of the outside it
//! has, a claim. A service that nobody opened, or that is open to nobody here, costs this node nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_model::compile::Opened;
use atoll_model::export::ServiceName;
use atoll_model::opening::Opening;
use atoll_model::outside::{Held, Purpose};

use super::{Exposed, Exposure, Seen, SeenNode};

/// A service that is open to a network that is here.
struct OpenHere<'a> {
    exposure: Exposure,
    service: &'a ServiceName,
    /// The object name of its own network.
    network: &'a str,
    opening: &'a Opening,
}

impl Seen {
    fn open_here(&self) -> Vec<OpenHere<'_>> {
        let exposed = self.exposed.iter();
        let all =
            exposed.flat_map(|(exposure, services)| services.iter().map(|it| (*exposure, it)));
        let open: Vec<_> = all.filter_map(|(exposure, it)| self.open(exposure, it)).collect();
        if open.is_empty() {
            return open;
        }
        let here = self.names();
        let invites = |it: &OpenHere<'_>| here.iter().any(|name| it.opening.invites(name));
        open.into_iter().filter(invites).collect()
    }

    fn open<'a>(
        &'a self,
        exposure: Exposure,
        (service, exposed): (&'a ServiceName, &'a Exposed),
    ) -> Option<OpenHere<'a>> {
        let opening = exposed.opening.as_ref()?;
        let network = self.network_of_services(&service.0)?;
        Some(OpenHere { exposure, service, network, opening })
    }

    /// They, as the compiler is given them.
    pub(super) fn opened(&self) -> Vec<Opened<'_>> {
        let opened = |OpenHere { service, network, opening, .. }| {
            let held = self.held.get(network).into_iter().flatten().flat_map(BTreeMap::values);
            let held = held.filter(|held| is_of(held, network, service)).collect();
            Opened { network, opening, held }
        };
        self.open_here().into_iter().map(opened).collect()
    }

    /// The networks whose addresses of the outside concern this node.
    pub(super) fn holders(&self) -> BTreeSet<String> {
        let open = self.open_here().into_iter();
        let with_addresses = open.filter(|it| it.exposure == Exposure::LoadBalancer);
        let owners = with_addresses.map(|it| it.network.to_owned());
        self.names().into_iter().chain(owners).collect()
    }

    /// The addresses that nodes have themselves, and whether `own` has it.
    pub(super) fn node_ips(&self, own: &str) -> BTreeMap<IpAddr, bool> {
        let nodes = self.nodes.iter().flatten();
        let ips = |(name, node): (&String, &SeenNode)| {
            let is_own = name == own;
            let ips = node.internal.iter().copied().chain([node.underlay]);
            ips.map(move |ip| (ip, is_own)).collect::<Vec<_>>()
        };
        nodes.flat_map(ips).collect()
    }
}

/// Whether a claim says that an address is this service's.
fn is_of(held: &Held, network: &str, (namespace, name): &ServiceName) -> bool {
    match &held.purpose {
        Purpose::LoadBalancer { service } => {
            (&service.network[..], &service.namespace, &service.name) == (network, namespace, name)
        }
        Purpose::Egress { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use atoll_model::compile::ServiceName as HolderName;
    use atoll_types::NetworkId;
    use serde_json::json;

    use super::super::{Change, Delta, Joined, Tenancy};
    use super::*;

    /// Pods of two tenants, a service of a third one, and a namespace that is nobody's.
    fn seen() -> Seen {
        let mut seen = Seen::default();
        let own = ["acme", "globex"].map(|tenant| {
            let network = NetworkId::try_from(tenant.len() as u32).unwrap();
            let joined = Joined { network, name: format!("{tenant}.default") };
            ((tenant.to_owned(), "pod".to_owned()), joined)
        });
        seen.absorb(Change::OwnPorts(Delta::All(own.into())));
        let shop = ("shop".to_owned(), Tenancy::Tenant("hooli.default".into()).into());
        let plain = ("plain".to_owned(), Tenancy::Nobody.into());
        seen.absorb(Change::Namespaces(Delta::All([shop, plain].into())));
        for exposure in Exposure::ALL {
            seen.absorb(Change::Exposed(exposure, Delta::All(BTreeMap::new())));
        }
        seen
    }

    fn name(namespace: &str) -> ServiceName {
        (namespace.to_owned(), "web".to_owned())
    }

    /// A load balancer that is open to these.
    fn open_to(to: &str) -> Exposed {
        let service = json!({
            "metadata": {"labels": {"atoll.dev/open": "listed"},
                         "annotations": {"atoll.dev/open-to": to}},
            "spec": {"type": "LoadBalancer", "clusterIPs": ["10.96.0.7"], "ports": [{"port": 80}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.66"}]}},
        });
        let opening = Opening::read(&serde_json::from_value(service).unwrap()).unwrap().unwrap();
        Exposed { is_everywhere: false, health_port: None, opening: Some(opening) }
    }

    fn expose(seen: &mut Seen, namespace: &str, exposed: Exposed) {
        let put = Delta::Put(name(namespace), exposed);
        seen.absorb(Change::Exposed(Exposure::LoadBalancer, put));
    }

    /// A claim by the service `web` of a namespace.
    fn claimed(namespace: &str, last: u8) -> (String, Held) {
        let service = HolderName {
            network: "hooli.default".into(),
            namespace: namespace.into(),
            name: "web".into(),
        };
        let purpose = Purpose::LoadBalancer { service };
        let address = [192, 0, 2, last].into();
        (format!("outside.192.0.2.{last}"), Held { address, node: "node1".into(), purpose })
    }

    #[test]
    fn a_service_concerns_a_node_while_it_is_open_to_a_network_there() {
        let mut seen = seen();
        expose(&mut seen, "shop", open_to("initech"));
        assert!(seen.opened().is_empty() && !seen.scope().holders.contains("hooli.default"));
        expose(&mut seen, "shop", open_to("globex"));
        assert_eq!(seen.opened()[0].network, "hooli.default");
        assert!(seen.scope().holders.contains("hooli.default"));
        assert!(!seen.scope().names.contains("hooli.default"), "nothing else of it is watched");
        seen.absorb(Change::Exposed(Exposure::LoadBalancer, Delta::Gone(name("shop"))));
        assert!(seen.opened().is_empty() && !seen.scope().holders.contains("hooli.default"));
    }

    #[test]
    fn what_is_of_no_tenant_or_of_a_namespace_that_nobody_knows_is_open_to_nobody() {
        let mut seen = seen();
        for namespace in ["plain", "unknown"] {
            expose(&mut seen, namespace, open_to("globex"));
        }
        assert!(seen.opened().is_empty());
    }

    #[test]
    fn an_address_is_open_by_the_claim_of_the_very_service_and_by_nothing_else() {
        let mut seen = seen();
        expose(&mut seen, "shop", open_to("globex"));
        let held = |seen: &Seen| -> Vec<IpAddr> {
            seen.opened().iter().flat_map(|it| &it.held).map(|held| held.address).collect()
        };
        assert_eq!(held(&seen), Vec::<IpAddr>::new(), "what its status says counts for nothing");
        let all = [claimed("shop", 5), claimed("other", 6)];
        seen.absorb(Change::Held("hooli.default".into(), Delta::All(all.into())));
        assert_eq!(held(&seen), [IpAddr::from([192, 0, 2, 5])]);
    }
}
