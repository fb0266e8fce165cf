use super::*;
use serde_json::json;

fn network() -> Schema {
    Schema::from_crd(&json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["cidrs"],
                "properties": {
                    "cidrs": {"type": "array", "maxItems": 2, "items": {"type": "string", "pattern": "/"}},
                    "mode": {"type": "string", "enum": ["A", "B"], "default": "A"},
                    "mtu": {"type": "integer", "minimum": 1280, "maximum": 9000},
                    "dns": {"type": "object", "default": {}, "properties": {
                        "on": {"type": "boolean", "default": true}}},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "port": {"x-kubernetes-int-or-string": true},
                    "nics": {"type": "array", "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "properties": {"name": {"type": "string"}}}}
                }
            }
        }
    }))
    .unwrap()
}

fn messages(schema: &Schema, value: &Value) -> Vec<String> {
    schema.validate(value).iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
}

#[test]
fn unknown_fields_are_dropped_and_named() {
    let mut value = json!({
        "metadata": {"name": "x", "annotations": {}},
        "spec": {"cidrs": [], "colour": 1, "free": {"any": 1}, "nics": [{"name": "a", "x": 1}]},
        "extra": true,
    });
    assert_eq!(network().prune(&mut value), ["extra", "spec.colour", "spec.nics[0].x"]);
    assert_eq!(
        value,
        json!({"metadata": {"name": "x", "annotations": {}},
               "spec": {"cidrs": [], "free": {"any": 1}, "nics": [{"name": "a"}]}})
    );
}

#[test]
fn nulls_are_dropped_where_none_may_be() {
    let mut value = json!({"spec": {"cidrs": [], "mode": null, "free": {"any": null}}});
    assert_eq!(network().prune(&mut value), Vec::<String>::new());
    assert_eq!(value, json!({"spec": {"cidrs": [], "free": {"any": null}}}));
}

#[test]
fn defaults_are_filled_also_inside_defaulted_objects() {
    let mut value = json!({"spec": {"cidrs": []}});
    network().fill_defaults(&mut value);
    assert_eq!(value, json!({"spec": {"cidrs": [], "mode": "A", "dns": {"on": true}}}));
}

#[test]
fn a_good_object_has_no_complaints() {
    let value = json!({"spec": {"cidrs": ["10.0.0.0/8"], "mtu": 1500, "port": "http",
        "labels": {"a": "b"}, "nics": [{"name": "a"}, {"name": "b"}]}});
    assert_eq!(messages(&network(), &value), Vec::<String>::new());
}

#[test]
fn each_complaint_names_the_field_and_the_value() {
    let value = json!({"spec": {"cidrs": ["10.0.0.0"], "mode": "C", "mtu": 1}});
    assert_eq!(
        messages(&network(), &value),
        [
            "spec.cidrs[0]: Invalid value: \"10.0.0.0\": spec.cidrs[0] in body should match '/'",
            "spec.mode: Unsupported value: \"C\": supported values: \"A\", \"B\"",
            "spec.mtu: Invalid value: 1: spec.mtu in body should be greater than or equal to 1280",
        ]
    );
}

#[test]
fn missing_and_mistyped_fields_are_refused() {
    assert_eq!(messages(&network(), &json!({})), ["spec: Required value"]);
    assert_eq!(
        messages(&network(), &json!({"spec": {"cidrs": "x"}})),
        [
            "spec.cidrs: Invalid value: \"string\": spec.cidrs in body must be of type array: \"string\""
        ]
    );
}

#[test]
fn items_of_a_map_list_must_differ_in_their_keys() {
    let value = json!({"spec": {"cidrs": [], "nics": [{"name": "a"}, {"name": "a"}]}});
    assert_eq!(messages(&network(), &value), ["spec.nics[1]: Duplicate value: {\"name\":\"a\"}"]);
}

#[test]
fn alternatives_are_counted() {
    let schema = Schema::from_crd(&json!({"type": "object", "oneOf": [
        {"required": ["a"]}, {"required": ["b"]}], "properties": {
            "a": {"type": "string"}, "b": {"type": "string"}}}))
    .unwrap();
    assert!(schema.validate(&json!({"a": "x"})).is_empty());
    assert_eq!(schema.validate(&json!({})).len(), 1);
    assert_eq!(schema.validate(&json!({"a": "x", "b": "y"})).len(), 1);
}

#[test]
fn a_pattern_that_is_no_regex_is_refused_when_the_schema_is_read() {
    let error = Schema::from_crd(&json!({"properties": {"a": {"type": "string", "pattern": "("}}}))
        .unwrap_err();
    assert!(error.starts_with("a: pattern:"), "{error}");
}
