//! What policy has to know of a pod and of a node, read from their objects.

use k8s_openapi::api::core::v1 as core;

use crate::facts::{NamedPort, Node, Pod, Protocol};

/// A pod without its interfaces, which are told by its ports. Named ports are those of containers
/// that run beside each other: sidecars are, other init containers are not.
pub fn read_pod(object: &core::Pod) -> Pod {
    let spec = object.spec.clone().unwrap_or_default();
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|it| it.restart_policy.as_deref() == Some("Always"));
    let containers = spec.containers.iter().chain(sidecars);
    Pod {
        labels: object.metadata.labels.clone().unwrap_or_default(),
        ports: containers.flat_map(|it| it.ports.iter().flatten()).filter_map(named).collect(),
        interfaces: Vec::new(),
        node: spec.node_name,
        host_network: spec.host_network.unwrap_or_default(),
    }
}

fn named(port: &core::ContainerPort) -> Option<NamedPort> {
    Some(NamedPort {
        name: port.name.clone()?,
        protocol: Protocol::named(port.protocol.as_deref().unwrap_or("TCP"))?,
        port: port.container_port.try_into().ok()?,
    })
}

/// A node with the addresses of its status.
pub fn read_node(object: &core::Node) -> Node {
    let addresses = object.status.iter().flat_map(|status| status.addresses.iter().flatten());
    Node {
        labels: object.metadata.labels.clone().unwrap_or_default(),
        ips: addresses.filter_map(|address| address.address.parse().ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn named_ports_are_those_of_containers_and_sidecars() {
        let port = |name: &str, number: i32| json!([{ "name": name, "containerPort": number }]);
        let mut object = json!({ "metadata": { "labels": { "app": "web" } } });
        object["spec"] = json!({
            "nodeName": "node1",
            "containers": [
                { "name": "main", "ports": [{ "name": "http", "containerPort": 80 },
                                            { "containerPort": 81 }] },
                { "name": "dns", "ports": [{ "name": "dns", "containerPort": 53,
                                             "protocol": "UDP" }] },
            ],
            "initContainers": [
                { "name": "proxy", "restartPolicy": "Always", "ports": port("proxy", 9) },
                { "name": "once", "ports": port("never", 7) },
            ],
        });
        let pod = read_pod(&serde_json::from_value(object).unwrap());
        let named = |name: &str, protocol, port| NamedPort { name: name.into(), protocol, port };
        let expected = [
            named("http", Protocol::Tcp, 80),
            named("dns", Protocol::Udp, 53),
            named("proxy", Protocol::Tcp, 9),
        ];
        assert_eq!(pod.ports, expected.into());
        assert_eq!(pod.labels["app"], "web");
        assert_eq!((pod.node.as_deref(), pod.host_network), (Some("node1"), false));
    }

    #[test]
    fn a_node_has_the_addresses_of_its_status_and_no_names() {
        let addresses = json!([{ "type": "Hostname", "address": "node1" },
                               { "type": "InternalIP", "address": "192.0.2.1" },
                               { "type": "ExternalIP", "address": "2001:db8::1" }]);
        let object = json!({ "metadata": { "labels": { "disk": "fast" } },
                             "status": { "addresses": addresses } });
        let node = read_node(&serde_json::from_value(object).unwrap());
        assert_eq!(node.ips.len(), 2);
        assert_eq!(node.labels["disk"], "fast");
    }
}
