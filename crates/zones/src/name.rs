//! Domain names as they stand in a packet: labels with their lengths before them, a zero at the
//! end, letters in lower case.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest name that fits a packet.
pub const MAX_NAME: usize = 255;

/// A whole name in wire form, lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct DomainName(Box<[u8]>);

/// A text that is no domain name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a domain name: labels of 1 to 63 bytes, 253 bytes in all")]
pub struct DomainNameError(String);

impl DomainName {
    /// Reads `example.com` or `example.com.`.
    pub fn parse(text: &str) -> Result<Self, DomainNameError> {
        let mut wire = vec![];
        for label in text.trim_end_matches('.').split('.').filter(|_| !text.is_empty()) {
            if label.is_empty() || label.len() > 63 {
                return Err(DomainNameError(text.to_owned()));
            }
            push_label(&mut wire, label);
        }
        wire.push(0);
        if wire.len() > MAX_NAME {
            return Err(DomainNameError(text.to_owned()));
        }
        Ok(DomainName(wire.into()))
    }

    /// The bytes as they stand in a packet, with the zero at the end.
    pub fn wire(&self) -> &[u8] {
        &self.0
    }

    /// How many labels it has.
    pub fn labels(&self) -> usize {
        labels(&self.0).count()
    }
}

impl From<DomainName> for String {
    fn from(name: DomainName) -> String {
        name.to_string()
    }
}

impl TryFrom<String> for DomainName {
    type Error = DomainNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        DomainName::parse(&text)
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for label in labels(&self.0) {
            write!(f, "{}.", String::from_utf8_lossy(label))?;
        }
        Ok(())
    }
}

/// Writes a label with its length before it, in lower case. It must have at most 63 bytes.
pub(crate) fn push_label(wire: &mut Vec<u8>, label: &str) {
    wire.push(label.len() as u8);
    wire.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
}

fn labels(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = wire;
    std::iter::from_fn(move || {
        let (&len, after) = rest.split_first().filter(|(len, _)| **len != 0)?;
        let (label, next) = after.split_at_checked(usize::from(len))?;
        rest = next;
        Some(label)
    })
}

/// A name that was asked for, with the places where its labels start.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    wire: &'a [u8],
    starts: &'a [u8],
}

impl<'a> Asked<'a> {
    /// The name in wire form and lower case, and where each label starts. Whoever parsed the
    /// packet knows both.
    pub fn new(wire: &'a [u8], starts: &'a [u8]) -> Self {
        Asked { wire, starts }
    }

    /// The bytes, with the zero at the end.
    pub fn wire(&self) -> &'a [u8] {
        self.wire
    }

    /// How many labels it has.
    pub(crate) fn count(&self) -> usize {
        self.starts.len()
    }

    /// Where label `n` starts; the end for the one after the last.
    pub(crate) fn start(&self, n: usize) -> usize {
        self.starts.get(n).map_or(self.wire.len().saturating_sub(1), |start| usize::from(*start))
    }

    /// The labels `from` to `to`, with their lengths before them and no zero.
    pub(crate) fn span(&self, from: usize, to: usize) -> &'a [u8] {
        self.wire.get(self.start(from)..self.start(to)).unwrap_or_default()
    }

    /// Label `n` without its length.
    pub(crate) fn label(&self, n: usize) -> &'a [u8] {
        self.span(n, n + 1).get(1..).unwrap_or_default()
    }

    /// How many labels stand before `suffix`, when the name ends with it.
    pub(crate) fn before(&self, suffix: &[u8], labels: usize) -> Option<usize> {
        let before = self.count().checked_sub(labels)?;
        (self.wire.get(self.start(before)..)? == suffix).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_and_shown_with_its_dots() {
        let name = DomainName::parse("Example.COM").unwrap();
        assert_eq!(name.wire(), b"\x07example\x03com\x00");
        assert_eq!((name.to_string().as_str(), name.labels()), ("example.com.", 2));
        assert_eq!(DomainName::parse("example.com.").unwrap(), name);
    }

    #[test]
    fn what_does_not_fit_is_no_name() {
        let long = ["a"; 127].join(".");
        assert!(DomainName::parse(&long).is_ok());
        for bad in ["a..b", ".a", &"a".repeat(64), &format!("{long}.a")] {
            assert!(DomainName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_suffix_counts_only_at_a_label() {
        let asked = Asked::new(b"\x01a\x03com\x00", &[0, 2]);
        assert_eq!(asked.before(b"\x03com\x00", 1), Some(1));
        assert_eq!(asked.before(b"\x02om\x00", 1), None);
        assert_eq!((asked.label(0), asked.label(1)), (b"a".as_slice(), b"com".as_slice()));
    }
}
