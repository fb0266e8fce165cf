//! What the agent needs of a kernel: a real one, or one made of maps for tests and simulations.

use std::collections::BTreeMap;
use std::future::Future;

use anyhow::Result;
use atoll_datapath::{Datapath, DropCount, Event, Tended};
use atoll_plan::{HostInterface, Observed, Step};
use tokio::sync::mpsc::Receiver;

/// A kernel that can be looked at and changed step by step.
pub trait Kernel: Send {
    /// The largest packet a pod may send.
    fn pod_mtu(&self) -> u32;
    /// What the kernel has at the moment.
    fn observe(&self) -> impl Future<Output = Result<Observed>> + Send;
    /// Does one step.
    fn apply(&mut self, step: &Step) -> impl Future<Output = Result<()>> + Send;
    /// What has been dropped so far.
    fn drops(&self) -> Result<Vec<DropCount>>;
    /// The pods' interfaces by the index of their host side, from which their aliases follow.
    fn askers(&self) -> Result<BTreeMap<u32, HostInterface>>;
    /// Forgets what is left of networks that are gone; a kernel that keeps nothing has nothing to
    /// forget.
    fn collect(&mut self) -> Result<()> {
        Ok(())
    }
    /// Looks after what all pods share, and puts it right.
    fn tend(&mut self) -> impl Future<Output = Result<Tended>> + Send;
    /// A word whenever a look is worth it.
    fn news(&self) -> Result<Receiver<()>>;
    /// What happens to packets, as it happens. It is told for as long as the receiver is there.
    fn events(&self) -> Result<Receiver<Vec<Event>>>;
}

impl Kernel for Datapath {
    fn pod_mtu(&self) -> u32 {
        Datapath::pod_mtu(self)
    }

    async fn observe(&self) -> Result<Observed> {
        Ok(Datapath::observe(self).await?)
    }

    async fn apply(&mut self, step: &Step) -> Result<()> {
        Ok(Datapath::apply(self, step).await?)
    }

    fn drops(&self) -> Result<Vec<DropCount>> {
        Ok(Datapath::drops(self)?)
    }

    fn askers(&self) -> Result<BTreeMap<u32, HostInterface>> {
        Ok(Datapath::askers(self)?)
    }

    fn collect(&mut self) -> Result<()> {
        Ok(Datapath::collect(self)?)
    }

    async fn tend(&mut self) -> Result<Tended> {
        Ok(Datapath::tend(self).await?)
    }

    fn news(&self) -> Result<Receiver<()>> {
        Ok(Datapath::news()?)
    }

    fn events(&self) -> Result<Receiver<Vec<Event>>> {
        Ok(Datapath::events(self)?.follow()?)
    }
}
