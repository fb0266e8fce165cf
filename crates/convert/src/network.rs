//! A seed's `Network`: it gets its tenant into its name, a type, and a range.

use atoll_types::{Cidr, Label, NetworkName};
use serde_json::Value;

use crate::finding::{Findings, Wrong};
use crate::owner::{self, Owner, Settings, not_text};

/// What becomes of a seed's `Network`.
pub(crate) const API_VERSION: &str = "atoll.dev/v1alpha1";

/// The only type whose networks need ranges.
const VPC: &str = "vpc";

/// Both spellings of the VPC's name.
const VPC_IDS: [&str; 2] = ["vpcID", "vpc-id"];

pub(crate) fn examine(network: &Value, settings: &Settings) -> Result<Findings, Wrong> {
    let mut findings = Findings::default();
    check_fields(network)?;
    findings.set(&["apiVersion"], API_VERSION);
    let name = own(network, settings, &mut findings)?;
    findings.set(&["metadata", "name"], name.to_string());
    findings.set(&["spec", "tenant"], name.tenant.to_string());
    let type_ = give_type(&network["spec"], &mut findings)?;
    give_vpc(&network["spec"], &mut findings)?;
    if check_ranges(&network["spec"])? == 0 && type_ == VPC {
        give_ranges(&name, settings, &mut findings);
    }
    Ok(findings)
}

/// A field that is not understood must not be lost without a word.
fn check_fields(network: &Value) -> Result<(), Wrong> {
    let known = |map: &Value, known: &[&str]| {
        let fields = map.as_object().into_iter().flat_map(|map| map.keys());
        fields.into_iter().find(|field| !known.contains(&field.as_str())).cloned()
    };
    if let Some(field) = known(network, &["apiVersion", "kind", "metadata", "spec", "status"]) {
        return Err(Wrong::new(field, "no such field in a Network"));
    }
    let spec = &network["spec"];
    if !spec.is_null() && !spec.is_object() {
        return Err(Wrong::new("spec", "must hold fields, such as type: vpc"));
    }
    match known(spec, &["type", "vpcID", "vpc-id", "cidrs"]) {
        Some(field) => Err(Wrong::new(
            format!("spec.{field}"),
            "no such field in a Network; there are type, vpcID (or vpc-id) and cidrs",
        )),
        None => Ok(()),
    }
}

/// The full name, from what the network is called and whose it is.
fn own(
    network: &Value,
    settings: &Settings,
    findings: &mut Findings,
) -> Result<NetworkName, Wrong> {
    let metadata = &network["metadata"];
    let written = match &metadata["name"] {
        Value::String(name) => name.as_str(),
        Value::Null => return Err(Wrong::new("metadata.name", "is missing")),
        other => return Err(Wrong::new("metadata.name", not_text(other))),
    };
    let namespace = metadata["namespace"].as_str();
    if namespace.is_some() {
        findings.remove(&["metadata", "namespace"]);
    }
    if !metadata["tenant"].is_null() {
        findings.remove(&["metadata", "tenant"]);
    }
    let named = owner::named_tenant(metadata, "metadata.tenant")?;
    if let Ok(full) = written.parse::<NetworkName>() {
        return agreed(full, named);
    }
    let called =
        written.parse::<Label>().map_err(|error| Wrong::new("metadata.name", error.to_string()))?;
    let owner = match named {
        Some(tenant) => Owner { tenant, because: None },
        None => settings.unnamed_owner(namespace),
    };
    let name = NetworkName::new(owner.tenant, called);
    let because = owner.because.map_or(String::new(), |because| format!(" ({because})"));
    findings.note(format!("becomes {name}, of tenant {}{because}", name.tenant));
    Ok(name)
}

/// A name that holds its tenant already must hold the one that the manifest names.
fn agreed(full: NetworkName, named: Option<Label>) -> Result<NetworkName, Wrong> {
    match named {
        Some(tenant) if tenant != full.tenant => {
            let why =
                format!("{full} is a network of {}, but metadata.tenant is {tenant}", full.tenant);
            Err(Wrong::new("metadata.name", why))
        }
        _ => Ok(full),
    }
}

fn give_type(spec: &Value, findings: &mut Findings) -> Result<String, Wrong> {
    match &spec["type"] {
        Value::String(type_) if !type_.is_empty() => Ok(type_.clone()),
        Value::Null => {
            findings.set(&["spec", "type"], VPC);
            findings.note("names no type: type vpc");
            Ok(VPC.to_owned())
        }
        other => {
            Err(Wrong::new("spec.type", format!("{other} is no type; there are flat and vpc")))
        }
    }
}

fn give_vpc(spec: &Value, findings: &mut Findings) -> Result<(), Wrong> {
    let [ours, theirs] = VPC_IDS.map(|field| owner::name(&spec[field], &format!("spec.{field}")));
    let (ours, theirs) = (ours?, theirs?);
    if let (Some(one), Some(other)) = (&ours, &theirs)
        && one != other
    {
        let why = format!("is {other}, but spec.vpcID is {one}; leave one of them out");
        return Err(Wrong::new("spec.vpc-id", why));
    }
    match (ours, theirs) {
        (None, Some(_)) => {
            findings.remove(&["spec", "vpcID"]);
            findings.rename(&["spec", "vpc-id"], "vpcID");
        }
        _ => findings.remove(&["spec", "vpc-id"]),
    }
    Ok(())
}

/// How many ranges the network names; each must be one.
fn check_ranges(spec: &Value) -> Result<usize, Wrong> {
    let given = match &spec["cidrs"] {
        Value::Null => return Ok(0),
        Value::Array(ranges) => ranges,
        other => return Err(Wrong::new("spec.cidrs", format!("{other} is no list of ranges"))),
    };
    for (position, range) in given.iter().enumerate() {
        let field = format!("spec.cidrs[{position}]");
        let text = range.as_str().ok_or_else(|| Wrong::new(&field, "must be a range"))?;
        text.parse::<Cidr>().map_err(|error| Wrong::new(&field, error.to_string()))?;
    }
    Ok(given.len())
}

/// A network that exists keeps its ranges: none can be taken away from it.
fn give_ranges(name: &NetworkName, settings: &Settings, findings: &mut Findings) {
    let kept = settings.networks.get(&name.to_string()).filter(|ranges| !ranges.is_empty());
    if let Some(ranges) = kept {
        findings.set(&["spec", "cidrs"], ranges.clone());
        return;
    }
    let default = settings.default_cidr;
    findings.set(&["spec", "cidrs"], vec![default.to_string()]);
    findings.note(format!("names no addresses: cidrs {default}"));
}
