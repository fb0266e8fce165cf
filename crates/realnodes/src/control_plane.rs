//! The control plane: four unmodified programs in a namespace of their own, and the identities
//! they and the nodes are known by.

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::certificates::{Authority, Identity, write_secret, write_signing_key};
use crate::fabric::{CONTROL, CONTROL_ADDRESS, Node};
use crate::home::Home;
use crate::namespace;

/// The programs, by their names.
pub(crate) const ETCD: &str = "etcd";
pub(crate) const API_SERVER: &str = "kube-apiserver";
pub(crate) const CONTROLLER_MANAGER: &str = "kube-controller-manager";
pub(crate) const SCHEDULER: &str = "kube-scheduler";
/// The port of the API in the cluster.
pub(crate) const API_PORT: u16 = 6443;
/// The cluster's DNS service, as every pod's resolv.conf will name it.
pub(crate) const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

/// A range of each family, so that a Service may have both.
const SERVICE_RANGES: &str = "10.96.0.0/16,fd00:10:96::/112";
/// What nodes get their podCIDRs from; only a plain network of pods uses them.
pub(crate) const POD_RANGE: &str = "10.244.0.0/16";
const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// One program and what it is told.
pub(crate) struct Program {
    name: &'static str,
    arguments: Vec<String>,
}

impl Program {
    fn new<const N: usize>(name: &'static str, arguments: [String; N]) -> Self {
        Program { name, arguments: arguments.into() }
    }

    /// Starts it in the control plane's namespace; it outlives the caller.
    pub(crate) fn start(&self, home: &Home) -> Result<Started> {
        let log = home.open_log(self.name)?;
        let mut command = Command::new(home.binaries().join(self.name));
        command.args(&self.arguments).process_group(0).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let child = namespace::within(&home.namespace(CONTROL), move || Ok(command.spawn()?))
            .with_context(|| format!("cannot start {}", self.name))?;
        Ok(Started { name: self.name, child })
    }
}

/// A program that was started and should be running.
pub(crate) struct Started {
    name: &'static str,
    child: Child,
}

impl Started {
    /// Its name, when it runs no more.
    pub(crate) fn ended(&mut self) -> Option<&'static str> {
        matches!(self.child.try_wait(), Ok(Some(_))).then_some(self.name)
    }
}

/// The store. Nothing is synced to disk: the cluster is made for a test.
pub(crate) fn etcd(home: &Home) -> Program {
    let data = home.store();
    Program::new(
        ETCD,
        [
            format!("--data-dir={}", data.display()),
            "--unsafe-no-fsync".into(),
            "--listen-client-urls=http://127.0.0.1:2379".into(),
            "--advertise-client-urls=http://127.0.0.1:2379".into(),
            "--listen-peer-urls=http://127.0.0.1:2380".into(),
            "--initial-advertise-peer-urls=http://127.0.0.1:2380".into(),
            "--initial-cluster=default=http://127.0.0.1:2380".into(),
        ],
    )
}

/// The API server, with the authorizers and admission plugins of an ordinary cluster.
pub(crate) fn api_server(home: &Home) -> Program {
    let pki = |file: &str| home.certificates().join(file).display().to_string();
    Program::new(
        API_SERVER,
        [
            "--etcd-servers=http://127.0.0.1:2379".into(),
            format!("--bind-address={CONTROL_ADDRESS}"),
            format!("--advertise-address={CONTROL_ADDRESS}"),
            format!("--secure-port={API_PORT}"),
            format!("--service-cluster-ip-range={SERVICE_RANGES}"),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            // Without kube-proxy, services that the API itself asks are found by their endpoints.
            "--enable-aggregator-routing=true".into(),
            "--allow-privileged=true".into(),
            format!("--client-ca-file={}", pki("ca.crt")),
            format!("--tls-cert-file={}", pki("apiserver.crt")),
            format!("--tls-private-key-file={}", pki("apiserver.key")),
            format!("--kubelet-certificate-authority={}", pki("ca.crt")),
            format!("--kubelet-client-certificate={}", pki("apiserver-kubelet-client.crt")),
            format!("--kubelet-client-key={}", pki("apiserver-kubelet-client.key")),
            "--kubelet-preferred-address-types=InternalIP".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", pki("service-account.pub")),
            format!("--service-account-signing-key-file={}", pki("service-account.key")),
        ],
    )
}

