//! The query of a request, and the options of verbs in it.

use crate::failure::{Cause, Failure};
use crate::registry::Nature;
use crate::selector::Selector;
use crate::table::Include;
use crate::verbs::{DeleteOptions, FieldValidation, ListOptions, Target, WriteOptions};
use crate::watch::WatchOptions;
use axum::extract::Query as Pairs;
use hyper::Uri;
use serde_json::{Value, json};
use std::time::Duration;

/// The longest a watch lasts when the client sets no limit.
const LONGEST_WATCH: Duration = Duration::from_secs(30 * 60);

/// The parameters of a request.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(uri: &Uri) -> Result<Query, Failure> {
        Pairs::<Vec<(String, String)>>::try_from_uri(uri)
            .map(|Pairs(pairs)| Query(pairs))
            .map_err(|error| Failure::bad_request(format!("the query cannot be read: {error}")))
    }

    /// A parameter, empty when it is not given.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    fn is_true(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1" | "True")
    }

    fn number(&self, name: &str) -> Result<Option<i64>, Failure> {
        match self.get(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Failure::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            }),
        }
    }

    pub(super) fn is_watch(&self) -> bool {
        self.is_true("watch")
    }

    pub(super) fn selector(&self, target: &Target) -> Result<Selector, Failure> {
        Selector::parse(
            self.get("labelSelector"),
            self.get("fieldSelector"),
            &target.resource,
            target.version(),
        )
    }

    pub(super) fn list(&self, target: &Target) -> Result<ListOptions, Failure> {
        if self.is_true("sendInitialEvents") {
            let cause =
                Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
            return Err(Failure::bad_option("ListOptions", cause));
        }
        Ok(ListOptions {
            selector: self.selector(target)?,
            limit: self.number("limit")?.and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
            continue_token: self.get("continue").to_owned(),
            resource_version: self.get("resourceVersion").to_owned(),
            version_match: self.get("resourceVersionMatch").to_owned(),
        })
    }

    pub(super) fn watch(&self, target: &Target) -> Result<WatchOptions, Failure> {
        let timeout = self.number("timeoutSeconds")?.and_then(|n| u64::try_from(n).ok());
        let initial_events = self.is_true("sendInitialEvents");
        if initial_events && self.get("resourceVersionMatch") != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            let cause = Cause::forbidden("resourceVersionMatch", why);
            return Err(Failure::bad_option("ListOptions", cause));
        }
        Ok(WatchOptions {
            selector: self.selector(target)?,
            resource_version: self.get("resourceVersion").to_owned(),
            bookmarks: self.is_true("allowWatchBookmarks"),
            initial_events,
            timeout: timeout.map_or(LONGEST_WATCH, Duration::from_secs),
        })
    }

    /// Options of a write; `agent` stands in for a manager that is not named.
    pub(super) fn write(&self, target: &Target, agent: &str) -> Result<WriteOptions, Failure> {
        let named = self.get("fieldManager");
        Ok(WriteOptions {
            dry_run: self.dry_run()?,
            field_manager: if named.is_empty() { agent } else { named }.to_owned(),
            names_manager: !named.is_empty(),
            field_validation: self.field_validation(target)?,
            force: self.is_true("force"),
            doubled: Vec::new(),
        })
    }

    fn dry_run(&self) -> Result<bool, Failure> {
        match self.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(unsupported("dryRun", &json!([other]), &["All"])),
        }
    }

    fn field_validation(&self, target: &Target) -> Result<FieldValidation, Failure> {
        match self.get("fieldValidation") {
            "" if target.resource.nature == Nature::Custom => Ok(FieldValidation::Ignore),
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => Err(unsupported(
                "fieldValidation",
                &json!(other),
                &["", "Ignore", "Strict", "Warn"],
            )),
        }
    }

    /// Options of a deletion: the body's, then the query's.
    pub(super) fn delete(&self, body: &Value) -> Result<DeleteOptions, Failure> {
        let text =
            |path: &str| crate::object::at(body, path).and_then(Value::as_str).map(str::to_owned);
        let propagation = match self.get("propagationPolicy") {
            "" => text("propagationPolicy"),
            given => Some(given.to_owned()),
        };
        if let Some(other) = propagation
            .as_deref()
            .filter(|policy| !matches!(*policy, "Orphan" | "Background" | "Foreground"))
        {
            let policies = ["Foreground", "Background", "Orphan", "nil"].map(str::to_owned);
            let cause = Cause::unsupported("propagationPolicy", &json!(other), &policies);
            return Err(Failure::bad_option("DeleteOptions", cause));
        }
        let grace = match self.number("gracePeriodSeconds")? {
            Some(seconds) => Some(seconds),
            None => body.get("gracePeriodSeconds").and_then(Value::as_i64),
        };
        let dry_in_body =
            body.get("dryRun").and_then(Value::as_array).is_some_and(|l| !l.is_empty());
        Ok(DeleteOptions {
            grace_period: grace,
            uid: text("preconditions.uid"),
            resource_version: text("preconditions.resourceVersion"),
            propagation: propagation.or_else(|| orphan_flag(body)),
            dry_run: self.dry_run()? || dry_in_body,
        })
    }

    pub(super) fn include(&self) -> Include {
        match self.get("includeObject") {
            "None" => Include::Nothing,
            "Object" => Include::Whole,
            _ => Include::Metadata,
        }
    }
}

fn unsupported(field: &str, value: &Value, offered: &[&str]) -> Failure {
    let offered: Vec<String> = offered.iter().map(|text| (*text).to_owned()).collect();
    Failure::bad_option("CreateOptions", Cause::unsupported(field, value, &offered))
}

/// The old way to say `Orphan`.
fn orphan_flag(body: &Value) -> Option<String> {
    let orphan = body.get("orphanDependents")?.as_bool()?;
    Some(if orphan { "Orphan" } else { "Background" }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(&format!("/x?{text}").parse().unwrap()).unwrap()
    }

    #[test]
    fn deletion_options_come_from_body_and_query() {
        let body = json!({"gracePeriodSeconds": 5, "preconditions": {"uid": "u"},
            "propagationPolicy": "Foreground"});
        let options = query("").delete(&body).unwrap();
        assert_eq!(options.grace_period, Some(5));
        assert_eq!(options.uid.as_deref(), Some("u"));
        assert_eq!(options.propagation.as_deref(), Some("Foreground"));
        let options = query("gracePeriodSeconds=0&propagationPolicy=Orphan").delete(&body).unwrap();
        assert_eq!(
            (options.grace_period, options.propagation.as_deref()),
            (Some(0), Some("Orphan"))
        );
    }

    #[test]
    fn values_that_are_not_offered_are_refused() {
        assert_eq!(query("propagationPolicy=Now").delete(&Value::Null).unwrap_err().code, 422);
        assert_eq!(query("dryRun=Some").delete(&Value::Null).unwrap_err().code, 422);
        assert_eq!(query("gracePeriodSeconds=x").delete(&Value::Null).unwrap_err().code, 400);
    }

    #[test]
    fn parameters_are_decoded() {
        assert_eq!(query("labelSelector=a%3Db%2Cc").get("labelSelector"), "a=b,c");
    }
}
