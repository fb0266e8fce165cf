//! A real cluster with `deploy/` applied, and clients that speak as other people.

use std::fmt::Debug;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use atoll_api::Network;
use atoll_model::intent::role_of;
use atoll_policy::ClusterNetworkPolicy;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Error, Resource, ResourceExt, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Cases share the cluster, so that they come one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Who asks.
#[derive(Clone, Copy)]
pub(crate) enum Who {
    /// Holds the role `atoll-admin`, and may write namespaces, services and resource claims.
    Administrator,
    /// A user of a tenant, as in `examples/tenant-users.yaml`, who may write the same.
    UserOf(&'static str),
    /// Somebody whom roles let write ports and claims.
    PortEditor,
    /// Our controller.
    Controller,
    /// The provider of networks of type `sdn`, as in docs/providers.md.
    Provider,
    /// Our agent, on the node that its token tells.
    AgentOn(Option<&'static str>),
}

/// The header of what a token tells beside name and groups. A slash is not for header names.
const NODE: &str = "impersonate-extra-authentication.kubernetes.io%2fnode-name";

impl Who {
    fn headers(self) -> Vec<(String, String)> {
        let is = |user: &str, groups: &[&str]| {
            let groups = groups.iter().map(|group| ("impersonate-group", *group));
            let all = [("impersonate-user", user)].into_iter().chain(groups);
            all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>()
        };
        let account = "system:serviceaccounts:atoll-system";
        match self {
            Who::Administrator => is("root", &["atoll-admins"]),
            Who::UserOf(tenant) => is("alice", &[&format!("{tenant}-users")]),
            Who::PortEditor => is("eve", &["port-editors"]),
            Who::Provider => is("sdn", &["sdn-providers"]),
            Who::Controller => {
                is("system:serviceaccount:atoll-system:atoll-controller", &[account])
            }
            Who::AgentOn(node) => {
                let mut agent = is("system:serviceaccount:atoll-system:atoll-agent", &[account]);
                agent.extend(node.map(|node| (NODE.to_owned(), node.to_owned())));
                agent
            }
        }
    }
}

/// Rights that the cases need beside what `deploy/` and the example give.
const RIGHTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-namespaces}
rules:
  - {apiGroups: [""], resources: [namespaces, services, services/status], verbs: [get, create, patch, delete]}
  - {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [create, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-ports}
rules: [{apiGroups: [atoll.dev], resources: [ports, claims], verbs: [get, create, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-namespaces}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-namespaces}
subjects:
  - {apiGroup: rbac.authorization.k8s.io, kind: Group, name: atoll-admins}
  - {apiGroup: rbac.authorization.k8s.io, kind: Group, name: acme-users}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-ports}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-ports}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: port-editors}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-sdn}
rules: [{apiGroups: [atoll.dev], resources: [networktypes], resourceNames: [sdn], verbs: [provide]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-sdn}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-sdn}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: sdn-providers}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-providers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: atoll-provider}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: sdn-providers}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-admins}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: atoll-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: atoll-admins}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-tiers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: atoll-tenant-policies}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: acme-users}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: test-acme, namespace: hand}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: acme-users}]
"#;

/// The cluster.
pub(crate) struct Cluster {
    config: Config,
    _turn: MutexGuard<'static, ()>,
}

impl Cluster {
    /// The cluster of `$CONTRACT_KUBECONFIG` with everything applied and every policy in force.
    pub(crate) async fn installed(case: &str) -> Cluster {
        let turn = ONE_AT_A_TIME.lock().await;
        let path = std::env::var("CONTRACT_KUBECONFIG").expect("run it by `make test-real`");
        let kubeconfig = Kubeconfig::read_from(Path::new(&path)).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        let cluster = Cluster { config, _turn: turn };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for namespace in ["acme", "hand"] {
            cluster.namespace(namespace, "acme").await;
        }
        kubectl(&["apply", "-k", root.join("deploy").to_str().unwrap()], "");
        kubectl(&["apply", "-f", root.join("examples/tenant-users.yaml").to_str().unwrap()], "");
        kubectl(&["apply", "-f", "-"], RIGHTS);
        cluster.give_role(&[], &[]).await;
        cluster.in_force(case).await;
        cluster
    }

