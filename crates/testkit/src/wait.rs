//! Waiting for a condition instead of sleeping for a time, and ending what waits for a test.

use std::io;
use std::net::{SocketAddr, UdpSocket};
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

/// Does what waits for somebody, again where a signal ended the wait: a process that is stopped and goes
/// on, as a busy machine may have it, hears nothing else than that.
pub fn uninterrupted<T>(mut wait: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match wait() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Waits for datagrams, uninterrupted, as long as the socket's own limit lets it.
pub trait Hears {
    /// The next datagram of whom the socket is connected to, or of anybody.
    ///
    /// # Errors
    /// What the kernel says of the peer, or that nothing came in time.
    fn hear(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// The next datagram, and who sent it.
    ///
    /// # Errors
    /// As for `hear`.
    fn hear_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
}

impl Hears for UdpSocket {
    fn hear(&self, buffer: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| self.recv(buffer))
    }

    fn hear_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        uninterrupted(|| self.recv_from(buffer))
    }
}

/// Binds a socket, again while its place is taken: one that was closed lives on in each child of this process
/// that has not yet become another program.
///
/// # Panics
/// When the place is not free within a minute, or cannot be had at all.
pub fn bound<T>(mut bind: impl FnMut() -> io::Result<T>) -> T {
    eventually("the place of a socket is free", || match bind() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
        done => Some(done.expect("a socket can be bound")),
    })
}

/// Has everything end that goes on until told to stop, when the test ends, also by a panic.
#[derive(Debug)]
pub struct Stops<'a>(pub &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_a_signal_ended_begins_again_and_another_end_counts() {
        let mut ends = [io::ErrorKind::Interrupted, io::ErrorKind::WouldBlock].into_iter();
        let ended = uninterrupted(|| ends.next().map_or(Ok(()), |kind| Err(kind.into())));
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_place_that_is_taken_for_a_moment_is_waited_for() {
        let mut tries = [Err(io::ErrorKind::AddrInUse.into()), Ok("bound")].into_iter();
        assert_eq!(bound(|| tries.next().unwrap()), "bound");
    }

    #[test]
    #[should_panic(expected = "a socket can be bound")]
    fn a_place_that_cannot_be_had_is_told_at_once() {
        bound(|| Err::<(), _>(io::ErrorKind::AddrNotAvailable.into()));
    }
}
