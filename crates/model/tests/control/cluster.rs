//! A simulated API: typed objects, versions, incarnations, finalizers, and a log that controllers
//! read at their own pace.

use std::collections::BTreeMap;

use atoll_api::{self as api, ClaimHolder, marks};
use atoll_model::intent::{Kind, ObjectName, Seen, Thing};
use atoll_model::{Action, Key, Target};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::NetworkDeviceData;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;

/// Any object.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    Tenant(api::Tenant),
    Network(api::Network),
    Subnet(api::Subnet),
    Port(api::Port),
    Claim(api::Claim),
    Namespace(core::Namespace),
    Pod(core::Pod),
    Service(core::Service),
    Role(ClusterRole),
    Pool(api::AddressPool),
    Node(core::Node),
    Type(api::NetworkType),
    Slice(EndpointSlice),
}

impl Object {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Object::Tenant(_) => Kind::Tenant,
            Object::Network(_) => Kind::Network,
            Object::Subnet(_) => Kind::Subnet,
            Object::Port(_) => Kind::Port,
            Object::Claim(_) => Kind::Claim,
            Object::Namespace(_) => Kind::Namespace,
            Object::Pod(_) => Kind::Pod,
            Object::Service(_) => Kind::Service,
            Object::Role(_) => Kind::ClusterRole,
            Object::Pool(_) => Kind::AddressPool,
            Object::Node(_) => Kind::Node,
            Object::Type(_) => Kind::NetworkType,
            Object::Slice(_) => Kind::EndpointSlice,
        }
    }

    pub(crate) fn meta(&self) -> &ObjectMeta {
        match self {
            Object::Tenant(object) => &object.metadata,
            Object::Network(object) => &object.metadata,
            Object::Subnet(object) => &object.metadata,
            Object::Port(object) => &object.metadata,
            Object::Claim(object) => &object.metadata,
            Object::Namespace(object) => &object.metadata,
            Object::Pod(object) => &object.metadata,
            Object::Service(object) => &object.metadata,
            Object::Role(object) => &object.metadata,
            Object::Pool(object) => &object.metadata,
            Object::Node(object) => &object.metadata,
            Object::Type(object) => &object.metadata,
            Object::Slice(object) => &object.metadata,
        }
    }

    pub(crate) fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Object::Tenant(object) => &mut object.metadata,
            Object::Network(object) => &mut object.metadata,
            Object::Subnet(object) => &mut object.metadata,
            Object::Port(object) => &mut object.metadata,
            Object::Claim(object) => &mut object.metadata,
            Object::Namespace(object) => &mut object.metadata,
            Object::Pod(object) => &mut object.metadata,
            Object::Service(object) => &mut object.metadata,
            Object::Role(object) => &mut object.metadata,
            Object::Pool(object) => &mut object.metadata,
            Object::Node(object) => &mut object.metadata,
            Object::Type(object) => &mut object.metadata,
            Object::Slice(object) => &mut object.metadata,
        }
    }

    /// All that it says.
    pub(crate) fn json(&self) -> serde_json::Value {
        let json = match self {
            Object::Tenant(object) => serde_json::to_value(object),
            Object::Network(object) => serde_json::to_value(object),
            Object::Subnet(object) => serde_json::to_value(object),
            Object::Port(object) => serde_json::to_value(object),
            Object::Claim(object) => serde_json::to_value(object),
            Object::Namespace(object) => serde_json::to_value(object),
            Object::Pod(object) => serde_json::to_value(object),
            Object::Service(object) => serde_json::to_value(object),
            Object::Role(object) => serde_json::to_value(object),
            Object::Pool(object) => serde_json::to_value(object),
            Object::Node(object) => serde_json::to_value(object),
            Object::Type(object) => serde_json::to_value(object),
            Object::Slice(object) => serde_json::to_value(object),
        };
        json.unwrap()
    }

    pub(crate) fn key(&self) -> Key {
        let meta = self.meta();
        let name = ObjectName::inside(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        );
        Key::new(self.kind(), name)
    }

    pub(crate) fn seen(&self) -> Seen {
        match self {
            Object::Tenant(object) => Seen::Tenant(object.into()),
            Object::Network(object) => Seen::Network(object.into()),
            Object::Subnet(object) => Seen::Subnet(object.into()),
            Object::Port(object) => Seen::Port(object.into()),
            Object::Claim(object) => Seen::Claim(object.into()),
            Object::Namespace(object) => Seen::Namespace(object.into()),
            Object::Pod(object) => Seen::Pod(object.into()),
            Object::Service(object) => Seen::Service(object.into()),
            Object::Role(object) => Seen::ClusterRole(object.into()),
            Object::Pool(object) => Seen::AddressPool(object.into()),
            Object::Node(object) => Seen::Node(object.into()),
            Object::Type(object) => Seen::NetworkType(object.into()),
            Object::Slice(object) => Seen::EndpointSlice(object.into()),
        }
    }

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn is_at(&self, target: &Target) -> bool {
        let version = self.meta().resource_version.as_deref();
        self.uid() == target.uid && version == Some(target.revision.to_string().as_str())
    }
}

