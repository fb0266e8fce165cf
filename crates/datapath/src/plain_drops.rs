//! What the programs of plain pods did not let pass, by reason.
//!
//! The rule: the counters are the plain pods' own, as all their maps are, and are read where they lie.

use std::path::Path;

use atoll_abi::{DropCounter, DropReason};
use aya::maps::{MapData, PerCpuArray};

use crate::error::{Attempt, DatapathError};
use crate::maps::{DropCount, Raw, check_shape, pinned};

const MAP: &str = "plain_drops";

/// Refuses a pinned map whose entries have other sizes than ours.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    check_shape::<u32, DropCounter>(&dir.join(MAP))
}

/// What was counted in the map pinned in `dir`; nothing where there is none.
pub(crate) fn read(dir: &Path) -> Result<Vec<DropCount>, DatapathError> {
    if !dir.join(MAP).exists() {
        return Ok(Vec::new());
    }
    let map: PerCpuArray<MapData, Raw<DropCounter>> =
        PerCpuArray::try_from(pinned(dir, MAP)?).attempt(|| format!("use the map {MAP}"))?;
    let mut counted = Vec::new();
    for reason in DropReason::ALL {
        let values = map.get(&reason.number(), 0).attempt(|| format!("read the map {MAP}"))?;
        let packets = values.iter().map(|value| value.0.packets).sum();
        let bytes = values.iter().map(|value| value.0.bytes).sum();
        if packets > 0 {
            counted.push(DropCount { network: None, reason: *reason, packets, bytes });
        }
    }
    Ok(counted)
}

/// Both together, what was counted twice as one.
pub(crate) fn add(mut drops: Vec<DropCount>, more: Vec<DropCount>) -> Vec<DropCount> {
    for one in more {
        let is_same = |it: &&mut DropCount| (it.network, it.reason) == (one.network, one.reason);
        match drops.iter_mut().find(is_same) {
            Some(known) => {
                known.packets += one.packets;
                known.bytes += one.bytes;
            }
            None => drops.push(one),
        }
    }
    drops
}

#[cfg(test)]
mod tests {
    use atoll_abi::PLAIN_DROP_REASONS;

    use super::*;

    #[test]
    fn every_reason_has_its_place_among_the_counters_of_plain_pods() {
        assert!(DropReason::ALL.iter().all(|reason| reason.number() < PLAIN_DROP_REASONS));
    }

    #[test]
    fn what_two_programs_dropped_for_one_reason_is_told_as_one() {
        let drop = |reason, packets| DropCount { network: None, reason, packets, bytes: 60 };
        let (malformed, tunnel) = (DropReason::Malformed, DropReason::TunnelPort);
        let sum = add(vec![drop(malformed, 2)], vec![drop(tunnel, 1), drop(malformed, 3)]);
        let told: Vec<_> = sum.iter().map(|it| (it.reason, it.packets, it.bytes)).collect();
        assert_eq!(told, [(malformed, 5, 120), (tunnel, 1, 60)]);
    }
}
