//! The port of every node that says whether the node has somebody behind a load balancer.
//!
//! The rule of this file: a load balancer whose connections stay on the node that they come in by has one
//! of the node ports for this, from the moment when it becomes such a one until it is none any more, and
//! never another in between. Nobody else has any.

use super::node_ports::{self, check, next_free};
use super::service::Claim;
use crate::failure::Cause;
use crate::object::{at, remove, set, text};
use serde_json::Value;

const FIELD: &str = "spec.healthCheckNodePort";

/// The number that a service has.
pub(super) fn named(service: &Value) -> Option<u16> {
    let number = at(service, FIELD)?.as_u64()?;
    u16::try_from(number).ok().filter(|number| *number != 0)
}

fn needs_one(service: &Value) -> bool {
    text(service, "spec.type") == "LoadBalancer"
        && text(service, "spec.externalTrafficPolicy") == "Local"
}

/// One that needs none any more loses it, unless it says another.
pub(super) fn drop_of_former_type(service: &mut Value, old: &Value) {
    if needs_one(old) && !needs_one(service) && at(service, FIELD) == at(old, FIELD) {
        remove(service, FIELD);
    }
}

/// An update that does not mention it keeps it.
pub(super) fn keep(service: &mut Value, old: &Value) {
    if !needs_one(service) || !needs_one(old) || named(service).is_some() {
        return;
    }
    if let Some(kept) = at(old, FIELD).cloned() {
        set(service, FIELD, kept);
    }
}

/// Gives a service that needs one its number, after its node ports have theirs. `taken` says what others
/// have, `from` where to begin to look.
pub(super) fn give(
    service: &mut Value,
    taken: &impl Fn(Claim) -> bool,
    from: u32,
) -> Result<(), Cause> {
    if !needs_one(service) {
        return Ok(());
    }
    let own = node_ports::named(service);
    let is_free = |number: u16| !taken(Claim::NodePort(number)) && !own.contains(&number);
    let refuse = |why: &str| Cause::invalid(FIELD, at(service, FIELD).unwrap_or(&Value::Null), why);
    let number = match named(service) {
        Some(asked) => check(asked, is_free).map_err(refuse)?,
        None => next_free(is_free, from).ok_or_else(|| refuse("range is full"))?,
    };
    set(service, FIELD, number);
    Ok(())
}

/// A number that the service may not ask for, or not any more.
pub(super) fn validate(service: &Value, old: Option<&Value>) -> Option<Cause> {
    let given = at(service, FIELD).filter(|it| !it.is_null() && it.as_i64() != Some(0));
    match (given, old) {
        (Some(given), _) if !needs_one(service) => {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            Some(Cause::invalid(FIELD, given, why))
        }
        (Some(given), _) if named(service).is_none() => {
            Some(Cause::invalid(FIELD, given, "must be between 1 and 65535, inclusive"))
        }
        (_, Some(old)) if needs_one(old) && needs_one(service) && named(old) != named(service) => {
            Some(Cause::forbidden(FIELD, "field is immutable"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(kind: &str, policy: &str, number: &Value) -> Value {
        json!({"spec": {"type": kind, "externalTrafficPolicy": policy, "healthCheckNodePort": number,
                        "ports": [{"port": 80, "nodePort": 30_000}]}})
    }

    fn given(kind: &str, policy: &str, number: &Value) -> Result<Option<u16>, String> {
        let mut service = service(kind, policy, number);
        let taken = |claim| claim == Claim::NodePort(30_001);
        give(&mut service, &taken, 0).map_err(|cause| cause.message)?;
        Ok(named(&service))
    }

    #[test]
    fn a_load_balancer_that_stays_on_its_node_has_one_that_nobody_else_has() {
        assert_eq!(given("LoadBalancer", "Local", &Value::Null), Ok(Some(30_002)));
        assert_eq!(given("LoadBalancer", "Local", &json!(30_700)), Ok(Some(30_700)));
        for (kind, policy) in [("LoadBalancer", "Cluster"), ("NodePort", "Local")] {
            assert_eq!(given(kind, policy, &Value::Null), Ok(None), "{kind} {policy}");
        }
        for (number, why) in [(30_001, "already"), (30_000, "already"), (80, "30000-32767")] {
            let told = given("LoadBalancer", "Local", &json!(number)).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn it_is_kept_and_may_not_be_another() {
        let old = service("LoadBalancer", "Local", &json!(30_700));
        let mut new = service("LoadBalancer", "Local", &Value::Null);
        keep(&mut new, &old);
        assert_eq!(named(&new), Some(30_700));
        assert!(validate(&new, Some(&old)).is_none());
        let other = service("LoadBalancer", "Local", &json!(30_701));
        assert!(validate(&other, Some(&old)).unwrap().message.contains("immutable"));
    }

    #[test]
    fn it_goes_with_what_it_was_for_and_nobody_else_asks_for_one() {
        let old = service("LoadBalancer", "Local", &json!(30_700));
        for (kind, policy) in [("LoadBalancer", "Cluster"), ("NodePort", "Local")] {
            let mut new = service(kind, policy, &json!(30_700));
            assert!(validate(&new, None).unwrap().message.contains("may only be set"), "{kind}");
            drop_of_former_type(&mut new, &old);
            assert_eq!((named(&new), validate(&new, Some(&old)).is_none()), (None, true));
        }
        let wrong = service("LoadBalancer", "Local", &json!(70_000));
        assert!(validate(&wrong, None).unwrap().message.contains("between 1 and 65535"));
    }
}
