//! Pods from templates, and the short name of a template.

use super::claim::reference_to;
use crate::object;
use serde_json::{Map, Value, json};

/// Letters that spell no words.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A pod of this workload; it still needs a name.
pub(super) fn pod(owner: &Value) -> Value {
    let template = &owner["spec"]["template"];
    let mut metadata = Map::new();
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = object::metadata(template).get(field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    metadata.insert("namespace".to_owned(), object::namespace(owner).into());
    metadata.insert("ownerReferences".to_owned(), json!([reference_to(owner)]));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

/// A name of a template: equal templates have equal names, whatever the order of their fields.
pub(super) fn hash(template: &Value) -> String {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    feed(&mut state, template);
    let mut name = String::new();
    for _ in 0..10 {
        let letter = usize::try_from(state % 27).unwrap_or_default();
        name.push(char::from(LETTERS[letter]));
        state /= 27;
    }
    name
}

fn feed(state: &mut u64, value: &Value) {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            bytes(state, b"{");
            for (name, value) in fields {
                bytes(state, name.as_bytes());
                feed(state, value);
            }
            bytes(state, b"}");
        }
        Value::Array(list) => {
            bytes(state, b"[");
            list.iter().for_each(|item| feed(state, item));
            bytes(state, b"]");
        }
        other => bytes(state, other.to_string().as_bytes()),
    }
}

/// FNV-1a, with a mark between pieces.
fn bytes(state: &mut u64, piece: &[u8]) {
    for byte in piece.iter().chain(&[0]) {
        *state = (*state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_templates_have_equal_names_and_others_do_not() {
        let one: Value = serde_json::from_str(r#"{"a": 1, "b": [{"c": "x"}]}"#).unwrap();
        let same: Value = serde_json::from_str(r#"{"b": [{"c": "x"}], "a": 1}"#).unwrap();
        assert_eq!(hash(&one), hash(&same));
        assert_ne!(hash(&one), hash(&json!({"a": 1, "b": [{"c": "y"}]})));
        assert_ne!(hash(&json!({"a": ["b", "c"]})), hash(&json!({"a": ["bc"]})));
        assert_eq!(hash(&one).len(), 10);
    }

    #[test]
    fn a_pod_has_what_its_template_says_and_its_owner() {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": "web", "namespace": "a", "uid": "1"},
            "spec": {"template": {"metadata": {"labels": {"x": "y"}, "name": "ignored"},
                "spec": {"containers": []}}}});
        let pod = pod(&owner);
        assert_eq!(pod["metadata"]["labels"], json!({"x": "y"}));
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "1");
        assert_eq!(pod["spec"], json!({"containers": []}));
        assert!(pod["metadata"].get("name").is_none());
    }
}
