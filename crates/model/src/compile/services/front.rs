//! A Service object as clients of it see it, parsed once: addresses, ports, and how it chooses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use atoll_api::marks::VIP;
use atoll_types::{Cidr, Protocol};
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::fronts::Rank;

/// Labels of services, and of their slices, that are led by somebody else or by nobody.
const LEFT_TO_OTHERS: [&str; 2] =
    ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"];

/// How long a client is led to the same backend where the service does not say.
const USUAL_AFFINITY: i32 = 10_800;

/// A service that has addresses of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceFront {
    /// Its UID, for those who speak about it.
    pub uid: String,
    /// Its addresses, and what each rests on.
    pub addresses: BTreeMap<IpAddr, Rank>,
    /// Its ports.
    pub ports: Vec<FrontPort>,
    /// How long a client that comes back is led to the same backend.
    pub affinity: Option<Duration>,
    /// Whether only backends on the client's own node take connections.
    pub local_only: bool,
    /// Whether only pods of the node that a connection comes in by take it.
    pub external_local_only: bool,
    /// The clients that are let in at the addresses of a load balancer; none: all.
    pub sources: Option<BTreeSet<Cidr>>,
    /// The port of every node that says whether the node has somebody behind the service.
    pub health_port: Option<NonZeroU16>,
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontPort {
    /// Its name, by which slices say where it leads; empty where it is the only one.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The number.
    pub port: NonZeroU16,
    /// The port of every node that leads there from outside.
    pub node_port: Option<NonZeroU16>,
}

/// A service that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// An address is none.
    #[error("{text:?} in the service's {field} is no IP address; correct it")]
    Address {
        /// The field or annotation.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// A port is none.
    #[error("the service's port {0} cannot be served; it must be from 1 to 65535")]
    Port(i32),
    /// A node port.
    #[error("the service's nodePort {0} cannot be served; it must be from 1 to 65535")]
    NodePort(i32),
    /// A protocol is not known.
    #[error("the service's protocol {0:?} is not known; it must be TCP, UDP or SCTP")]
    Protocol(String),
    /// A range of clients is none.
    #[error(
        "{0:?} in the service's loadBalancerSourceRanges is no range; write one like 203.0.113.0/24"
    )]
    Source(String),
    /// The timeout of the affinity is none.
    #[error(
        "the service's sessionAffinityConfig.clientIP.timeoutSeconds is {0}; it must be more than 0"
    )]
    Affinity(i32),
}

impl ServiceFront {
    /// Reads a service. One without addresses of its own (headless, or a name outside) has none, nor has
    /// one that is left to others.
    pub fn read(service: &k8s::Service) -> Result<ServiceFront, ServiceError> {
        let Some(spec) = &service.spec else { return Ok(ServiceFront::default()) };
        let headless = spec.cluster_ip.as_deref() == Some("None");
        let is_name = spec.type_.as_deref() == Some("ExternalName");
        if headless || is_name || is_left_to_others(&service.metadata) {
            return Ok(ServiceFront::default());
        }
        Ok(ServiceFront {
            uid: service.metadata.uid.clone().unwrap_or_default(),
            addresses: addresses(service, spec)?,
            ports: spec
                .ports
                .iter()
                .flatten()
                .map(|it| port(spec, it))
                .collect::<Result<_, _>>()?,
            affinity: affinity(spec)?,
            local_only: spec.internal_traffic_policy.as_deref() == Some("Local"),
            external_local_only: spec.external_traffic_policy.as_deref() == Some("Local"),
            sources: sources(spec)?,
            health_port: health_port(spec),
        })
    }
}

/// Whether a service, or a slice of one, is not to be led here, as it says by a label, whatever its value.
pub(super) fn is_left_to_others(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    labels.is_some_and(|labels| LEFT_TO_OTHERS.iter().any(|label| labels.contains_key(*label)))
}

/// The network's own addresses and the cluster's serve alike; external ones give way to both.
fn addresses(
    service: &k8s::Service,
    spec: &k8s::ServiceSpec,
) -> Result<BTreeMap<IpAddr, Rank>, ServiceError> {
    let vips = service.metadata.annotations.as_ref().and_then(|all| all.get(VIP));
    let vips = vips.into_iter().flat_map(|list| list.split(',')).map(str::trim);
    let vips = vips.filter(|text| !text.is_empty()).map(|text| (VIP, text, Rank::Vip));
    let cluster = spec.cluster_ips.iter().flatten().filter(|text| !text.is_empty());
    let cluster = cluster.map(|text| ("clusterIPs", text.as_str(), Rank::Cluster));
    let external = spec.external_ips.iter().flatten();
    let external = external.map(|text| ("externalIPs", text.as_str(), Rank::External));
    let mut addresses = BTreeMap::new();
    for (field, text, rank) in external.chain(vips).chain(cluster) {
        let ip: IpAddr =
            text.parse().map_err(|_| ServiceError::Address { field, text: text.to_owned() })?;
        addresses.insert(ip.to_canonical(), rank);
    }
    Ok(addresses)
}

