//! Whether pods of tenants reach infra: the nodes, and the pods of no tenant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What an administrator says of the way from tenants to infra. There is none the other way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum InfraMode {
    /// Only what is exported to them, through the agent of their node.
    #[default]
    Isolated,
    /// Also directly, where addresses do not conflict.
    Compatible,
}

/// A text that is no mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no mode of infra: say isolated or compatible")]
pub struct InfraModeError(String);

impl FromStr for InfraMode {
    type Err = InfraModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "isolated" => Ok(InfraMode::Isolated),
            "compatible" => Ok(InfraMode::Compatible),
            other => Err(InfraModeError(other.to_owned())),
        }
    }
}

impl fmt::Display for InfraMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InfraMode::Isolated => "isolated",
            InfraMode::Compatible => "compatible",
        })
    }
}

impl TryFrom<String> for InfraMode {
    type Error = InfraModeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<InfraMode> for String {
    fn from(mode: InfraMode) -> Self {
        mode.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_read_as_it_is_written_and_nothing_else_is_one() {
        for mode in [InfraMode::Isolated, InfraMode::Compatible] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let wrong = "open".parse::<InfraMode>().unwrap_err().to_string();
        assert_eq!(wrong, "\"open\" is no mode of infra: say isolated or compatible");
    }
}
