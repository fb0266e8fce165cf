use super::*;
use crate::clock;

fn deployment(replicas: i64, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "a", "uid": "d", "generation": 1},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {
                "maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

fn now() -> Moment {
    Moment(clock::at_second(0).unwrap())
}

/// A set as the deployment makes it, with this many pods wanted and available.
fn set(deployment: &Value, replicas: i64, revision: i64) -> Value {
    let mut set = Fleet::new(deployment, Vec::new()).new_set(replicas);
    object::set_meta(&mut set, "uid", format!("set-{revision}"));
    set["metadata"]["annotations"][REVISION] = revision.to_string().into();
    set["status"] = json!({"replicas": replicas, "availableReplicas": replicas});
    set
}

/// The sizes that sets are given by name, and the number of sets that are made.
fn sizes(decision: &Decision) -> Vec<(String, i64)> {
    let sized = decision.steps.iter().filter_map(|step| match step {
        Step::Create(REPLICA_SETS, set) | Step::Update(_, set) if set["kind"] == "ReplicaSet" => {
            Some((object::name(set).to_owned(), number(set, "spec.replicas")))
        }
        _ => None,
    });
    sized.collect()
}

fn status(decision: &Decision) -> &Value {
    match decision.steps.last() {
        Some(Step::Status(_, status)) => status,
        other => panic!("no status at the end: {other:?}"),
    }
}

#[test]
fn a_new_deployment_makes_a_set_whose_pods_only_it_selects() {
    let deployment = deployment(3, "one");
    let decision = decide(&deployment, &[], &[], now());
    let Some(Step::Create(REPLICA_SETS, set)) = decision.steps.first() else { panic!() };
    assert_eq!(set["spec"]["replicas"], 3);
    let hash = &set["metadata"]["labels"][HASH];
    assert_eq!(set["spec"]["selector"]["matchLabels"], json!({"app": "web", HASH: hash}));
    assert_eq!(set["spec"]["template"]["metadata"]["labels"][HASH], *hash);
    assert_eq!(set["metadata"]["annotations"][REVISION], "1");
    assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], "d");
}

#[test]
fn another_number_goes_to_the_set() {
    let set = set(&deployment(3, "one"), 3, 1);
    for wanted in [1, 5] {
        let decision = decide(&deployment(wanted, "one"), [&set], &[], now());
        assert_eq!(sizes(&decision), [(object::name(&set).to_owned(), wanted)]);
    }
    let decision = decide(&deployment(3, "one"), [&set], &[], now());
    assert!(sizes(&decision).is_empty(), "{decision:?}");
}

#[test]
fn another_template_grows_a_new_set_by_the_surge_and_then_shrinks_the_old() {
    let (before, after) = (deployment(2, "one"), deployment(2, "two"));
    let old = set(&before, 2, 1);
    let decision = decide(&after, [&old], &[], now());
    assert_eq!(sizes(&decision).len(), 1);
    assert_eq!(sizes(&decision)[0].1, 1);
    let mut new = set(&after, 1, 2);
    new["status"]["availableReplicas"] = 0.into();
    new["metadata"]["annotations"][DESIRED] = "2".into();
    let decision = decide(&after, [&old, &new], &[], now());
    assert!(sizes(&decision).is_empty(), "shrinks before the new pod is there: {decision:?}");
    new["status"]["availableReplicas"] = 1.into();
    let decision = decide(&after, [&old, &new], &[], now());
    assert_eq!(sizes(&decision), [(object::name(&old).to_owned(), 1)]);
}

#[test]
fn going_back_takes_the_old_set_under_a_new_revision() {
    let (one, two) = (deployment(2, "one"), deployment(2, "two"));
    let (first, second) = (set(&one, 0, 1), set(&two, 2, 2));
    let decision = decide(&one, [&first, &second], &[], now());
    let Some(Step::Update(key, fresh)) = decision.steps.first() else { panic!("{decision:?}") };
    assert_eq!(key.name, object::name(&first));
    assert_eq!(fresh["metadata"]["annotations"][REVISION], "3");
}

#[test]
fn recreate_waits_until_the_old_pods_are_gone() {
    let mut after = deployment(2, "two");
    after["spec"]["strategy"] = json!({"type": "Recreate"});
    let mut old = set(&deployment(2, "one"), 2, 1);
    let decision = decide(&after, [&old], &[], now());
    assert_eq!(sizes(&decision), [(object::name(&old).to_owned(), 0)]);
    old["spec"]["replicas"] = 0.into();
    let pod = json!({"metadata": {"ownerReferences": [{"uid": "set-1", "controller": true}]}});
    assert!(sizes(&decide(&after, [&old], &[&pod], now())).is_empty());
    assert_eq!(sizes(&decide(&after, [&old], &[], now()))[0].1, 2);
}

#[test]
fn a_paused_deployment_follows_its_number_and_not_its_template() {
    let mut paused = deployment(4, "two");
    paused["spec"]["paused"] = true.into();
    let old = set(&deployment(2, "one"), 2, 1);
    let decision = decide(&paused, [&old], &[], now());
    assert_eq!(sizes(&decision), [(object::name(&old).to_owned(), 4)]);
}

#[test]
fn the_status_tells_whether_enough_is_available_and_the_roll_done() {
    let deployment = deployment(2, "one");
    let mut set = set(&deployment, 2, 1);
    let decision = decide(&deployment, [&set], &[], now());
    let reasons = |decision: &Decision| -> Vec<String> {
        let conditions = status(decision)["conditions"].as_array().unwrap().clone();
        conditions.iter().map(|c| c["reason"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(reasons(&decision), ["MinimumReplicasAvailable", "NewReplicaSetAvailable"]);
    assert_eq!(status(&decision)["availableReplicas"], 2);
    assert!(status(&decision).get("unavailableReplicas").is_none());
    set["status"]["availableReplicas"] = 1.into();
    let decision = decide(&deployment, [&set], &[], now());
    assert_eq!(reasons(&decision), ["MinimumReplicasUnavailable", "ReplicaSetUpdated"]);
    assert_eq!(status(&decision)["unavailableReplicas"], 1);
}

#[test]
fn sets_beyond_the_history_are_deleted_oldest_first() {
    let mut newest = deployment(1, "four");
    newest["spec"]["revisionHistoryLimit"] = 1.into();
    let old: Vec<Value> = [("one", 1), ("two", 2), ("three", 3)]
        .iter()
        .map(|(image, revision)| set(&deployment(1, image), 0, *revision))
        .collect();
    let new = set(&newest, 1, 4);
    let decision = decide(&newest, old.iter().chain([&new]), &[], now());
    let deleted: Vec<_> = decision
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Delete(key) => Some(key.name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(deleted, [object::name(&old[0]), object::name(&old[1])]);
}
