//! The clock that the kernel programs read, too.

use nix::time::{ClockId, clock_gettime};

use crate::error::{Attempt, DatapathError};

/// Nanoseconds of the monotonic clock at its last tick, as in the entries of the maps.
pub(crate) fn now() -> Result<u64, DatapathError> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).attempt(|| "read the clock".into())?;
    let part = |part: i64| u64::try_from(part).attempt(|| "read the clock".into());
    Ok(part(now.tv_sec())? * 1_000_000_000 + part(now.tv_nsec())?)
}
