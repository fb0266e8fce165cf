//! A label selector, parsed once.
//!
//! The rule kept here: what cannot be understood is an error, never a selector that finds more or
//! less than was written.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::facts::Labels;

/// Finds objects by their labels. The empty selector finds everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector(BTreeSet<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Requirement {
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Exists(String),
    Absent(String),
}

/// Why a selector cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The operator is none of the four.
    #[error("operator {0:?} is none of In, NotIn, Exists, DoesNotExist")]
    Operator(String),
    /// `In` and `NotIn` compare with values.
    #[error("operator {operator} of key {key:?} needs at least one value")]
    NoValues {
        /// The operator.
        operator: String,
        /// The label that it is about.
        key: String,
    },
    /// `Exists` and `DoesNotExist` compare with nothing.
    #[error("operator {operator} of key {key:?} takes no values")]
    Values {
        /// The operator.
        operator: String,
        /// The label that it is about.
        key: String,
    },
}

impl Selector {
    /// Whether an object with these labels is found.
    pub fn finds(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels))
    }
}

impl TryFrom<&LabelSelector> for Selector {
    type Error = SelectorError;

    fn try_from(selector: &LabelSelector) -> Result<Self, Self::Error> {
        let equal = selector.match_labels.iter().flatten();
        let equal = equal
            .map(|(key, value)| Ok(Requirement::In(key.clone(), BTreeSet::from([value.clone()]))));
        let expressions = selector.match_expressions.iter().flatten().map(Requirement::read);
        Ok(Selector(equal.chain(expressions).collect::<Result<_, _>>()?))
    }
}

impl Requirement {
    fn read(written: &LabelSelectorRequirement) -> Result<Self, SelectorError> {
        let key = written.key.clone();
        let values: BTreeSet<String> = written.values.iter().flatten().cloned().collect();
        match written.operator.as_str() {
            "In" if !values.is_empty() => Ok(Requirement::In(key, values)),
            "NotIn" if !values.is_empty() => Ok(Requirement::NotIn(key, values)),
            "Exists" if values.is_empty() => Ok(Requirement::Exists(key)),
            "DoesNotExist" if values.is_empty() => Ok(Requirement::Absent(key)),
            "In" | "NotIn" => {
                Err(SelectorError::NoValues { operator: written.operator.clone(), key })
            }
            "Exists" | "DoesNotExist" => {
                Err(SelectorError::Values { operator: written.operator.clone(), key })
            }
            _ => Err(SelectorError::Operator(written.operator.clone())),
        }
    }

    fn holds(&self, labels: &Labels) -> bool {
        match self {
            Requirement::In(key, values) => labels.get(key).is_some_and(|v| values.contains(v)),
            Requirement::NotIn(key, values) => labels.get(key).is_none_or(|v| !values.contains(v)),
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::Absent(key) => !labels.contains_key(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> LabelSelector {
        let requirement = LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
        };
        LabelSelector { match_expressions: Some(vec![requirement]), match_labels: None }
    }

    fn finds(selector: &LabelSelector, pairs: &[(&str, &str)]) -> bool {
        Selector::try_from(selector).unwrap().finds(&labels(pairs))
    }

    #[test]
    fn the_empty_selector_finds_everything() {
        assert!(finds(&LabelSelector::default(), &[]));
        assert!(finds(&LabelSelector::default(), &[("app", "web")]));
    }

    #[test]
    fn not_in_and_does_not_exist_find_what_has_no_such_label() {
        assert!(finds(&expression("app", "NotIn", &["web"]), &[]));
        assert!(finds(&expression("app", "NotIn", &["web"]), &[("app", "db")]));
        assert!(!finds(&expression("app", "NotIn", &["web"]), &[("app", "web")]));
        assert!(finds(&expression("app", "DoesNotExist", &[]), &[]));
        assert!(!finds(&expression("app", "DoesNotExist", &[]), &[("app", "")]));
    }

    #[test]
    fn in_and_exists_need_the_label() {
        assert!(finds(&expression("app", "In", &["web", "db"]), &[("app", "db")]));
        assert!(!finds(&expression("app", "In", &["web", "db"]), &[]));
        assert!(finds(&expression("app", "Exists", &[]), &[("app", "")]));
        assert!(!finds(&expression("app", "Exists", &[]), &[]));
    }

    #[test]
    fn what_cannot_be_understood_is_an_error() {
        for (operator, values) in [("Gt", &["1"][..]), ("In", &[]), ("Exists", &["x"])] {
            assert!(Selector::try_from(&expression("app", operator, values)).is_err());
        }
    }
}
