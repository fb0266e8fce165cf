//! Reading an object out of a body. What is said twice is noticed: the last word counts, as in the
//! real API, and the writer is told.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// How a field that is said twice is told, which differs between formats in the real API.
#[derive(Clone, Copy)]
enum Told {
    Path,
    Key,
}

/// What a body holds.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) value: Value,
    /// Complaints about fields that are said more than once.
    pub(super) doubled: Vec<String>,
}

pub(super) fn json(body: &[u8]) -> serde_json::Result<Read> {
    let mut doubled = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let place = Place { path: String::new(), told: Told::Path, doubled: &mut doubled };
    let value = place.deserialize(&mut reader)?;
    reader.end()?;
    Ok(Read { value, doubled })
}

pub(super) fn yaml(body: &[u8]) -> Result<Read, serde_yaml_ng::Error> {
    let mut doubled = Vec::new();
    let place = Place { path: String::new(), told: Told::Key, doubled: &mut doubled };
    let value = place.deserialize(serde_yaml_ng::Deserializer::from_slice(body))?;
    Ok(Read { value, doubled })
}

/// The place in the body that is read next.
struct Place<'a> {
    path: String,
    told: Told,
    doubled: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = format!("{}[{}]", self.path, list.len());
            let place = Place { path, told: self.told, doubled: &mut *self.doubled };
            match items.next_element_seed(place)? {
                Some(item) => list.push(item),
                None => return Ok(list.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let dot = if self.path.is_empty() { "" } else { "." };
            let path = format!("{}{dot}{key}", self.path);
            if map.contains_key(&key) {
                self.doubled.push(match self.told {
                    Told::Path => format!("duplicate field {path:?}"),
                    Told::Key => format!("key {key:?} already set in map"),
                });
            }
            let place = Place { path, told: self.told, doubled: &mut *self.doubled };
            map.insert(key, fields.next_value_seed(place)?);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_said_twice_is_told_and_the_last_word_counts() {
        let read = json(br#"{"a": [{"b": 1, "b": 2}], "c": {"d": null, "d": -1.5}}"#).unwrap();
        assert_eq!(read.value, json!({"a": [{"b": 2}], "c": {"d": -1.5}}));
        assert_eq!(read.doubled, ["duplicate field \"a[0].b\"", "duplicate field \"c.d\""]);
        let read = yaml(b"a: 1\nb: {c: x, c: y}\n").unwrap();
        assert_eq!(read.value, json!({"a": 1, "b": {"c": "y"}}));
        assert_eq!(read.doubled, ["key \"c\" already set in map"]);
    }

    #[test]
    fn plain_bodies_are_read_as_ever_and_half_ones_refused() {
        let text = r#"{"a": [1, -2, 3.5, true, null, "x", {}], "b": {"c": []}}"#;
        let read = json(text.as_bytes()).unwrap();
        assert_eq!(read.value, serde_json::from_str::<Value>(text).unwrap());
        assert!(read.doubled.is_empty());
        for half in ["{", "{} {}", "", "x"] {
            assert!(json(half.as_bytes()).is_err(), "{half:?}");
        }
        assert!(yaml(b"a: [b").is_err());
    }
}
