//! A seed's pod, alone or as the template of a workload: what it says of networks becomes a label
//! and annotations.

use std::net::IpAddr;

use atoll_api::marks;
use serde_json::Value;

use crate::finding::{Findings, Wrong};
use crate::owner;

/// What a pod may ask of one interface.
const NIC_FIELDS: [&str; 5] = ["subnet", "ip", "name", "port", "mac"];

/// Looks at the pod, or template, that stands at `root`.
pub(crate) fn examine(
    pod: &Value,
    root: &[&'static str],
    findings: &mut Findings,
) -> Result<(), Wrong> {
    let at = |steps: &[&'static str]| [root, steps].concat();
    let place = |field: &'static str| (at(&["spec", field]), at(&["spec", field]).join("."));
    let (spec, metadata) = (&pod["spec"], &pod["metadata"]);
    let mut moved = |field, written: Option<String>, kind, mark| {
        let (path, shown) = place(field);
        if spec.get(field).is_none() {
            return Ok(());
        }
        findings.remove(&path);
        let Some(written) = written else { return Ok(()) };
        agree(&metadata[kind][mark], &written, &shown, mark)?;
        findings.set(&at(&["metadata", kind, mark]), written);
        Ok(())
    };
    let network = network(pod, &place("network").1)?;
    moved("network", network, "labels", marks::NETWORK)?;
    let nics = nics(&spec["nics"], &place("nics").1)?;
    moved("nics", nics, "annotations", marks::NICS)?;
    let extra = extra_networks(&spec["extraNetworks"], &place("extraNetworks").1)?;
    moved("extraNetworks", extra, "annotations", marks::EXTRA_NETWORKS)
}

/// What is written already must say the same.
fn agree(marked: &Value, written: &str, field: &str, mark: &str) -> Result<(), Wrong> {
    match marked.as_str() {
        Some(other) if !same(other, written) => {
            Err(Wrong::new(field, format!("says {written}, but {mark} says {other}")))
        }
        _ => Ok(()),
    }
}

/// Whether two marks mean the same, also where they are JSON written in two ways.
fn same(one: &str, other: &str) -> bool {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    one == other || parsed(one).is_some_and(|one| Some(one) == parsed(other))
}

fn network(pod: &Value, field: &str) -> Result<Option<String>, Wrong> {
    let network = owner::name(&pod["spec"]["network"], field)?;
    let arktos = pod["metadata"]["labels"][marks::ARKTOS_NETWORK].as_str();
    match (network, arktos) {
        (Some(network), Some(other)) if network.as_str() != other => Err(Wrong::new(
            field,
            format!("is {network}, but the label {} is {other}", marks::ARKTOS_NETWORK),
        )),
        (network, _) => Ok(network.map(|network| network.to_string())),
    }
}

fn nics(nics: &Value, field: &str) -> Result<Option<String>, Wrong> {
    let items = match nics {
        Value::Null => return Ok(None),
        Value::Array(items) => items,
        other => return Err(Wrong::new(field, format!("{other} is no list of interfaces"))),
    };
    for (position, nic) in items.iter().enumerate() {
        check_nic(nic, &format!("{field}[{position}]"))?;
    }
    Ok(Some(nics.to_string()).filter(|_| !items.is_empty()))
}

fn check_nic(nic: &Value, field: &str) -> Result<(), Wrong> {
    let nic =
        nic.as_object().ok_or_else(|| Wrong::new(field, "must be like {subnet: a, ip: b}"))?;
    for (name, value) in nic {
        let field = format!("{field}.{name}");
        if !NIC_FIELDS.contains(&name.as_str()) {
            let why = format!("no such field; an interface has {}", NIC_FIELDS.join(", "));
            return Err(Wrong::new(field, why));
        }
        let text = value.as_str().ok_or_else(|| Wrong::new(&field, "must be text"))?;
        if name == "ip" && !text.is_empty() && text.parse::<IpAddr>().is_err() {
            return Err(Wrong::new(field, format!("{text:?} is not an IP address")));
        }
    }
    Ok(())
}

fn extra_networks(networks: &Value, field: &str) -> Result<Option<String>, Wrong> {
    let items = match networks {
        Value::Null => return Ok(None),
        Value::Array(items) => items,
        other => return Err(Wrong::new(field, format!("{other} is no list of networks"))),
    };
    for (position, item) in items.iter().enumerate() {
        let field = format!("{field}[{position}]");
        owner::name(item, &field)?.ok_or_else(|| Wrong::new(&field, "names no network"))?;
    }
    Ok(Some(networks.to_string()).filter(|_| !items.is_empty()))
}
