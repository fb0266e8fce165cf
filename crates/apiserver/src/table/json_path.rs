//! The part of JSONPath that printer columns use: fields, quoted fields, indexes, `[*]` and
//! filters of the form `[?(@.type=="Ready")]`.

use serde_json::Value;

/// Every value the path leads to; none when the path does not fit or cannot be read.
pub(super) fn find<'a>(root: &'a Value, path: &str) -> Vec<&'a Value> {
    let Some(steps) = steps(path) else { return Vec::new() };
    steps.iter().fold(vec![root], |values, step| {
        values.into_iter().flat_map(|value| step.follow(value)).collect()
    })
}

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    Where { field: Vec<String>, equals: String },
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Index(index) => nth(value, *index).into_iter().collect(),
            Step::All => children(value),
            Step::Where { field, equals } => {
                children(value).into_iter().filter(|item| holds(item, field, equals)).collect()
            }
        }
    }
}

fn nth(value: &Value, index: i64) -> Option<&Value> {
    let list = value.as_array()?;
    let place = if index < 0 { index + i64::try_from(list.len()).ok()? } else { index };
    list.get(usize::try_from(place).ok()?)
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn holds(item: &Value, field: &[String], equals: &str) -> bool {
    let found = field.iter().try_fold(item, |value, step| value.get(step));
    match found {
        Some(Value::String(text)) => text == equals,
        Some(other) => {
            let text = other.to_string();
            text == equals
        }
        None => false,
    }
}

fn steps(path: &str) -> Option<Vec<Step>> {
    let path = path.trim().trim_start_matches('{').trim_end_matches('}');
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, tail) = next(rest)?;
        steps.extend(step);
        rest = tail;
    }
    Some(steps)
}

fn next(rest: &str) -> Option<(Option<Step>, &str)> {
    if let Some(inside) = rest.strip_prefix('[') {
        let end = closing(inside)?;
        return Some((Some(bracket(&inside[..end])?), &inside[end + 1..]));
    }
    let field = rest.strip_prefix('.').unwrap_or(rest);
    let (name, end) = name(field);
    let step = match name.as_str() {
        "" => None,
        "*" => Some(Step::All),
        _ => Some(Step::Field(name)),
    };
    (step.is_some() || end < field.len() || field.len() < rest.len())
        .then_some((step, &field[end..]))
}

/// A field name up to the next unescaped `.` or `[`.
fn name(text: &str) -> (String, usize) {
    let mut name = String::new();
    let mut escaped = false;
    for (place, c) in text.char_indices() {
        match c {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => return (name, place),
            _ => {
                name.push(c);
                escaped = false;
            }
        }
    }
    (name, text.len())
}

/// The place of the bracket that closes, quotes respected.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (place, c) in text.char_indices() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, ']') => return Some(place),
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(condition) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        return condition_step(condition);
    }
    if let Ok(index) = text.parse() {
        return Some(Step::Index(index));
    }
    Some(Step::Field(unquoted(text)?.to_owned()))
}

fn condition_step(text: &str) -> Option<Step> {
    let (left, right) = text.split_once("==")?;
    let field = left.trim().strip_prefix("@.")?.split('.').map(str::to_owned).collect();
    let right = right.trim();
    let equals = unquoted(right).unwrap_or(right).to_owned();
    Some(Step::Where { field, equals })
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object() -> Value {
        json!({
            "metadata": {"labels": {"a.b/c": "x"}},
            "spec": {"cidrs": ["10.0.0.0/8", "fd00::/8"]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Old", "status": "False", "seen": 3}]},
        })
    }

    #[test]
    fn paths_of_printer_columns_are_followed() {
        let paths = [
            (".spec.cidrs[0]", json!(["10.0.0.0/8"])),
            (".spec.cidrs[-1]", json!(["fd00::/8"])),
            (".spec.cidrs[*]", json!(["10.0.0.0/8", "fd00::/8"])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type=='Old')].status", json!(["False"])),
            (".metadata.labels['a.b/c']", json!(["x"])),
            (".metadata.labels.a\\.b/c", json!(["x"])),
            (".status.conditions[?(@.seen==3)].type", json!(["Old"])),
            (".status.none.deeper", json!([])),
        ];
        for (path, expected) in paths {
            assert_eq!(json!(find(&object(), path)), expected, "{path}");
        }
    }

    #[test]
    fn a_path_that_cannot_be_read_finds_nothing() {
        assert!(find(&object(), ".spec[").is_empty());
    }
}
