//! The CEL rules of a schema (`x-kubernetes-validations`).

use super::Schema;
use crate::failure::Cause;
use kube_cel::{ValidationError, Validator};
use serde_json::Value;

thread_local! {
    /// Making a validator registers all functions of Kubernetes' CEL, so each thread makes one.
    static VALIDATOR: Validator = Validator::new();
}

impl Schema {
    /// Rules that do not hold; those about `oldSelf` are asked only when there is an old object.
    pub(crate) fn broken_rules(&self, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        let Some(rules) = self.rules() else { return Vec::new() };
        let outcome = VALIDATOR.with(|validator| validator.validate_compiled(rules, value, old));
        let errors = outcome.err().map(kube_cel::ValidationErrors::into_vec).unwrap_or_default();
        errors.iter().map(|error| cause(error, value)).collect()
    }
}

fn cause(error: &ValidationError, root: &Value) -> Cause {
    let field = if error.field_path.is_empty() { "<nil>" } else { &error.field_path };
    let message = &error.message;
    match error.reason.as_deref() {
        Some("FieldValueForbidden") => Cause::forbidden(field, message),
        Some("FieldValueRequired") => Cause::required(field, message),
        Some("FieldValueDuplicate") => {
            let text = format!("Duplicate value: {}", shown(error, root));
            Cause::new("FieldValueDuplicate", field, text)
        }
        _ => {
            let text = format!("Invalid value: {}: {message}", shown(error, root));
            Cause::new("FieldValueInvalid", field, text)
        }
    }
}

/// The refused value by its type, as the real API shows it.
fn shown(error: &ValidationError, root: &Value) -> &'static str {
    match follow(root, &error.field_path) {
        Some(Value::Array(_)) => "\"array\"",
        Some(Value::String(_)) => "\"string\"",
        Some(Value::Bool(_)) => "\"boolean\"",
        Some(Value::Number(number)) if number.is_f64() => "\"number\"",
        Some(Value::Number(_)) => "\"integer\"",
        Some(Value::Object(_) | Value::Null) | None => "\"object\"",
    }
}

/// Follows a path such as `spec.nics[0].name`.
fn follow<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    path.split(['.', '[']).filter(|step| !step.is_empty()).try_fold(root, |value, step| match step
        .strip_suffix(']')
        .and_then(|index| index.parse::<usize>().ok())
    {
        Some(index) => value.get(index),
        None => value.get(step),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Schema {
        Schema::from_crd(&json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "x-kubernetes-validations": [
                {"rule": "self.low <= self.high", "message": "low must not exceed high"}],
            "properties": {
                "low": {"type": "integer"}, "high": {"type": "integer"},
                "id": {"type": "integer", "x-kubernetes-validations": [
                    {"rule": "self == oldSelf", "message": "id never changes"}]},
                "cidr": {"type": "string", "x-kubernetes-validations": [
                    {"rule": "isCIDR(self)", "messageExpression": "'not a CIDR: ' + self"}]}}}}}))
        .unwrap()
    }

    fn messages(new: &Value, old: Option<&Value>) -> Vec<String> {
        let causes = schema().broken_rules(new, old);
        causes.into_iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
    }

    #[test]
    fn a_broken_rule_says_its_message_at_its_place() {
        let value = json!({"spec": {"low": 2, "high": 1, "cidr": "x"}});
        assert_eq!(
            messages(&value, None),
            [
                "spec: Invalid value: \"object\": low must not exceed high",
                "spec.cidr: Invalid value: \"string\": not a CIDR: x",
            ]
        );
    }

    #[test]
    fn transition_rules_hold_between_old_and_new_only() {
        let old = json!({"spec": {"low": 1, "high": 1, "id": 7}});
        let new = json!({"spec": {"low": 1, "high": 1, "id": 8}});
        assert!(messages(&new, None).is_empty());
        assert_eq!(
            messages(&new, Some(&old)),
            ["spec.id: Invalid value: \"integer\": id never changes"]
        );
    }
}