/// News that controllers read.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    There(Box<Object>),
    Gone(Key, String),
}

impl Message {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Message::There(object) => object.kind(),
            Message::Gone(key, _) => key.kind,
        }
    }
}

/// What became of an action.
pub(crate) enum Outcome {
    /// Done; these are the answers.
    Done(Vec<Message>),
    /// The world is not as it was thought to be; these are the answers.
    Otherwise(Vec<Message>),
}

/// The simulated API.
#[derive(Clone, Default)]
pub(crate) struct Cluster {
    pub(crate) objects: BTreeMap<Key, Object>,
    pub(crate) log: Vec<Message>,
    pub(crate) said: Vec<(Key, String)>,
    pub(crate) told_claims: Vec<(ObjectName, Vec<NetworkDeviceData>)>,
    counter: u64,
}

impl Cluster {
    pub(crate) fn create(&mut self, mut object: Object) -> Result<Object, Object> {
        if let Some(standing) = self.objects.get(&object.key()) {
            return Err(standing.clone());
        }
        let number = self.next();
        let meta = object.meta_mut();
        meta.uid = Some(format!("uid-{number}"));
        meta.generation = Some(1);
        meta.creation_timestamp = Some(Time(Timestamp::from_second(number as i64).unwrap()));
        Ok(self.write(object))
    }

    /// Changes an object as somebody who does not ask for its version.
    pub(crate) fn change(&mut self, key: &Key, change: impl FnOnce(&mut Object)) {
        let mut object = self.objects[key].clone();
        change(&mut object);
        object.meta_mut().generation = object.meta().generation.map(|it| it + 1);
        self.write(object);
    }

    pub(crate) fn delete(&mut self, key: &Key) {
        let Some(mut object) = self.objects.get(key).cloned() else { return };
        let now = Time(Timestamp::from_second(self.next() as i64).unwrap());
        object.meta_mut().deletion_timestamp.get_or_insert(now);
        self.write(object);
    }

    pub(crate) fn of_kind(&self, kind: Kind) -> Vec<&Object> {
        self.objects.values().filter(|object| object.kind() == kind).collect()
    }

    pub(crate) fn port(&self, namespace: &str, name: &str) -> Option<&api::Port> {
        match self.objects.get(&Key::new(Kind::Port, ObjectName::inside(namespace, name)))? {
            Object::Port(port) => Some(port),
            other => panic!("{other:?} is no port"),
        }
    }

    pub(crate) fn network(&self, name: &str) -> &api::Network {
        match &self.objects[&Key::new(Kind::Network, ObjectName::cluster(name))] {
            Object::Network(network) => network,
            other => panic!("{other:?} is no network"),
        }
    }

    pub(crate) fn tenant(&self, name: &str) -> &api::Tenant {
        match &self.objects[&Key::new(Kind::Tenant, ObjectName::cluster(name))] {
            Object::Tenant(tenant) => tenant,
            other => panic!("{other:?} is no tenant"),
        }
    }

    pub(crate) fn subnet(&self, name: &str) -> &api::Subnet {
        match &self.objects[&Key::new(Kind::Subnet, ObjectName::cluster(name))] {
            Object::Subnet(subnet) => subnet,
            other => panic!("{other:?} is no subnet"),
        }
    }

