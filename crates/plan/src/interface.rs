//! The name of a pod interface's host side.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The host-side name of a pod's interface: `atl` and twelve hexadecimal digits that follow from
/// the attachment, so that the same attachment has the same name after every restart. A link
/// whose name is not of this shape is not ours and is never touched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostInterface(String);

/// A link name that is not one of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a host-side pod interface")]
pub struct HostInterfaceError(String);

const PREFIX: &str = "atl";
const DIGITS: usize = 12;

impl HostInterface {
    /// The name for interface `interface` of container `container_id`.
    pub fn for_attachment(container_id: &str, interface: &str) -> Self {
        let hash = fnv1a(container_id.bytes().chain([b'/']).chain(interface.bytes()));
        HostInterface(format!("{PREFIX}{:012x}", hash & 0xffff_ffff_ffff))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The 64-bit Fowler-Noll-Vo hash (variant 1a): stable across builds, which names need and the
/// standard library's hashers do not promise.
fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl FromStr for HostInterface {
    type Err = HostInterfaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.strip_prefix(PREFIX) {
            Some(digits) if digits.len() == DIGITS && digits.bytes().all(lower_hex) => {
                Ok(HostInterface(text.to_owned()))
            }
            _ => Err(HostInterfaceError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for HostInterface {
    type Error = HostInterfaceError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<HostInterface> for String {
    fn from(interface: HostInterface) -> String {
        interface.0
    }
}

impl fmt::Display for HostInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_stable_and_fits_the_kernels_fifteen_characters() {
        let name = HostInterface::for_attachment("c0ffee", "eth0");
        assert_eq!(name, HostInterface::for_attachment("c0ffee", "eth0"));
        assert_eq!(name.as_str().len(), 15);
        assert_eq!(name.as_str().parse(), Ok(name));
    }

    #[test]
    fn container_and_interface_cannot_be_shifted_into_each_other() {
        let one = HostInterface::for_attachment("ab", "c");
        assert_ne!(one, HostInterface::for_attachment("a", "bc"));
    }

    #[test]
    fn links_of_others_are_not_ours() {
        for name in ["eth0", "atl", "atl0", "atlXYZ000000000", "vethc0ffee00000", "atl0123456789AB"]
        {
            assert!(name.parse::<HostInterface>().is_err(), "{name}");
        }
    }
}
