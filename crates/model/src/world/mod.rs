//! Everything that was seen, indexed, so that one message costs only what it touches.
//!
//! [`World::observe`] and [`World::gone`] take news in and tell which objects have to be looked
//! at again; [`World::decide`] says what to do about one of them. Who has not decided anything yet
//! takes news in by [`World::learn`], and then looks at [`World::everything`]. The rule: the same
//! news in any order, in pieces or twice, leads to the same world.

mod holders;
mod hosts;
mod indexes;
mod items;
mod outside;
mod shelf;
mod tally;
mod touched;
mod types;
mod vips;
mod vpcs;

use std::collections::{BTreeSet, HashMap};

use atoll_types::Cidr;
use atoll_vpc::{Ledger, Moment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::action::{Decision, Key};
use crate::intent::{
    AddressPool, Claim, Kind, Namespace, Network, Node, ObjectName, Pod, Port, Registration, Role,
    Seen, Service, Slice, Subnet, Template, Tenant, role_name,
};

pub(crate) use hosts::Hosts;
pub(crate) use indexes::Indexes;
pub(crate) use outside::{Outsides, Place};
pub(crate) use shelf::{Change, HasMeta, Shelf};
pub use tally::{Addresses, Tally};
pub(crate) use vips::Vips;
pub(crate) use vpcs::ObjectNames;

/// The range that flat networks share where nobody says otherwise: addresses that are meant to be
/// shared inside one provider and are used neither on the Internet nor, mostly, in companies.
const FLAT_RANGE: &str = "100.64.0.0/10";

/// The range from which services get addresses where nobody says otherwise. It is kept for
/// measurements, so that nobody's network has it.
const SERVICE_RANGE: &str = "198.18.0.0/16";

/// What an operator can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a freed address or network id rests before somebody else may get it.
    pub rest: Moment,
    /// How long a claim may stand without its holder before it is taken for forgotten.
    pub grace: Moment,
    /// The ranges that flat networks share, cut into blocks.
    pub flat: Vec<Cidr>,
    /// How long a StatefulSet's port that no pod has is kept.
    pub keep: Moment,
    /// The ranges from which services of tenants that name none get addresses.
    pub service: Vec<Cidr>,
}

impl Default for Settings {
    fn default() -> Self {
        let ranges = |range: &str| range.parse().ok().into_iter().collect();
        Settings {
            rest: Moment::from_secs(30),
            grace: Moment::from_secs(30),
            flat: ranges(FLAT_RANGE),
            keep: Moment::from_secs(24 * 60 * 60),
            service: ranges(SERVICE_RANGE),
        }
    }
}

/// The time at which something is decided.
#[derive(Clone, Debug)]
pub struct Now {
    /// For waiting: grows steadily.
    pub moment: Moment,
    /// For people: what the clock on the wall says.
    pub time: Time,
}

/// Everything that was seen.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub(crate) settings: Settings,
    pub(crate) template: Template,
    pub(crate) tenants: Shelf<Tenant>,
    pub(crate) networks: Shelf<Network>,
    pub(crate) subnets: Shelf<Subnet>,
    pub(crate) ports: Shelf<Port>,
    pub(crate) claims: Shelf<Claim>,
    pub(crate) namespaces: Shelf<Namespace>,
    pub(crate) pods: Shelf<Pod>,
    pub(crate) services: Shelf<Service>,
    pub(crate) roles: Shelf<Role>,
    pub(crate) address_pools: Shelf<AddressPool>,
    pub(crate) nodes: Shelf<Node>,
    pub(crate) registrations: Shelf<Registration>,
    pub(crate) slices: Shelf<Slice>,
    pub(crate) indexes: Indexes,
    pub(crate) vpcs: Ledger<ObjectNames>,
    pub(crate) vips: Vips,
    pub(crate) outsides: Outsides,
    pub(crate) said: HashMap<Key, Said>,
    pub(crate) stray_since: HashMap<ObjectName, Moment>,
    pub(crate) idle_since: HashMap<ObjectName, Moment>,
    pub(crate) repaired: u64,
}

/// What people were last told about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) uid: String,
    pub(crate) message: String,
}

/// Objects that have to be looked at again.
pub type Touched = BTreeSet<Key>;

impl World {
    /// An empty world.
    pub fn new(settings: Settings) -> Self {
        let vpcs = Ledger::sharing(&settings.flat);
        World { settings, vpcs, ..World::default() }
    }

    /// Takes in that an object is there.
    pub fn observe(&mut self, seen: Seen, now: Moment) -> Touched {
        self.enter(seen, now, Whom::Touched)
    }

