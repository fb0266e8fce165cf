//! What each pod of this node has sent and received.

use std::path::Path;

use atoll_abi::{InterfaceKey, Traffic as Counters};
use atoll_plan::HostInterface;
use atoll_types::NetworkId;
use aya::maps::{MapData, PerCpuHashMap, PerCpuValues};

use crate::error::{Attempt, DatapathError};
use crate::maps::{Raw, is_missing, pinned};

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

/// The counters of all interfaces.
pub(crate) struct TrafficCounters {
    map: PerCpuHashMap<MapData, Raw<InterfaceKey>, Raw<Counters>>,
}

impl TrafficCounters {
    pub(crate) fn open(dir: &Path) -> Result<Self, DatapathError> {
        let map = pinned(dir, "traffic")?;
        let map = PerCpuHashMap::try_from(map).attempt(|| "use the map traffic".into())?;
        Ok(TrafficCounters { map })
    }

    /// Begins to count for an interface, unless it is counted already.
    pub(crate) fn ensure(&mut self, key: InterfaceKey) -> Result<(), DatapathError> {
        if !is_missing(&self.map.get(&Raw(key), 0)) {
            return Ok(());
        }
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| error);
        let zeros =
            cpus.and_then(|cpus| PerCpuValues::try_from(vec![Raw(Counters::default()); cpus]));
        let zeros = zeros.attempt(|| "count the CPUs".into())?;
        self.map.insert(Raw(key), zeros, 0).attempt(|| "make a traffic counter".into())
    }

    /// Forgets what was counted for an interface.
    pub(crate) fn remove(&mut self, key: InterfaceKey) -> Result<(), DatapathError> {
        match self.map.remove(&Raw(key)) {
            done if is_missing(&done) => Ok(()),
            done => done.attempt(|| "remove a traffic counter".into()),
        }
    }

    /// What was counted for an interface; nothing where it is not counted.
    pub(crate) fn get(&self, key: InterfaceKey) -> Result<Counters, DatapathError> {
        match self.map.get(&Raw(key), 0) {
            found if is_missing(&found) => Ok(Counters::default()),
            found => {
                let values = found.attempt(|| "read the traffic counters".into())?;
                Ok(values.iter().fold(Counters::default(), |sum, value| add(sum, &value.0)))
            }
        }
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
