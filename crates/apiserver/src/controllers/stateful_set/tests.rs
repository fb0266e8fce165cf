use super::*;
use crate::clock;

fn set(replicas: i64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "a", "uid": "1", "generation": 1},
        "spec": {"replicas": replicas, "serviceName": "peers", "podManagementPolicy": "OrderedReady",
            "selector": {"matchLabels": {"app": "db"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "template": {"metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "c", "image": "one"}]}}}})
}

/// A pod as the set makes it, running.
fn pod(set: &Value, ordinal: i64, ready: bool) -> Value {
    let mut pod = Crew::new(set, Vec::new()).new_pod(ordinal);
    pod["status"] = json!({"phase": "Running", "conditions": [
        {"type": "Ready", "status": if ready { "True" } else { "False" }}]});
    pod
}

fn due(set: &Value, pods: &[Value]) -> Vec<String> {
    let decision = decide(set, pods, Moment(clock::at_second(0).unwrap()));
    let named = decision.steps.iter().filter_map(|step| match step {
        Step::Create(_, pod) => Some(format!("+{}", object::name(pod))),
        Step::Delete(key) => Some(format!("-{}", key.name)),
        Step::Update(..) | Step::Status(..) => None,
    });
    named.collect()
}

fn status(set: &Value, pods: &[Value]) -> Value {
    Crew::new(set, pods.to_vec()).status(Moment(clock::at_second(0).unwrap())).0
}

#[test]
fn the_next_pod_comes_when_those_before_are_ready() {
    let set = set(3);
    assert_eq!(due(&set, &[]), ["+db-0"]);
    assert!(due(&set, &[pod(&set, 0, false)]).is_empty());
    assert_eq!(due(&set, &[pod(&set, 0, true)]), ["+db-1"]);
    assert_eq!(due(&set, &[pod(&set, 0, true), pod(&set, 2, true)]), ["+db-1"]);
}

#[test]
fn without_order_all_come_and_go_at_once() {
    let mut set = set(3);
    set["spec"]["podManagementPolicy"] = "Parallel".into();
    assert_eq!(due(&set, &[pod(&set, 1, false)]), ["+db-0", "+db-2"]);
    set["spec"]["replicas"] = 0.into();
    assert_eq!(due(&set, &[pod(&set, 0, true), pod(&set, 1, true)]), ["-db-1", "-db-0"]);
}

#[test]
fn the_highest_goes_first_and_the_next_waits_until_it_is_gone() {
    let (three, one) = (set(3), set(1));
    let mut pods = [pod(&three, 0, true), pod(&three, 1, true), pod(&three, 2, true)];
    assert_eq!(due(&one, &pods), ["-db-2"]);
    object::set_meta(&mut pods[2], "deletionTimestamp", "t");
    assert!(due(&one, &pods).is_empty());
}

#[test]
fn another_template_renews_the_pods_from_the_highest_down_to_the_partition() {
    let before = set(3);
    let mut after = set(3);
    after["spec"]["template"]["spec"]["containers"][0]["image"] = "two".into();
    let mut pods = [pod(&before, 0, true), pod(&before, 1, true), pod(&before, 2, true)];
    assert_eq!(due(&after, &pods), ["-db-2"]);
    pods[2] = pod(&after, 2, false);
    assert!(due(&after, &pods).is_empty());
    pods[2] = pod(&after, 2, true);
    assert_eq!(due(&after, &pods), ["-db-1"]);
    after["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = 2.into();
    assert!(due(&after, &pods).is_empty());
    after["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    pods[2] = pod(&before, 2, true);
    assert!(due(&after, &pods).is_empty());
}

#[test]
fn a_pod_that_has_ended_is_replaced() {
    let set = set(1);
    let mut pod = pod(&set, 0, false);
    pod["status"]["phase"] = "Failed".into();
    assert_eq!(due(&set, &[pod]), ["-db-0"]);
}

#[test]
fn a_pod_has_its_name_as_host_below_the_service() {
    let pod = pod(&set(1), 0, true);
    assert_eq!(
        (&pod["spec"]["hostname"], &pod["spec"]["subdomain"]),
        (&"db-0".into(), &"peers".into())
    );
    assert_eq!(pod["metadata"]["labels"][POD_INDEX], "0");
    assert_eq!(pod["metadata"]["labels"][POD_NAME], "db-0");
}

#[test]
fn pods_of_other_names_are_no_business_of_the_set() {
    let set = set(1);
    let mut stray = pod(&set, 0, true);
    for name in ["db-x", "db-01", "other-0"] {
        object::set_meta(&mut stray, "name", name);
        assert_eq!(due(&set, std::slice::from_ref(&stray)), ["+db-0"], "{name}");
    }
}

#[test]
fn the_status_counts_pods_and_says_when_the_roll_is_done() {
    let before = set(2);
    let mut after = set(2);
    after["spec"]["template"]["spec"]["containers"][0]["image"] = "two".into();
    let first = status(&before, &[pod(&before, 0, true), pod(&before, 1, false)]);
    assert_eq!((&first["replicas"], &first["readyReplicas"]), (&2.into(), &1.into()));
    after["status"] = first.clone();
    let rolling = status(&after, &[pod(&before, 0, true), pod(&after, 1, true)]);
    assert_eq!(rolling["currentRevision"], first["currentRevision"]);
    assert_eq!((&rolling["updatedReplicas"], &rolling["currentReplicas"]), (&1.into(), &1.into()));
    let rolled = status(&after, &[pod(&after, 0, true), pod(&after, 1, true)]);
    assert_eq!(rolled["currentRevision"], rolled["updateRevision"]);
    assert_ne!(rolled["currentRevision"], first["currentRevision"]);
}
