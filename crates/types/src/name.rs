//! Names as Kubernetes writes them: DNS labels, and the two-part name of a network.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A DNS label: 1 to 63 of `a-z`, `0-9` and `-`, with a letter or digit at both ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(String);

/// A text that is no name of the kind asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not a DNS label.
    #[error("{0:?} is not a name of 1 to 63 lower-case letters, digits and inner dashes")]
    NotALabel(String),
    /// Not `<tenant>.<network>`.
    #[error("{0:?} is not a network's name like acme.default (<tenant>.<network>)")]
    NotANetworkName(String),
}

impl Label {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Label {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = (1..=63).contains(&text.len())
            && text.bytes().all(inner)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if fits { Ok(Label(text.to_owned())) } else { Err(NameError::NotALabel(text.to_owned())) }
    }
}

impl TryFrom<String> for Label {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Label> for String {
    fn from(label: Label) -> String {
        label.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a `Network` object: `<tenant>.<network>`. Inside the tenant, pods and namespaces
/// say just `<network>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NetworkName {
    /// The tenant that owns the network.
    pub tenant: Label,
    /// What the tenant calls it.
    pub network: Label,
}

impl NetworkName {
    /// The network that `tenant` calls `network`.
    pub fn new(tenant: Label, network: Label) -> Self {
        NetworkName { tenant, network }
    }
}

impl FromStr for NetworkName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NameError::NotANetworkName(text.to_owned());
        let (tenant, network) = text.split_once('.').ok_or_else(wrong)?;
        Ok(NetworkName {
            tenant: tenant.parse().map_err(|_| wrong())?,
            network: network.parse().map_err(|_| wrong())?,
        })
    }
}

impl TryFrom<String> for NetworkName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<NetworkName> for String {
    fn from(name: NetworkName) -> String {
        name.to_string()
    }
}

impl fmt::Display for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.tenant, self.network)
    }
}

/// A pod by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodRef {
    /// The namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
}

impl PodRef {
    /// The pod `name` in `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        PodRef { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_what_dns_allows() {
        for good in ["a", "acme", "vpc-1", "0", &"a".repeat(63)] {
            assert!(good.parse::<Label>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", &"a".repeat(64), "ä"] {
            assert!(bad.parse::<Label>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_network_name_has_exactly_two_parts() {
        let name: NetworkName = "acme.default".parse().unwrap();
        assert_eq!((name.tenant.as_str(), name.network.as_str()), ("acme", "default"));
        assert_eq!(name.to_string(), "acme.default");
        for bad in ["acme", "acme.", ".default", "acme.a.b", "Acme.default"] {
            assert!(bad.parse::<NetworkName>().is_err(), "{bad}");
        }
    }
}
