//! A kernel made of maps: it takes every step an agent asks for, and counts them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use atoll_agent::Kernel;
use atoll_datapath::{DropCount, Event, Tended};
use atoll_plan::{HostInterface, Observed, Step};
use atoll_policy::{Changes, Tables};
use atoll_types::NetworkId;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// What all kernels did together.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Endpoints that were put into a kernel.
    pub(super) endpoints: AtomicUsize,
}

/// The kernel of one simulated node.
pub(super) struct MapKernel {
    observed: Observed,
    counts: Arc<Counts>,
    /// Nobody ever says anything by these.
    _news: Sender<()>,
    news: std::sync::Mutex<Option<Receiver<()>>>,
}

impl MapKernel {
    pub(super) fn new(counts: &Arc<Counts>) -> Self {
        let (sender, receiver) = channel(1);
        MapKernel {
            observed: Observed::default(),
            counts: counts.clone(),
            _news: sender,
            news: Some(receiver).into(),
        }
    }
}

impl Kernel for MapKernel {
    fn pod_mtu(&self) -> u32 {
        1450
    }

    async fn observe(&self) -> Result<Observed> {
        Ok(self.observed.clone())
    }

    async fn apply(&mut self, step: &Step) -> Result<()> {
        if matches!(step, Step::PutEndpoint(..)) {
            self.counts.endpoints.fetch_add(1, Ordering::Relaxed);
        }
        self.observed.note(step);
        Ok(())
    }

    fn replace_policy(&mut self, _: &Tables) -> Result<()> {
        Ok(())
    }

    fn change_policy(&mut self, _: &Changes) -> Result<()> {
        Ok(())
    }

    fn policy_rule(&self, number: u32) -> Result<Option<u32>> {
        Ok(Some(number))
    }

    fn decide_anew(&mut self, _: &BTreeSet<NetworkId>) -> Result<()> {
        Ok(())
    }

    fn drops(&self) -> Result<Vec<DropCount>> {
        Ok(vec![])
    }

    fn askers(&self) -> Result<BTreeMap<u32, HostInterface>> {
        Ok(BTreeMap::new())
    }

    async fn tend(&mut self) -> Result<Tended> {
        Ok(Tended::InOrder)
    }

    fn news(&self) -> Result<Receiver<()>> {
        let mut news = self.news.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        news.take().ok_or_else(|| anyhow::anyhow!("news are told once"))
    }

    fn events(&self) -> Result<Receiver<Vec<Event>>> {
        Ok(channel(1).1)
    }
}
