//! What the agent needs of a kernel: a real one, or one made of maps for tests and simulations.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::IpAddr;

use anyhow::Result;
use atoll_datapath::{Datapath, DropCount, Event, Tended, Traffic};
use atoll_plan::{HostInterface, Observed, ServiceRoom, Step};
use atoll_policy::{Changes, Room, Tables};
use atoll_types::NetworkId;
use tokio::sync::mpsc::Receiver;

/// A kernel that can be looked at and changed step by step.
pub trait Kernel: Send {
    /// The largest packet a pod may send.
    fn pod_mtu(&self) -> u32;
    /// What the kernel has at the moment.
    fn observe(&self) -> impl Future<Output = Result<Observed>> + Send;
    /// Does one step.
    fn apply(&mut self, step: &Step) -> impl Future<Output = Result<()>> + Send;
    /// How much room there is for tables of policy; a kernel that is made of maps has no end.
    fn policy_room(&self) -> Option<Room> {
        None
    }
    /// How much room there is for services; a kernel that is made of maps has no end.
    fn service_room(&self) -> Option<ServiceRoom> {
        None
    }
    /// Exchanges all tables of policy at once.
    fn replace_policy(&mut self, tables: &Tables) -> Result<()>;
    /// Changes the tables of policy.
    fn change_policy(&mut self, changes: &Changes) -> Result<()>;
    /// The compiler's number of the rule that an event names, where its tables are in force.
    fn policy_rule(&self, number: u32) -> Result<Option<u32>>;
    /// Has every connection of these networks decided anew with its next packet.
    fn decide_anew(&mut self, networks: &BTreeSet<NetworkId>) -> Result<()>;
    /// What has been dropped so far.
    fn drops(&self) -> Result<Vec<DropCount>>;
    /// What each pod's interface has sent and received; a kernel that carries nothing has counted nothing.
    fn traffic(&self) -> Result<Vec<Traffic>> {
        Ok(Vec::new())
    }
    /// The pods' interfaces by the index of their host side, from which their aliases follow.
    fn askers(&self) -> Result<BTreeMap<u32, HostInterface>>;
    /// The index of the link by which pods are heard; a kernel that is made of maps has none.
    fn node_link(&self) -> Option<u32> {
        None
    }
    /// Forgets what is left of networks that are gone; a kernel that keeps nothing has nothing to
    /// forget.
    fn collect(&mut self) -> Result<()> {
        Ok(())
    }
    /// Looks after what all pods share, and puts it right.
    fn tend(&mut self) -> impl Future<Output = Result<Tended>> + Send;
    /// Tells the neighbours that these addresses of the outside are here; a kernel that has none has
    /// nobody to tell.
    fn announce(&self, _addresses: &BTreeSet<IpAddr>) -> Result<()> {
        Ok(())
    }
    /// The node's own addresses that the outside knows; a kernel that is made of maps has none.
    fn own_addresses(&self) -> Vec<IpAddr> {
        Vec::new()
    }
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

    fn policy_room(&self) -> Option<Room> {
        Some(Datapath::policy_room(self))
    }

    fn service_room(&self) -> Option<ServiceRoom> {
        Some(Datapath::service_room(self))
    }

    fn replace_policy(&mut self, tables: &Tables) -> Result<()> {
        Ok(Datapath::replace_policy(self, tables)?)
    }

    fn change_policy(&mut self, changes: &Changes) -> Result<()> {
        Ok(Datapath::change_policy(self, changes)?)
    }

    fn policy_rule(&self, number: u32) -> Result<Option<u32>> {
        Ok(Datapath::policy_rule(self, number)?)
    }

    fn decide_anew(&mut self, networks: &BTreeSet<NetworkId>) -> Result<()> {
        Ok(Datapath::decide_anew(self, networks)?)
    }

    fn drops(&self) -> Result<Vec<DropCount>> {
        Ok(Datapath::drops(self)?)
    }

    fn traffic(&self) -> Result<Vec<Traffic>> {
        Ok(Datapath::traffic(self)?)
    }

    fn askers(&self) -> Result<BTreeMap<u32, HostInterface>> {
        Ok(Datapath::askers(self)?)
    }

    fn node_link(&self) -> Option<u32> {
        Some(Datapath::node_link(self))
    }

    fn collect(&mut self) -> Result<()> {
        Ok(Datapath::collect(self)?)
    }

    async fn tend(&mut self) -> Result<Tended> {
        Ok(Datapath::tend(self).await?)
    }

    fn announce(&self, addresses: &BTreeSet<IpAddr>) -> Result<()> {
        Ok(Datapath::announce(self, addresses)?)
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        Datapath::own_addresses(self)
    }

    fn news(&self) -> Result<Receiver<()>> {
        Ok(Datapath::news()?)
    }

    fn events(&self) -> Result<Receiver<Vec<Event>>> {
        Ok(Datapath::events(self)?.follow()?)
    }
}
