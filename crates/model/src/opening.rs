//! Services whose owner opens their doors to the outside, node ports and addresses of load balancers, to
//! pods of other networks, by the label `atoll.dev/open`.
//!
//! The rule of this file: what cannot be read is open to nobody, with a sentence that says why.

use std::collections::BTreeSet;

use atoll_api::marks;
use atoll_types::{Label, NetworkName};
use k8s_openapi::api::core::v1::Service;

use crate::compile::{Rank, ServiceError, ServiceFront};
use crate::export::Audience;

/// Whom a service is open to, and what of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Tenants, and networks by their object names.
    to: Audience,
    /// The service, which has doors.
    pub front: ServiceFront,
}

/// Why a service is open to nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpeningError {
    /// The label says something else.
    #[error("label atoll.dev/open is {0:?}; it must be \"all\" or \"listed\"")]
    Label(String),
    /// Nobody is listed.
    #[error(
        "label atoll.dev/open is \"listed\", and annotation atoll.dev/open-to names nobody; it must \
         be like \"acme,globex.blue\""
    )]
    NobodyListed,
    /// Somebody that is listed cannot be meant.
    #[error(
        "annotation atoll.dev/open-to: {0:?} is neither a tenant like \"acme\" nor a network like \
         \"globex.blue\""
    )]
    Name(String),
    /// It has no door.
    #[error("spec.type: only services of type NodePort and LoadBalancer can be open to others")]
    NoDoor,
    /// It is not served at all.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

impl Opening {
    /// What a service says of it; nothing where it does not bear the label.
    pub fn read(service: &Service) -> Option<Result<Opening, OpeningError>> {
        let label = service.metadata.labels.as_ref()?.get(marks::OPEN)?;
        Some(Opening::labelled(service, label))
    }

    fn labelled(service: &Service, label: &str) -> Result<Opening, OpeningError> {
        let to = match label {
            "all" => Audience::All,
            "listed" => Audience::Listed(listed(service)?),
            other => return Err(OpeningError::Label(other.to_owned())),
        };
        let kind = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
        if !matches!(kind, Some("NodePort" | "LoadBalancer")) {
            return Err(OpeningError::NoDoor);
        }
        Ok(Opening { to, front: ServiceFront::read(service)? })
    }

    /// Whether the pods of a network, which is not the service's own, are let in.
    pub fn invites(&self, network: &str) -> bool {
        let tenant = network.split_once('.').map_or(network, |(tenant, _)| tenant);
        self.to.has(network) || self.to.has(tenant)
    }

    /// Whether its node ports are of a family: of those that the cluster gave it an address of.
    pub fn has_family(&self, is_ipv4: bool) -> bool {
        let mut addresses = self.front.addresses.iter();
        addresses.any(|(ip, rank)| *rank == Rank::Cluster && ip.is_ipv4() == is_ipv4)
    }
}

fn listed(service: &Service) -> Result<BTreeSet<String>, OpeningError> {
    let text = service.metadata.annotations.as_ref().and_then(|all| all.get(marks::OPEN_TO));
    let names = text.into_iter().flat_map(|text| text.split(',')).map(str::trim);
    let names: BTreeSet<_> = names.filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect();
    if let Some(wrong) = names.iter().find(|name| !is_name(name)) {
        return Err(OpeningError::Name(wrong.clone()));
    }
    if names.is_empty() { Err(OpeningError::NobodyListed) } else { Ok(names) }
}

fn is_name(text: &str) -> bool {
    text.parse::<Label>().is_ok() || text.parse::<NetworkName>().is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(
        label: Option<&str>,
        to: Option<&str>,
        spec: &Value,
    ) -> Option<Result<Opening, OpeningError>> {
        let labels = label.map(|label| json!({"atoll.dev/open": label}));
        let annotations = to.map(|to| json!({"atoll.dev/open-to": to}));
        let service = json!({
            "metadata": {"name": "web", "labels": labels, "annotations": annotations},
            "spec": spec,
        });
        Opening::read(&serde_json::from_value(service).unwrap())
    }

    fn spec() -> Value {
        json!({"type": "NodePort", "clusterIPs": ["10.96.0.7"], "ports": [
            {"port": 80, "nodePort": 30080}]})
    }

    #[test]
    fn a_service_is_open_to_all_or_to_the_tenants_and_networks_that_are_listed() {
        assert_eq!(read(None, Some("acme"), &spec()), None, "nobody opened it");
        let all = read(Some("all"), None, &spec()).unwrap().unwrap();
        assert!(all.invites("acme.default") && all.invites("globex.blue"));
        let some = read(Some("listed"), Some("acme, globex.blue"), &spec()).unwrap().unwrap();
        assert!(some.invites("acme.default") && some.invites("acme.data"));
        assert!(some.invites("globex.blue") && !some.invites("globex.default"));
        assert!(!some.invites("hooli.default") && !some.invites("blue.globex"));
        assert!(some.has_family(true) && !some.has_family(false));
    }

    #[test]
    fn what_cannot_be_read_is_open_to_nobody_and_says_why() {
        let inside = json!({"clusterIPs": ["10.96.0.7"], "ports": [{"port": 80}]});
        let wrong = json!({"type": "NodePort", "ports": [{"port": 0}]});
        for (label, to, spec, expected) in [
            ("", None, &spec(), "it must be \"all\" or \"listed\""),
            ("acme", None, &spec(), "label atoll.dev/open is \"acme\""),
            ("listed", None, &spec(), "annotation atoll.dev/open-to names nobody"),
            ("listed", Some(" , "), &spec(), "names nobody"),
            ("listed", Some("acme,globex/blue"), &spec(), "\"globex/blue\" is neither a tenant"),
            ("listed", Some("*"), &spec(), "\"*\" is neither"),
            ("all", None, &inside, "only services of type NodePort and LoadBalancer"),
            ("all", None, &wrong, "port 0 cannot be served"),
        ] {
            let said = read(Some(label), to, spec).unwrap().unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
    }
}
