//! Who gets which number: addresses of a subnet and ids of networks.
//!
//! A pool is a well-informed guess. What was handed out for good is a `Claim` object in the API,
//! whose name can exist only once; a pool is filled from the claims that were seen, proposes what
//! is probably free, and is corrected when a claim says otherwise. Its rule: it never proposes the
//! same number twice while the first proposal stands, and a freed number is proposed last.

mod pool;
mod spans;
mod subnet;

pub use pool::{IdPool, Moment};
pub use subnet::{AddressPool, Exhausted, Refusal};
