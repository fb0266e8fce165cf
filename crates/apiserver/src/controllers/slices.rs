//! The EndpointSlices of a Service with a selector: its pods by address family and by the ports
//! they answer on. Slices that others made, and services without selector, are left alone.

use super::claim::reference_to;
use super::{Decision, SLICES, Step, key, pods};
use crate::object::{self, at, text};
use crate::selector::Selector;
use crate::store::Stored;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Endpoints in one slice at most.
const MOST: usize = 100;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const ZONE: &str = "topology.kubernetes.io/zone";
const HEADLESS: &str = "service.kubernetes.io/headless";

/// Whether a change of a node may change a slice.
pub(super) fn concerns(before: Option<&Value>, after: Option<&Value>) -> bool {
    let zone = |node: &Value| node["metadata"]["labels"][ZONE].clone();
    before.map(zone) != after.map(zone)
}

/// What slices say in common: the address family and the ports, as text to be compared.
type Group = (String, String);

/// The selector of a service whose slices are ours to write.
pub(super) fn selector(service: &Value) -> Option<Selector> {
    let selector = Selector::of_labels(&service["spec"]["selector"]);
    let ours = !selector.is_empty() && text(service, "spec.type") != "ExternalName";
    ours.then_some(selector)
}

/// What is due for a service, seen beside the pods and slices of its namespace. `node` finds a
/// node: a pod on one that does not exist is an endpoint only of services that publish everything.
pub(super) fn decide<'a>(
    service: &Value,
    candidates: impl IntoIterator<Item = &'a Value>,
    slices: impl IntoIterator<Item = &'a Value>,
    node: impl Fn(&str) -> Option<Arc<Stored>>,
) -> Decision {
    let Some(selector) = selector(service).filter(|_| !object::is_terminating(service)) else {
        return Decision::default();
    };
    let selected = candidates.into_iter().filter(|pod| selector.matches(pod));
    let mut wanted = groups(service, selected, node);
    let mut present: BTreeMap<Group, Vec<&Value>> = BTreeMap::new();
    for slice in slices.into_iter().filter(|slice| is_ours(service, slice)) {
        wanted.entry(group_of(slice)).or_default();
        present.entry(group_of(slice)).or_default().push(slice);
    }
    let served = keep_one_for_each_family(service, &mut wanted);
    let steps = wanted.into_iter().flat_map(|(group, endpoints)| {
        let present = present.remove(&group).unwrap_or_default();
        arrange(endpoints, present, served.contains(&group))
            .into_iter()
            .filter_map(|place| place.step(service, &group))
            .collect::<Vec<_>>()
    });
    Decision { steps: steps.collect(), again: false }
}

fn is_ours(service: &Value, slice: &Value) -> bool {
    let labels = &slice["metadata"]["labels"];
    labels[SERVICE_NAME] == *object::name(service) && labels[MANAGED_BY] == MANAGER
}

fn group_of(slice: &Value) -> Group {
    let ports = slice["ports"].as_array().cloned().unwrap_or_default();
    (text(slice, "addressType").to_owned(), Value::from(ports).to_string())
}

fn families(service: &Value) -> Vec<&str> {
    let families = at(service, "spec.ipFamilies").and_then(Value::as_array);
    let named: Vec<&str> = families.into_iter().flatten().filter_map(Value::as_str).collect();
    if named.is_empty() { vec!["IPv4"] } else { named }
}

/// The groups that stay although they are empty: a family without endpoints has one empty slice.
fn keep_one_for_each_family(
    service: &Value,
    wanted: &mut BTreeMap<Group, Vec<Value>>,
) -> Vec<Group> {
    let mut kept = Vec::new();
    for family in families(service) {
        let mut of_family = wanted.iter().filter(|((found, _), _)| found == family);
        if of_family.all(|(_, endpoints)| endpoints.is_empty()) {
            let empty = (family.to_owned(), "[]".to_owned());
            wanted.entry(empty.clone()).or_default();
            kept.push(empty);
        }
    }
    kept
}

fn groups<'a>(
    service: &Value,
    selected: impl Iterator<Item = &'a Value>,
    node: impl Fn(&str) -> Option<Arc<Stored>>,
) -> BTreeMap<Group, Vec<Value>> {
    let mut groups: BTreeMap<Group, Vec<Value>> = BTreeMap::new();
    for pod in selected.filter(|pod| !pods::has_ended(pod)) {
        let host = text(pod, "spec.nodeName");
        let home = node(host);
        if !host.is_empty() && home.is_none() && !publishes_all(service) {
            continue;
        }
        let ports = Value::from(ports(service, pod)).to_string();
        for family in families(service) {
            let Some(address) = address(pod, family) else { continue };
            let group = (family.to_owned(), ports.clone());
            groups.entry(group).or_default().push(endpoint(service, pod, address, home.as_deref()));
        }
    }
    groups
}

fn address<'a>(pod: &'a Value, family: &str) -> Option<&'a str> {
    let addresses = at(pod, "status.podIPs")?.as_array()?;
    addresses.iter().filter_map(|each| each["ip"].as_str()).find(|text| {
        let parsed = text.parse::<IpAddr>();
        parsed.is_ok_and(|ip| ip.is_ipv6() == (family == "IPv6"))
    })
}

fn ports(service: &Value, pod: &Value) -> Vec<Value> {
    let ports = at(service, "spec.ports").and_then(Value::as_array);
    ports.into_iter().flatten().filter_map(|port| slice_port(port, pod)).collect()
}

