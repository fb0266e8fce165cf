//! The plugins that are compared, and how a container runtime calls each.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use atoll_testkit::Namespace;
use serde_json::json;

use crate::node::{AgentNode, PlannedPod};

/// Where Debian puts the plugins of containernetworking-plugins.
const DEBIAN_PLUGINS: &str = "/usr/lib/cni";

/// What the plugin is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    Del,
}

impl Verb {
    /// As the specification of CNI writes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Verb::Add => "ADD",
            Verb::Del => "DEL",
        }
    }
}

/// A pod's namespace, made beforehand.
pub(crate) struct Pod {
    pub(crate) name: String,
    tenant: String,
    pub(crate) namespace: Arc<Namespace>,
}

impl Pod {
    pub(super) fn new(planned: &PlannedPod) -> Self {
        Pod::named(planned.name.clone(), planned.tenant())
    }

    /// A pod of a tenant, in the namespace of that name.
    pub(crate) fn named(name: impl Into<String>, tenant: impl Into<String>) -> Self {
        let namespace = Arc::new(Namespace::new());
        without_detection(&namespace);
        Pod { name: name.into(), tenant: tenant.into(), namespace }
    }
}

/// Turns the detection of duplicate addresses off: the peers' plugins wait a second and more for it.
pub(super) fn without_detection(namespace: &Namespace) {
    let path = "/proc/sys/net/ipv6/conf/default/accept_dad";
    // Where a kernel has no IPv6, there is nothing to detect.
    let _ = namespace.run(|| std::fs::write(path, "0"));
}

/// A plugin and where it runs.
pub(super) struct Contestant<'a> {
    pub(super) name: &'static str,
    program: PathBuf,
    configuration: String,
    pub(super) host: &'a Namespace,
}

/// All plugins. What the peers keep on disk is in `folder`.
pub(super) fn all<'a>(
    atoll: &Path,
    node: &'a AgentNode,
    host: &'a Namespace,
    folder: &Path,
) -> Result<Vec<Contestant<'a>>> {
    let peer = |name, kind: &str, number: u8| Contestant {
        name,
        program: Path::new(DEBIAN_PLUGINS).join(kind),
        configuration: peer_configuration(kind, number, folder),
        host,
    };
    Ok(vec![
        Contestant { program: "/bin/true".into(), ..peer("process start", "none", 0) },
        peer("ptp + host-local", "ptp", 1),
        peer("bridge + host-local", "bridge", 2),
        ours(atoll, node, folder)?,
    ])
}

/// Our own plugin, as a link in `folder` by the name that it is called by.
pub(super) fn ours<'a>(atoll: &Path, node: &'a AgentNode, folder: &Path) -> Result<Contestant<'a>> {
    let program = folder.join("atoll-cni");
    let atoll = atoll.canonicalize().with_context(|| format!("cannot find {}", atoll.display()))?;
    symlink(atoll, &program)?;
    let configuration = json!({"cniVersion": "1.0.0", "name": "atoll", "type": "atoll-cni", "agentSocket": node.socket()});
    let configuration = configuration.to_string();
    Ok(Contestant { name: "**Atoll**", program, configuration, host: &node.namespace })
}

fn peer_configuration(kind: &str, number: u8, folder: &Path) -> String {
    let configuration = json!({
        "cniVersion": "1.0.0",
        "name": format!("peer-{kind}"),
        "type": kind,
        "bridge": "cni0",
        "isGateway": true,
        "ipam": {
            "type": "host-local",
            "dataDir": folder.join("host-local"),
            "ranges": [
                [{"subnet": format!("10.{number}.0.0/16")}],
                [{"subnet": format!("fd00:{number}::/64")}],
            ],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        },
    });
    configuration.to_string()
}

impl Contestant<'_> {
    /// One call, and how long it took.
    pub(super) fn call(&self, verb: Verb, pod: &Pod) -> Result<Duration> {
        let start = Instant::now();
        let mut plugin = Command::new(&self.program)
            .env_clear()
            .envs(environment(verb, pod))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        if let Some(mut input) = plugin.stdin.take() {
            // A program that does not read its input has gone already.
            let _ = input.write_all(self.configuration.as_bytes());
        }
        let output = plugin.wait_with_output()?;
        let took = start.elapsed();
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{verb:?} of {} failed: {said}", self.name);
        Ok(took)
    }
}

fn environment(verb: Verb, pod: &Pod) -> Vec<(&'static str, String)> {
    let Pod { name, tenant, .. } = pod;
    let arguments = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={tenant};K8S_POD_NAME={name}");
    vec![
        ("CNI_COMMAND", verb.name().to_owned()),
        ("CNI_CONTAINERID", name.clone()),
        ("CNI_NETNS", pod.namespace.path().display().to_string()),
        ("CNI_IFNAME", "eth0".to_owned()),
        ("CNI_PATH", DEBIAN_PLUGINS.to_owned()),
        ("CNI_ARGS", arguments),
        ("PATH", std::env::var("PATH").unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_to_the_plugin_as_a_runtime_does() {
        let planned = PlannedPod { name: "web".into(), network: 1, ip: [10, 0, 0, 1].into() };
        let environment = environment(Verb::Del, &Pod::new(&planned));
        let value = |name| &environment.iter().find(|(key, _)| *key == name).unwrap().1;
        assert_eq!(value("CNI_COMMAND"), "DEL");
        assert!(value("CNI_ARGS").contains("K8S_POD_NAMESPACE=tenant-1;K8S_POD_NAME=web"));
        assert!(value("CNI_NETNS").starts_with("/proc/"));
    }

    #[test]
    fn each_peer_has_ranges_of_its_own_in_both_families() {
        let configuration = peer_configuration("ptp", 7, Path::new("/tmp"));
        assert!(configuration.contains("10.7.0.0/16") && configuration.contains("fd00:7::/64"));
        assert!(configuration.contains("peer-ptp"));
    }
}