/// The controllers of Kubernetes itself.
pub(crate) fn controller_manager(home: &Home) -> Program {
    let pki = |file: &str| home.certificates().join(file).display().to_string();
    Program::new(
        CONTROLLER_MANAGER,
        [
            format!("--kubeconfig={}", pki("controller-manager.kubeconfig")),
            "--bind-address=127.0.0.1".into(),
            "--leader-elect=false".into(),
            "--allocate-node-cidrs=true".into(),
            format!("--cluster-cidr={POD_RANGE}"),
            "--use-service-account-credentials=true".into(),
            format!("--root-ca-file={}", pki("ca.crt")),
            format!("--service-account-private-key-file={}", pki("service-account.key")),
        ],
    )
}

/// The scheduler.
pub(crate) fn scheduler(home: &Home) -> Program {
    let kubeconfig = home.certificates().join("scheduler.kubeconfig");
    Program::new(
        SCHEDULER,
        [
            format!("--kubeconfig={}", kubeconfig.display()),
            "--bind-address=127.0.0.1".into(),
            "--leader-elect=false".into(),
        ],
    )
}

/// Writes every certificate, key and kubeconfig of the cluster. The administrator's kubeconfig
/// names the API at `api_port` of the host's loopback.
pub(crate) fn write_identities(home: &Home, nodes: &[Node], api_port: u16) -> Result<()> {
    let folder = home.certificates();
    let authority = Authority::new()?;
    authority.write(&folder)?;
    write_signing_key(&folder, "service-account")?;
    for identity in identities() {
        authority.issue(&identity, &folder)?;
    }
    let inside = format!("https://{CONTROL_ADDRESS}:{API_PORT}");
    for user in ["controller-manager", "scheduler"] {
        let path = folder.join(format!("{user}.kubeconfig"));
        write_secret(&path, &kubeconfig(&inside, &folder, user))?;
    }
    let outside = format!("https://127.0.0.1:{api_port}");
    write_secret(&home.kubeconfig(), &kubeconfig(&outside, &folder, "admin"))?;
    nodes.iter().try_for_each(|node| write_node_identity(home, &authority, *node))
}

fn identities() -> [Identity<'static>; 5] {
    let client = |file, user, group| Identity { file, user, group, serves: Vec::new() };
    let masters = Some("system:masters");
    let mut serves: Vec<String> =
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "127.0.0.1"]
            .map(Into::into)
            .into();
    serves.extend([API_SERVICE.to_string(), CONTROL_ADDRESS.to_string()]);
    [
        Identity { file: "apiserver", user: "kube-apiserver", group: None, serves },
        client("apiserver-kubelet-client", "kube-apiserver-kubelet-client", masters),
        client("admin", "admin", masters),
        client("controller-manager", "system:kube-controller-manager", None),
        client("scheduler", "system:kube-scheduler", None),
    ]
}

/// The folder that a node sees as `/etc/kubernetes`.
pub(crate) fn node_folder(home: &Home, node: Node) -> PathBuf {
    home.certificates().join(node.to_string())
}

fn write_node_identity(home: &Home, authority: &Authority, node: Node) -> Result<()> {
    let folder = node_folder(home, node);
    let identity = Identity {
        file: "kubelet",
        user: &format!("system:node:{node}"),
        group: Some("system:nodes"),
        serves: vec![node.to_string(), node.address().to_string()],
    };
    authority.write(&folder)?;
    authority.issue(&identity, &folder)?;
    let server = format!("https://{CONTROL_ADDRESS}:{API_PORT}");
    let seen_as = Path::new("/etc/kubernetes");
    write_secret(&folder.join("kubeconfig"), &kubeconfig(&server, seen_as, "kubelet"))
}

fn kubeconfig(server: &str, folder: &Path, user: &str) -> String {
    let folder = folder.display();
    format!(
        "apiVersion: v1
kind: Config
current-context: real
contexts: [{{name: real, context: {{cluster: real, user: {user}}}}}]
clusters: [{{name: real, cluster: {{server: \"{server}\", certificate-authority: {folder}/ca.crt}}}}]
users: [{{name: {user}, user: {{client-certificate: {folder}/{user}.crt, client-key: {folder}/{user}.key}}}}]
"
    )
}
