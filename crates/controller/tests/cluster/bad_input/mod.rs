//! Bad input: each field, wrong in each way that one object can show, is refused by the API with a
//! message that names the field and says what would be right.
//!
//! The rule: what can be wrong is read from the definitions themselves. A field that no right object
//! shows, or a rule that no case breaks, fails the test.

mod conditions;
mod fields;
mod network;
mod others;
mod port;
mod tenant;

use std::collections::BTreeSet;

use atoll_api::crds;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::{Error, ResourceExt};
use serde_json::Value;

use crate::subject::Subject;

/// One way to be wrong: of which right object, where, what, and what the message says.
type Wrong = (usize, &'static str, Value, &'static str);

/// What is right of a kind, and what is not.
struct Table {
    kind: &'static str,
    /// Together they show every field.
    right: Vec<Value>,
    /// What cannot be made.
    wrong: Vec<Wrong>,
    /// What a right object that is there cannot become.
    change: Vec<Wrong>,
}

/// The message of a refusal, if it is one.
fn message(answer: kube::Result<DynamicObject>) -> Option<String> {
    match answer {
        Ok(_) => None,
        Err(Error::Api(status)) => {
            assert!([400, 422].contains(&status.code), "{status:?}");
            Some(status.message)
        }
        Err(error) => panic!("{error}"),
    }
}

fn dry() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

async fn refusal(api: &Api<DynamicObject>, object: &Value) -> Option<String> {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    message(api.create(&dry(), &object).await)
}

/// Sets a field by its JSON pointer; `null` takes it away.
fn with(right: &Value, pointer: &str, wrong: &Value) -> Value {
    let mut object = right.clone();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    match object.pointer_mut(parent).unwrap_or_else(|| panic!("{right} has no {parent}")) {
        Value::Array(items) => items[field.parse::<usize>().unwrap()] = wrong.clone(),
        Value::Object(fields) if wrong.is_null() => drop(fields.remove(field)),
        Value::Object(fields) => drop(fields.insert(field.to_owned(), wrong.clone())),
        other => panic!("{other} has no fields"),
    }
    object
}

/// The field that a pointer ends at.
fn field(pointer: &str) -> &str {
    let mut parts = pointer.rsplit('/').filter(|part| part.parse::<usize>().is_err());
    parts.next().unwrap()
}

impl Table {
    async fn check<K: kube::Resource<DynamicType = ()>>(self) {
        let subject = Subject::new(&format!("bad-{}", self.kind.to_lowercase())).await;
        let resource = ApiResource::erase::<K>(&());
        let api = match self.right[0]["metadata"]["namespace"].as_str() {
            Some(inside) => Api::namespaced_with(subject.client.clone(), inside, &resource),
            None => Api::<DynamicObject>::all_with(subject.client.clone(), &resource),
        };
        for right in &self.right {
            assert_eq!(refusal(&api, right).await, None, "the control: {right}");
        }
        let crd = crds().into_iter().find(|crd| crd.spec.names.kind == self.kind).unwrap();
        let definition = serde_json::to_value(crd).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        self.check_fields(&api, schema).await;
        let mut said = self.check_wrong(&api).await;
        said.append(&mut self.check_changes(&api).await);
        for rule in fields::rules(schema) {
            let broken = said.iter().any(|message| message.contains(&rule));
            assert!(broken, "no case of {} breaks the rule: {rule}", self.kind);
        }
    }

    /// What follows from the schema alone: types, sizes, what is required, what is listed.
    async fn check_fields(&self, api: &Api<DynamicObject>, schema: &Value) {
        for fields::Flaw { pointer, path, wrong } in fields::flaws(schema, &self.right) {
            let right = self.right.iter().find(|it| it.pointer(&pointer).is_some()).unwrap();
            let said = refusal(api, &with(right, &pointer, &wrong)).await;
            let said = said.unwrap_or_else(|| panic!("{path} = {wrong} was taken"));
            assert!(said.contains(&path), "{path} = {wrong} is not named: {said}");
            let advice = ["must be", "must have", "should", "may not", "supported", "Required"];
            assert!(advice.iter().any(|word| said.contains(word)), "{path} = {wrong}: {said}");
        }
    }

    /// What the rules are about. Gives every message.
    async fn check_wrong(&self, api: &Api<DynamicObject>) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for (of, pointer, wrong, says) in &self.wrong {
            let said = refusal(api, &with(&self.right[*of], pointer, wrong)).await;
            all.insert(judge(pointer, wrong, says, said));
        }
        all
    }

    /// What the rules about changes are about. Gives every message.
    async fn check_changes(&self, api: &Api<DynamicObject>) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for (of, right) in self.right.iter().enumerate() {
            let changes = self.change.iter().filter(|(which, ..)| *which == of);
            let object: DynamicObject = serde_json::from_value(right.clone()).unwrap();
            let made = api.create(&PostParams::default(), &object).await.unwrap();
            let standing = serde_json::to_value(&made).unwrap();
            for (_, pointer, wrong, says) in changes {
                let changed = serde_json::from_value(with(&standing, pointer, wrong)).unwrap();
                let said = message(api.replace(&made.name_any(), &dry(), &changed).await);
                all.insert(judge(pointer, wrong, says, said));
            }
            api.delete(&made.name_any(), &DeleteParams::default()).await.unwrap();
        }
        all
    }
}

/// A refusal says what was expected of it and names the field.
fn judge(pointer: &str, wrong: &Value, says: &str, said: Option<String>) -> String {
    let said = said.unwrap_or_else(|| panic!("{pointer} = {wrong} was taken"));
    assert!(said.contains(says), "{pointer} = {wrong}: {said}");
    assert!(said.contains(field(pointer)), "{pointer} = {wrong} is not named: {said}");
    said
}
