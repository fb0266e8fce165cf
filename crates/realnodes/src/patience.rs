//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often a condition is looked at that nobody announces.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Waits until `holds` says yes. A look that fails counts as "not yet"; the last failure is told
/// when the patience ends.
pub fn wait_until(
    what: &str,
    patience: Duration,
    mut holds: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        let late = Instant::now() >= deadline;
        let waited = || format!("waited {} s for {what}", patience.as_secs());
        match holds() {
            Ok(true) => return Ok(()),
            Ok(false) if late => bail!("{} in vain", waited()),
            Err(error) if late => return Err(error).with_context(waited),
            Ok(false) | Err(_) => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_as_soon_as_the_condition_holds() {
        let mut looks = 0;
        let held = wait_until("the third look", Duration::from_secs(60), || {
            looks += 1;
            if looks == 1 {
                bail!("not yet")
            }
            Ok(looks == 3)
        });
        assert!(held.is_ok());
        assert_eq!(looks, 3);
    }

    #[test]
    fn it_tells_what_it_waited_for_and_why_it_did_not_come() {
        let said = wait_until("rain", Duration::ZERO, || bail!("the sky is blue")).unwrap_err();
        assert_eq!(format!("{said:#}"), "waited 0 s for rain: the sky is blue");
        let said = wait_until("rain", Duration::ZERO, || Ok(false)).unwrap_err();
        assert_eq!(format!("{said:#}"), "waited 0 s for rain in vain");
    }
}
