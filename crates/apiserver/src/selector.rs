//! Label and field selectors: parsed once from the query, then asked about objects.

use crate::failure::Failure;
use crate::object;
use crate::registry::{Resource, Version};
use serde_json::{Map, Value};

/// Both selectors of a request.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTerm {
    path: String,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses both; refuses fields the resource does not offer.
    pub(crate) fn parse(
        labels: &str,
        fields: &str,
        resource: &Resource,
        version: &Version,
    ) -> Result<Selector, Failure> {
        let fields = parse_fields(fields)?;
        for term in &fields {
            if !offers(resource, version, &term.path) {
                return Err(not_offered(version, &term.path));
            }
        }
        Ok(Selector { labels: parse_labels(labels)?, fields })
    }

    /// Objects that have all of these labels, as services select pods.
    pub(crate) fn of_labels(labels: &Value) -> Selector {
        let wanted = labels.as_object().into_iter().flatten().map(|(key, value)| Requirement {
            key: key.clone(),
            operator: Operator::In(vec![value.as_str().unwrap_or("").to_owned()]),
        });
        Selector { labels: wanted.collect(), fields: Vec::new() }
    }

    /// The selector of a workload: labels and expressions.
    pub(crate) fn of_workload(selector: &Value) -> Selector {
        let mut made = Selector::of_labels(&selector["matchLabels"]);
        let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
        made.labels.extend(expressions.map(|expression| {
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            let operator = match object::text(expression, "operator") {
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::Missing,
                "NotIn" => Operator::NotIn(values),
                _ => Operator::In(values),
            };
            Requirement { key: object::text(expression, "key").to_owned(), operator }
        }));
        made
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let empty = Map::new();
        let labels =
            object::metadata(object).get("labels").and_then(Value::as_object).unwrap_or(&empty);
        self.labels.iter().all(|requirement| requirement.matches(labels))
            && self.fields.iter().all(|term| term.matches(object))
    }
}

impl Requirement {
    fn matches(&self, labels: &Map<String, Value>) -> bool {
        let value = labels.get(&self.key).and_then(Value::as_str);
        let number = || value.and_then(|text| text.parse::<i64>().ok());
        match &self.operator {
            Operator::Exists => value.is_some(),
            Operator::Missing => value.is_none(),
            Operator::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
            Operator::NotIn(values) => value.is_none_or(|v| values.iter().all(|w| w != v)),
            Operator::Greater(limit) => number().is_some_and(|n| n > *limit),
            Operator::Less(limit) => number().is_some_and(|n| n < *limit),
        }
    }
}

impl Operator {
    fn values(&self) -> &[String] {
        match self {
            Operator::In(values) | Operator::NotIn(values) => values,
            Operator::Exists | Operator::Missing | Operator::Greater(_) | Operator::Less(_) => &[],
        }
    }
}

impl FieldTerm {
    fn matches(&self, object: &Value) -> bool {
        (field_text(object, &self.path) == self.value) == self.equal
    }
}

