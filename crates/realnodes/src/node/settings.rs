//! What containerd and kubelet are told. Only what a box on a test machine needs differs from their
//! defaults, each with its reason.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::control_plane::DNS_SERVICE;
use crate::fabric::Node;

/// The image of the process that holds a pod's namespaces.
pub(crate) const PAUSE_IMAGE: &str = "atoll.dev/pause:1";
/// Where containerd listens.
pub(super) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
pub(super) const CONTAINERD_FILE: &str = "/etc/containerd/config.toml";
pub(super) const KUBELET_FILE: &str = "/var/lib/kubelet/config.yaml";

/// Writes both files, inside the node.
pub(super) fn write(node: Node) -> Result<()> {
    write_file(CONTAINERD_FILE, &containerd())?;
    write_file(KUBELET_FILE, &kubelet(node))
}

fn write_file(path: &str, text: &str) -> Result<()> {
    let write = || {
        fs::create_dir_all(Path::new(path).parent().unwrap_or(Path::new("/")))?;
        fs::write(path, text)
    };
    write().with_context(|| format!("cannot write {path}"))
}

fn containerd() -> String {
    format!(
        r#"version = 2
oom_score = 0

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  disable_apparmor = true
  # A machine without CAP_SYS_RESOURCE cannot lower a process's score below its parent's.
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/opt/cni/bin"
  conf_dir = "/etc/cni/net.d"
"#
    )
}

fn kubelet(node: Node) -> String {
    let address = node.address();
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {address}
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: /etc/kubernetes/ca.crt}}
authorization: {{mode: Webhook}}
tlsCertFile: /etc/kubernetes/kubelet.crt
tlsPrivateKeyFile: /etc/kubernetes/kubelet.key
containerRuntimeEndpoint: unix://{CONTAINERD_SOCKET}
clusterDNS: [{DNS_SERVICE}]
clusterDomain: cluster.local
cgroupDriver: cgroupfs
failSwapOn: false
oomScoreAdj: 0
# Rules of packet filters are not kubelet's to write where there is no kube-proxy.
makeIPTablesUtilChains: false
# A disk in memory is never full enough to throw images or pods away.
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {{memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}}
"
    )
}