    /// Takes in that an object is there, where everything will be looked at anyway.
    pub fn learn(&mut self, seen: Seen, now: Moment) {
        self.enter(seen, now, Whom::Nobody);
    }

    fn enter(&mut self, seen: Seen, now: Moment, whom: Whom) -> Touched {
        match seen {
            Seen::Tenant(tenant) => self.put(tenant, now, whom),
            Seen::Network(network) => self.put(network, now, whom),
            Seen::Subnet(subnet) => self.put(subnet, now, whom),
            Seen::Port(port) => self.put(port, now, whom),
            Seen::Claim(claim) => self.put(claim, now, whom),
            Seen::Namespace(namespace) => self.put(namespace, now, whom),
            Seen::Pod(pod) => self.put(pod, now, whom),
            Seen::Service(service) => self.put(service, now, whom),
            Seen::ClusterRole(role) => self.put(role, now, whom),
            Seen::AddressPool(pool) => self.put(pool, now, whom),
            Seen::Node(node) => self.put(node, now, whom),
            Seen::NetworkType(registration) => self.put(registration, now, whom),
            Seen::EndpointSlice(slice) => self.put(slice, now, whom),
        }
    }

    /// Takes in that an incarnation of an object is gone.
    pub fn gone(&mut self, key: &Key, uid: &str, now: Moment) -> Touched {
        let away = Away::Incarnation(uid);
        match key.kind {
            Kind::Tenant => self.take_away::<Tenant>(&key.name, away, now),
            Kind::Network => self.take_away::<Network>(&key.name, away, now),
            Kind::Subnet => self.take_away::<Subnet>(&key.name, away, now),
            Kind::Port => self.take_away::<Port>(&key.name, away, now),
            Kind::Claim => self.take_away::<Claim>(&key.name, away, now),
            Kind::Namespace => self.take_away::<Namespace>(&key.name, away, now),
            Kind::Pod => self.take_away::<Pod>(&key.name, away, now),
            Kind::Service => self.take_away::<Service>(&key.name, away, now),
            Kind::ClusterRole => self.take_away::<Role>(&key.name, away, now),
            Kind::AddressPool => self.take_away::<AddressPool>(&key.name, away, now),
            Kind::Node => self.take_away::<Node>(&key.name, away, now),
            Kind::NetworkType => self.take_away::<Registration>(&key.name, away, now),
            Kind::EndpointSlice => self.take_away::<Slice>(&key.name, away, now),
        }
    }

    /// Takes in a full list of a kind: what is not on it is gone.
    pub fn only(&mut self, kind: Kind, listed: &BTreeSet<ObjectName>, now: Moment) -> Touched {
        match kind {
            Kind::Tenant => self.keep_only::<Tenant>(listed, now),
            Kind::Network => self.keep_only::<Network>(listed, now),
            Kind::Subnet => self.keep_only::<Subnet>(listed, now),
            Kind::Port => self.keep_only::<Port>(listed, now),
            Kind::Claim => self.keep_only::<Claim>(listed, now),
            Kind::Namespace => self.keep_only::<Namespace>(listed, now),
            Kind::Pod => self.keep_only::<Pod>(listed, now),
            Kind::Service => self.keep_only::<Service>(listed, now),
            Kind::ClusterRole => self.keep_only::<Role>(listed, now),
            Kind::AddressPool => self.keep_only::<AddressPool>(listed, now),
            Kind::Node => self.keep_only::<Node>(listed, now),
            Kind::NetworkType => self.keep_only::<Registration>(listed, now),
            Kind::EndpointSlice => self.keep_only::<Slice>(listed, now),
        }
    }

    /// Takes in the template for default networks.
    pub fn observe_template(&mut self, template: Template) -> Touched {
        if self.template == template {
            return Touched::new();
        }
        self.template = template;
        self.tenants.names().map(|name| Key::new(Kind::Tenant, name.clone())).collect()
    }

    /// What to do about an object.
    pub fn decide(&mut self, key: &Key, now: &Now) -> Decision {
        match key.kind {
            Kind::Tenant => self.decide_tenant(&key.name, now),
            Kind::Network => self.decide_network(&key.name, now),
            Kind::Subnet => self.decide_subnet(&key.name, now),
            Kind::Port => self.decide_port(&key.name, now),
            Kind::Claim => self.decide_claim(&key.name, now),
            Kind::Pod => self.decide_pod(&key.name, now),
            Kind::Service => self.decide_service(&key.name, now),
            Kind::ClusterRole => self.decide_role(&key.name),
            Kind::AddressPool => self.decide_pool(&key.name, now),
            Kind::NetworkType => self.decide_type(&key.name, now),
            Kind::Namespace | Kind::Node | Kind::EndpointSlice => Decision::nothing(),
        }
    }

