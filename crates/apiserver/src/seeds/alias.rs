//! The seeds' `Network`, of `v1` and of `arktos.futurewei.com/v1`: other views of our networks.
//!
//! A network of ours is called `<tenant>.<network>`, a seed's just `<network>`, and a path says no
//! tenant. The rule: of `v1`, which knows no tenants, a short name means the network of tenant
//! `default`; of Arktos it means the network of the one tenant that has such. What kubectl applies
//! goes where the applied manifest says, and nothing is deleted by a short name of Arktos.

use super::{LAST_APPLIED, apply, settings};
use crate::failure::Failure;
use crate::object;
use crate::registry::{Resource, from_definition};
use crate::store::Store;
use crate::verbs::Target;
use atoll_convert::{DEFAULT_TENANT, Place, SeedVersion, examine};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

/// The definition whose objects have these views.
const NETWORKS: &str = "networks.atoll.dev";

const MERGE: &str = "application/merge-patch+json";

/// Views of a definition's objects: none, but of networks.
pub(crate) fn aliases(crd: &Value) -> Vec<Resource> {
    if object::name(crd) != NETWORKS {
        return Vec::new();
    }
    SeedVersion::ALL.iter().filter_map(|version| alias(crd, *version)).collect()
}

/// Whether a group is only there for views. Such come last, so that `networks` means ours.
pub(crate) fn is_seed_group(group: &str) -> bool {
    names(SeedVersion::Arktos).0 == group
}

/// Group, plural and singular. In the core group the plural is not `networks`: to kubectl that
/// would be what `kubectl get networks` means.
fn names(version: SeedVersion) -> (&'static str, &'static str, &'static str) {
    match version {
        SeedVersion::Core => ("", "corenetworks", "corenetwork"),
        SeedVersion::Arktos => ("arktos.futurewei.com", "networks", "network"),
    }
}

fn alias(crd: &Value, version: SeedVersion) -> Option<Resource> {
    let (group, plural, singular) = names(version);
    let mut crd = crd.clone();
    crd["spec"]["group"] = group.into();
    crd["spec"]["names"] = json!({"plural": plural, "singular": singular, "kind": "Network", "listKind": "NetworkList"});
    let served = crd["spec"]["versions"].as_array_mut()?;
    served.retain(|version| version["storage"] == true);
    let served = served.first_mut()?;
    served["name"] = "v1".into();
    for list in ["additionalPrinterColumns", "selectableFields"] {
        let fields = served[list].as_array_mut().into_iter().flatten();
        fields.for_each(show_tenant_in_metadata);
    }
    let resource = from_definition(&crd).ok()?;
    Some(Resource { collection: NETWORKS.into(), seed: Some(version), ..resource })
}

fn show_tenant_in_metadata(field: &mut Value) {
    if field["jsonPath"] == ".spec.tenant" {
        field["jsonPath"] = ".metadata.tenant".into();
    }
}

/// The plural that a path means: `/api/v1/networks` is served, though not announced.
pub(crate) fn announced<'a>(group: &str, plural: &'a str) -> &'a str {
    if group.is_empty() && plural == "networks" { names(SeedVersion::Core).1 } else { plural }
}

/// The target with the name that the network is kept under.
pub(crate) fn named(store: &Store, target: Target, method: &Method) -> Result<Target, Failure> {
    let Some(version) = target.resource.seed else { return Ok(target) };
    if target.name.is_empty() || target.name.contains('.') {
        return Ok(target);
    }
    if version == SeedVersion::Arktos && method == Method::DELETE {
        return Err(Failure::bad_request(format!(
            "networks of several tenants may be called {0}: delete <tenant>.{0}",
            target.name
        )));
    }
    let full = match version {
        SeedVersion::Core => None,
        SeedVersion::Arktos => only_one(store, &target.name),
    };
    let full = full.unwrap_or_else(|| format!("{DEFAULT_TENANT}.{}", target.name));
    Ok(target.named(&full))
}

/// The network with this short name, if one tenant alone has such.
fn only_one(store: &Store, short: &str) -> Option<String> {
    let state = store.read();
    let is_called = |name: &&str| name.split_once('.').is_some_and(|(_, network)| network == short);
    let mut found =
        state.list(NETWORKS, "").map(|stored| stored.key.name.as_str()).filter(is_called);
    found.next().filter(|_| found.next().is_none()).map(str::to_owned)
}

/// A request, or what it is turned into.
pub(crate) struct Redirected {
    pub(crate) target: Target,
    pub(crate) method: Method,
    pub(crate) media: String,
    pub(crate) body: Bytes,
}

/// Sends what is applied to a seed's network where its manifest says. The path cannot: kubectl asks
/// for the short name first, gets nothing or another tenant's network, and goes on from there.
pub(crate) fn redirect(store: &Store, request: Redirected) -> Redirected {
    if request.target.resource.seed.is_none() {
        return request;
    }
    let Some(manifest) = applied(&request) else { return request };
    let Some(full) = full_name(&manifest, &request.target) else { return request };
    let live = store.read().get(&request.target.key_of(&full)).cloned();
    if request.method == Method::PATCH && request.media != MERGE {
        let ranges = live.map(|live| live.value["spec"]["cidrs"].clone());
        let body = keeping_ranges(manifest, ranges).to_string().into();
        return Redirected { target: request.target.named(&full), body, ..request };
    }
    if request.method == Method::PATCH && request.target.name == full {
        return request;
    }
    let (name, method, media) = match live {
        Some(_) => (full.as_str(), Method::PATCH, MERGE),
        None => ("", Method::POST, "application/json"),
    };
    let target = request.target.named(name);
    Redirected { target, method, media: media.to_owned(), body: manifest.to_string().into() }
}

/// An applied configuration that names no ranges means those that the network has.
fn keeping_ranges(mut manifest: Value, ranges: Option<Value>) -> Value {
    if let Some(ranges) = ranges {
        object::set_default(&mut manifest, "spec.cidrs", ranges);
    }
    manifest
}

/// The whole manifest of an apply: the body, or what kubectl notes in it.
fn applied(request: &Redirected) -> Option<Value> {
    let body: Value = serde_yaml_ng::from_slice(&request.body).ok()?;
    let noted =
        object::metadata(&body).get("annotations").and_then(|all| all[LAST_APPLIED].as_str());
    match (&request.method, request.media.as_str()) {
        (&Method::POST, _) => noted.is_some().then(|| body.clone()),
        (&Method::PATCH, MERGE) => {
            let mut manifest: Value = serde_json::from_str(noted?).ok()?;
            object::set_meta(&mut manifest, "annotations", json!({LAST_APPLIED: noted?}));
            Some(manifest)
        }
        (&Method::PATCH, media) => media.starts_with("application/apply-patch").then_some(body),
        _ => None,
    }
}

/// The name under which a manifest's network is kept.
fn full_name(manifest: &Value, target: &Target) -> Option<String> {
    let findings = examine(manifest, &Place::of(manifest), &settings(target)).ok()?;
    let mut ours = manifest.clone();
    apply(&findings, &mut ours);
    Some(object::name(&ours).to_owned())
}