    /// Does what a controller decided, as the real API would.
    pub(crate) fn execute(&mut self, action: &Action) -> Outcome {
        match action {
            Action::Confirm(key, known) => self.confirm(key, known.as_ref()),
            Action::Claim(thing, holder) => self.claim(thing, holder),
            Action::Release(thing, holder) => self.release(thing, holder),
            Action::CreateNetwork(network) => self.make(Object::Network((**network).clone())),
            Action::CreateSubnet(subnet) => self.make(Object::Subnet((**subnet).clone())),
            Action::CreatePort(port) => self.make(Object::Port((**port).clone())),
            Action::CreateRole(role) => self.make(Object::Role((**role).clone())),
            Action::SetRules(target, rules) => self.guarded(target, |object| {
                let Object::Role(role) = object else { panic!("{object:?} is no role") };
                role.rules = Some(rules.clone());
            }),
            Action::Delete(target) => self.delete_incarnation(target),
            Action::SetFinalizers(target, finalizers) => self.set_finalizers(target, finalizers),
            Action::ChangePort(target, change) => self.guarded(target, |object| {
                let Object::Port(port) = object else { panic!("{object:?} is no port") };
                change.apply(&mut port.spec);
            }),
            Action::DetachPort(target) => self.guarded(target, |object| {
                let Object::Port(port) = object else { panic!("{object:?} is no port") };
                port.status = None;
            }),
            Action::TellClaim { claim, interfaces, .. } => {
                self.told_claims.push((claim.clone(), interfaces.clone()));
                Outcome::Done(Vec::new())
            }
            Action::TellPod(target, text) => self.guarded(target, |object| {
                let annotations = object.meta_mut().annotations.get_or_insert_default();
                annotations.insert(marks::NETWORK_STATUS.into(), text.clone());
            }),
            Action::TellService(target, text) => self.guarded(target, |object| {
                let annotations = object.meta_mut().annotations.get_or_insert_default();
                match text {
                    Some(text) => drop(annotations.insert(marks::VIP.into(), text.clone())),
                    None => drop(annotations.remove(marks::VIP)),
                }
            }),
            Action::TellBalancer(..)
            | Action::Seat(..)
            | Action::SetPoolStatus(..)
            | Action::SetTypeStatus(..) => self.tell_of_what_is_shared(action),
            Action::SetTenantStatus(target, status) => self.guarded(target, |object| {
                let Object::Tenant(tenant) = object else { panic!("{object:?} is no tenant") };
                tenant.status = Some((**status).clone());
            }),
            Action::SetNetworkStatus(target, status) => self.guarded(target, |object| {
                let Object::Network(network) = object else { panic!("{object:?} is no network") };
                network.status = Some((**status).clone());
            }),
            Action::SetSubnetStatus(target, status) => self.guarded(target, |object| {
                let Object::Subnet(subnet) = object else { panic!("{object:?} is no subnet") };
                subnet.status = Some((**status).clone());
            }),
            Action::Say(target, _, _, message) => {
                self.said.push((target.key.clone(), message.clone()));
                Outcome::Done(Vec::new())
            }
        }
    }

    /// Writes down what concerns all tenants: addresses of the outside, types of networks.
    fn tell_of_what_is_shared(&mut self, action: &Action) -> Outcome {
        match action {
            Action::TellBalancer(target, ips) => self.guarded(target, |object| {
                let Object::Service(service) = object else { panic!("{object:?} is no service") };
                let ingress = ips.iter().map(|ip| core::LoadBalancerIngress {
                    ip: Some(ip.to_string()),
                    ..Default::default()
                });
                let ingress = Some(ingress.collect());
                let status = service.status.get_or_insert_default();
                status.load_balancer = Some(core::LoadBalancerStatus { ingress });
            }),
            Action::Seat(target, seat) => self.guarded(target, |object| {
                let Object::Claim(claim) = object else { panic!("{object:?} is no claim") };
                claim.spec.network = seat.network.clone();
                claim.spec.node = seat.node.clone();
            }),
            Action::SetPoolStatus(target, status) => self.guarded(target, |object| {
                let Object::Pool(pool) = object else { panic!("{object:?} is no pool") };
                pool.status = Some((**status).clone());
            }),
            Action::SetTypeStatus(target, status) => self.guarded(target, |object| {
                let Object::Type(type_) = object else { panic!("{object:?} is no type") };
                type_.status = Some((**status).clone());
            }),
            other => panic!("{other:?} does not concern all tenants"),
        }
    }

