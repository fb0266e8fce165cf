//! A change of one field, told apart from the tree it is made in: JSON values in the API, ordered
//! YAML in files.

use serde_json::{Map, Value};
use serde_yaml_ng as yaml;

/// A change of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// The fields from the root on.
    path: Vec<&'static str>,
    change: Change,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    Set(Value),
    Remove,
    /// The field keeps its value and its place and gets this name.
    Rename(&'static str),
}

impl Edit {
    /// Sets the field, making the maps on the way.
    pub(crate) fn set(path: &[&'static str], value: impl Into<Value>) -> Self {
        Edit { path: path.to_vec(), change: Change::Set(value.into()) }
    }

    /// Takes the field away.
    pub(crate) fn remove(path: &[&'static str]) -> Self {
        Edit { path: path.to_vec(), change: Change::Remove }
    }

    /// Gives the field another name.
    pub(crate) fn rename(path: &[&'static str], name: &'static str) -> Self {
        Edit { path: path.to_vec(), change: Change::Rename(name) }
    }

    /// Makes the change in a JSON value.
    pub fn apply(&self, tree: &mut Value) {
        let Some((field, way)) = self.path.split_last() else { return };
        let map = way
            .iter()
            .fold(json_map(tree), |map, step| json_map(map.entry(*step).or_insert(Value::Null)));
        match &self.change {
            Change::Set(value) => map.insert((*field).to_owned(), value.clone()),
            Change::Remove => map.remove(*field),
            Change::Rename(name) => {
                map.remove(*field).and_then(|value| map.insert((*name).to_owned(), value))
            }
        };
    }

    /// Makes the change in a YAML value; the order of the other fields stays.
    pub(crate) fn apply_ordered(&self, tree: &mut yaml::Value) {
        let Some((field, way)) = self.path.split_last() else { return };
        let map = way.iter().fold(yaml_map(tree), |map, step| {
            yaml_map(map.entry((*step).into()).or_insert(yaml::Value::Null))
        });
        match &self.change {
            Change::Set(value) => drop(map.insert((*field).into(), ordered(value))),
            Change::Remove => drop(map.shift_remove(*field)),
            Change::Rename(name) => rename_in_place(map, field, name),
        }
    }
}

fn rename_in_place(map: &mut yaml::Mapping, from: &str, to: &str) {
    let renamed = |key: yaml::Value| if key == from { to.into() } else { key };
    *map = std::mem::take(map).into_iter().map(|(key, value)| (renamed(key), value)).collect();
}

/// JSON as YAML, of which it is a part.
pub(crate) fn ordered(value: &Value) -> yaml::Value {
    yaml::to_value(value).unwrap_or(yaml::Value::Null)
}

fn json_map(tree: &mut Value) -> &mut Map<String, Value> {
    if !tree.is_object() {
        *tree = Value::Object(Map::new());
    }
    match tree {
        Value::Object(map) => map,
        _ => unreachable!("made a map above"),
    }
}

fn yaml_map(tree: &mut yaml::Value) -> &mut yaml::Mapping {
    if !tree.is_mapping() {
        *tree = yaml::Value::Mapping(yaml::Mapping::new());
    }
    match tree {
        yaml::Value::Mapping(map) => map,
        _ => unreachable!("made a map above"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_is_set_with_the_maps_on_the_way_and_taken_away_alone() {
        let mut tree = json!({"metadata": null, "spec": {"network": "a", "b": 1}});
        Edit::set(&["metadata", "labels", "x"], "y").apply(&mut tree);
        Edit::remove(&["spec", "network"]).apply(&mut tree);
        assert_eq!(tree, json!({"metadata": {"labels": {"x": "y"}}, "spec": {"b": 1}}));
    }

    #[test]
    fn the_order_of_the_other_fields_stays() {
        let mut tree: yaml::Value = yaml::from_str("{z: 1, network: n, b: 2, a: 3}").unwrap();
        Edit::remove(&["network"]).apply_ordered(&mut tree);
        Edit::set(&["b"], 4).apply_ordered(&mut tree);
        Edit::rename(&["z"], "y").apply_ordered(&mut tree);
        assert_eq!(yaml::to_string(&tree).unwrap(), "y: 1\nb: 4\na: 3\n");
    }
}
