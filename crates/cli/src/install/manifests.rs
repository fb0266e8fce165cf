//! The manifests of `deploy/` as objects, with an installation's settings written into them.
//!
//! The rule of this file: with no settings, they are what the files say.

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::{Value, json};

use super::inventory::Inventory;
use super::settings::{HostPort, Options, Settings};

include!(concat!(env!("OUT_DIR"), "/manifests.rs"));

/// Where Atoll lives.
pub(crate) const NAMESPACE: &str = "atoll-system";
/// Where the settings of an installation are kept.
pub(crate) const SETTINGS: &str = "atoll-settings";
/// The field of it that has the version.
pub(crate) const VERSION_FIELD: &str = "version";
/// The field of it that has the settings, as JSON.
pub(crate) const SETTINGS_FIELD: &str = "settings";
/// This version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What has the template for default networks.
const DEFAULT_NETWORK: &str = "atoll-default-network";
/// What leads Prometheus to the controllers.
const METRICS: &str = "atoll-metrics";

/// Everything to apply, in order.
pub(crate) fn installation(settings: &Settings) -> Result<Vec<DynamicObject>> {
    let mut objects = read(INSTALLED)?;
    objects.retain(|object| is_wanted(object, settings));
    for object in &mut objects {
        match (kind(object).as_str(), object.name_any().as_str()) {
            ("DaemonSet", _) => tell(object, settings, &settings.of_agent())?,
            ("Deployment", _) => {
                tell(object, settings, &settings.of_controller())?;
                tell_prometheus(object, settings)?;
            }
            ("ConfigMap", DEFAULT_NETWORK) => tell_template(object, settings),
            ("Service", METRICS) => tell_metrics_port(object, settings),
            _ => {}
        }
    }
    let home = objects.iter().position(|object| kind(object) == "Namespace");
    let after = home.context("the manifests have no namespace")? + 1;
    objects.splice(after..after, beside(settings)?);
    Inventory::of(&objects).write_into(&mut objects)?;
    Ok(objects)
}

/// Whether the settings leave room for an object.
fn is_wanted(object: &DynamicObject, settings: &Settings) -> bool {
    match (kind(object).as_str(), object.name_any().as_str()) {
        ("ConfigMap", DEFAULT_NETWORK) => settings.template() != Some(""),
        ("Service", METRICS) => settings.metrics_port() != Some(None),
        _ => true,
    }
}

fn tell_template(map: &mut DynamicObject, settings: &Settings) {
    if let Some(text) = settings.template() {
        map.data["data"]["network.yaml"] = text.into();
    }
}

fn tell_metrics_port(service: &mut DynamicObject, settings: &Settings) {
    if let Some(Some(port)) = settings.metrics_port() {
        service.data["spec"]["ports"][0]["port"] = port.into();
    }
}

/// Prometheus asks where the pods' annotations say, or not at all.
fn tell_prometheus(workload: &mut DynamicObject, settings: &Settings) -> Result<()> {
    let metadata = workload.data.pointer_mut("/spec/template/metadata");
    let metadata = metadata.and_then(Value::as_object_mut).context("its pods have no metadata")?;
    match settings.metrics_port() {
        None => {}
        Some(None) => drop(metadata.remove("annotations")),
        Some(Some(port)) => {
            metadata["annotations"]["prometheus.io/port"] = port.to_string().into();
        }
    }
    Ok(())
}

/// What `deploy/` does not have: the settings, and where the API is.
fn beside(settings: &Settings) -> Result<Vec<DynamicObject>> {
    let kept = json!({ VERSION_FIELD: VERSION, SETTINGS_FIELD: serde_json::to_string(settings)? });
    let mut objects = vec![config_map(SETTINGS, &kept)?];
    if let Some(HostPort { host, port }) = &settings.api_server {
        let place =
            json!({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port.to_string()});
        objects.push(config_map("atoll-api-server", &place)?);
    }
    Ok(objects)
}

fn config_map(name: &str, data: &Value) -> Result<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": data,
    }))?)
}

/// What takes Atoll off the nodes, with the image that the agents had.
pub(crate) fn remover(image: Option<&str>) -> Result<DynamicObject> {
    let mut remover = read(&[REMOVER])?.into_iter().next().context("there is no remover")?;
    let settings = Settings { image: image.map(ToOwned::to_owned), ..Settings::default() };
    tell(&mut remover, &settings, &[].into())?;
    Ok(remover)
}

