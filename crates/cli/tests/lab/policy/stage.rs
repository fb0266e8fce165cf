//! The oracle's scenes, played by real pods: three namespaces with three pods each, in two tenants.
//!
//! Kubernetes knows a namespace by its name alone, so a tenant's name stands before its namespaces';
//! their labels are equal. A network keeps its first address for itself, so addresses are shifted.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use atoll_oracle::{PORTS, PROTOCOLS, Scene, World, says};
use atoll_toolbox::{Row, Target, Wrong};
use atoll_types::NetAddr;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::fixture::Lab;

pub(crate) const TENANTS: [&str; 2] = ["acme", "globex"];

/// How long a table may take to become as it must be. Generous: the machine may be busy.
const LIMIT: Duration = Duration::from_secs(180);
/// How long the first try of a table waits for an answer, in milliseconds, and how long any try does:
/// on a busy machine, so many answers take their time.
const PATIENCE: u64 = 400;
const MOST_PATIENCE: u64 = 6_400;
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A pod that asks.
struct Prober {
    tenant: &'static str,
    pod: (String, String),
    child: Child,
    told: ChildStdin,
    says: BufReader<ChildStdout>,
}

/// Two tenants in a lab of three nodes, at one scene.
pub(crate) struct Stage {
    _lab: Lab,
    runtime: Runtime,
    client: Client,
    scene: Scene,
    probers: Vec<Prober>,
}

/// A namespace's name in the cluster.
pub(crate) fn home(tenant: &str, namespace: &str) -> String {
    format!("{tenant}-{namespace}")
}

/// An address of a scene as the lab's pods have it.
pub(crate) fn shifted(text: &str) -> String {
    text.replace("10.0.", "10.7.")
}

impl Stage {
    /// Nine pods of each tenant, all ready, with a prober in each.
    pub(crate) fn up() -> Stage {
        let lab = Lab::up(3);
        let scene = Scene::nine_pods();
        let documents = TENANTS.iter().flat_map(|tenant| objects(tenant, &scene));
        let text: String = documents.map(|document| format!("---\n{document}\n")).collect();
        lab.apply(&text).good();
        lab.wait_for_pods();
        let runtime = Runtime::new().unwrap();
        let client = runtime.block_on(client(&lab));
        let probers = TENANTS
            .iter()
            .flat_map(|tenant| scene.pods.keys().map(|pod| Prober::start(&lab, tenant, pod)))
            .collect();
        Stage { _lab: lab, runtime, client, scene, probers }
    }

    /// Makes both tenants look like the scene. Only what changed is written.
    pub(crate) fn set(&mut self, next: &Scene) {
        assert!(self.scene.pods.keys().eq(next.pods.keys()), "the pods are always the same nine");
        let before = std::mem::replace(&mut self.scene, next.clone());
        self.runtime.block_on(async {
            for tenant in TENANTS {
                change_labels(&self.client, tenant, &before, next).await;
                change_policies(&self.client, tenant, &before, next).await;
            }
        });
    }

    /// Waits until the table of both tenants is as the oracle says, and fails where it never is.
    /// Gives how long that took.
    pub(crate) fn hold(&mut self, name: &str) -> Duration {
        let (begun, mut patience) = (Instant::now(), PATIENCE);
        loop {
            let wrong = self.try_table(patience);
            if wrong.is_empty() {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < LIMIT, "{name}: {}", wrong.join("\n"));
            patience = MOST_PATIENCE.min(2 * patience);
        }
    }

    /// How long it takes until one pod answers another, or does no more.
    pub(crate) fn time_to_effect(
        &mut self,
        tenant: &str,
        from: (&str, &str),
        to: (&str, &str),
        answers: bool,
    ) -> Duration {
        let begun = Instant::now();
        let key = (to.0.to_owned(), to.1.to_owned());
        let ip = shifted(&self.scene.pods[&key].addresses[0].1.ip.to_string());
        let open = vec![target("UDP", &ip, 80)];
        let row = Row { open, patience: 10, ..Row::default() };
        let is_asked = |it: &&mut Prober| {
            it.tenant == tenant && (it.pod.0.as_str(), it.pod.1.as_str()) == from
        };
        let prober = self.probers.iter_mut().find(is_asked).unwrap();
        loop {
            prober.ask(&row);
            let asked = begun.elapsed();
            if prober.hear().silent.is_empty() == answers {
                return if answers { begun.elapsed() } else { asked };
            }
            assert!(begun.elapsed() < LIMIT, "{from:?} > {to:?} never became {answers}");
        }
    }

