//! A seed's namespace: its network and its tenant become labels.

use atoll_api::marks;
use atoll_types::Label;
use serde_json::Value;

use crate::finding::{Findings, Wrong};
use crate::owner::{self, Owner, Settings};

/// Both spellings of the namespace's network.
const NETWORK_FIELDS: [&str; 2] = ["network", "defaultNetwork"];

pub(crate) fn examine(namespace: &Value, settings: &Settings) -> Result<Findings, Wrong> {
    let mut findings = Findings::default();
    give_network(namespace, &mut findings)?;
    give_tenant(namespace, settings, &mut findings)?;
    Ok(findings)
}

/// The tenant of a namespace as its manifest says it, after conversion.
pub(crate) fn tenant(namespace: &Value, settings: &Settings) -> Option<String> {
    let metadata = &namespace["metadata"];
    let label = metadata["labels"][marks::TENANT].as_str();
    let named = label.or_else(|| metadata["tenant"].as_str()).map(str::to_owned);
    named.or_else(|| is_adopted(namespace, settings).map(|owner| owner.tenant.to_string()))
}

fn give_network(namespace: &Value, findings: &mut Findings) -> Result<(), Wrong> {
    let spec = &namespace["spec"];
    let label = &namespace["metadata"]["labels"][marks::NETWORK];
    let mut chosen = owner::name(label, "metadata.labels")?;
    for field in NETWORK_FIELDS.into_iter().filter(|field| spec.get(field).is_some()) {
        let path = format!("spec.{field}");
        findings.remove(&["spec", field]);
        let Some(network) = owner::name(&spec[field], &path)? else { continue };
        match &chosen {
            Some(other) if *other != network => return Err(differs(path, &network, other)),
            Some(_) => {}
            None => {
                let value = network.to_string();
                findings.set(&["metadata", "labels", marks::NETWORK], value);
                chosen = Some(network);
            }
        }
    }
    let ours = |field: &String| NETWORK_FIELDS.contains(&field.as_str());
    if !findings.edits.is_empty() && spec.as_object().is_some_and(|spec| spec.keys().all(ours)) {
        findings.remove(&["spec"]);
    }
    Ok(())
}

fn differs(field: String, network: &Label, other: &Label) -> Wrong {
    Wrong::new(field, format!("is {network}, but the namespace asks for network {other} elsewhere"))
}

fn give_tenant(
    namespace: &Value,
    settings: &Settings,
    findings: &mut Findings,
) -> Result<(), Wrong> {
    const LABEL: [&str; 3] = ["metadata", "labels", marks::TENANT];
    let metadata = &namespace["metadata"];
    let label = owner::name(&metadata["labels"][marks::TENANT], "metadata.labels")?;
    let named = owner::named_tenant(metadata, "metadata.tenant")?;
    if !metadata["tenant"].is_null() {
        findings.remove(&["metadata", "tenant"]);
    }
    match (named, label) {
        (Some(named), Some(label)) if named != label => Err(Wrong::new(
            "metadata.tenant",
            format!("is {named}, but the label {} is {label}", marks::TENANT),
        )),
        (_, Some(_)) => Ok(()),
        (Some(named), None) => {
            findings.set(&LABEL, named.to_string());
            Ok(())
        }
        (None, None) => {
            if let Some(owner) = is_adopted(namespace, settings) {
                let because = owner.because.unwrap_or_default();
                findings.note(format!("belongs to tenant {} ({because})", owner.tenant));
                findings.set(&LABEL, owner.tenant.to_string());
            }
            Ok(())
        }
    }
}

/// The tenant that a namespace gets though it names none: the one asked for, or, when it asks for a
/// network, the one that nameless manifests belong to. Other namespaces stay as they are.
fn is_adopted(namespace: &Value, settings: &Settings) -> Option<Owner> {
    let asks = NETWORK_FIELDS.iter().any(|field| !namespace["spec"][field].is_null());
    let wanted = settings.tenant.is_some() || asks;
    let name = namespace["metadata"]["name"].as_str();
    (settings.adopts_namespaces && wanted).then(|| settings.unnamed_owner(name))
}
