//! Bytes that never change, where they are asked for: few of them lie in the value itself, more in
//! memory of their own.
//!
//! Its rule: what most names need is found without another step through memory.

use std::fmt;
use std::ops::Deref;

/// Up to `N` bytes here, more elsewhere. `N` is at most 255.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Packed<const N: usize> {
    Here(u8, [u8; N]),
    Elsewhere(Box<[u8]>),
}

impl<const N: usize> From<&[u8]> for Packed<N> {
    fn from(bytes: &[u8]) -> Self {
        let mut here = [0; N];
        match (here.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            (Some(room), Ok(len)) => {
                room.copy_from_slice(bytes);
                Packed::Here(len, here)
            }
            _ => Packed::Elsewhere(bytes.into()),
        }
    }
}

impl<const N: usize> Default for Packed<N> {
    fn default() -> Self {
        Packed::Here(0, [0; N])
    }
}

impl<const N: usize> Deref for Packed<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Packed::Here(len, bytes) => &bytes[..usize::from(*len)],
            Packed::Elsewhere(bytes) => bytes,
        }
    }
}

impl<const N: usize> fmt::Debug for Packed<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_the_bytes_that_went_in(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert_eq!(&*Packed::<30>::from(&bytes[..]), &bytes[..]);
            prop_assert_eq!(&*Packed::<255>::from(&bytes[..]), &bytes[..]);
        }
    }

    #[test]
    fn as_many_as_fit_need_no_memory_of_their_own() {
        assert!(matches!(Packed::<30>::from(&[1; 30][..]), Packed::Here(30, _)));
        assert!(matches!(Packed::<30>::from(&[1; 31][..]), Packed::Elsewhere(_)));
        assert_eq!(size_of::<Packed<30>>(), 32);
    }
}
