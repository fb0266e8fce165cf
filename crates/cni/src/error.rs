//! What goes wrong, in the numbers and the JSON of the CNI specification.

use serde::{Deserialize, Serialize};

/// The error numbers of the specification that this plugin uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum ErrorCode {
    /// The configuration's version is not supported, or lacks the command.
    IncompatibleVersion = 1,
    /// A CNI environment variable is missing or invalid.
    InvalidEnvironment = 4,
    /// Reading or talking failed.
    Io = 5,
    /// What was read is no JSON of the right shape.
    Decode = 6,
    /// The configuration makes no sense.
    InvalidConfig = 7,
    /// Not now; the runtime should try again.
    TryAgainLater = 11,
    /// The plugin cannot take new containers.
    NotAvailable = 50,
    /// The agent tried and could not.
    AttachFailed = 100,
    /// The interface is not as it was made.
    CheckFailed = 101,
}

const CODES: [ErrorCode; 9] = [
    ErrorCode::IncompatibleVersion,
    ErrorCode::InvalidEnvironment,
    ErrorCode::Io,
    ErrorCode::Decode,
    ErrorCode::InvalidConfig,
    ErrorCode::TryAgainLater,
    ErrorCode::NotAvailable,
    ErrorCode::AttachFailed,
    ErrorCode::CheckFailed,
];

impl From<ErrorCode> for u32 {
    fn from(code: ErrorCode) -> u32 {
        code as u32
    }
}

impl TryFrom<u32> for ErrorCode {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        let known = CODES.into_iter().find(|code| u32::from(*code) == number);
        known.ok_or_else(|| format!("{number} is no error number of this plugin"))
    }
}

/// An error as the runtime reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{msg}")]
pub struct CniError {
    /// Which kind.
    pub code: ErrorCode,
    /// What was tried and what to do, in one sentence.
    pub msg: String,
    /// The cause, where there is more to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl CniError {
    /// An error of this kind.
    pub fn new(code: ErrorCode, msg: impl Into<String>) -> Self {
        CniError { code, msg: msg.into(), details: String::new() }
    }

    /// The same error with its cause.
    #[must_use]
    pub fn because(mut self, cause: impl std::fmt::Display) -> Self {
        self.details = cause.to_string();
        self
    }

    /// One error that tells of each of these; none where there are none.
    pub fn of_all(failures: &[CniError]) -> Result<(), CniError> {
        let told = |failure: &CniError| match failure.details.as_str() {
            "" => failure.msg.clone(),
            details => format!("{} ({details})", failure.msg),
        };
        match failures {
            [] => Ok(()),
            [one] => Err(one.clone()),
            [first, ..] => {
                let all: Vec<_> = failures.iter().map(told).collect();
                Err(CniError::new(first.code, all.join("; and ")))
            }
        }
    }

    /// The JSON that goes to standard output.
    pub fn to_json(&self, version: &str) -> serde_json::Value {
        serde_json::json!({
            "cniVersion": version, "code": u32::from(self.code),
            "msg": self.msg, "details": self.details,
        })
    }
}
