//! What can be wrong with an object, as its definition tells: every field of its spec, every limit,
//! every rule.

use serde_json::{Value, json};

/// A value that the definition forbids.
pub(super) struct Flaw {
    /// Where, as a JSON pointer.
    pub(super) pointer: String,
    /// Where, as messages write it.
    pub(super) path: String,
    /// What is there instead; `null` for nothing.
    pub(super) wrong: Value,
}

/// The sentences of all rules about an object and its spec.
pub(super) fn rules(schema: &Value) -> Vec<String> {
    let mut found = own_rules(schema);
    found.retain(|rule| !rule.starts_with("status."));
    collect_rules(&schema["properties"]["spec"], &mut found);
    found
}

fn own_rules(node: &Value) -> Vec<String> {
    let rules = node["x-kubernetes-validations"].as_array().into_iter().flatten();
    rules.map(|rule| rule["message"].as_str().expect("each rule has a message").into()).collect()
}

fn collect_rules(node: &Value, found: &mut Vec<String>) {
    found.append(&mut own_rules(node));
    if let Some(items) = node.get("items") {
        collect_rules(items, found);
    }
    let fields = node["properties"].as_object().into_iter().flatten();
    fields.for_each(|(_, field)| collect_rules(field, found));
}

/// Every way in which a field of the spec is wrong by its schema. Each field is in one of the right
/// objects.
pub(super) fn flaws(schema: &Value, right: &[Value]) -> Vec<Flaw> {
    let mut found = Vec::new();
    let place = Place { pointer: "/spec".into(), path: "spec".into() };
    walk(&schema["properties"]["spec"], &place, right, &mut found);
    found
}

struct Place {
    pointer: String,
    path: String,
}

impl Place {
    fn field(&self, name: &str) -> Place {
        let Place { pointer, path } = self;
        Place { pointer: format!("{pointer}/{name}"), path: format!("{path}.{name}") }
    }

    fn first_item(&self) -> Place {
        let Place { pointer, path } = self;
        Place { pointer: format!("{pointer}/0"), path: format!("{path}[0]") }
    }

    fn flaw(&self, wrong: Value) -> Flaw {
        Flaw { pointer: self.pointer.clone(), path: self.path.clone(), wrong }
    }
}

fn walk(node: &Value, place: &Place, right: &[Value], found: &mut Vec<Flaw>) {
    let sample = right.iter().find_map(|object| object.pointer(&place.pointer));
    let sample = sample.unwrap_or_else(|| panic!("no right object shows {}", place.path));
    found.push(place.flaw(of_another_type(node)));
    found.extend(beyond_limits(node, sample).into_iter().map(|wrong| place.flaw(wrong)));
    for name in node["required"].as_array().into_iter().flatten() {
        found.push(place.field(name.as_str().unwrap()).flaw(Value::Null));
    }
    for (name, field) in node["properties"].as_object().into_iter().flatten() {
        walk(field, &place.field(name), right, found);
    }
    if let Some(items) = node.get("items") {
        walk(items, &place.first_item(), right, found);
    }
}

fn of_another_type(node: &Value) -> Value {
    match node["type"].as_str().expect("each field has a type") {
        "string" | "object" => json!(7),
        "array" | "boolean" | "integer" | "number" => json!("seven"),
        other => panic!("nobody knows type {other}"),
    }
}

fn beyond_limits(node: &Value, sample: &Value) -> Vec<Value> {
    let limit = |name: &str| node[name].as_f64().map(|limit| limit as i64);
    let size = |name: &str| limit(name).map(|limit| limit as usize);
    let text = |length: usize| json!("a".repeat(length));
    let list = |length: usize| Value::from(vec![sample[0].clone(); length]);
    let wrong = [
        node.get("enum").map(|_| json!("ajar")),
        size("maxLength").map(|most| text(most + 1)),
        size("minLength").filter(|least| *least > 0).map(|least| text(least - 1)),
        size("maxItems").map(|most| list(most + 1)),
        size("minItems").filter(|least| *least > 0).map(|least| list(least - 1)),
        limit("maximum").map(|most| json!(most + 1)),
        limit("minimum").map(|least| json!(least - 1)),
    ];
    wrong.into_iter().flatten().collect()
}

#[test]
fn every_limit_and_every_field_of_a_schema_is_found() {
    let schema = json!({"properties": {"spec": {"type": "object", "required": ["name"],
        "x-kubernetes-validations": [{"message": "odd"}],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 3},
            "sizes": {"type": "array", "maxItems": 1,
                      "items": {"type": "integer", "minimum": 1, "maximum": 9}}}}}});
    let right = [json!({"spec": {"name": "a"}}), json!({"spec": {"sizes": [4]}})];
    let found: Vec<(String, Value)> =
        flaws(&schema, &right).into_iter().map(|flaw| (flaw.path, flaw.wrong)).collect();
    let wanted = [
        ("spec", json!(7)),
        ("spec.name", Value::Null),
        ("spec.name", json!(7)),
        ("spec.name", json!("aaaa")),
        ("spec.name", json!("")),
        ("spec.sizes", json!("seven")),
        ("spec.sizes", json!([4, 4])),
        ("spec.sizes[0]", json!("seven")),
        ("spec.sizes[0]", json!(10)),
        ("spec.sizes[0]", json!(0)),
    ];
    assert_eq!(found, wanted.map(|(path, wrong)| (path.to_owned(), wrong)));
    assert_eq!(rules(&schema), ["odd"]);
}

#[test]
#[should_panic(expected = "no right object shows spec.late")]
fn a_field_that_no_right_object_shows_is_named() {
    let late = json!({"type": "object", "properties": {"late": {"type": "string"}}});
    flaws(&json!({"properties": {"spec": late}}), &[json!({"spec": {}})]);
}
