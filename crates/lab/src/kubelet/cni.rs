//! Calling the CNI plugin as a container runtime does: what it is given, and what its answer means.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

/// The name of the plugin's executable.
pub(crate) const PLUGIN: &str = "atoll-cni";
/// The interface that a pod sees.
pub(crate) const INTERFACE: &str = "eth0";

const CNI_VERSION: &str = "1.1.0";
const NETWORK: &str = "atoll";

/// What the plugin is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    Del,
}

/// For which pod, and through which agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) container_id: String,
    pub(crate) namespace: PathBuf,
    pub(crate) pod_namespace: String,
    pub(crate) pod_name: String,
    pub(crate) pod_uid: String,
    pub(crate) agent_socket: PathBuf,
    pub(crate) plugins: PathBuf,
}

impl Attachment {
    /// The environment of the call.
    pub(crate) fn environment(&self, verb: Verb) -> Vec<(&'static str, String)> {
        let command = match verb {
            Verb::Add => "ADD",
            Verb::Del => "DEL",
        };
        let arguments = [
            ("IgnoreUnknown", "1"),
            ("K8S_POD_NAMESPACE", &self.pod_namespace),
            ("K8S_POD_NAME", &self.pod_name),
            ("K8S_POD_INFRA_CONTAINER_ID", &self.container_id),
            ("K8S_POD_UID", &self.pod_uid),
        ];
        let arguments = arguments.map(|(key, value)| format!("{key}={value}"));
        vec![
            ("CNI_COMMAND", command.to_owned()),
            ("CNI_CONTAINERID", self.container_id.clone()),
            ("CNI_NETNS", display(&self.namespace)),
            ("CNI_IFNAME", INTERFACE.to_owned()),
            ("CNI_PATH", display(&self.plugins)),
            ("CNI_ARGS", arguments.join(";")),
        ]
    }

