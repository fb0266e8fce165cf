//! Which rules an object is looked at with, by its version and kind.

use serde_json::Value;

use crate::finding::{Findings, Place, Refusal, Wrong};
use crate::owner::Settings;
use crate::seed_view::SeedVersion;
use crate::{namespace, network, pod};

/// What kind of thing an object is to us.
enum Subject {
    Network,
    Namespace,
    /// A pod, or a template of pods at this path.
    Pods(&'static [&'static str]),
    Other,
}

/// Looks at one object, which is no list, and tells what makes it ours.
///
/// # Errors
/// When it cannot be meant as it is written.
pub fn examine(object: &Value, place: &Place, settings: &Settings) -> Result<Findings, Refusal> {
    look(object, settings).map_err(|wrong| wrong.at(place.clone()))
}

fn look(object: &Value, settings: &Settings) -> Result<Findings, Wrong> {
    let (version, mut findings) = version(object)?;
    match subject(version, object["kind"].as_str().unwrap_or_default()) {
        Subject::Network => merge(&mut findings, network::examine(object, settings)?),
        Subject::Namespace => merge(&mut findings, namespace::examine(object, settings)?),
        Subject::Pods(path) => {
            let template = path.iter().fold(object, |value, step| &value[*step]);
            pod::examine(template, path, &mut findings)?;
            let namespace = namespace_of(object).or(settings.namespace.as_deref());
            drop_tenants(object, template, path, namespace, settings, &mut findings)?;
        }
        Subject::Other => {
            let namespace = namespace_of(object);
            let metadata = &object["metadata"];
            settings.drop_tenant(metadata, namespace, &["metadata", "tenant"], &mut findings)?;
        }
    }
    Ok(findings)
}

fn merge(findings: &mut Findings, more: Findings) {
    findings.edits.extend(more.edits);
    findings.notes.extend(more.notes);
}

fn namespace_of(object: &Value) -> Option<&str> {
    object["metadata"]["namespace"].as_str().filter(|namespace| !namespace.is_empty())
}

/// The tenant of a pod or workload, and the one that its template may repeat.
fn drop_tenants(
    object: &Value,
    template: &Value,
    path: &'static [&'static str],
    namespace: Option<&str>,
    settings: &Settings,
    findings: &mut Findings,
) -> Result<(), Wrong> {
    let mut drop =
        |metadata, path: &[&'static str]| settings.drop_tenant(metadata, namespace, path, findings);
    drop(&object["metadata"], &["metadata", "tenant"])?;
    if path.is_empty() {
        return Ok(());
    }
    drop(&template["metadata"], &[path, &["metadata", "tenant"]].concat())
}

/// The object's version. One of the seeds spells the field without its first letter.
fn version(object: &Value) -> Result<(&str, Findings), Wrong> {
    let mut findings = Findings::default();
    if let Some(version) = object["apiVersion"].as_str().filter(|version| !version.is_empty()) {
        return Ok((version, findings));
    }
    let Some(version) = object["piVersion"].as_str() else {
        return Err(Wrong::new("apiVersion", "is missing"));
    };
    findings.remove(&["apiVersion"]);
    findings.rename(&["piVersion"], "apiVersion");
    findings.note("piVersion is read as apiVersion");
    Ok((version, findings))
}

fn subject(version: &str, kind: &str) -> Subject {
    match (version, kind) {
        (version, "Network") if SeedVersion::of(version).is_some() => Subject::Network,
        ("v1", "Namespace") => Subject::Namespace,
        ("v1", "Pod") => Subject::Pods(&[]),
        ("v1", "PodTemplate") => Subject::Pods(&["template"]),
        ("v1", "ReplicationController")
        | ("apps/v1", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch/v1", "Job") => Subject::Pods(&["spec", "template"]),
        ("batch/v1", "CronJob") => Subject::Pods(&["spec", "jobTemplate", "spec", "template"]),
        _ => Subject::Other,
    }
}
