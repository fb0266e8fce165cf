//! Which pods take part in the matrix: those that run the toolbox's server and have an address.

use std::collections::BTreeMap;

use atoll_api::marks;
use atoll_toolbox::DEFAULT_PORT;
use k8s_openapi::api::core::v1::{Container, Namespace, Pod};
use kube::ResourceExt;

use super::judge::Member;

const NAME_LABEL: &str = "app.kubernetes.io/name";
const TOOLBOX: &str = "toolbox";
/// The network of a pod when neither it nor its namespace names one.
const DEFAULT_NETWORK: &str = "default";

/// A pod that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Participant {
    pub(crate) member: Member,
    pub(crate) uid: String,
    pub(crate) port: u16,
}

/// The participants among `pods`, grouped by tenant.
pub(crate) fn participants(pods: &[Pod], namespaces: &[Namespace]) -> Vec<Participant> {
    let namespaces: BTreeMap<_, _> =
        namespaces.iter().map(|namespace| (namespace.name_any(), namespace)).collect();
    let mut found: Vec<_> = pods
        .iter()
        .filter_map(|pod| participant(pod, namespaces.get(&pod.namespace()?).copied()))
        .collect();
    found.sort_by(|one, other| {
        let key =
            |of: &Participant| (of.member.tenant.clone(), of.member.ip, of.member.pod.clone());
        key(one).cmp(&key(other))
    });
    found
}

fn participant(pod: &Pod, namespace: Option<&Namespace>) -> Option<Participant> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    let server = spec.containers.iter().find_map(serve_arguments);
    let takes_part = server.is_some() || pod.labels().get(NAME_LABEL).is_some_and(|n| n == TOOLBOX);
    let runs = status.phase.as_deref() == Some("Running")
        && pod.metadata.deletion_timestamp.is_none()
        && spec.host_network != Some(true);
    if !takes_part || !runs {
        return None;
    }
    let label = |key: &str| namespace.and_then(|namespace| namespace.labels().get(key)).cloned();
    let own = |key: &str| pod.labels().get(key).cloned();
    let network = own(marks::NETWORK)
        .or_else(|| own(marks::ARKTOS_NETWORK))
        .or_else(|| label(marks::NETWORK))
        .unwrap_or_else(|| DEFAULT_NETWORK.to_owned());
    let member = Member {
        pod: format!("{}/{}", pod.namespace()?, pod.name_any()),
        tenant: label(marks::TENANT).unwrap_or_default(),
        network,
        ip: status.pod_ip.as_ref()?.parse().ok()?,
        node: spec.node_name.clone()?,
    };
    Some(Participant {
        member,
        uid: pod.uid()?,
        port: server.as_deref().and_then(port).unwrap_or(DEFAULT_PORT),
    })
}

/// What follows `atoll toolbox serve` in the container's command.
fn serve_arguments(container: &Container) -> Option<Vec<&str>> {
    let command = container.command.iter().flatten().chain(container.args.iter().flatten());
    let words: Vec<_> = command.map(String::as_str).collect();
    let (program, rest) = words.split_first()?;
    let is_atoll = *program == "atoll" || program.ends_with("/atoll");
    let arguments = rest.strip_prefix(&["toolbox", "serve"][..])?;
    is_atoll.then(|| arguments.to_vec())
}

fn port(arguments: &[&str]) -> Option<u16> {
    let at = arguments.iter().position(|word| *word == "--port")?;
    arguments.get(at + 1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespaces() -> Vec<Namespace> {
        let labelled = |name: &str, labels: serde_json::Value| {
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
        };
        vec![
            labelled("acme", json!({"atoll.dev/tenant": "acme", "atoll.dev/network": "front"})),
            labelled("plain", json!({})),
        ]
    }

    fn pod(namespace: &str, change: impl FnOnce(&mut serde_json::Value)) -> Pod {
        let mut value = json!({
            "metadata": {"name": "web", "namespace": namespace, "uid": "u1", "labels": {}},
            "spec": {
                "nodeName": "node1",
                "containers": [{"name": "main", "command": ["atoll", "toolbox", "serve"]}],
            },
            "status": {"phase": "Running", "podIP": "10.0.0.5"},
        });
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    fn only(pod: Pod) -> Option<Participant> {
        participants(&[pod], &namespaces()).pop()
    }

    #[test]
    fn tenant_and_network_come_from_the_namespace_unless_the_pod_names_its_own() {
        let found = only(pod("acme", |_| {})).unwrap();
        assert_eq!(
            (found.member.tenant.as_str(), found.member.network.as_str()),
            ("acme", "front")
        );
        let own = only(pod("acme", |pod| {
            pod["metadata"]["labels"]["atoll.dev/network"] = json!("back");
        }));
        assert_eq!(own.unwrap().member.network, "back");
        let plain = only(pod("plain", |_| {})).unwrap();
        assert_eq!((plain.member.tenant.as_str(), plain.member.network.as_str()), ("", "default"));
    }

    #[test]
    fn the_port_is_the_one_the_server_was_told() {
        let found = only(pod("acme", |pod| {
            pod["spec"]["containers"][0]["args"] = json!(["--port", "9000"]);
        }));
        assert_eq!(found.unwrap().port, 9000);
        assert_eq!(only(pod("acme", |_| {})).unwrap().port, DEFAULT_PORT);
    }

    #[test]
    fn who_does_not_serve_or_does_not_run_takes_no_part() {
        let changes: [fn(&mut serde_json::Value); 4] = [
            |pod| pod["spec"]["containers"][0]["command"] = json!(["sleep", "1"]),
            |pod| pod["status"]["phase"] = json!("Pending"),
            |pod| pod["spec"]["hostNetwork"] = json!(true),
            |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        ];
        for change in changes {
            assert_eq!(only(pod("acme", change)), None);
        }
    }

    #[test]
    fn a_label_is_enough_to_take_part() {
        let labelled = only(pod("acme", |pod| {
            pod["spec"]["containers"][0]["command"] = json!(["my-echo"]);
            pod["metadata"]["labels"]["app.kubernetes.io/name"] = json!("toolbox");
        }));
        assert!(labelled.is_some());
    }
}
