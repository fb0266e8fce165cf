//! Those who ask at the moment.
//!
//! The rule of this file: nobody who comes is turned away. Where too many are here, whoever has been here
//! longest leaves: an answer takes no time, and who has not had it yet is slow or silent.

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::AbortHandle;

/// How many may ask at one port at a time, and at all.
pub(super) const AT_ONE: usize = 16;
const AT_ALL: usize = 128;

/// Those who ask, in the order in which they came, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visitors(Arc<Mutex<VecDeque<(SocketAddr, AbortHandle)>>>);

impl Visitors {
    /// Hears one more.
    pub(super) fn admit(
        &self,
        at: SocketAddr,
        conversation: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut here = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        here.retain(|(_, visitor)| !visitor.is_finished());
        let at_this = here.iter().filter(|(place, _)| *place == at).count();
        let leaves = match (at_this >= AT_ONE, here.len() >= AT_ALL) {
            (true, _) => here.iter().position(|(place, _)| *place == at),
            (false, true) => Some(0),
            (false, false) => None,
        };
        if let Some((_, longest)) = leaves.and_then(|index| here.remove(index)) {
            longest.abort();
        }
        here.push_back((at, tokio::spawn(conversation).abort_handle()));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn place(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    /// Somebody who stays, and who says when it left.
    fn silent(visitors: &Visitors, port: u16) -> oneshot::Receiver<()> {
        let (here, left) = oneshot::channel::<()>();
        visitors.admit(place(port), async move {
            std::future::pending::<()>().await;
            drop(here);
        });
        left
    }

    #[tokio::test]
    async fn who_has_been_at_a_port_longest_leaves_and_those_at_another_stay() {
        let visitors = Visitors::default();
        let mut other = silent(&visitors, 2);
        let mut crowd: VecDeque<_> = (0..AT_ONE).map(|_| silent(&visitors, 1)).collect();
        let last = silent(&visitors, 1);
        crowd.pop_front().unwrap().await.unwrap_err();
        assert!(crowd.iter_mut().chain([&mut other]).all(|it| it.is_empty()));
        drop(last);
    }

    #[tokio::test]
    async fn no_more_are_here_than_there_may_be_whatever_the_ports() {
        let visitors = Visitors::default();
        let first = silent(&visitors, 1);
        let _others: Vec<_> = (0..AT_ALL as u16).map(|at| silent(&visitors, 2 + at)).collect();
        first.await.unwrap_err();
        assert_eq!(visitors.0.lock().unwrap().len(), AT_ALL);
    }
}