fn read(files: &[&str]) -> Result<Vec<DynamicObject>> {
    let documents = files.iter().flat_map(|file| serde_yaml_ng::Deserializer::from_str(file));
    documents.map(|document| Ok(DynamicObject::deserialize(document)?)).collect()
}

/// The kind of an object, as its manifest says.
pub(crate) fn kind(object: &DynamicObject) -> String {
    object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default()
}

/// Whether an object defines a kind.
pub(crate) fn is_definition(object: &DynamicObject) -> bool {
    kind(object) == "CustomResourceDefinition"
}

/// Writes image and options into the one container of a workload.
fn tell(workload: &mut DynamicObject, settings: &Settings, options: &Options) -> Result<()> {
    let container = workload.data.pointer_mut("/spec/template/spec/containers/0");
    let container = container.context("a workload has no container")?;
    if let Some(image) = &settings.image {
        container["image"] = image.as_str().into();
    }
    let arguments = container["args"].as_array_mut().context("a container has no arguments")?;
    options.iter().for_each(|(name, value)| set(arguments, name, value));
    Ok(())
}

/// In the place of the option that is there, or at the end.
fn set(arguments: &mut Vec<Value>, name: &str, value: &str) {
    let option = Value::from(format!("{name}={value}"));
    let is_named = |argument: &&mut Value| {
        let text = argument.as_str().and_then(|text| text.strip_prefix(name));
        text.is_some_and(|rest| rest.starts_with('='))
    };
    match arguments.iter_mut().find(is_named) {
        Some(argument) => *argument = option,
        None => arguments.push(option),
    }
}

#[cfg(test)]
mod tests {
    use atoll_types::InfraMode;

    use super::*;

    fn named(objects: &[DynamicObject], kind_wanted: &str, name: &str) -> DynamicObject {
        let found = objects.iter().find(|it| kind(it) == kind_wanted && it.name_any() == name);
        found.unwrap_or_else(|| panic!("no {kind_wanted} {name}")).clone()
    }

    fn arguments(objects: &[DynamicObject], kind: &str, name: &str) -> Vec<String> {
        let workload = named(objects, kind, name);
        let arguments = &workload.data["spec"]["template"]["spec"]["containers"][0]["args"];
        serde_json::from_value(arguments.clone()).unwrap()
    }

    #[test]
    fn definitions_come_first_then_the_namespace_and_what_is_in_it() {
        let kinds: Vec<_> = installation(&Settings::default()).unwrap().iter().map(kind).collect();
        let first = |wanted: &str| kinds.iter().position(|kind| kind == wanted).unwrap();
        assert_eq!(first("CustomResourceDefinition"), 0);
        assert!(first("Namespace") < first("ConfigMap"));
        assert!(first("ConfigMap") < first("Deployment"));
        assert!(first("Deployment") < first("DaemonSet"));
    }

    #[test]
    fn without_settings_every_object_is_as_its_file_says() {
        let plain = read(INSTALLED).unwrap();
        let mut installed = installation(&Settings::default()).unwrap();
        installed.retain(|object| object.name_any() != SETTINGS);
        assert_eq!(installed, plain);
    }

