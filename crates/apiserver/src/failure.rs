//! A refusal as Kubernetes says it: a `Status` object with code, reason, message and causes.
//! Every verb answers with either an object or exactly one of these; wording follows the real API
//! because clients match on it.

use serde_json::{Value, json};

/// Why one field was refused; becomes a cause of an `Invalid` status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) field: String,
    /// The text behind the field path, such as `Required value: give it a CIDR`.
    pub(crate) message: String,
}

impl Cause {
    pub(crate) fn new(reason: &'static str, field: &str, message: impl Into<String>) -> Cause {
        Cause { reason, field: field.to_owned(), message: message.into() }
    }

    pub(crate) fn invalid(field: &str, value: &Value, why: &str) -> Cause {
        Cause::new("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"))
    }

    pub(crate) fn required(field: &str, why: &str) -> Cause {
        let text = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Cause::new("FieldValueRequired", field, text)
    }

    pub(crate) fn forbidden(field: &str, why: &str) -> Cause {
        Cause::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    pub(crate) fn duplicate(field: &str, value: &Value) -> Cause {
        Cause::new("FieldValueDuplicate", field, format!("Duplicate value: {value}"))
    }

    pub(crate) fn unsupported(field: &str, value: &Value, supported: &[String]) -> Cause {
        let list = supported.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(", ");
        let text = format!("Unsupported value: {value}: supported values: {list}");
        Cause::new("FieldValueNotSupported", field, text)
    }
}

/// Which resource a failure is about: `networks.atoll.dev`, or `pods` for the core group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) group: &'a str,
    /// Plural for most reasons, `Kind` for `Invalid`.
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
}

impl About<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.kind.to_owned()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    fn details(&self) -> Value {
        let mut details = json!({"kind": self.kind});
        if !self.name.is_empty() {
            details["name"] = self.name.into();
        }
        if !self.group.is_empty() {
            details["group"] = self.group.into();
        }
        details
    }
}

/// One refusal, ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, reason, message: message.into(), details: None }
    }

    fn about(mut self, about: About<'_>) -> Failure {
        self.details = Some(about.details());
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(400, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Failure {
        Failure::new(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn forbidden(about: About<'_>, why: &str) -> Failure {
        let message = format!("{} {:?} is forbidden: {why}", about.qualified(), about.name);
        Failure::new(403, "Forbidden", message).about(about)
    }

    pub(crate) fn no_such_path() -> Failure {
        let mut failure =
            Failure::new(404, "NotFound", "the server could not find the requested resource");
        failure.details = Some(json!({}));
        failure
    }

    pub(crate) fn not_found(about: About<'_>) -> Failure {
        let message = format!("{} {:?} not found", about.qualified(), about.name);
        Failure::new(404, "NotFound", message).about(about)
    }

    pub(crate) fn method_not_allowed() -> Failure {
        let mut failure = Failure::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        failure.details = Some(json!({}));
        failure
    }

    /// A kind whose definition is going takes nothing new.
    pub(crate) fn definition_terminating(about: About<'_>) -> Failure {
        let mut failure = Failure::method_not_allowed().about(about);
        "create not allowed while custom resource definition is terminating"
            .clone_into(&mut failure.message);
        failure
    }

    pub(crate) fn not_acceptable(accepted: &str) -> Failure {
        let message = format!("only the following media types are accepted: {accepted}");
        Failure::new(406, "NotAcceptable", message)
    }

    pub(crate) fn already_exists(about: About<'_>) -> Failure {
        let message = format!("{} {:?} already exists", about.qualified(), about.name);
        Failure::new(409, "AlreadyExists", message).about(about)
    }

    pub(crate) fn conflict(about: About<'_>, why: &str) -> Failure {
        let message = format!(
            "Operation cannot be fulfilled on {} {:?}: {why}",
            about.qualified(),
            about.name
        );
        Failure::new(409, "Conflict", message).about(about)
    }

    /// A server-side apply that would take fields from others.
    pub(crate) fn apply_conflict(message: String, causes: &[Cause]) -> Failure {
        let mut failure = Failure::new(409, "Conflict", message);
        failure.add_causes(causes);
        failure
    }

    pub(crate) fn stale(about: About<'_>) -> Failure {
        Failure::conflict(
            about,
            "the object has been modified; please apply your changes to the latest version and \
             try again",
        )
    }

    pub(crate) fn expired(message: impl Into<String>) -> Failure {
        Failure::new(410, "Expired", message)
    }

    pub(crate) fn too_large(limit: usize) -> Failure {
        let message = format!("Request entity too large: limit is {limit}");
        Failure::new(413, "RequestEntityTooLarge", message)
    }

    pub(crate) fn unsupported_media(accepted: &str) -> Failure {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: \
             {accepted}"
        );
        Failure::new(415, "UnsupportedMediaType", message)
    }

    /// `about.kind` is the Kind here, as in the real API.
    pub(crate) fn invalid(about: About<'_>, causes: &[Cause]) -> Failure {
        let list: Vec<String> =
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let text = match list.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} {:?} is invalid: {text}", about.qualified(), about.name);
        let mut failure = Failure::new(422, "Invalid", message).about(about);
        failure.add_causes(causes);
        failure
    }

    /// What the real API answers without a reason.
    pub(crate) fn unexplained(message: impl Into<String>) -> Failure {
        Failure::new(500, "", message)
    }

    /// An option of the request that cannot be.
    pub(crate) fn bad_option(options: &str, cause: Cause) -> Failure {
        Failure::invalid(About { group: "meta.k8s.io", kind: options, name: "" }, &[cause])
    }

    pub(crate) fn internal(message: impl Into<String>) -> Failure {
        Failure::new(500, "InternalError", message)
    }

    pub(crate) fn shutting_down() -> Failure {
        Failure::new(503, "ServiceUnavailable", "the API is shutting down; try again")
    }

    pub(crate) fn add_causes(&mut self, causes: &[Cause]) {
        let causes: Vec<Value> = causes
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect();
        self.details.get_or_insert_with(|| json!({}))["causes"] = Value::Array(causes);
    }

    /// The `Status` object of this failure.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_object_names_its_kind_its_name_and_every_field() {
        let about = About { group: "atoll.dev", kind: "Network", name: "x" };
        let causes = [
            Cause::required("spec.tenant", ""),
            Cause::invalid("spec.cidrs[0]", &json!("10.0"), "not a CIDR"),
        ];
        let failure = Failure::invalid(about, &causes);
        assert_eq!(
            failure.message,
            "Network.atoll.dev \"x\" is invalid: [spec.tenant: Required value, \
             spec.cidrs[0]: Invalid value: \"10.0\": not a CIDR]"
        );
        assert_eq!(failure.status()["details"]["causes"][0]["field"], "spec.tenant");
    }

    #[test]
    fn a_missing_object_of_the_core_group_is_named_without_a_group() {
        let failure = Failure::not_found(About { group: "", kind: "pods", name: "web" });
        assert_eq!(failure.message, "pods \"web\" not found");
        assert_eq!(failure.status()["code"], 404);
    }
}