    fn confirm(&self, key: &Key, known: Option<&Target>) -> Outcome {
        match (self.objects.get(key), known) {
            (None, None) => Outcome::Done(Vec::new()),
            (Some(object), Some(known)) if object.is_at(known) => Outcome::Done(Vec::new()),
            (Some(object), _) => Outcome::Otherwise(vec![there(object)]),
            (None, Some(known)) => Outcome::Otherwise(vec![gone(known)]),
        }
    }

    fn claim(&mut self, thing: &Thing, holder: &ClaimHolder) -> Outcome {
        match self.create(Object::Claim(thing.claimed_by(holder.clone()))) {
            Ok(claim) => Outcome::Done(vec![there(&claim)]),
            Err(Object::Claim(standing)) if standing.spec.holder == *holder => {
                Outcome::Done(vec![there(&Object::Claim(standing))])
            }
            Err(standing) => Outcome::Otherwise(vec![there(&standing)]),
        }
    }

    fn release(&mut self, thing: &Thing, holder: &ClaimHolder) -> Outcome {
        let key = Key::new(Kind::Claim, ObjectName::cluster(thing.to_string()));
        match self.objects.get(&key).cloned() {
            Some(Object::Claim(claim)) if claim.spec.holder == *holder => {
                self.delete(&key);
                Outcome::Done(vec![Message::Gone(key, claim.metadata.uid.unwrap_or_default())])
            }
            Some(other) => Outcome::Done(vec![there(&other)]),
            None => Outcome::Done(Vec::new()),
        }
    }

    fn make(&mut self, object: Object) -> Outcome {
        match self.create(object) {
            Ok(made) => Outcome::Done(vec![there(&made)]),
            Err(standing) => Outcome::Otherwise(vec![there(&standing)]),
        }
    }

    fn delete_incarnation(&mut self, target: &Target) -> Outcome {
        match self.objects.get(&target.key) {
            Some(object) if object.uid() == target.uid => {
                self.delete(&target.key);
                let left = self.objects.get(&target.key);
                Outcome::Done(vec![left.map_or_else(|| gone(target), there)])
            }
            Some(other) => Outcome::Otherwise(vec![gone(target), there(other)]),
            None => Outcome::Done(vec![gone(target)]),
        }
    }

    fn set_finalizers(&mut self, target: &Target, finalizers: &[String]) -> Outcome {
        let outcome = self.guarded(target, |object| {
            object.meta_mut().finalizers = Some(finalizers.to_vec());
        });
        let left = self.objects.get(&target.key);
        match (outcome, left) {
            (Outcome::Done(answers), Some(left)) if left.meta().deletion_timestamp.is_some() => {
                Outcome::Otherwise(answers)
            }
            (outcome, _) => outcome,
        }
    }

    fn guarded(&mut self, target: &Target, change: impl FnOnce(&mut Object)) -> Outcome {
        match self.objects.get(&target.key).cloned() {
            Some(mut object) if object.is_at(target) => {
                change(&mut object);
                let key = object.key();
                self.write(object);
                let left = self.objects.get(&key);
                Outcome::Done(vec![left.map_or_else(|| gone(target), there)])
            }
            Some(other) => Outcome::Otherwise(vec![there(&other)]),
            None => Outcome::Otherwise(vec![gone(target)]),
        }
    }

    /// Stores an object, or lets it go if nothing holds it any more.
    fn write(&mut self, mut object: Object) -> Object {
        object.meta_mut().resource_version = Some(self.next().to_string());
        let meta = object.meta();
        let held = meta.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
        if meta.deletion_timestamp.is_some() && !held {
            self.objects.remove(&object.key());
            self.log.push(Message::Gone(object.key(), object.uid().to_owned()));
        } else {
            self.objects.insert(object.key(), object.clone());
            self.log.push(there(&object));
        }
        object
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }
}

fn there(object: &Object) -> Message {
    Message::There(Box::new(object.clone()))
}

fn gone(target: &Target) -> Message {
    Message::Gone(target.key.clone(), target.uid.clone())
}