    #[test]
    fn settings_stand_where_the_programs_read_them() {
        let settings = Settings {
            image: Some("registry.test/atoll:2".into()),
            api_server: Some("192.0.2.10:6443".parse().unwrap()),
            tunnel_port: Some(4790),
            cluster_dns: vec!["10.43.0.10".parse().unwrap(), "fd00::a".parse().unwrap()],
            flat_cidrs: vec!["10.200.0.0/16".parse().unwrap()],
            service_cidrs: vec!["10.97.0.0/16".parse().unwrap()],
            address_rest: Some(0),
            address_keep: Some(60),
            metrics_address: Some("127.0.0.1:9700".into()),
            default_network_template: Some("kind: Network\nspec: {type: flat}\n".into()),
            egress_deny: vec!["10.96.0.0/12".parse().unwrap()],
            agent_metrics_address: Some("127.0.0.1:9965".into()),
            infra_mode: Some(InfraMode::Compatible),
            ..Settings::default()
        };
        let objects = installation(&settings).unwrap();
        let agent = arguments(&objects, "DaemonSet", "atoll-agent");
        assert_eq!(agent.iter().filter(|it| it.starts_with("--cluster-dns=")).count(), 1);
        assert!(agent.contains(&"--cluster-dns=10.43.0.10,fd00::a".to_owned()), "{agent:?}");
        assert!(agent.contains(&"--tunnel-port=4790".to_owned()), "{agent:?}");
        assert!(agent.contains(&"--infra-mode=compatible".to_owned()), "{agent:?}");
        assert!(agent.contains(&"--egress-deny=10.96.0.0/12".to_owned()), "{agent:?}");
        assert!(agent.contains(&"--metrics-address=127.0.0.1:9965".to_owned()), "{agent:?}");
        let controller = arguments(&objects, "Deployment", "atoll-controller");
        for wanted in [
            "--flat-cidrs=10.200.0.0/16",
            "--service-cidrs=10.97.0.0/16",
            "--address-rest=0",
            "--address-keep=60",
            "--metrics-address=127.0.0.1:9700",
            "--dns-image=registry.test/atoll:2",
            "--default-network-template-path=/etc/atoll/default-network/network.yaml",
        ] {
            assert_eq!(controller.iter().filter(|it| *it == wanted).count(), 1, "{controller:?}");
        }
        let template = named(&objects, "ConfigMap", DEFAULT_NETWORK);
        assert_eq!(template.data["data"]["network.yaml"], "kind: Network\nspec: {type: flat}\n");
        assert_eq!(named(&objects, "Service", METRICS).data["spec"]["ports"][0]["port"], 9700);
        let pods = &named(&objects, "Deployment", "atoll-controller").data["spec"]["template"];
        assert_eq!(pods["metadata"]["annotations"]["prometheus.io/port"], "9700");
        let place = named(&objects, "ConfigMap", "atoll-api-server");
        assert_eq!(place.data["data"]["KUBERNETES_SERVICE_HOST"], "192.0.2.10");
        for (kind, name) in [("DaemonSet", "atoll-agent"), ("Deployment", "atoll-controller")] {
            let workload = named(&objects, kind, name);
            let image = &workload.data["spec"]["template"]["spec"]["containers"][0]["image"];
            assert_eq!(image, "registry.test/atoll:2");
        }
    }

    #[test]
    fn the_template_that_is_brought_gives_every_tenant_a_vpc() {
        let objects = installation(&Settings::default()).unwrap();
        let map = named(&objects, "ConfigMap", DEFAULT_NETWORK);
        let text = map.data["data"]["network.yaml"].as_str().unwrap();
        let template = atoll_model::intent::Template::Text(text.into());
        let network = template.render(&"acme".parse().unwrap()).unwrap().unwrap();
        assert_eq!((network.type_.as_str(), network.tenant.as_str()), ("vpc", "acme"));
        assert_eq!(network.cidrs, ["10.0.0.0/16"]);
    }

    #[test]
    fn without_template_and_metrics_nothing_of_them_is_brought() {
        let nothing = || Some(String::new());
        let settings = Settings {
            default_network_template: nothing(),
            metrics_address: nothing(),
            ..Settings::default()
        };
        let objects = installation(&settings).unwrap();
        let controller = arguments(&objects, "Deployment", "atoll-controller");
        for wanted in ["--default-network-template-path=", "--metrics-address="] {
            assert!(controller.contains(&wanted.to_owned()), "{controller:?}");
        }
        let is_left = |name| objects.iter().any(|object| object.name_any() == name);
        assert!(!is_left(DEFAULT_NETWORK) && !is_left(METRICS));
        let pods = &named(&objects, "Deployment", "atoll-controller").data["spec"]["template"];
        assert!(pods["metadata"]["annotations"].is_null());
    }

    #[test]
    fn every_image_is_of_this_version_and_the_remover_takes_the_agents() {
        let image = |object: &DynamicObject| {
            object.data["spec"]["template"]["spec"]["containers"][0]["image"].clone()
        };
        let objects = installation(&Settings::default()).unwrap();
        let ours = format!("atoll.dev/atoll:{VERSION}");
        assert_eq!(image(&named(&objects, "DaemonSet", "atoll-agent")), ours);
        assert_eq!(image(&named(&objects, "Deployment", "atoll-controller")), ours);
        assert_eq!(image(&remover(None).unwrap()), ours);
        assert_eq!(image(&remover(Some("other:1")).unwrap()), "other:1");
    }
}
