//! Probes and hooks of a tenant's pod, as they are when the pod is admitted: the agent of the pod's
//! node makes them, because the kubelet would look for the pod's address in the node's own network,
//! where it is nobody's or somebody else's.
//!
//! The rules of this file: what to probe is written into an annotation, and the kubelet is sent to
//! the agent with no more than a reference to it; a probe never leads to another host than its pod.
//! Probes that run a command stay as they are.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use atoll_api::marks;
use k8s_openapi::api::core::v1::{
    Container, GRPCAction, HTTPGetAction, Pod, Probe, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The port of every node's loopback where the agent answers for probes.
pub const PROBE_PORT: u16 = 61080;

/// The path at which it does, before namespace, sheet, container and moment.
pub const PROBE_PATH: &str = "/probe";

/// Seconds that a probe may take where it does not say.
const DEFAULT_TIMEOUT: u32 = 1;

/// Seconds that a hook may take.
const HOOK_TIMEOUT: u32 = 30;

/// What the agent probes of one pod: the content of the annotation `atoll.dev/probes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeSheet {
    /// A name that nobody can guess.
    pub id: String,
    /// What is checked, by container and moment: `web/readiness`.
    pub checks: BTreeMap<String, Check>,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// How.
    #[serde(flatten)]
    pub how: How,
    /// Seconds that it may take.
    pub timeout: u32,
    /// Whether it is a hook: of an answer it asks for no more than that it comes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hook: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// How a check is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum How {
    /// A GET that is answered with 200 to 399.
    Http(HttpCheck),
    /// A TCP connection that is taken.
    Tcp {
        /// The port.
        port: u16,
    },
    /// The health service of gRPC that says SERVING.
    Grpc {
        /// The port.
        port: u16,
        /// The service that it is asked about.
        service: String,
    },
}

/// An HTTP request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpCheck {
    /// The port.
    pub port: u16,
    /// The path, with its query.
    pub path: String,
    /// Whether it is made over TLS, whose certificate nobody looks at.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tls: bool,
    /// Headers, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
}

/// Why a pod is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// It would make the node call somebody else.
    #[error(
        "{field}.host is {host:?}: a probe or hook of a tenant's pod reaches that pod alone; leave \
         host out"
    )]
    Host {
        /// Where it is written.
        field: String,
        /// What is written there.
        host: String,
    },
    /// The port is none.
    #[error(
        "{field}.port is {port:?}: it must be a number from 1 to 65535, or the name of a port of this container"
    )]
    Port {
        /// Where it is written.
        field: String,
        /// What is written there.
        port: String,
    },
}

/// The JSON patch that leads a pod's probes and hooks to the agent; empty where it has none that
/// need to be. `id` becomes the name of its sheet.
pub fn admit(pod: &Pod, namespace: &str, id: &str) -> Result<Vec<Value>, ProbeError> {
    let mut draft = Draft { namespace, id, checks: BTreeMap::new(), patch: Vec::new() };
    let on_host = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    let spec = pod.spec.as_ref().filter(|_| !on_host);
    let inits = spec.and_then(|spec| spec.init_containers.as_ref());
    let mains = spec.map(|spec| &spec.containers);
    for (kind, containers) in [("initContainers", inits), ("containers", mains)] {
        for (index, container) in containers.into_iter().flatten().enumerate() {
            draft.container(&format!("spec.{kind}[{index}]"), container)?;
        }
    }
    Ok(draft.finish(pod))
}

/// What was found so far.
struct Draft<'a> {
    namespace: &'a str,
    id: &'a str,
    checks: BTreeMap<String, Check>,
    patch: Vec<Value>,
}