/// The text that field selectors compare; a missing field is empty, a missing flag is false.
fn field_text(object: &Value, path: &str) -> String {
    let source = if path == "source" { "source.component" } else { path };
    match object::at(object, source) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None if is_flag(path) => "false".to_owned(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

fn is_flag(path: &str) -> bool {
    matches!(path, "spec.unschedulable" | "spec.hostNetwork")
}

fn offers(resource: &Resource, version: &Version, path: &str) -> bool {
    path == "metadata.name"
        || path == "metadata.namespace" && resource.namespaced
        || version.selectable.iter().any(|offered| offered == path)
}

fn not_offered(version: &Version, path: &str) -> Failure {
    Failure::bad_request(if version.selectable.is_empty() {
        format!(
            "{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        )
    } else {
        format!("field label not supported: {path}")
    })
}

fn parse_fields(text: &str) -> Result<Vec<FieldTerm>, Failure> {
    split_fields(text).into_iter().map(|term| parse_field(&term)).collect()
}

/// Splits at commas that are not escaped.
fn split_fields(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
        } else if let Some(term) = terms.last_mut() {
            term.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    terms.retain(|term| !term.is_empty());
    terms
}

fn parse_field(term: &str) -> Result<FieldTerm, Failure> {
    let found = ["!=", "==", "="]
        .iter()
        .find_map(|sign| term.split_once(sign).map(|(path, value)| (path, value, *sign != "!=")));
    let Some((path, value, equal)) = found else {
        return Err(Failure::bad_request(format!(
            "invalid selector: '{term}'; can't understand '{term}'"
        )));
    };
    Ok(FieldTerm { path: path.to_owned(), value: unescape(value), equal })
}

fn unescape(value: &str) -> String {
    let mut plain = String::new();
    let mut escaped = false;
    for c in value.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            plain.push(c);
            escaped = false;
        }
    }
    plain
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, Failure> {
    split_labels(text).into_iter().map(parse_requirement).collect()
}

/// Splits at commas outside parentheses.
fn split_labels(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|term| !term.is_empty())
    .collect()
}

fn parse_requirement(term: &str) -> Result<Requirement, Failure> {
    let not_understood = || {
        Failure::bad_request(format!(
            "unable to parse requirement: found '{term}', expected: a label key and an operator"
        ))
    };
    let (key, operator) = split_requirement(term).ok_or_else(not_understood)?;
    let key = key.trim();
    if !is_label_key(key) {
        return Err(Failure::bad_request(format!(
            "unable to parse requirement: <nil>: Invalid value: {key:?}: name part must consist \
             of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
             validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )));
    }
    if let Some(value) = operator.values().iter().find(|value| !is_label_value(value)) {
        let odd = value.chars().find(|c| !is_inner(*c)).unwrap_or('-');
        return Err(Failure::bad_request(format!(
            "unable to parse requirement: found '{odd}', expected: identifier"
        )));
    }
    Ok(Requirement { key: key.to_owned(), operator })
}

fn split_requirement(term: &str) -> Option<(&str, Operator)> {
    if let Some(key) = term.strip_prefix('!') {
        return Some((key, Operator::Missing));
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Some((key, Operator::NotIn(vec![value.trim().to_owned()])));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Some((key, Operator::In(vec![value.trim().to_owned()])));
    }
    if let Some((key, limit)) = term.split_once('>') {
        return Some((key, Operator::Greater(limit.trim().parse().ok()?)));
    }
    if let Some((key, limit)) = term.split_once('<') {
        return Some((key, Operator::Less(limit.trim().parse().ok()?)));
    }
    split_set(term)
}

/// `key in (a, b)`, `key notin (a, b)` or just `key`.
fn split_set(term: &str) -> Option<(&str, Operator)> {
    let Some((key, rest)) = term.split_once(char::is_whitespace) else {
        return (!term.contains('(')).then_some((term, Operator::Exists));
    };
    let (word, list) = rest.trim().split_once('(')?;
    let values = list.trim().strip_suffix(')')?;
    let values = values.split(',').map(|value| value.trim().to_owned()).collect();
    match word.trim() {
        "in" => Some((key, Operator::In(values))),
        "notin" => Some((key, Operator::NotIn(values))),
        _ => None,
    }
}

fn is_inner(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

fn is_label_value(value: &str) -> bool {
    let outer = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    value.len() <= 63
        && value.chars().all(is_inner)
        && outer(value.chars().next())
        && outer(value.chars().last())
}

fn is_label_key(key: &str) -> bool {
    let name = key.rsplit('/').next().unwrap_or(key);
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    outer(name.chars().next())
        && outer(name.chars().last())
        && name.len() <= 63
        && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    fn selector(labels: &str, fields: &str) -> Result<Selector, Failure> {
        let snapshot = Registry::with_builtins().snapshot();
        let pods = snapshot.find("", "pods").unwrap();
        Selector::parse(labels, fields, pods, &pods.versions[0])
    }

    fn pod() -> Value {
        json!({"metadata": {"name": "web", "namespace": "a", "labels": {"app": "web", "tier": "2"}},
               "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}})
    }

    #[test]
    fn label_terms_all_have_to_hold() {
        let holds = |text: &str| selector(text, "").unwrap().matches(&pod());
        for text in [
            "app=web",
            "app==web",
            "app",
            "!gone",
            "app!=db",
            "gone!=x",
            "app in (db, web)",
            "app notin (db)",
            "gone notin (a)",
            "app=web,tier=2",
            "tier>1",
            "tier<3",
            "",
        ] {
            assert!(holds(text), "{text}");
        }
        for text in ["app=db", "!app", "gone", "app notin (web)", "app=web,tier=3", "tier>2"] {
            assert!(!holds(text), "{text}");
        }
    }

    #[test]
    fn a_workload_selects_by_labels_and_expressions() {
        let holds = |selector: Value| Selector::of_workload(&selector).matches(&pod());
        assert!(holds(json!({"matchLabels": {"app": "web"}})));
        assert!(!holds(json!({"matchLabels": {"app": "db"}})));
        let term = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
        assert!(holds(term("In", json!(["1", "2"]))) && !holds(term("In", json!(["1"]))));
        assert!(holds(term("NotIn", json!(["1"]))) && !holds(term("NotIn", json!(["2"]))));
        assert!(holds(term("Exists", json!([]))) && !holds(term("DoesNotExist", json!([]))));
    }

    #[test]
    fn field_terms_read_the_fields_that_pods_offer() {
        let holds = |text: &str| selector("", text).unwrap().matches(&pod());
        assert!(holds("spec.nodeName=n1,status.phase!=Failed"));
        assert!(holds("metadata.name=web,metadata.namespace=a"));
        assert!(holds("spec.hostNetwork=false"));
        assert!(!holds("spec.nodeName="));
    }

    #[test]
    fn unknown_fields_and_broken_selectors_are_bad_requests() {
        let refused = selector("", "spec.colour=red").unwrap_err();
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (400, "field label not supported: spec.colour")
        );
        for labels in ["a in b", "-x=1", "a in (b", "a===b", "a=b!c"] {
            assert_eq!(selector(labels, "").unwrap_err().code, 400, "{labels}");
        }
    }

    #[test]
    fn commas_in_field_values_may_be_escaped() {
        let selector = selector("", r"metadata.name=a\,b").unwrap();
        assert!(selector.matches(&json!({"metadata": {"name": "a,b"}})));
    }
}
