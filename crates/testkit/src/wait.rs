//! Waiting for a condition instead of sleeping for a time, and ending what waits for a test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Generous: a machine may be busy, and who waits in vain has failed anyway.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until `condition` gives something.
///
/// # Panics
/// When it has given nothing for a minute, naming `what` was awaited.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} in vain until {what}");
        thread::sleep(PAUSE);
    }
}

/// Has everything end that goes on until told to stop, when the test ends, also by a panic.
#[derive(Debug)]
pub struct Stops<'a>(pub &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