    /// What the plugin reads on its standard input.
    pub(crate) fn configuration(&self) -> String {
        let configuration = json!({
            "cniVersion": CNI_VERSION,
            "name": NETWORK,
            "type": PLUGIN,
            "agentSocket": display(&self.agent_socket),
        });
        configuration.to_string()
    }
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

/// The part of a result that the kubelet needs.
#[derive(Debug, Deserialize)]
struct AddResult {
    #[serde(default)]
    interfaces: Vec<MadeInterface>,
    ips: Vec<AssignedIp>,
}

#[derive(Debug, Deserialize)]
struct MadeInterface {
    name: String,
}

#[derive(Debug, Deserialize)]
struct AssignedIp {
    address: String,
    /// Which of the interfaces has it; the only one where nothing is said.
    interface: Option<usize>,
}

impl AddResult {
    /// The pod's addresses are those of its first interface, whichever others it has.
    fn is_the_pods(&self, ip: &AssignedIp) -> bool {
        let Some(position) = ip.interface else { return true };
        self.interfaces.get(position).is_some_and(|interface| interface.name == INTERFACE)
    }
}

/// An error as plugins print it.
#[derive(Debug, Deserialize)]
struct PluginError {
    code: u32,
    msg: String,
    #[serde(default)]
    details: String,
}

/// The addresses that ADD gave, or why it gave none.
pub(crate) fn understand_add(succeeded: bool, stdout: &[u8]) -> Result<Vec<IpAddr>, String> {
    understand_done(succeeded, stdout)?;
    let result: AddResult = serde_json::from_slice(stdout)
        .map_err(|error| format!("the CNI plugin's result makes no sense: {error}"))?;
    let ips = result.ips.iter().filter(|ip| result.is_the_pods(ip));
    ips.map(|ip| without_prefix(&ip.address)).collect()
}

/// Whether the plugin did what it was asked, and else why not.
pub(crate) fn understand_done(succeeded: bool, stdout: &[u8]) -> Result<(), String> {
    if succeeded {
        return Ok(());
    }
    match serde_json::from_slice::<PluginError>(stdout) {
        Ok(PluginError { code, msg, details }) if details.is_empty() => {
            Err(format!("{msg} (CNI error {code})"))
        }
        Ok(PluginError { code, msg, details }) => {
            Err(format!("{msg}: {details} (CNI error {code})"))
        }
        Err(_) => Err(format!(
            "the CNI plugin failed without saying why: {:?}",
            String::from_utf8_lossy(stdout)
        )),
    }
}

fn without_prefix(address: &str) -> Result<IpAddr, String> {
    let ip = address.split('/').next().unwrap_or_default();
    ip.parse().map_err(|_| format!("the CNI plugin gave {address:?}, which is no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment() -> Attachment {
        Attachment {
            container_id: "c0ffee".into(),
            namespace: "/run/lab/netns/pod".into(),
            pod_namespace: "acme".into(),
            pod_name: "web-1".into(),
            pod_uid: "u1".into(),
            agent_socket: "/run/lab/agent.sock".into(),
            plugins: "/run/lab/cni-bin".into(),
        }
    }

    #[test]
    fn the_plugin_is_told_what_a_runtime_tells() {
        let environment = attachment().environment(Verb::Add);
        let expected = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "c0ffee"),
            ("CNI_NETNS", "/run/lab/netns/pod"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/run/lab/cni-bin"),
            (
                "CNI_ARGS",
                "IgnoreUnknown=1;K8S_POD_NAMESPACE=acme;K8S_POD_NAME=web-1;\
                 K8S_POD_INFRA_CONTAINER_ID=c0ffee;K8S_POD_UID=u1",
            ),
        ];
        assert_eq!(environment, expected.map(|(key, value)| (key, value.to_owned())));
        assert_eq!(attachment().environment(Verb::Del)[0].1, "DEL");
    }

    #[test]
    fn the_configuration_names_the_agents_socket() {
        let parsed: serde_json::Value =
            serde_json::from_str(&attachment().configuration()).unwrap();
        let expected = json!({
            "cniVersion": "1.1.0", "name": "atoll", "type": "atoll-cni",
            "agentSocket": "/run/lab/agent.sock",
        });
        assert_eq!(parsed, expected);
    }

    #[test]
    fn the_pods_addresses_come_without_their_prefix() {
        let stdout = br#"{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.5/32"},{"address":"fd00::5/128"}]}"#;
        let expected: Vec<IpAddr> = vec!["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()];
        assert_eq!(understand_add(true, stdout), Ok(expected));
    }

    #[test]
    fn addresses_of_other_interfaces_are_not_the_pods() {
        let stdout = br#"{"interfaces":[{"name":"veth1"},{"name":"eth0"},{"name":"net1"}],
            "ips":[{"address":"10.0.0.5/32","interface":1},{"address":"10.1.0.5/32","interface":2},
                   {"address":"fd00::5/128","interface":1}]}"#;
        let expected: Vec<IpAddr> = vec!["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()];
        assert_eq!(understand_add(true, stdout), Ok(expected));
    }

    #[test]
    fn an_error_is_told_with_its_message_details_and_code() {
        let cases: [(&[u8], &str); 3] = [
            (br#"{"code":11,"msg":"no port yet"}"#, "no port yet (CNI error 11)"),
            (br#"{"code":7,"msg":"bad","details":"x"}"#, "bad: x (CNI error 7)"),
            (b"panic!", "the CNI plugin failed without saying why: \"panic!\""),
        ];
        for (stdout, expected) in cases {
            assert_eq!(understand_add(false, stdout), Err(expected.to_owned()));
        }
    }

    #[test]
    fn a_result_that_makes_no_sense_is_an_error() {
        assert!(understand_add(true, b"{}").is_err());
        assert!(understand_add(true, br#"{"ips":[{"address":"web"}]}"#).is_err());
    }
}
