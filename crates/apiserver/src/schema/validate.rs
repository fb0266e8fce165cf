//! Complaints of a schema about a value, worded as the real API words them.

use super::node::{Junctors, Limits, ListType};
use super::{Node, Schema, join};
use crate::failure::Cause;
use serde_json::{Map, Value};

impl Schema {
    /// Wrong types only: what the real API refuses while decoding built-in kinds.
    pub(crate) fn type_errors(&self, value: &Value) -> Vec<Cause> {
        let mut check = Check { schema: self, types_only: true, causes: Vec::new() };
        check.visit(&self.root, "", value);
        check.causes
    }

    /// Everything the schema can say about the value, CEL rules apart.
    pub(crate) fn validate(&self, value: &Value) -> Vec<Cause> {
        let mut check = Check { schema: self, types_only: false, causes: Vec::new() };
        check.visit(&self.root, "", value);
        check.causes
    }
}

struct Check<'a> {
    schema: &'a Schema,
    types_only: bool,
    causes: Vec<Cause>,
}

impl Check<'_> {
    fn visit(&mut self, node: &Node, path: &str, value: &Value) {
        let node = self.schema.resolve(node);
        if value.is_null() && (node.nullable || self.types_only) {
            return;
        }
        if !has_type(node, value) {
            self.causes.push(wrong_type(node, path, value));
            return;
        }
        if !self.types_only {
            self.check_limits(&node.limits, path, value);
            self.check_junctors(&node.junctors, path, value);
        }
        match value {
            Value::Object(map) => self.visit_map(node, path, map),
            Value::Array(list) => self.visit_list(node, path, list),
            _ => {}
        }
    }

    fn visit_map(&mut self, node: &Node, path: &str, map: &Map<String, Value>) {
        if !self.types_only {
            for field in node.required.iter().filter(|field| !map.contains_key(*field)) {
                self.causes.push(Cause::required(&join(path, field), ""));
            }
        }
        for (field, value) in map {
            if let Some(inner) = self.schema.field(node, field) {
                self.visit(inner, &join(path, field), value);
            }
        }
    }

    fn visit_list(&mut self, node: &Node, path: &str, list: &[Value]) {
        if !self.types_only {
            self.check_duplicates(node, path, list);
        }
        let Some(items) = &node.items else { return };
        for (index, item) in list.iter().enumerate() {
            self.visit(items, &format!("{path}[{index}]"), item);
        }
    }

    fn check_duplicates(&mut self, node: &Node, path: &str, list: &[Value]) {
        if node.list_type == ListType::Atomic && !node.limits.unique_items {
            return;
        }
        let mut seen = std::collections::HashSet::new();
        for (index, item) in list.iter().enumerate() {
            let identity = identity(&node.list_type, item);
            if !seen.insert(identity.to_string()) {
                let message = format!("Duplicate value: {}", quoted(&identity));
                let field = format!("{path}[{index}]");
                self.causes.push(Cause::new("FieldValueDuplicate", &field, message));
            }
        }
    }

    fn check_limits(&mut self, limits: &Limits, path: &str, value: &Value) {
        if !limits.allowed.is_empty() && !limits.allowed.contains(value) {
            let allowed: Vec<String> = limits.allowed.iter().map(plain).collect();
            self.causes.push(Cause::unsupported(path, value, &allowed));
        }
        match value {
            Value::Number(_) => self.check_number(limits, path, value),
            Value::String(text) => self.check_text(limits, path, value, text),
            Value::Array(list) => self.check_count(limits, path, list.len() as u64),
            Value::Object(map) => self.check_size(limits, path, map.len() as u64),
            _ => {}
        }
    }

    fn refuse(&mut self, path: &str, value: &Value, why: &str) {
        let shown = if path.is_empty() { "<nil>" } else { path };
        self.causes.push(Cause::invalid(shown, value, &format!("{shown} in body {why}")));
    }

    fn check_number(&mut self, limits: &Limits, path: &str, value: &Value) {
        let Some(number) = value.as_f64() else { return };
        if let Some(least) = limits.minimum
            && (number < least || limits.exclusive_minimum && number <= least)
        {
            let word = if limits.exclusive_minimum { "" } else { " or equal to" };
            self.refuse(path, value, &format!("should be greater than{word} {least}"));
        }
        if let Some(most) = limits.maximum
            && (number > most || limits.exclusive_maximum && number >= most)
        {
            let word = if limits.exclusive_maximum { "" } else { " or equal to" };
            self.refuse(path, value, &format!("should be less than{word} {most}"));
        }
        if let Some(step) = limits.multiple_of
            && step != 0.0
            && (number / step).fract() != 0.0
        {
            self.refuse(path, value, &format!("should be a multiple of {step}"));
        }
    }

    fn check_text(&mut self, limits: &Limits, path: &str, value: &Value, text: &str) {
        let length = text.chars().count() as u64;
        if let Some(least) = limits.min_length.filter(|least| length < *least) {
            self.refuse(path, value, &format!("should be at least {least} chars long"));
        }
        if let Some(most) = limits.max_length.filter(|most| length > *most) {
            let text = format!("Too long: may not be more than {most} bytes");
            self.causes.push(Cause::new("FieldValueTooLong", path, text));
        }
        if let Some(pattern) = limits.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            self.refuse(path, value, &format!("should match '{pattern}'"));
        }
        if !format_holds(&limits.format, text) {
            let why = format!("must be of type {}: {value}", limits.format);
            self.refuse(path, value, &why);
        }
    }

    fn check_count(&mut self, limits: &Limits, path: &str, count: u64) {
        if let Some(least) = limits.min_items.filter(|least| count < *least) {
            self.refuse(path, &count.into(), &format!("should have at least {least} items"));
        }
        if let Some(most) = limits.max_items.filter(|most| count > *most) {
            let text = format!("Too many: {count}: must have at most {most} items");
            self.causes.push(Cause::new("FieldValueTooMany", path, text));
        }
    }

    fn check_size(&mut self, limits: &Limits, path: &str, count: u64) {
        if let Some(least) = limits.min_properties.filter(|least| count < *least) {
            self.refuse(path, &count.into(), &format!("should have at least {least} properties"));
        }
        if let Some(most) = limits.max_properties.filter(|most| count > *most) {
            let text = format!("Too many: {count}: must have at most {most} items");
            self.causes.push(Cause::new("FieldValueTooMany", path, text));
        }
    }

    fn check_junctors(&mut self, junctors: &Junctors, path: &str, value: &Value) {
        for node in &junctors.all_of {
            self.visit(node, path, value);
        }
        if !junctors.any_of.is_empty() && !junctors.any_of.iter().any(|n| self.holds(n, value)) {
            self.refuse(path, value, "must validate at least one schema (anyOf)");
        }
        let holding = junctors.one_of.iter().filter(|node| self.holds(node, value)).count();
        if !junctors.one_of.is_empty() && holding != 1 {
            let found = if holding == 0 { "none" } else { "several" };
            let why = format!("must validate one and only one schema (oneOf). Found {found} valid");
            self.refuse(path, value, &why);
        }
        if junctors.not.as_ref().is_some_and(|node| self.holds(node, value)) {
            self.refuse(path, value, "must not validate the schema (not)");
        }
    }

    fn holds(&self, node: &Node, value: &Value) -> bool {
        let mut check = Check { schema: self.schema, types_only: false, causes: Vec::new() };
        check.visit(node, "", value);
        check.causes.is_empty()
    }
}

