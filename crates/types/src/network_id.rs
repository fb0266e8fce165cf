//! The number by which the kernel knows a network: the VXLAN id on the wire and the first field of
//! every map key. It has 24 bits and is never zero.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// A network's number: 1 to 2^24 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct NetworkId(NonZeroU32);

/// A number that cannot name a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("network id {0} is not between 1 and {max}", max = NetworkId::MAX.get())]
pub struct NetworkIdError(u32);

impl NetworkId {
    /// The smallest id.
    pub const MIN: NetworkId = NetworkId(NonZeroU32::MIN);
    /// The largest id that fits a VXLAN header.
    pub const MAX: NetworkId = match NonZeroU32::new((1 << 24) - 1) {
        Some(max) => NetworkId(max),
        None => unreachable!(),
    };

    /// The number itself.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl TryFrom<u32> for NetworkId {
    type Error = NetworkIdError;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        NonZeroU32::new(number)
            .map(NetworkId)
            .filter(|id| *id <= NetworkId::MAX)
            .ok_or(NetworkIdError(number))
    }
}

impl From<NetworkId> for u32 {
    fn from(id: NetworkId) -> u32 {
        id.get()
    }
}

impl fmt::Display for NetworkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_more_than_24_bits_are_refused() {
        assert!(NetworkId::try_from(0).is_err());
        assert!(NetworkId::try_from(1 << 24).is_err());
        assert_eq!(NetworkId::try_from((1 << 24) - 1), Ok(NetworkId::MAX));
        assert_eq!(NetworkId::try_from(1), Ok(NetworkId::MIN));
    }

    #[test]
    fn the_error_says_what_would_be_right() {
        let error = NetworkId::try_from(0).unwrap_err();
        assert_eq!(error.to_string(), "network id 0 is not between 1 and 16777215");
    }
}
