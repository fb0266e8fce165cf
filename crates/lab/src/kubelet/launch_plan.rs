//! From a container as the pod's author wrote it to what is started: command, environment, files.
//!
//! The rule: what the lab cannot serve is refused by name, never left out in silence.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, EnvVar, ObjectFieldSelector, Pod};

use crate::fabric::API_SERVICE;
use crate::home::{ContainerHome, PodHome};
use crate::shim::{Launch, Overlay};

/// What the kubelet knows about a pod beside its object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) node: &'a str,
    pub(crate) host: IpAddr,
    pub(crate) ips: &'a [IpAddr],
    /// The network namespace that the pod runs in.
    pub(crate) namespace: &'a Path,
    /// The directory of the `atoll` executable.
    pub(crate) program_directory: &'a Path,
    /// A directory that pods must not see.
    pub(crate) hidden: &'a Path,
}

/// What to start for `container`, or why it cannot be started.
pub(crate) fn build(
    pod: &Pod,
    container: &Container,
    around: &Surroundings<'_>,
    homes: (&PodHome, &ContainerHome),
    attempt: u32,
) -> Result<Launch, String> {
    refuse_what_is_not_served(container)?;
    let environment = environment(pod, container, around)?;
    let (pod_home, container_home) = homes;
    Ok(Launch {
        namespace: around.namespace.to_owned(),
        hostname: hostname(pod).to_owned(),
        command: command(container, &environment)?,
        environment: environment.into_iter().collect(),
        working_directory: container.working_dir.as_deref().unwrap_or("/").into(),
        files: ["hostname", "hosts", "resolv.conf"]
            .map(|file| Overlay {
                source: pod_home.etc(file),
                target: Path::new("/etc").join(file),
            })
            .into(),
        hidden: around.hidden.to_owned(),
        log: container_home.log(attempt),
        init_record: container_home.init_record(),
        exit_record: container_home.exit_record(),
    })
}

/// The name that the pod's processes take for the machine's.
pub(crate) fn hostname(pod: &Pod) -> &str {
    let wanted = pod.spec.as_ref().and_then(|spec| spec.hostname.as_deref());
    wanted.or(pod.metadata.name.as_deref()).unwrap_or_default()
}

fn refuse_what_is_not_served(container: &Container) -> Result<(), String> {
    let name = &container.name;
    if let Some(mount) = container.volume_mounts.iter().flatten().next() {
        return Err(format!(
            "container {name} mounts the volume {}: the lab runs pods on this machine's own file \
             system and has no volumes",
            mount.name
        ));
    }
    if container.env_from.as_ref().is_some_and(|sources| !sources.is_empty()) {
        return Err(format!(
            "container {name} uses envFrom, which the lab does not serve: use env"
        ));
    }
    Ok(())
}

fn command(
    container: &Container,
    environment: &BTreeMap<String, String>,
) -> Result<Vec<String>, String> {
    let program = container.command.iter().flatten();
    if program.clone().next().is_none() {
        return Err(format!(
            "container {} has no command: the lab pulls no image, so it must say what to run, \
             such as command: [\"atoll\", \"toolbox\", \"serve\"]",
            container.name
        ));
    }
    let words = program.chain(container.args.iter().flatten());
    Ok(words.map(|word| expand(word, environment)).collect())
}

/// What every container gets, then what its author adds, each able to use those before it.
fn environment(
    pod: &Pod,
    container: &Container,
    around: &Surroundings<'_>,
) -> Result<BTreeMap<String, String>, String> {
    let metadata = &pod.metadata;
    let path = format!(
        "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        around.program_directory.display()
    );
    let ip = around.ips.first().map(ToString::to_string);
    let given = [
        ("PATH", path),
        ("HOME", "/root".to_owned()),
        ("HOSTNAME", hostname(pod).to_owned()),
        ("POD_NAME", metadata.name.clone().unwrap_or_default()),
        ("POD_NAMESPACE", metadata.namespace.clone().unwrap_or_default()),
        ("POD_IP", ip.unwrap_or_default()),
        ("NODE_NAME", around.node.to_owned()),
        ("KUBERNETES_SERVICE_HOST", API_SERVICE.to_string()),
        ("KUBERNETES_SERVICE_PORT", "443".to_owned()),
        ("KUBERNETES_SERVICE_PORT_HTTPS", "443".to_owned()),
    ];
    let mut environment: BTreeMap<_, _> =
        given.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    for variable in container.env.iter().flatten() {
        let value = value_of(variable, pod, container, around)?;
        let value = expand(&value, &environment);
        environment.insert(variable.name.clone(), value);
    }
    Ok(environment)
}

fn value_of(
    variable: &EnvVar,
    pod: &Pod,
    container: &Container,
    around: &Surroundings<'_>,
) -> Result<String, String> {
    let Some(source) = &variable.value_from else {
        return Ok(variable.value.clone().unwrap_or_default());
    };
    let field = source.field_ref.as_ref().ok_or_else(|| {
        format!(
            "container {} takes {} from something other than a field of the pod, which the lab \
             does not serve",
            container.name, variable.name
        )
    })?;
    field_of(field, pod, around)
}

