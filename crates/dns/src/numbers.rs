//! A quick hash for numbers that the agent gave out itself.
//!
//! Its rule: never for anything that a tenant may choose; those hashes are keyed.

use std::hash::{BuildHasherDefault, Hasher};

/// An odd number with its bits well mixed.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The state of the hash.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers(u64);

/// For a map by such numbers.
pub(crate) type ByNumber = BuildHasherDefault<Numbers>;

impl Hasher for Numbers {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(MIX);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, Hash};

    use super::*;

    fn spread<T: Hash>(keys: impl Iterator<Item = T>) -> (usize, usize) {
        let hashes: Vec<u64> = keys.map(|key| ByNumber::default().hash_one(key)).collect();
        let distinct =
            |of: &dyn Fn(&u64) -> u64| hashes.iter().map(of).collect::<HashSet<_>>().len();
        (distinct(&|hash| hash & 0xfff), distinct(&|hash| hash >> 57))
    }

    #[test]
    fn numbers_in_a_row_and_numbers_far_apart_are_spread_over_a_map() {
        for step in [1u64, 64, 256, 1 << 20] {
            let (places, marks) = spread((0..4096).map(|n| n * step));
            assert!(places > 2_000 && marks == 128, "step {step}: {places} places, {marks} marks");
        }
    }
}
