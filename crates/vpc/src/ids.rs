//! The ids of networks, handed out in a circle.

use atoll_types::NetworkId;

use crate::circle::{Circle, Moment};
use crate::spans::Spans;

/// The ids that networks may have.
#[derive(Clone, Debug)]
pub(crate) struct IdPool(Circle);

impl Default for IdPool {
    fn default() -> Self {
        IdPool(Circle::new(
            NetworkId::MIN.get().into(),
            NetworkId::MAX.get().into(),
            Spans::default(),
        ))
    }
}

impl IdPool {
    /// Marks an id as taken.
    pub(crate) fn take(&mut self, id: NetworkId) {
        self.0.take(id.get().into());
    }

    /// Marks an id as free again; it is not proposed before `until`.
    pub(crate) fn free(&mut self, id: NetworkId, until: Moment) {
        self.0.free(id.get().into(), until);
    }

    /// Takes an id that is probably free, if there is one.
    pub(crate) fn propose(&mut self, now: Moment) -> Option<NetworkId> {
        let number = self.0.next(now).ok()?;
        NetworkId::try_from(u32::try_from(number).ok()?).ok()
    }

    /// How many ids are taken.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> u128 {
        self.0.taken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::ZERO;

    #[test]
    fn ids_start_at_one_and_skip_what_others_hold() {
        let mut ids = IdPool::default();
        ids.take(NetworkId::MIN);
        assert_eq!(ids.propose(START), NetworkId::try_from(2).ok());
        assert_eq!(ids.propose(START), NetworkId::try_from(3).ok());
    }
}
