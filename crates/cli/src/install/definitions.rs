//! Definitions of kinds that are not of our group. A cluster may have them of somebody else, and
//! then they are that one's: never changed, and never deleted.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use atoll_api::{GROUP, marks};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt};

/// The names of those of our definitions that the cluster has of somebody else.
pub(super) async fn of_others(client: &Client) -> Result<BTreeSet<String>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut foreign = BTreeSet::new();
    for wanted in atoll_api::crds().iter().filter(|crd| crd.spec.group != GROUP) {
        let name = wanted.name_any();
        let found = api.get_opt(&name).await.with_context(|| format!("cannot read {name}"))?;
        foreign.extend(found.filter(|found| !is_ours(found)).map(|found| found.name_any()));
    }
    Ok(foreign)
}

/// Refuses a cluster whose own definition does not serve what we read.
pub(super) async fn check(client: &Client, foreign: &BTreeSet<String>) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let wanted = atoll_api::crds();
    for wanted in wanted.iter().filter(|crd| foreign.contains(&crd.name_any())) {
        serves(&api.get(&wanted.name_any()).await?, wanted)?;
    }
    Ok(())
}

fn serves(found: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> Result<()> {
    let served = found.spec.versions.iter().filter(|version| version.served);
    let served: Vec<&str> = served.map(|version| version.name.as_str()).collect();
    for version in &wanted.spec.versions {
        ensure!(
            served.contains(&version.name.as_str()),
            "the cluster has {} of somebody else, which serves {}, and Atoll reads {}: serve that \
             version too, or delete the definition, and Atoll brings its own",
            found.name_any(),
            served.join(", "),
            version.name
        );
    }
    Ok(())
}

fn is_ours(found: &CustomResourceDefinition) -> bool {
    found.labels().get(marks::PART_OF).is_some_and(|owner| owner == marks::ATOLL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies() -> CustomResourceDefinition {
        let all = atoll_api::crds();
        all.into_iter().find(|crd| crd.spec.group != GROUP).expect("there is one")
    }

    #[test]
    fn the_definition_that_we_bring_is_known_by_its_mark_and_another_is_not_ours() {
        assert!(is_ours(&policies()));
        let mut other = policies();
        other.metadata.labels = None;
        assert!(!is_ours(&other));
    }

    #[test]
    fn a_definition_that_does_not_serve_what_we_read_is_named_with_what_it_serves() {
        assert!(serves(&policies(), &policies()).is_ok());
        let mut older = policies();
        older.spec.versions[0].name = "v1alpha1".into();
        let said = serves(&older, &policies()).unwrap_err().to_string();
        assert!(said.contains("clusternetworkpolicies.policy.networking.k8s.io"), "{said}");
        assert!(said.contains("serves v1alpha1, and Atoll reads v1alpha2"), "{said}");
        older.spec.versions[0].name = "v1alpha2".into();
        older.spec.versions[0].served = false;
        assert!(serves(&older, &policies()).is_err());
    }
}