fn field_of(
    field: &ObjectFieldSelector,
    pod: &Pod,
    around: &Surroundings<'_>,
) -> Result<String, String> {
    let metadata = &pod.metadata;
    let marks =
        [("metadata.labels", &metadata.labels), ("metadata.annotations", &metadata.annotations)];
    for (prefix, marks) in marks {
        if let Some(key) = key_in_brackets(&field.field_path, prefix) {
            return Ok(marks.as_ref().and_then(|all| all.get(key)).cloned().unwrap_or_default());
        }
    }
    let ips = || around.ips.iter().map(ToString::to_string).collect::<Vec<_>>();
    match field.field_path.as_str() {
        "metadata.name" => Ok(metadata.name.clone().unwrap_or_default()),
        "metadata.namespace" => Ok(metadata.namespace.clone().unwrap_or_default()),
        "metadata.uid" => Ok(metadata.uid.clone().unwrap_or_default()),
        "spec.nodeName" => Ok(around.node.to_owned()),
        "status.hostIP" => Ok(around.host.to_string()),
        "status.podIP" => Ok(ips().into_iter().next().unwrap_or_default()),
        "status.podIPs" => Ok(ips().join(",")),
        other => Err(format!("the field {other:?} of a pod cannot be put into the environment")),
    }
}

/// `key` of `prefix['key']`.
fn key_in_brackets<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']")
}

/// Replaces `$(NAME)` by the variable's value; `$$(NAME)` stays as `$(NAME)`, and so does a name
/// that is not known.
fn expand(text: &str, environment: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        expanded.push_str(&rest[..dollar]);
        rest = &rest[dollar..];
        let (replacement, used) = expand_one(rest, environment);
        expanded.push_str(&replacement);
        rest = &rest[used..];
    }
    expanded + rest
}

/// What stands for the beginning of `text`, a dollar sign, and how much of it that covers.
fn expand_one(text: &str, environment: &BTreeMap<String, String>) -> (String, usize) {
    if text.starts_with("$$") {
        return ("$".to_owned(), 2);
    }
    let name = text.strip_prefix("$(").and_then(|rest| rest.split_once(')')).map(|(name, _)| name);
    match name.and_then(|name| Some((name, environment.get(name)?))) {
        Some((name, value)) => (value.clone(), name.len() + 3),
        None => ("$".to_owned(), 1),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::home::Home;

    fn built(container: serde_json::Value) -> Result<Launch, String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "web-1", "namespace": "acme", "uid": "u1",
                "labels": {"app": "web"}, "annotations": {"a.b/c": "note"},
            },
            "spec": {"containers": []},
        }))
        .unwrap();
        let container: Container = serde_json::from_value(container).unwrap();
        let around = Surroundings {
            node: "node1",
            host: [172, 30, 0, 11].into(),
            ips: &[[10, 0, 0, 5].into()],
            namespace: Path::new("/ns"),
            program_directory: Path::new("/opt/atoll"),
            hidden: Path::new("/hidden"),
        };
        let home = Home::of(&"x".parse().unwrap()).node("node1").pod("u1");
        build(&pod, &container, &around, (&home, &home.container("web")), 0)
    }

    fn variable(launch: &Launch, name: &str) -> Option<String> {
        let found = launch.environment.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.clone())
    }

    #[test]
    fn every_container_knows_who_and_where_it_is_and_finds_the_toolbox() {
        let launch = built(json!({"name": "web", "command": ["atoll"]})).unwrap();
        let expected = [
            ("POD_NAME", "web-1"),
            ("POD_NAMESPACE", "acme"),
            ("POD_IP", "10.0.0.5"),
            ("NODE_NAME", "node1"),
            ("HOSTNAME", "web-1"),
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
            ("KUBERNETES_SERVICE_PORT", "443"),
        ];
        for (name, value) in expected {
            assert_eq!(variable(&launch, name).as_deref(), Some(value));
        }
        assert!(variable(&launch, "PATH").unwrap().starts_with("/opt/atoll:"));
        assert_eq!(launch.hostname, "web-1");
    }

    #[test]
    fn arguments_follow_the_command_and_variables_are_filled_in() {
        let launch = built(json!({
            "name": "web",
            "command": ["serve"],
            "args": ["--as", "$(POD_NAME)-$(TIER)", "$$(TIER)", "$(UNKNOWN)", "5$"],
            "env": [{"name": "TIER", "value": "$(POD_NAMESPACE)-front"}],
        }))
        .unwrap();
        let expected = ["serve", "--as", "web-1-acme-front", "$(TIER)", "$(UNKNOWN)", "5$"];
        assert_eq!(launch.command, expected);
    }

    #[test]
    fn variables_may_come_from_fields_of_the_pod() {
        let cases = [
            ("metadata.uid", "u1"),
            ("metadata.labels['app']", "web"),
            ("metadata.annotations['a.b/c']", "note"),
            ("metadata.labels['none']", ""),
            ("status.hostIP", "172.30.0.11"),
            ("status.podIPs", "10.0.0.5"),
            ("spec.nodeName", "node1"),
        ];
        for (path, expected) in cases {
            let source = json!({"fieldRef": {"fieldPath": path}});
            let env = json!([{"name": "X", "valueFrom": source}]);
            let launch = built(json!({"name": "web", "command": ["x"], "env": env})).unwrap();
            assert_eq!(variable(&launch, "X").as_deref(), Some(expected), "{path}");
        }
    }

    #[test]
    fn what_the_lab_cannot_serve_is_refused_by_name() {
        let secret =
            json!([{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        let field = json!([{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]);
        let mounts = json!([{"name": "data", "mountPath": "/data"}]);
        let cases = [
            (json!({"name": "web", "image": "nginx"}), "container web has no command"),
            (json!({"name": "web", "args": ["x"]}), "has no command"),
            (json!({"name": "web", "command": ["x"], "volumeMounts": mounts}), "volume data"),
            (json!({"name": "web", "command": ["x"], "env": secret}), "takes X from something"),
            (json!({"name": "web", "command": ["x"], "env": field}), "\"spec.x\""),
            (json!({"name": "web", "command": ["x"], "envFrom": [{"prefix": "a"}]}), "envFrom"),
        ];
        for (container, expected) in cases {
            let said = built(container).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
    }
}
