//! Which form of an answer a client takes, from its `Accept` header.

use crate::failure::Failure;

/// The forms in which objects are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Object,
    Table,
    /// Metadata only.
    Partial,
    /// All groups in one document; discovery only.
    Aggregated,
}

const OFFERED: &str = "application/json";

/// The first form in the header that can be served.
pub(super) fn negotiate(header: &str) -> Result<Form, Failure> {
    if header.trim().is_empty() {
        return Ok(Form::Object);
    }
    header.split(',').find_map(form).ok_or_else(|| Failure::not_acceptable(OFFERED))
}

fn form(range: &str) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?;
    if !matches!(media, "application/json" | "*/*" | "application/*" | "text/html") {
        return None;
    }
    let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
    let value = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, v)| *v);
    match (value("as"), value("g"), value("v")) {
        (None, _, _) => Some(Form::Object),
        (Some("Table"), Some("meta.k8s.io"), Some("v1")) => Some(Form::Table),
        (
            Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
            Some("meta.k8s.io"),
            Some("v1"),
        ) => Some(Form::Partial),
        (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => {
            Some(Form::Aggregated)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_served_is_taken() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(negotiate(kubectl).unwrap(), Form::Table);
        let protobuf = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(negotiate(protobuf).unwrap(), Form::Object);
        let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(negotiate(partial).unwrap(), Form::Partial);
        assert_eq!(negotiate("").unwrap(), Form::Object);
    }

    #[test]
    fn a_form_that_is_not_known_is_refused() {
        assert_eq!(negotiate("application/vnd.kubernetes.protobuf").unwrap_err().code, 406);
        assert_eq!(negotiate("application/json;as=Table;v=v9;g=x").unwrap_err().code, 406);
    }
}
