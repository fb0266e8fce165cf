//! What each pod of this node has sent and received.

use std::path::Path;

use atoll_abi::Traffic as Counters;
use atoll_plan::HostInterface;
use atoll_types::NetworkId;
use aya::maps::{MapData, PerCpuArray, PerCpuValues};

use crate::error::{Attempt, DatapathError};
use crate::maps::{Raw, pinned};

/// What one pod's interface has sent and received since it was made. A batch that the kernel has
/// not yet cut into packets counts as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The host side of the pod's interface.
    pub interface: HostInterface,
    /// Its network.
    pub network: NetworkId,
    /// The sums of all CPUs.
    pub counters: Counters,
}

/// The counters of all interfaces, by their slots.
pub(crate) struct TrafficCounters {
    map: PerCpuArray<MapData, Raw<Counters>>,
}

impl TrafficCounters {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        let map = pinned(dir, "traffic")?;
        let map = PerCpuArray::try_from(map).attempt(|| "use the map traffic".into())?;
        Ok(TrafficCounters { map })
    }

    /// Begins to count in a slot.
    pub(crate) fn reset(&mut self, slot: u16) -> Result<(), DatapathError> {
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| error);
        let zeros =
            cpus.and_then(|cpus| PerCpuValues::try_from(vec![Raw(Counters::default()); cpus]));
        let zeros = zeros.attempt(|| "count the CPUs".into())?;
        self.map.set(slot.into(), zeros, 0).attempt(|| "reset a traffic counter".into())
    }

    /// What was counted in a slot.
    pub(crate) fn get(&self, slot: u16) -> Result<Counters, DatapathError> {
        let values = self.map.get(&slot.into(), 0);
        let values = values.attempt(|| "read the traffic counters".into())?;
        Ok(values.iter().fold(Counters::default(), |sum, value| add(sum, &value.0)))
    }
}

fn add(sum: Counters, more: &Counters) -> Counters {
    Counters {
        sent_packets: sum.sent_packets + more.sent_packets,
        sent_bytes: sum.sent_bytes + more.sent_bytes,
        received_packets: sum.received_packets + more.received_packets,
        received_bytes: sum.received_bytes + more.received_bytes,
        dropped_packets: sum.dropped_packets + more.dropped_packets,
        dropped_bytes: sum.dropped_bytes + more.dropped_bytes,
    }
}