/// A port as the pod answers on it; none where the pod has no port of that name.
fn slice_port(port: &Value, pod: &Value) -> Option<Value> {
    let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
    let number = match &port["targetPort"] {
        Value::String(name) => container_port(pod, name, protocol)?,
        Value::Number(number) => number.as_i64()?,
        _ => port["port"].as_i64()?,
    };
    let mut made = json!({"name": text(port, "name"), "port": number, "protocol": protocol});
    if let Some(application) = port.get("appProtocol") {
        made["appProtocol"] = application.clone();
    }
    Some(made)
}

fn container_port(pod: &Value, name: &str, protocol: &str) -> Option<i64> {
    let containers = at(pod, "spec.containers")?.as_array()?;
    let ports = containers.iter().filter_map(|each| each["ports"].as_array()).flatten();
    let mut named = ports.filter(|port| port["name"] == name);
    let found = named.find(|port| port["protocol"].as_str().unwrap_or("TCP") == protocol)?;
    found["containerPort"].as_i64()
}

fn publishes_all(service: &Value) -> bool {
    service["spec"]["publishNotReadyAddresses"] == true
}

fn endpoint(service: &Value, pod: &Value, address: &str, home: Option<&Stored>) -> Value {
    let (serving, terminating) = (pods::is_ready(pod), object::is_terminating(pod));
    let ready = publishes_all(service) || serving && !terminating;
    let mut endpoint = json!({
        "addresses": [address],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": {"kind": "Pod", "namespace": object::namespace(pod),
            "name": object::name(pod), "uid": object::uid(pod)},
    });
    let host = text(pod, "spec.hostname");
    if !host.is_empty() && text(pod, "spec.subdomain") == object::name(service) {
        endpoint["hostname"] = host.into();
    }
    let node = text(pod, "spec.nodeName");
    if !node.is_empty() {
        endpoint["nodeName"] = node.into();
    }
    if let Some(zone) = home.and_then(|home| home.value["metadata"]["labels"][ZONE].as_str()) {
        endpoint["zone"] = zone.into();
    }
    endpoint
}

/// What a slice is to hold; none where it is to go.
struct Place<'a> {
    present: Option<&'a Value>,
    endpoints: Option<Vec<Value>>,
}

/// Spreads endpoints over the slices that are there and over new ones. An endpoint stays where it
/// is, so that a change of one touches one slice.
fn arrange<'a>(
    mut endpoints: Vec<Value>,
    present: Vec<&'a Value>,
    keeps_one: bool,
) -> Vec<Place<'a>> {
    let mut places: Vec<(Option<&Value>, Vec<Value>)> = Vec::new();
    for slice in present {
        let before: Vec<_> = slice["endpoints"].as_array().into_iter().flatten().collect();
        let stays = |each: &mut Value| before.iter().any(|old| identity(old) == identity(each));
        places.push((Some(slice), endpoints.extract_if(.., stays).collect()));
    }
    for (_, held) in &mut places {
        let room = MOST.saturating_sub(held.len()).min(endpoints.len());
        held.extend(endpoints.drain(..room));
    }
    places.extend(endpoints.chunks(MOST).map(|chunk| (None, chunk.to_vec())));
    let mut spare = keeps_one;
    if keeps_one && places.is_empty() {
        places.push((None, Vec::new()));
    }
    let settle = places.into_iter().map(|(present, held)| {
        let stays = !held.is_empty() || std::mem::take(&mut spare);
        Place { present, endpoints: stays.then_some(held) }
    });
    settle.collect()
}

fn identity(endpoint: &Value) -> (&Value, &Value) {
    (&endpoint["targetRef"]["uid"], &endpoint["addresses"])
}

impl Place<'_> {
    fn step(self, service: &Value, group: &Group) -> Option<Step> {
        match (self.present, self.endpoints) {
            (Some(slice), None) => Some(Step::Delete(key(SLICES, slice))),
            (None, None) => None,
            (None, Some(endpoints)) => {
                let slice = dressed(&new_slice(service), service, group, endpoints);
                Some(Step::Create(SLICES, slice))
            }
            (Some(slice), Some(endpoints)) => {
                let fresh = dressed(slice, service, group, endpoints);
                (fresh != *slice).then(|| Step::Update(key(SLICES, slice), fresh))
            }
        }
    }
}

fn new_slice(service: &Value) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "generateName": format!("{}-", object::name(service)),
            "namespace": object::namespace(service),
            "ownerReferences": [reference_to(service)],
        },
    })
}

/// The slice with all that follows from the service and its pods.
fn dressed(slice: &Value, service: &Value, group: &Group, endpoints: Vec<Value>) -> Value {
    let mut dressed = slice.clone();
    object::set_meta(&mut dressed, "labels", labels(service));
    dressed["addressType"] = group.0.clone().into();
    dressed["ports"] = serde_json::from_str(&group.1).unwrap_or_else(|_| json!([]));
    dressed["endpoints"] = endpoints.into();
    dressed
}

fn labels(service: &Value) -> Map<String, Value> {
    let own = object::metadata(service).get("labels").and_then(Value::as_object);
    let mut labels = own.cloned().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), object::name(service).into());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.into());
    if text(service, "spec.clusterIP") == "None" {
        labels.insert(HEADLESS.to_owned(), "".into());
    } else {
        labels.remove(HEADLESS);
    }
    labels
}

#[cfg(test)]
mod tests;