fn port(spec: &k8s::ServiceSpec, port: &k8s::ServicePort) -> Result<FrontPort, ServiceError> {
    let protocol = Protocol::parse(port.protocol.as_deref());
    let number = u16::try_from(port.port).ok().and_then(NonZeroU16::new);
    Ok(FrontPort {
        name: port.name.clone().unwrap_or_default(),
        protocol: protocol
            .ok_or_else(|| ServiceError::Protocol(port.protocol.clone().unwrap_or_default()))?,
        port: number.ok_or(ServiceError::Port(port.port))?,
        node_port: port.node_port.filter(|_| has_node_ports(spec)).map_or(Ok(None), node_port)?,
    })
}

/// A number that stands in a service of another type is not meant.
fn has_node_ports(spec: &k8s::ServiceSpec) -> bool {
    matches!(spec.type_.as_deref(), Some("NodePort" | "LoadBalancer"))
}

/// An empty list is none.
fn sources(spec: &k8s::ServiceSpec) -> Result<Option<BTreeSet<Cidr>>, ServiceError> {
    let ranges = spec.load_balancer_source_ranges.iter().flatten().map(|text| {
        let text = text.trim();
        text.parse::<Cidr>().map_err(|_| ServiceError::Source(text.to_owned()))
    });
    let ranges = ranges.collect::<Result<BTreeSet<_>, _>>()?;
    Ok((!ranges.is_empty()).then_some(ranges))
}

/// Zero is none; the API gives one in its place where the service should have it.
fn node_port(number: i32) -> Result<Option<NonZeroU16>, ServiceError> {
    let number = u16::try_from(number).map_err(|_| ServiceError::NodePort(number))?;
    Ok(NonZeroU16::new(number))
}

/// A number that stands in any other service is not meant, and one that is none is nobody's.
fn health_port(spec: &k8s::ServiceSpec) -> Option<NonZeroU16> {
    let is_asked = spec.type_.as_deref() == Some("LoadBalancer")
        && spec.external_traffic_policy.as_deref() == Some("Local");
    let number = spec.health_check_node_port.filter(|_| is_asked)?;
    u16::try_from(number).ok().and_then(NonZeroU16::new)
}