fn has_type(node: &Node, value: &Value) -> bool {
    if node.int_or_string {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match node.kind.as_str() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        _ => true,
    }
}

fn wrong_type(node: &Node, path: &str, value: &Value) -> Cause {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let wanted = if node.int_or_string { "integer,string" } else { node.kind.as_str() };
    let text =
        format!("Invalid value: {found:?}: {path} in body must be of type {wanted}: {found:?}");
    Cause::new("FieldValueTypeInvalid", path, text)
}

/// What tells one item of a list from the others.
fn identity(list_type: &ListType, item: &Value) -> Value {
    match list_type {
        ListType::Map(keys) => keys
            .iter()
            .filter_map(|key| Some((key.clone(), item.get(key)?.clone())))
            .collect::<Map<_, _>>()
            .into(),
        ListType::Set | ListType::Atomic => item.clone(),
    }
}

fn quoted(value: &Value) -> String {
    match value {
        Value::Object(_) => format!("{value}"),
        other => other.to_string(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Formats that the real API checks for custom resources and that we meet.
fn format_holds(format: &str, text: &str) -> bool {
    match format {
        "date-time" => crate::clock::parse(text).is_some(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => uuid::Uuid::parse_str(text).is_ok(),
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        _ => true,
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let Ok(length) = length.parse::<u8>() else { return false };
    match address.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(_)) => length <= 32,
        Ok(std::net::IpAddr::V6(_)) => length <= 128,
        Err(_) => false,
    }
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    parts.len() == 6
        && parts.iter().all(|part| part.len() == 2 && u8::from_str_radix(part, 16).is_ok())
}
