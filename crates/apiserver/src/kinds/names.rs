//! Names, labels and annotations that every kind must get right.

use crate::failure::Cause;
use crate::object;
use crate::registry::Resource;
use serde_json::Value;

const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
    characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
    '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case \
    alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character \
    (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const KEY_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
    '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

pub(super) fn validate(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    causes.extend(name(resource, object));
    causes.extend(labels(object));
    causes.extend(finalizers(object));
    causes
}

fn name(resource: &Resource, object: &Value) -> Option<Cause> {
    let name = object::name(object);
    if name.is_empty() {
        return Some(Cause::required("metadata.name", "name or generateName is required"));
    }
    let is_label =
        matches!(resource.plural.as_str(), "namespaces" | "services") && resource.group.is_empty();
    let (good, rule) = if is_label {
        (is_dns_label(name) && name.len() <= 63, LABEL_RULE)
    } else {
        (name.split('.').all(is_dns_label) && name.len() <= 253, SUBDOMAIN_RULE)
    };
    (!good).then(|| Cause::invalid("metadata.name", &name.into(), rule))
}

/// A complaint when the text is no DNS label.
pub(super) fn label(field: &str, text: &str) -> Option<Cause> {
    let good = is_dns_label(text) && text.len() <= 63;
    (!good).then(|| Cause::invalid(field, &text.into(), LABEL_RULE))
}

fn is_dns_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_name_part(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let outer = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    text.len() <= 63
        && text.bytes().all(inner)
        && outer(text.as_bytes().first())
        && outer(text.as_bytes().last())
}

fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => prefix.split('.').all(is_dns_label) && is_name_part(name),
        None => is_name_part(key),
    }
}

fn labels(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["labels", "annotations"] {
        let map = object::metadata(object).get(field).and_then(Value::as_object);
        for (key, value) in map.into_iter().flatten() {
            let path = format!("metadata.{field}");
            if !is_qualified(key) {
                causes.push(Cause::invalid(&path, &key.as_str().into(), KEY_RULE));
            }
            let text = value.as_str().unwrap_or("");
            if field == "labels" && !text.is_empty() && !is_name_part(text) {
                causes.push(Cause::invalid(&path, value, VALUE_RULE));
            }
        }
    }
    causes
}

fn finalizers(object: &Value) -> Vec<Cause> {
    object::finalizers(object)
        .into_iter()
        .filter(|finalizer| !is_qualified(finalizer))
        .map(|finalizer| Cause::invalid("metadata.finalizers", &finalizer.into(), KEY_RULE))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    fn complaints(plural: &str, metadata: &Value) -> Vec<String> {
        let snapshot = Registry::with_builtins().snapshot();
        let resource = snapshot.find("", plural).unwrap();
        validate(resource, &json!({"metadata": metadata})).into_iter().map(|c| c.field).collect()
    }

    #[test]
    fn names_are_subdomains_and_those_of_namespaces_labels() {
        assert!(complaints("pods", &json!({"name": "a.b-c"})).is_empty());
        assert_eq!(complaints("namespaces", &json!({"name": "a.b"})), ["metadata.name"]);
        assert_eq!(complaints("pods", &json!({"name": "Web"})), ["metadata.name"]);
        assert_eq!(complaints("pods", &json!({})), ["metadata.name"]);
    }

    #[test]
    fn label_keys_and_values_are_checked() {
        let metadata =
            json!({"name": "a", "labels": {"atoll.dev/net": "A_b.c", "x y": "", "k": "-"}});
        assert_eq!(complaints("pods", &metadata), ["metadata.labels", "metadata.labels"]);
    }
}