    /// Everything about which something can be decided, in no order: what is there, and what has to be
    /// there by its name. One of them may be named twice.
    pub fn everything(&self) -> impl Iterator<Item = Key> {
        let tenants = self.tenants.names();
        let roles = tenants.map(|tenant| Key::new(Kind::ClusterRole, role_name(&tenant.name)));
        keys(&self.tenants)
            .chain(roles)
            .chain(keys(&self.roles))
            .chain(keys(&self.networks))
            .chain(keys(&self.subnets))
            .chain(keys(&self.registrations))
            .chain(keys(&self.address_pools))
            .chain(keys(&self.services))
            .chain(keys(&self.pods))
            .chain(keys(&self.ports))
            .chain(keys(&self.claims))
    }

    /// A claim is gone: if it had been without a holder for long, that was a repair.
    pub(crate) fn note_repair(&mut self, claim: &ObjectName, now: Moment) {
        let stray = self.stray_since.remove(claim);
        let given_up = stray.is_some_and(|since| now >= since + self.settings.grace);
        self.repaired += u64::from(given_up);
    }

    /// Takes back that people were told something about an object: the message did not arrive.
    pub fn unsay(&mut self, key: &Key) {
        self.said.remove(key);
    }

    fn put<V: Item>(&mut self, item: V, now: Moment, whom: Whom) -> Touched {
        let name = item.meta().name.clone();
        let Change::Put(before) = V::shelf_mut(self).put(item) else { return Touched::new() };
        self.settle::<V>(&name, before.as_deref(), now, whom)
    }

    fn take_away<V: Item>(&mut self, name: &ObjectName, away: Away<'_>, now: Moment) -> Touched {
        let shelf = V::shelf_mut(self);
        let before = match away {
            Away::Incarnation(uid) => shelf.remove(name, uid),
            Away::Whatever => shelf.forget(name),
        };
        let Some(before) = before else { return Touched::new() };
        self.said.remove(&Key::new(V::KIND, name.clone()));
        self.settle::<V>(name, Some(&before), now, Whom::Touched)
    }

    fn keep_only<V: Item>(&mut self, listed: &BTreeSet<ObjectName>, now: Moment) -> Touched {
        let known = V::shelf_mut(self).names();
        let missing: Vec<_> = known.filter(|name| !listed.contains(name)).cloned().collect();
        let mut touched = Touched::new();
        for name in missing {
            touched.append(&mut self.take_away::<V>(&name, Away::Whatever, now));
        }
        touched
    }

    /// Brings indexes and pools in line with what now stands under a name, and tells what that
    /// touches.
    fn settle<V: Item>(
        &mut self,
        name: &ObjectName,
        before: Option<&V>,
        now: Moment,
        whom: Whom,
    ) -> Touched {
        let after = V::shelf_mut(self).hold(name);
        let after = after.as_deref();
        if let Some(before) = before {
            before.unlink(self, now);
        }
        if let Some(after) = after {
            after.link(self);
        }
        if whom == Whom::Nobody {
            return Touched::new();
        }
        let mut touched = Touched::from([Key::new(V::KIND, name.clone())]);
        let same = before.zip(after).is_some_and(|(before, after)| after.says_as(before));
        if !same {
            let change = before.into_iter().chain(after);
            change.for_each(|item| item.touch(self, &mut touched));
        }
        touched
    }
}

/// The keys of all objects of a kind.
fn keys<V: Item>(shelf: &Shelf<V>) -> impl Iterator<Item = Key> {
    shelf.names().map(|name| Key::new(V::KIND, name.clone()))
}

/// Who is named when something changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whom {
    /// The objects that have to be looked at again.
    Touched,
    /// Nobody: everything will be looked at.
    Nobody,
}

/// How an object goes.
#[derive(Clone, Copy)]
enum Away<'a> {
    /// This incarnation is gone for good.
    Incarnation(&'a str),
    /// It was not on the list.
    Whatever,
}

/// A kind of object that the world keeps.
pub(crate) trait Item: HasMeta + Clone {
    /// Its kind.
    const KIND: Kind;
    /// Where its objects are kept.
    fn shelf_mut(world: &mut World) -> &mut Shelf<Self>;
    /// Enters it into indexes and pools.
    fn link(&self, world: &mut World);
    /// Takes it out of indexes and pools.
    fn unlink(&self, world: &mut World, now: Moment);
    /// Whether other objects find in it what they found in an earlier version.
    fn says_as(&self, earlier: &Self) -> bool;
    /// Adds the objects whose matter depends on it.
    fn touch(&self, world: &World, touched: &mut Touched);
}
