//! What a pod would be told about a name, for people who ask on its behalf.

use anyhow::{Context, Result, anyhow};
use atoll_cni::wire::{NameQuestion, NameReport, NameTry};
use atoll_model::compile::Occupant;
use atoll_zones::{DomainName, Kind, Told, ZoneSet};

use super::Names;

/// With so many dots a stock pod asks for a name as it is, before it tries its search list.
const MANY_DOTS: usize = 5;

impl Names {
    /// What the pod `occupant` would be told.
    pub(crate) fn report(
        &self,
        occupant: &Occupant,
        question: &NameQuestion,
    ) -> Result<NameReport> {
        let network = &occupant.network_name;
        let zones = self.views.zones(network).with_context(|| {
            format!("the names of network {network} have not all been read yet; try again")
        })?;
        let kind: Kind = question.kind.parse().map_err(|error: String| anyhow!(error))?;
        let mut tries = Vec::new();
        for name in candidates(&question.name, &occupant.pod.namespace, zones) {
            let one = attempt(zones, &DomainName::parse(&name)?, kind);
            let is_answer = !one.records.is_empty();
            tries.push(one);
            if is_answer {
                break;
            }
        }
        Ok(NameReport { network: network.clone(), tries })
    }
}

/// The whole names that a stock pod asks for in turn.
fn candidates(name: &str, namespace: &str, zones: &ZoneSet) -> Vec<String> {
    if name.ends_with('.') {
        return vec![name.to_owned()];
    }
    let zone = &zones.settings().zone;
    let searches = [format!("{namespace}.svc.{zone}"), format!("svc.{zone}"), zone.to_string()];
    let mut all: Vec<String> = searches.iter().map(|search| format!("{name}.{search}")).collect();
    let at = if name.matches('.').count() >= MANY_DOTS { 0 } else { all.len() };
    all.insert(at, format!("{name}."));
    all
}

fn attempt(zones: &ZoneSet, name: &DomainName, kind: Kind) -> NameTry {
    let (outcome, records) = match zones.tell(name, kind) {
        Told::Answer(records) => ("the network has it", records),
        Told::NoData => ("the name exists, with nothing of this type", vec![]),
        Told::NoName => ("no such name in this network", vec![]),
        Told::Outside => ("not of this network: asked outside, or refused", vec![]),
    };
    NameTry { name: name.to_string(), outcome: outcome.to_owned(), records }
}
