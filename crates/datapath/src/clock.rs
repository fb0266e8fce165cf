//! The clock that the kernel programs read, too.

use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};

use crate::error::{Attempt, DatapathError};

/// Nanoseconds of the monotonic clock at its last tick, as in the entries of the maps.
pub(crate) fn now() -> Result<u64, DatapathError> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).attempt(|| "read the clock".into())?;
    let part = |part: i64| u64::try_from(part).attempt(|| "read the clock".into());
    Ok(part(now.tv_sec())? * 1_000_000_000 + part(now.tv_nsec())?)
}

/// When the monotonic clock stood at zero, by the clock on the wall; the epoch, should it tell
/// nonsense.
pub(crate) fn zero() -> SystemTime {
    let since = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    SystemTime::now().checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH)
}
