//! An EndpointSlice as the datapath needs it, parsed once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

use atoll_types::{PodRef, Protocol};
use k8s_openapi::api::discovery::v1 as k8s;

use super::front::is_left_to_others;

/// The label by which a slice names its service.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Endpoints that listen on the same ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointGroup {
    /// The name of the service that they are behind, in the slice's own namespace.
    pub service: String,
    /// Whether their addresses are IPv4.
    pub(super) v4: bool,
    /// The number behind each port of the service.
    pub(super) ports: BTreeMap<(String, Protocol), NonZeroU16>,
    /// The endpoints.
    pub(super) members: Vec<Member>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) who: Who,
    pub(super) ready: bool,
    /// Whether it still answers though it is about to go.
    pub(super) last_resort: bool,
    /// The nodes and zones whose clients it is meant for.
    pub(super) for_nodes: BTreeSet<String>,
    pub(super) for_zones: BTreeSet<String>,
}

/// Who an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    /// A pod, at whatever address it has in the network.
    Pod(PodRef),
    /// Whoever has this address in the network.
    Address(IpAddr),
}

impl EndpointGroup {
    /// Reads a slice; none where it belongs to no service, is left to others or has no IP addresses.
    pub fn read(slice: &k8s::EndpointSlice) -> Option<EndpointGroup> {
        let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
        if is_left_to_others(&slice.metadata) {
            return None;
        }
        let namespace = slice.metadata.namespace.as_deref()?;
        let v4 = match slice.address_type.as_str() {
            "IPv4" => true,
            "IPv6" => false,
            _ => return None,
        };
        let members = slice.endpoints.iter().flat_map(|it| members(it, namespace, v4));
        Some(EndpointGroup {
            service: service.clone(),
            v4,
            ports: slice.ports.iter().flatten().filter_map(port).collect(),
            members: members.collect(),
        })
    }
}

/// A port without a number means every port, which no port of a service can mean.
pub(super) fn port(port: &k8s::EndpointPort) -> Option<((String, Protocol), NonZeroU16)> {
    let protocol = Protocol::parse(port.protocol.as_deref())?;
    let number = u16::try_from(port.port?).ok().and_then(NonZeroU16::new)?;
    Some(((port.name.clone().unwrap_or_default(), protocol), number))
}

fn members(endpoint: &k8s::Endpoint, namespace: &str, v4: bool) -> Vec<Member> {
    let each = whoever(endpoint, namespace, v4).into_iter();
    each.map(|who| member(endpoint, who)).collect()
}

/// What an endpoint says of itself, for one who it is.
pub(super) fn member(endpoint: &k8s::Endpoint, who: Who) -> Member {
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    let ready = conditions.ready.unwrap_or(true);
    let serving = conditions.serving.unwrap_or(ready);
    let hints = endpoint.hints.clone().unwrap_or_default();
    let for_nodes = hints.for_nodes.into_iter().flatten().map(|node| node.name);
    let for_zones = hints.for_zones.into_iter().flatten().map(|zone| zone.name);
    Member {
        who,
        ready,
        last_resort: serving && conditions.terminating.unwrap_or(false),
        for_nodes: for_nodes.collect(),
        for_zones: for_zones.collect(),
    }
}

fn whoever(endpoint: &k8s::Endpoint, namespace: &str, v4: bool) -> Vec<Who> {
    let target = endpoint.target_ref.as_ref().filter(|it| it.kind.as_deref() == Some("Pod"));
    if let Some(name) = target.and_then(|it| it.name.as_ref()) {
        return vec![Who::Pod(PodRef::new(namespace, name))];
    }
    let ips = endpoint.addresses.iter().filter_map(|ip| ip.parse::<IpAddr>().ok());
    ips.filter(|ip| ip.is_ipv4() == v4).map(Who::Address).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(more: &Value) -> Option<EndpointGroup> {
        let mut slice = json!({
            "metadata": {
                "name": "web-1", "namespace": "shop",
                "labels": {"kubernetes.io/service-name": "web"},
            },
            "addressType": "IPv4",
            "endpoints": [],
        });
        slice.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        EndpointGroup::read(&serde_json::from_value(slice).unwrap())
    }

    fn only(endpoint: &Value) -> Member {
        let group = read(&json!({"endpoints": [endpoint]})).unwrap();
        <[Member; 1]>::try_from(group.members).unwrap().into_iter().next().unwrap()
    }

    #[test]
    fn an_endpoint_that_is_a_pod_is_the_pod_whatever_address_stands_there() {
        let target = json!({"kind": "Pod", "namespace": "other", "name": "web-0"});
        let member = only(&json!({"addresses": ["169.254.169.254"], "targetRef": target}));
        assert_eq!(member.who, Who::Pod(PodRef::new("shop", "web-0")), "in the slice's namespace");
    }

    #[test]
    fn an_endpoint_of_the_other_family_is_none() {
        let of_both = json!([{"addresses": ["fd00::5"]}, {"addresses": ["10.0.0.5"]}]);
        let group = read(&json!({"endpoints": of_both})).unwrap();
        let who: Vec<_> = group.members.into_iter().map(|member| member.who).collect();
        assert_eq!(who, [Who::Address([10, 0, 0, 5].into())]);
    }

    #[test]
    fn nothing_said_means_ready_and_what_ends_may_still_serve() {
        let with = |conditions: Value| {
            let member = only(&json!({"addresses": ["10.0.0.5"], "conditions": conditions}));
            (member.ready, member.last_resort)
        };
        assert_eq!(with(json!({})), (true, false));
        assert_eq!(with(json!({"ready": false})), (false, false));
        let ending = json!({"ready": false, "serving": true, "terminating": true});
        assert_eq!(with(ending), (false, true));
        let over = json!({"ready": false, "serving": false, "terminating": true});
        assert_eq!(with(over), (false, false));
    }

    #[test]
    fn a_slice_of_no_service_or_of_names_is_passed_over() {
        assert_eq!(read(&json!({"addressType": "FQDN"})), None);
        assert_eq!(read(&json!({"metadata": {"namespace": "shop"}})), None);
    }
}
