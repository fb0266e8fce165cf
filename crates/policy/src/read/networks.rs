//! The annotation that aims a policy at the interfaces of chosen networks.

use std::collections::BTreeSet;

use atoll_api::marks::POLICY_NETWORKS;
use atoll_types::Label;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::report::{Instead, Reader, Reason};

/// The networks that a policy is aimed at, or `Err` where that cannot be read.
pub(super) fn aimed_at(
    metadata: &ObjectMeta,
    reader: &mut Reader,
) -> Result<Option<BTreeSet<Label>>, ()> {
    let annotation = metadata.annotations.iter().flatten().find(|(key, _)| *key == POLICY_NETWORKS);
    let Some((_, text)) = annotation else { return Ok(None) };
    let names: Result<BTreeSet<Label>, _> = serde_json::from_str(text);
    names.map(Some).map_err(|error| {
        let field = format!("metadata.annotations[{POLICY_NETWORKS}]");
        let message = format!("{text:?} is not a list like [\"default\"]: {error}");
        reader.note((Reason::Networks, Instead::Strictest), &field, message);
    })
}
