//! Services that concern nodes which have no pod of them: every node leads the outside to them, or tells it
//! that nobody of them is there, or has pods whom they are open to.
//!
//! The rule of this file: of such a service, a node without its pods knows that it is there and whom it is
//! open to, and no more.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use atoll_model::compile::{ServiceFront, ServiceName as NetworkService};
use atoll_model::export::ServiceName;
use atoll_model::opening::Opening;
use k8s_openapi::api::core::v1::Service;

use super::listed::absorb_known;
use super::{Delta, Seen};

/// How a service is exposed, as its type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exposure {
    /// At a port of every node.
    NodePort,
    /// At an address of the outside, and at a port of every node.
    LoadBalancer,
}

impl Exposure {
    /// All there are.
    pub(crate) const ALL: [Exposure; 2] = [Exposure::NodePort, Exposure::LoadBalancer];

    /// What stands in the service.
    pub(crate) fn type_of_service(self) -> &'static str {
        match self {
            Exposure::NodePort => "NodePort",
            Exposure::LoadBalancer => "LoadBalancer",
        }
    }
}

/// What nodes that have no pod of a service need to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exposed {
    /// Whether it is behind a port of such nodes.
    pub(crate) is_everywhere: bool,
    /// Where they say whether they have anybody behind it.
    pub(crate) health_port: Option<HealthPort>,
    /// Whom its owner opens it to, if to anybody.
    pub(crate) opening: Option<Opening>,
}

/// A port of every node that says whether the node has anybody behind a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthPort {
    /// The service's UID.
    pub(crate) uid: String,
    /// The port.
    pub(crate) port: NonZeroU16,
}

impl Exposed {
    /// None where such nodes have nothing to do with the service. What it says of others that cannot be read
    /// is as good as unsaid; the controller tells its owner.
    pub(crate) fn read(service: &Service) -> Option<Exposed> {
        let front = ServiceFront::read(service).ok()?;
        let has_any = front.ports.iter().any(|port| port.node_port.is_some());
        let is_everywhere = !front.external_local_only && has_any;
        let health_port = front.health_port.map(|port| HealthPort { uid: front.uid, port });
        let opening = Opening::read(service).and_then(Result::ok);
        let is_exposed = is_everywhere || health_port.is_some() || opening.is_some();
        is_exposed.then_some(Exposed { is_everywhere, health_port, opening })
    }
}

impl Seen {
    pub(super) fn absorb_exposed(
        &mut self,
        exposure: Exposure,
        delta: Delta<ServiceName, Exposed>,
    ) {
        match delta {
            Delta::All(all) => drop(self.exposed.insert(exposure, all)),
            Delta::Put(..) | Delta::Gone(_) => {
                if let Some(known) = self.exposed.get_mut(&exposure) {
                    absorb_known(known, delta);
                }
            }
        }
    }

    /// Whether they were all listed, and whose they are is known.
    pub(super) fn has_seen_exposed(&self) -> bool {
        let is_listed = Exposure::ALL.iter().all(|exposure| self.exposed.contains_key(exposure));
        let are_none = self.exposed.values().all(BTreeMap::is_empty);
        is_listed && (are_none || self.namespaces.is_some())
    }

    /// The services of tenants that this node is asked about, and where.
    pub(crate) fn health_ports(&self) -> impl Iterator<Item = (NetworkService, &HealthPort)> {
        self.exposed.values().flatten().filter_map(|((namespace, name), exposed)| {
            let (namespace, name) = (namespace.clone(), name.clone());
            let network = self.network_of_services(&namespace)?.to_owned();
            Some((NetworkService { network, namespace, name }, exposed.health_port.as_ref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::seen::{Change, Tenancy};

    #[test]
    fn every_node_leads_to_services_that_have_a_port_and_take_clients_anywhere() {
        let is_everywhere = |mut spec: Value| {
            spec["type"] = json!("NodePort");
            let exposed = Exposed::read(&serde_json::from_value(json!({"spec": spec})).unwrap());
            exposed.is_some_and(|it| it.is_everywhere)
        };
        let ports = json!([{"port": 80}, {"port": 81, "nodePort": 30081}]);
        assert!(is_everywhere(json!({"ports": ports})));
        assert!(is_everywhere(json!({"ports": ports, "externalTrafficPolicy": "Cluster"})));
        assert!(!is_everywhere(json!({"ports": ports, "externalTrafficPolicy": "Local"})));
        assert!(!is_everywhere(json!({"ports": [{"port": 80}, {"port": 81, "nodePort": 0}]})));
    }

    /// A load balancer whose connections stay on their node, with a port for health.
    fn local() -> Exposed {
        let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 30_900, "ports": [{"port": 80, "nodePort": 30_080}]});
        let service = json!({"metadata": {"uid": "uid-of-web"}, "spec": spec});
        Exposed::read(&serde_json::from_value(service).unwrap()).unwrap()
    }

    #[test]
    fn a_node_is_asked_about_services_of_tenants_and_their_networks_are_no_guests_for_that() {
        let mut seen = Seen::default();
        let service = |namespace: &str| ((namespace.to_owned(), "web".to_owned()), local());
        let all = ["shop", "infra", "unknown"].map(service);
        seen.absorb(Change::Exposed(Exposure::LoadBalancer, Delta::All(all.into())));
        assert_eq!(seen.health_ports().count(), 0, "nobody knows whose they are");
        let whose = [("shop", Tenancy::Tenant("acme.default".into())), ("infra", Tenancy::Nobody)];
        let whose = whose.map(|(name, whose)| (name.to_owned(), whose.into()));
        seen.absorb(Change::Namespaces(Delta::All(whose.into())));
        let asked: Vec<_> = seen.health_ports().collect();
        let [(web, port)] = &asked[..] else { panic!("one is a tenant's: {asked:?}") };
        assert_eq!(web.to_string(), "shop/web of network acme.default");
        assert_eq!((port.uid.as_str(), port.port.get()), ("uid-of-web", 30_900));
        assert!(seen.scope().names.is_empty());
    }
}