/// What of a probe or a hook calls the pod.
#[derive(Clone, Copy)]
enum Call<'a> {
    Http(&'a HTTPGetAction),
    Tcp(&'a TCPSocketAction),
    Grpc(&'a GRPCAction),
}

impl<'a> Call<'a> {
    fn of_probe(probe: &'a Probe) -> Option<Call<'a>> {
        let http = probe.http_get.as_ref().map(Call::Http);
        let tcp = probe.tcp_socket.as_ref().map(Call::Tcp);
        http.or(tcp).or(probe.grpc.as_ref().map(Call::Grpc))
    }

    /// The field that it is written in.
    fn field(self) -> &'static str {
        match self {
            Call::Http(_) => "httpGet",
            Call::Tcp(_) => "tcpSocket",
            Call::Grpc(_) => "grpc",
        }
    }

    fn host(self) -> Option<&'a str> {
        let host = match self {
            Call::Http(http) => http.host.as_deref(),
            Call::Tcp(tcp) => tcp.host.as_deref(),
            Call::Grpc(_) => None,
        };
        host.filter(|host| !host.is_empty())
    }
}

impl Draft<'_> {
    fn container(&mut self, at: &str, container: &Container) -> Result<(), ProbeError> {
        let probes = [
            ("startup", &container.startup_probe),
            ("readiness", &container.readiness_probe),
            ("liveness", &container.liveness_probe),
        ];
        for (moment, probe) in probes {
            let Some(probe) = probe else { continue };
            let Some(call) = Call::of_probe(probe) else { continue };
            let timeout = probe.timeout_seconds.and_then(|it| u32::try_from(it).ok());
            let timeout = timeout.filter(|it| *it > 0).unwrap_or(DEFAULT_TIMEOUT);
            let check = (timeout, false);
            self.redirect(&format!("{at}.{moment}Probe"), container, (moment, call), check)?;
        }
        let lifecycle = container.lifecycle.as_ref();
        let hooks = [
            ("postStart", lifecycle.and_then(|it| it.post_start.as_ref())),
            ("preStop", lifecycle.and_then(|it| it.pre_stop.as_ref())),
        ];
        for (moment, hook) in hooks {
            let Some(http) = hook.and_then(|hook| hook.http_get.as_ref()) else { continue };
            let at = format!("{at}.lifecycle.{moment}");
            self.redirect(&at, container, (moment, Call::Http(http)), (HOOK_TIMEOUT, true))?;
        }
        Ok(())
    }

    /// Notes what is to be checked, and leads the kubelet to the agent.
    fn redirect(
        &mut self,
        at: &str,
        container: &Container,
        (moment, call): (&str, Call<'_>),
        (timeout, hook): (u32, bool),
    ) -> Result<(), ProbeError> {
        let field = format!("{at}.{}", call.field());
        if let Some(host) = call.host() {
            return Err(ProbeError::Host { field, host: host.to_owned() });
        }
        let how = how(&field, container, call)?;
        let key = format!("{}/{moment}", container.name);
        let path = format!("{PROBE_PATH}/{}/{}/{key}", self.namespace, self.id);
        self.checks.insert(key, Check { how, timeout, hook });
        let agent =
            json!({"host": "127.0.0.1", "port": PROBE_PORT, "path": path, "scheme": "HTTP"});
        self.patch.push(json!({"op": "remove", "path": pointer(&field)}));
        let place = pointer(&format!("{at}.httpGet"));
        self.patch.push(json!({"op": "add", "path": place, "value": agent}));
        Ok(())
    }

    /// The annotation is written last. One that came with the pod is nobody's word.
    fn finish(mut self, pod: &Pod) -> Vec<Value> {
        let annotations = pod.metadata.annotations.as_ref();
        let place = "/metadata/annotations";
        let own = format!("{place}/{}", marks::PROBES.replace('/', "~1"));
        if self.checks.is_empty() {
            let is_forged = annotations.is_some_and(|it| it.contains_key(marks::PROBES));
            let remove = json!({"op": "remove", "path": own});
            return is_forged.then_some(remove).into_iter().collect();
        }
        if annotations.is_none() {
            self.patch.push(json!({"op": "add", "path": place, "value": {}}));
        }
        let sheet = ProbeSheet { id: self.id.to_owned(), checks: self.checks };
        let text = serde_json::to_string(&sheet).unwrap_or_default();
        self.patch.push(json!({"op": "add", "path": own, "value": text}));
        self.patch
    }
}

/// `spec.containers[0].livenessProbe` as a JSON pointer.
fn pointer(field: &str) -> String {
    format!("/{}", field.replace(['.', '['], "/").replace(']', ""))
}

fn how(field: &str, container: &Container, call: Call<'_>) -> Result<How, ProbeError> {
    let port = |port: &IntOrString| port_of(field, container, port);
    Ok(match call {
        Call::Http(http) => How::Http(HttpCheck {
            port: port(&http.port)?,
            path: path_of(http),
            tls: http.scheme.as_deref() == Some("HTTPS"),
            headers: headers_of(http),
        }),
        Call::Tcp(tcp) => How::Tcp { port: port(&tcp.port)? },
        Call::Grpc(grpc) => How::Grpc {
            port: port(&IntOrString::Int(grpc.port))?,
            service: grpc.service.clone().unwrap_or_default(),
        },
    })
}

fn path_of(http: &HTTPGetAction) -> String {
    let path = http.path.as_deref().unwrap_or_default();
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn headers_of(http: &HTTPGetAction) -> Vec<(String, String)> {
    let headers = http.http_headers.iter().flatten();
    headers.map(|header| (header.name.clone(), header.value.clone())).collect()
}

fn port_of(field: &str, container: &Container, port: &IntOrString) -> Result<u16, ProbeError> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name));
            named.map(|port| port.container_port).or_else(|| name.parse().ok())
        }
    };
    let number = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
    number.ok_or_else(|| {
        let port = match port {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(name) => name.clone(),
        };
        ProbeError::Port { field: field.to_owned(), port }
    })
}