    /// Tries the whole table once: every prober all its targets, all at the same time.
    pub(crate) fn try_table(&mut self, patience: u64) -> Vec<String> {
        let world = self.scene.played_by(&["one"]);
        for prober in &mut self.probers {
            prober.ask(&Row { patience, ..row(&world, prober.tenant, &prober.pod) });
        }
        let answers = self.probers.iter_mut().map(|prober| (prober.name(), prober.hear()));
        let wrong = answers.filter(|(_, wrong)| *wrong != Wrong::default());
        wrong.map(|(name, wrong)| format!("{name}: {}", json!(wrong))).collect()
    }
}

impl Prober {
    fn start(lab: &Lab, tenant: &'static str, pod: &(String, String)) -> Prober {
        let name = format!("{}/{}", home(tenant, &pod.0), pod.1);
        let mut command = lab.exec_command(&name, &["atoll", "toolbox", "rows"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let told = child.stdin.take().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Prober { tenant, pod: pod.clone(), child, told, says }
    }

    fn name(&self) -> String {
        format!("{}/{}", home(self.tenant, &self.pod.0), self.pod.1)
    }

    fn ask(&mut self, row: &Row) {
        writeln!(self.told, "{}", json!(row)).unwrap();
    }

    fn hear(&mut self) -> Wrong {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{}: {error}", self.name()))
    }
}

impl Drop for Prober {
    /// A prober ends with its input; whatever it was told last, it is not waited for.
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _status = self.child.wait();
    }
}

/// What a pod asks, and what must come of it.
fn row(world: &World, tenant: &str, pod: &(String, String)) -> Row {
    let address = |namespace: &str, name: &str| -> NetAddr {
        let mut pods = world.pods.iter();
        pods.find(|pod| pod.namespace == namespace && pod.name == name).unwrap().addresses[0].1
    };
    let from = address(&pod.0, &pod.1);
    let mut row = Row { own: format!("{tenant}-"), ..Row::default() };
    for other in &world.pods {
        let to = address(&other.namespace, &other.name);
        for by in PROTOCOLS {
            for port in PORTS.into_iter().filter(|port| by != "ICMP" || *port == PORTS[0]) {
                let passes = says(world, from, to, by, port).passes();
                let list = if passes { &mut row.open } else { &mut row.closed };
                list.push(target(by, &shifted(&to.ip.to_string()), port));
            }
        }
    }
    row
}

fn target(by: &str, ip: &str, port: u16) -> Target {
    match by {
        "ICMP" => format!("icmp/{ip}").parse().unwrap(),
        _ => format!("{}/{ip}:{port}", by.to_lowercase()).parse().unwrap(),
    }
}

async fn client(lab: &Lab) -> Client {
    let file = Kubeconfig::read_from(&lab.kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

fn objects(tenant: &str, scene: &Scene) -> Vec<Value> {
    let mut all = vec![
        json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": tenant},
               "spec": {"defaultNetwork": {"type": "vpc", "cidrs": ["10.0.0.0/8"]}}}),
    ];
    for (name, labels) in &scene.namespaces {
        let labels = namespace_labels(tenant, labels);
        all.push(json!({"apiVersion": "v1", "kind": "Namespace",
                        "metadata": {"name": home(tenant, name), "labels": labels}}));
    }
    let nodes = ["node1", "node2", "node3"].into_iter().cycle();
    let skipped = usize::from(tenant == TENANTS[1]);
    for ((_, pod), node) in scene.pods.iter().zip(nodes.skip(skipped)) {
        all.push(server(tenant, pod, node));
    }
    all
}

fn namespace_labels(tenant: &str, labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut labels = labels.clone();
    labels.remove(NAME_LABEL);
    labels.insert("atoll.dev/tenant".into(), tenant.into());
    labels
}

fn server(tenant: &str, pod: &atoll_oracle::Pod, node: &str) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let ports: Vec<Value> = pod
        .ports
        .iter()
        .map(|(name, protocol, port)| json!({"name": name, "protocol": protocol, "containerPort": port}))
        .collect();
    let ip = shifted(&pod.addresses[0].1.ip.to_string());
    let container = json!({
        "name": "toolbox", "image": "none", "ports": ports,
        "command": ["atoll", "toolbox", "serve", "--port", "80,81", "--sctp"],
        "env": [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")],
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": home(tenant, &pod.namespace),
                     "labels": pod.labels,
                     "annotations": {"atoll.dev/nics": json!([{"ip": ip}]).to_string()}},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": node},
                 "terminationGracePeriodSeconds": 1, "containers": [container]},
    })
}