fn affinity(spec: &k8s::ServiceSpec) -> Result<Option<Duration>, ServiceError> {
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return Ok(None);
    }
    let config = spec.session_affinity_config.as_ref();
    let client = config.and_then(|config| config.client_ip.as_ref());
    let seconds = client.and_then(|client| client.timeout_seconds).unwrap_or(USUAL_AFFINITY);
    match u64::try_from(seconds) {
        Ok(positive) if positive > 0 => Ok(Some(Duration::from_secs(positive))),
        _ => Err(ServiceError::Affinity(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: &Value, annotations: &Value) -> Result<ServiceFront, ServiceError> {
        let object = json!({"metadata": {"annotations": annotations}, "spec": spec});
        ServiceFront::read(&serde_json::from_value(object).unwrap())
    }

    fn web(more: &Value) -> Result<ServiceFront, ServiceError> {
        let mut spec =
            json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "ports": [{"port": 80}]});
        let more = more.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(more);
        read(&spec, &json!({}))
    }

    #[test]
    fn a_service_has_the_clusters_addresses_its_networks_and_external_ones() {
        let spec = json!({
            "clusterIPs": ["10.96.0.9", "fd00::9"],
            "externalIPs": ["203.0.113.9", "10.96.0.9"],
            "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}],
        });
        let front = read(&spec, &json!({"atoll.dev/vip": "198.18.0.9, fd01::9"})).unwrap();
        let rank = |text: &str| front.addresses.get(&text.parse::<IpAddr>().unwrap()).copied();
        assert_eq!(rank("10.96.0.9"), Some(Rank::Cluster), "it stands in externalIPs, too");
        assert_eq!(rank("fd00::9"), Some(Rank::Cluster));
        assert_eq!(rank("198.18.0.9"), Some(Rank::Vip));
        assert_eq!(rank("fd01::9"), Some(Rank::Vip));
        assert_eq!(rank("203.0.113.9"), Some(Rank::External));
        let ports: Vec<_> =
            front.ports.iter().map(|it| (it.name.as_str(), it.protocol, it.port.get())).collect();
        assert_eq!(ports, [("http", Protocol::Tcp, 80), ("dns", Protocol::Udp, 53)]);
    }

    #[test]
    fn a_headless_service_and_a_name_outside_have_no_address() {
        for spec in [
            json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"port": 80}]}),
            json!({"type": "ExternalName", "externalName": "example.org"}),
        ] {
            assert_eq!(read(&spec, &json!({})), Ok(ServiceFront::default()), "{spec}");
        }
    }

    #[test]
    fn affinity_lasts_three_hours_unless_it_is_told_otherwise() {
        assert_eq!(web(&json!({})).unwrap().affinity, None);
        let usual = web(&json!({"sessionAffinity": "ClientIP"})).unwrap();
        assert_eq!(usual.affinity, Some(Duration::from_secs(3 * 3600)));
        let config = json!({"clientIP": {"timeoutSeconds": 10}});
        let short = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config});
        assert_eq!(web(&short).unwrap().affinity, Some(Duration::from_secs(10)));
    }

    #[test]
    fn a_port_has_the_node_port_that_the_api_gave_it_and_who_takes_it_is_said_apart() {
        let ports =
            json!([{"port": 80, "nodePort": 30080}, {"port": 81}, {"port": 82, "nodePort": 0}]);
        let front = |kind: &str| web(&json!({"type": kind, "ports": ports})).unwrap();
        let numbers = |kind: &str| -> Vec<Option<u16>> {
            front(kind).ports.iter().map(|it| it.node_port.map(NonZeroU16::get)).collect()
        };
        assert_eq!(numbers("NodePort"), [Some(30080), None, None]);
        assert_eq!(numbers("LoadBalancer"), [Some(30080), None, None]);
        assert_eq!(numbers("ClusterIP"), [None, None, None], "its type has none");
        assert!(!front("NodePort").external_local_only);
        let local = web(&json!({"externalTrafficPolicy": "Local"})).unwrap();
        assert!(local.external_local_only && !local.local_only);
        let wrong = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 70000}]});
        let wrong = web(&wrong).unwrap_err();
        assert!(wrong.to_string().starts_with("the service's nodePort 70000"));
    }

    #[test]
    fn only_a_load_balancer_whose_connections_stay_on_their_node_has_a_health_port() {
        let number = |kind: &str, policy: &str, number: i32| {
            let more = json!({"type": kind, "externalTrafficPolicy": policy,
                              "healthCheckNodePort": number});
            web(&more).unwrap().health_port.map(NonZeroU16::get)
        };
        assert_eq!(number("LoadBalancer", "Local", 30_900), Some(30_900));
        for wrong in [0, -1, 70_000] {
            assert_eq!(number("LoadBalancer", "Local", wrong), None);
        }
        assert_eq!(number("LoadBalancer", "Cluster", 30_900), None);
        assert_eq!(number("NodePort", "Local", 30_900), None);
    }

    #[test]
    fn a_load_balancer_lets_in_whom_it_names_and_everybody_where_it_names_nobody() {
        let with = |ranges: Value| web(&json!({"loadBalancerSourceRanges": ranges}));
        assert_eq!(web(&json!({})).unwrap().sources, None);
        assert_eq!(with(json!([])).unwrap().sources, None);
        let two = with(json!(["203.0.113.0/24", " 2001:db8::/32 "])).unwrap().sources.unwrap();
        let two: Vec<String> = two.iter().map(ToString::to_string).collect();
        assert_eq!(two, ["203.0.113.0/24", "2001:db8::/32"]);
        assert_eq!(
            with(json!(["everybody"])).unwrap_err().to_string(),
            "\"everybody\" in the service's loadBalancerSourceRanges is no range; write one like \
             203.0.113.0/24"
        );
    }

    #[test]
    fn what_cannot_be_served_is_named_with_its_field() {
        let said = |more: &Value| web(more).unwrap_err().to_string();
        assert_eq!(
            said(&json!({"externalIPs": ["nowhere"]})),
            "\"nowhere\" in the service's externalIPs is no IP address; correct it"
        );
        assert_eq!(
            said(&json!({"ports": [{"port": 0}]})),
            "the service's port 0 cannot be served; it must be from 1 to 65535"
        );
        assert_eq!(
            said(&json!({"ports": [{"port": 80, "protocol": "ICMP"}]})),
            "the service's protocol \"ICMP\" is not known; it must be TCP, UDP or SCTP"
        );
        let config = json!({"clientIP": {"timeoutSeconds": 0}});
        let zero = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config});
        assert!(said(&zero).contains("timeoutSeconds is 0"));
    }
}
