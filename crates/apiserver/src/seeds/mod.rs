//! Manifests of the designs that Atoll grew from, taken as they are: translated on the way in by
//! `atoll-convert`, stored as ours. Pods, namespaces and workloads are read back as ours; networks
//! also as the seeds write them (see `alias`). What was decided is told as warnings.

mod alias;
mod spare;

pub(crate) use alias::{Redirected, aliases, announced, is_seed_group, named, redirect};
pub(crate) use spare::spare;

use crate::failure::Failure;
use crate::object;
use crate::verbs::Target;
use atoll_api::marks;
use atoll_convert::{Findings, Place, Settings, examine};
use serde_json::Value;
use std::collections::BTreeMap;

/// Where kubectl keeps the manifest it applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Makes an object ours; returns what was decided.
pub(crate) fn translate(target: &Target, value: &mut Value) -> Result<Vec<String>, Failure> {
    let settings = settings(target);
    let findings = examine(value, &Place::of(value), &settings)
        .map_err(|refusal| Failure::bad_request(refusal.to_string()))?;
    if findings.edits.is_empty() {
        return Ok(findings.notes);
    }
    apply(&findings, value);
    if target.resource.seed.is_none() {
        translate_last_applied(value, settings);
    }
    Ok(findings.notes)
}

fn apply(findings: &Findings, value: &mut Value) {
    findings.edits.iter().for_each(|edit| edit.apply(value));
}

/// kubectl compares the manifest it applied last with what it applies next. Only when it finds
/// there what became of the manifest does it take that away again once the manifest is silent.
/// What was guessed is not the manifest's.
fn translate_last_applied(value: &mut Value, mut settings: Settings) {
    settings.adopts_namespaces = false;
    let annotations = object::metadata(value).get("annotations");
    let Some(text) = annotations.and_then(|all| all[LAST_APPLIED].as_str()) else { return };
    let Ok(mut applied) = serde_json::from_str(text) else { return };
    if let Ok(findings) = examine(&applied, &Place::of(&applied), &settings) {
        apply(&findings, &mut applied);
        value["metadata"]["annotations"][LAST_APPLIED] = applied.to_string().into();
    }
}

/// What is known beside the object: its namespace, and whose that is.
fn settings(target: &Target) -> Settings {
    let tenant = |namespace: &Value| {
        let labels = object::metadata(namespace).get("labels");
        labels.and_then(|labels| labels[marks::TENANT].as_str()).map(str::to_owned)
    };
    let known = target.home.as_ref();
    let known = known.map(|home| (target.namespace.clone(), tenant(&home.value)));
    let namespace = Some(target.namespace.clone()).filter(|namespace| !namespace.is_empty());
    Settings { namespace, namespaces: BTreeMap::from_iter(known), ..Settings::default() }
}