/// A merge of labels that leaves exactly `now` of what `before` had.
fn labels_patch(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Value {
    let gone = before.keys().filter(|key| !now.contains_key(*key));
    let mut labels: serde_json::Map<String, Value> =
        gone.map(|key| (key.clone(), Value::Null)).collect();
    labels.extend(now.iter().map(|(key, value)| (key.clone(), json!(value))));
    json!({"metadata": {"labels": labels}})
}

async fn change_labels(client: &Client, tenant: &str, before: &Scene, next: &Scene) {
    let merge = PatchParams::default();
    for (name, labels) in &next.namespaces {
        if before.namespaces[name] != *labels {
            let api = Api::<Namespace>::all(client.clone());
            let [was, is] =
                [&before.namespaces[name], labels].map(|labels| namespace_labels(tenant, labels));
            let patch = Patch::Merge(labels_patch(&was, &is));
            api.patch(&home(tenant, name), &merge, &patch).await.unwrap();
        }
    }
    for (key, pod) in &next.pods {
        if before.pods[key].labels != pod.labels {
            let api = Api::<Pod>::namespaced(client.clone(), &home(tenant, &key.0));
            let patch = Patch::Merge(labels_patch(&before.pods[key].labels, &pod.labels));
            api.patch(&key.1, &merge, &patch).await.unwrap();
        }
    }
}

async fn change_policies(client: &Client, tenant: &str, before: &Scene, next: &Scene) {
    let api = |namespace: &str| {
        Api::<NetworkPolicy>::namespaced(client.clone(), &home(tenant, namespace))
    };
    for ((namespace, name), policy) in &next.policies {
        if before.policies.get(&(namespace.clone(), name.clone())) != Some(policy) {
            let patch = Patch::Apply(written(tenant, policy));
            let params = PatchParams::apply("test").force();
            api(namespace).patch(name, &params, &patch).await.unwrap();
        }
    }
    for (namespace, name) in before.policies.keys() {
        if !next.policies.contains_key(&(namespace.clone(), name.clone())) {
            api(namespace).delete(name, &DeleteParams::default()).await.unwrap();
        }
    }
}

/// A policy of a scene as a tenant of the lab writes it.
fn written(tenant: &str, policy: &NetworkPolicy) -> Value {
    let mut object: Value = serde_json::from_str(&shifted(&json!(policy).to_string())).unwrap();
    rename_namespaces(tenant, &mut object);
    let namespace = policy.metadata.namespace.as_deref().unwrap();
    object["metadata"]["namespace"] = json!(home(tenant, namespace));
    object["apiVersion"] = json!("networking.k8s.io/v1");
    object["kind"] = json!("NetworkPolicy");
    object
}

/// Selectors by the name of a namespace mean the tenant's own.
fn rename_namespaces(tenant: &str, value: &mut Value) {
    if let Some(name) = value.get_mut(NAME_LABEL) {
        *name = json!(home(tenant, name.as_str().unwrap()));
    }
    if value.get("key").is_some_and(|key| key == NAME_LABEL) {
        for name in value["values"].as_array_mut().unwrap() {
            *name = json!(home(tenant, name.as_str().unwrap()));
        }
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|it| rename_namespaces(tenant, it)),
        Value::Object(fields) => fields.values_mut().for_each(|it| rename_namespaces(tenant, it)),
        _ => {}
    }
}
