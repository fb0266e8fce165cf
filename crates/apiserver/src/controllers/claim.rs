//! Whose an object is: a workload owns what names it as controller and matches its selector,
//! adopts matching orphans, and lets go of what matches no longer.

use super::{Step, key};
use crate::object;
use crate::selector::Selector;
use serde_json::{Value, json};

/// What a workload owns now, and the steps that make it so.
pub(super) struct Claimed {
    pub(super) mine: Vec<Value>,
    pub(super) steps: Vec<Step>,
}

/// Sorts the candidates of `collection` in the workload's namespace.
pub(super) fn claim<'a>(
    owner: &Value,
    collection: &str,
    candidates: impl IntoIterator<Item = &'a Value>,
) -> Claimed {
    let selector = Selector::of_workload(&owner["spec"]["selector"]);
    let (uid, ends) = (object::uid(owner), object::is_terminating(owner));
    let mut claimed = Claimed { mine: Vec::new(), steps: Vec::new() };
    for candidate in candidates {
        let selected = !selector.is_empty() && selector.matches(candidate);
        let place = key(collection, candidate);
        match controller(candidate) {
            Some(known) if known == uid && selected => claimed.mine.push(candidate.clone()),
            Some(known) if known == uid && !ends => {
                claimed.steps.push(Step::Update(place, released(candidate, uid)));
            }
            None if selected && !ends && !object::is_terminating(candidate) => {
                let adopted = adopted(candidate, owner);
                claimed.steps.push(Step::Update(place, adopted.clone()));
                claimed.mine.push(adopted);
            }
            _ => {}
        }
    }
    claimed
}

/// The uid of the controller that an object names.
pub(super) fn controller(object: &Value) -> Option<&str> {
    reference(object)?.get("uid")?.as_str()
}

/// The owner reference of the controller.
pub(super) fn reference(object: &Value) -> Option<&Value> {
    object::owner_references(object).iter().find(|owner| owner["controller"] == true)
}

/// A reference that makes `owner` the controller.
pub(super) fn reference_to(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": object::name(owner),
        "uid": object::uid(owner), "controller": true, "blockOwnerDeletion": true,
    })
}

fn adopted(candidate: &Value, owner: &Value) -> Value {
    let mut owners = object::owner_references(candidate).to_vec();
    owners.push(reference_to(owner));
    let mut adopted = candidate.clone();
    object::set_meta(&mut adopted, "ownerReferences", owners);
    adopted
}

fn released(candidate: &Value, uid: &str) -> Value {
    let owners = object::owner_references(candidate).iter();
    let kept: Vec<Value> = owners.filter(|owner| owner["uid"] != uid).cloned().collect();
    let mut released = candidate.clone();
    if kept.is_empty() {
        object::metadata_mut(&mut released).remove("ownerReferences");
    } else {
        object::set_meta(&mut released, "ownerReferences", kept);
    }
    released
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": "web", "namespace": "a", "uid": "1"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}}})
    }

    fn pod(name: &str, app: &str, owner: Option<&str>) -> Value {
        let mut pod = json!({"metadata": {"name": name, "namespace": "a", "labels": {"app": app}}});
        if let Some(uid) = owner {
            let reference = json!([{"uid": uid, "controller": true}]);
            object::set_meta(&mut pod, "ownerReferences", reference);
        }
        pod
    }

    fn names(objects: &[Value]) -> Vec<&str> {
        objects.iter().map(object::name).collect()
    }

    #[test]
    fn own_pods_are_kept_orphans_adopted_strangers_left_and_the_relabelled_let_go() {
        let pods = [
            pod("mine", "web", Some("1")),
            pod("orphan", "web", None),
            pod("strangers", "web", Some("2")),
            pod("other", "db", None),
            pod("relabelled", "db", Some("1")),
        ];
        let claimed = claim(&owner(), "pods", &pods);
        assert_eq!(names(&claimed.mine), ["mine", "orphan"]);
        assert_eq!(controller(&claimed.mine[1]), Some("1"));
        let [Step::Update(adopted, _), Step::Update(free, released)] = &claimed.steps[..] else {
            panic!("{:?}", claimed.steps)
        };
        assert_eq!((adopted.name.as_str(), free.name.as_str()), ("orphan", "relabelled"));
        assert_eq!(controller(released), None);
    }

    #[test]
    fn a_workload_that_ends_takes_nothing_and_gives_nothing_away() {
        let mut owner = owner();
        object::set_meta(&mut owner, "deletionTimestamp", "t");
        let pods = [pod("mine", "web", Some("1")), pod("orphan", "web", None)];
        let claimed = claim(&owner, "pods", &pods);
        assert_eq!((names(&claimed.mine), claimed.steps.len()), (vec!["mine"], 0));
    }
}
