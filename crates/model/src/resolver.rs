//! The DNS pods of a network that has some of its own, as objects.
//!
//! The rules: they live in a namespace that is theirs alone and that belongs to the network's
//! tenant, so that they are pods of the network like any other; the namespace goes with them, and
//! everything in it. It is named after the network's number: a network with DNS pods has its VPC
//! for itself.

use std::collections::BTreeMap;

use atoll_api::{self as api, DnsMode, marks};
use atoll_types::NetworkId;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service};
use serde_json::{Value, json};

/// The port that DNS pods listen on. It needs no privilege.
pub const DNS_POD_PORT: u16 = 5353;
/// The name of the Deployment and of the Service in their namespace.
pub const DNS_NAME: &str = "dns";

/// The namespace of the DNS pods of a network.
pub fn dns_namespace(network: NetworkId) -> String {
    format!("atoll-dns-{network}")
}

/// What DNS pods are made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsPods {
    /// The image, which has `atoll` in its path.
    pub image: String,
    /// How many each network gets.
    pub replicas: u32,
}

/// Everything that one network's DNS pods need.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsObjects {
    /// Their namespace.
    pub namespace: Namespace,
    /// The pods.
    pub deployment: Deployment,
    /// What leads to them.
    pub service: Service,
}

/// The number of a network whose DNS pods shall be there. None for one that goes, or whose tenant
/// does.
pub fn has_dns_pods(network: &api::Network, tenant: Option<&api::Tenant>) -> Option<NetworkId> {
    let status = network.status.as_ref()?;
    let stays = network.metadata.deletion_timestamp.is_none()
        && tenant.is_some_and(|tenant| tenant.metadata.deletion_timestamp.is_none());
    let id = NetworkId::try_from(status.id?).ok()?;
    (stays && status.dns_mode == DnsMode::Dedicated).then_some(id)
}

impl DnsPods {
    /// The objects for this network, which has this number.
    pub fn objects(
        &self,
        network: &api::Network,
        id: NetworkId,
    ) -> Result<DnsObjects, serde_json::Error> {
        let name = network.metadata.name.as_deref().unwrap_or_default();
        let short = name.split_once('.').map_or(name, |(_, short)| short);
        let namespace = dns_namespace(id);
        let ports = ["UDP", "TCP"].map(port);
        let (number, of) = (id.to_string(), json!({marks::DNS_OF: name}));
        let of_tenant = BTreeMap::from([
            (marks::TENANT, network.spec.tenant.as_str()),
            (marks::NETWORK, short),
            (marks::DNS_OF, &number),
        ]);
        let owned = json!({"name": DNS_NAME, "namespace": namespace, "annotations": of,
                           "labels": {marks::DNS_OF: number}});
        Ok(DnsObjects {
            namespace: read(&json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": namespace, "labels": of_tenant, "annotations": of},
            }))?,
            deployment: read(&json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": owned,
                "spec": self.deployment(&number),
            }))?,
            service: read(&json!({
                "apiVersion": "v1", "kind": "Service", "metadata": owned,
                "spec": {
                    "selector": {marks::DNS_OF: number},
                    "ports": ports,
                },
            }))?,
        })
    }

    fn deployment(&self, number: &str) -> Value {
        let selector = json!({marks::DNS_OF: number});
        json!({
            "replicas": self.replicas,
            "selector": {"matchLabels": selector},
            "strategy": {"type": "RollingUpdate",
                         "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                "metadata": {"labels": selector},
                "spec": {
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "terminationGracePeriodSeconds": 5,
                    "dnsPolicy": "Default",
                    "topologySpreadConstraints": [{
                        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": selector},
                    }],
                    "containers": [self.container()],
                },
            },
        })
    }

    fn container(&self) -> Value {
        json!({
            "name": DNS_NAME,
            "image": self.image,
            "command": ["atoll", "dns", "serve", "--port", DNS_POD_PORT.to_string()],
            // Not a probe over the network: those are made by the agent, and a DNS pod is ready
            // also while the agent is away.
            "readinessProbe": {
                "exec": {"command": ["atoll", "dns", "check", "--port", DNS_POD_PORT.to_string()]},
                "periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 2,
            },
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"},
                          "limits": {"memory": "512Mi"}},
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65_534, "readOnlyRootFilesystem": true,
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        })
    }
}

fn port(protocol: &str) -> Value {
    json!({"name": format!("dns-{}", protocol.to_lowercase()), "protocol": protocol, "port": 53,
           "targetPort": DNS_POD_PORT})
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> Result<T, serde_json::Error> {
    T::deserialize(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(status: &Value, deleted: bool) -> api::Network {
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        let object = json!({
            "metadata": {"name": "acme.data", "deletionTimestamp": deleted},
            "spec": {"tenant": "acme", "type": "vpc", "cidrs": ["10.0.0.0/16"]},
            "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    fn tenant(deleted: bool) -> api::Tenant {
        let mut tenant = api::Tenant::new("acme", api::TenantSpec::default());
        if deleted {
            tenant.metadata.deletion_timestamp =
                network(&json!({}), true).metadata.deletion_timestamp;
        }
        tenant
    }

    #[test]
    fn dns_pods_are_there_for_a_dedicated_network_that_stays() {
        let dedicated = json!({"phase": "Active", "id": 7, "dnsMode": "dedicated"});
        let id = NetworkId::try_from(7).ok();
        assert_eq!(has_dns_pods(&network(&dedicated, false), Some(&tenant(false))), id);
        let shared = json!({"phase": "Active", "id": 7, "dnsMode": "shared"});
        let unnumbered = json!({"phase": "Pending", "dnsMode": "dedicated"});
        for (network, tenant) in [
            (network(&shared, false), Some(tenant(false))),
            (network(&unnumbered, false), Some(tenant(false))),
            (network(&dedicated, true), Some(tenant(false))),
            (network(&dedicated, false), Some(tenant(true))),
            (network(&dedicated, false), None),
        ] {
            assert_eq!(has_dns_pods(&network, tenant.as_ref()), None);
        }
    }

    #[test]
    fn dns_pods_are_pods_of_their_network_with_no_right_to_anything() {
        let settings = DnsPods { image: "atoll:1".into(), replicas: 2 };
        let id = NetworkId::try_from(7).unwrap();
        let objects = settings.objects(&network(&json!({}), false), id).unwrap();
        let labels = objects.namespace.metadata.labels.unwrap();
        assert_eq!(objects.namespace.metadata.name.unwrap(), "atoll-dns-7");
        assert_eq!(
            (labels[marks::TENANT].as_str(), labels[marks::NETWORK].as_str()),
            ("acme", "data")
        );
        let spec = objects.deployment.spec.unwrap();
        assert_eq!(
            (spec.replicas, &objects.deployment.metadata.namespace),
            (Some(2), &Some("atoll-dns-7".into()))
        );
        let pod = spec.template.spec.unwrap();
        assert_eq!(pod.automount_service_account_token, Some(false));
        let security = pod.containers[0].security_context.clone().unwrap();
        assert_eq!(security.run_as_non_root, Some(true));
        let ports = objects.service.spec.unwrap().ports.unwrap();
        let ports: Vec<_> = ports.iter().map(|it| (it.protocol.as_deref(), it.port)).collect();
        assert_eq!(ports, [(Some("UDP"), 53), (Some("TCP"), 53)]);
    }
}