    /// Makes the role of tenant acme as the controller does, by the controller's own rights, and
    /// waits until it counts.
    pub(crate) async fn give_role(&self, networks: &[&str], subnets: &[&str]) {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let role = role_of(&"acme".parse().unwrap(), owned(networks), owned(subnets));
        let (roles, name) = (self.all::<ClusterRole>(Who::Controller), role.name_any());
        match roles.create(&PostParams::default(), &role).await {
            Err(Error::Api(status)) if status.is_already_exists() => {
                patch(&roles, &name, json!({"rules": role.rules})).await.unwrap();
            }
            made => drop(made.unwrap()),
        }
        for network in networks {
            self.until_read(network).await;
        }
    }

    async fn until_read(&self, network: &str) {
        let theirs = self.all::<Network>(Who::UserOf("acme"));
        let waiting = async {
            while theirs.get(network).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("the role comes into force");
    }

    /// Policies are in force a moment after they were made.
    async fn in_force(&self, case: &str) {
        let claim = json!({"metadata": {"name": format!("{case}-probe")},
                           "spec": {"holder": {"kind": "Port", "name": "nobody"}}});
        until_refused(&self.all::<atoll_api::Claim>(Who::PortEditor), claim).await;
        let policy = tier(&format!("{case}-probe"), None);
        until_refused(&self.tiers(Who::UserOf("acme")), policy).await;
    }

    /// Policies of administrators, which are sent as they are written.
    pub(crate) fn tiers(&self, who: Who) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<ClusterNetworkPolicy>(&());
        Api::all_with(self.client(&who.headers()), &kind)
    }

    pub(crate) async fn namespace(&self, name: &str, tenant: &str) {
        let namespaces = Api::<Namespace>::all(self.client(&[]));
        let labels = json!({"atoll.dev/tenant": tenant});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
                               "metadata": {"name": name, "labels": labels}});
        let params = PatchParams::apply("atoll-tests").force();
        namespaces.patch(name, &params, &Patch::Apply(namespace)).await.unwrap();
    }

    pub(crate) fn all<K: Resource<DynamicType = ()>>(&self, who: Who) -> Api<K> {
        Api::all(self.client(&who.headers()))
    }

    pub(crate) fn inside<K>(&self, namespace: &str, who: Who) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client(&who.headers()), namespace)
    }

    fn client(&self, headers: &[(String, String)]) -> Client {
        let mut config = self.config.clone();
        config.headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        Client::try_from(config).unwrap()
    }
}

/// A policy of a tenant's administrators, or of the cluster's.
pub(crate) fn tier(name: &str, tenant: Option<&str>) -> Value {
    let labels = tenant.map(|tenant| json!({"atoll.dev/tenant": tenant})).unwrap_or(json!({}));
    json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
           "metadata": {"name": name, "labels": labels},
           "spec": {"tier": "Admin", "priority": 10, "subject": {"namespaces": {}}}})
}

/// Waits until the object may not be made any more. It never is.
async fn until_refused<K>(api: &Api<K>, object: Value)
where
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let object = serde_json::from_value(object).unwrap();
    let waiting = async {
        loop {
            match api.create(&dry, &object).await {
                Ok(_) => {}
                Err(Error::Api(status)) if [403, 422].contains(&status.code) => return,
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the policies come into force");
}

fn kubectl(arguments: &[&str], input: &str) {
    use std::io::Write;
    let mut child = Command::new("kubectl")
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("kubectl is there");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "kubectl {arguments:?}");
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.map(drop)
}

pub(crate) async fn patch<K>(api: &Api<K>, name: &str, change: Value) -> Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.map(drop)
}

pub(crate) async fn patch_status<K>(api: &Api<K>, name: &str, change: Value) -> Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(change)).await.map(drop)
}

pub(crate) async fn remove<K>(api: &Api<K>, name: &str)
where
    K: Clone + Debug + DeserializeOwned,
{
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

#[track_caller]
pub(crate) fn allowed(answer: Result<()>) {
    answer.unwrap();
}

/// A refusal names its reason.
#[track_caller]
pub(crate) fn refused(answer: Result<()>, says: &str) {
    match answer {
        Err(Error::Api(status)) => {
            let told = format!("{} {}", status.reason, status.message);
            assert!([403, 422].contains(&status.code) && told.contains(says), "{told}");
        }
        other => panic!("not refused: {other:?}"),
    }
}
