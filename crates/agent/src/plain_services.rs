//! The services of namespaces of no tenant, for this node's plain pods, its own processes and those who come
//! to its node ports, where no kube-proxy runs.
//!
//! Who stands behind which is thought out by [`PlainBook`], and led by programs that are the plain
//! pods' own ([`PlainServices`]). The rules of this file: a namespace is watched only while it is known
//! to be nobody's; nothing is written before everything was seen once; and a pod's link is answered for
//! when its programs are on it and the services are there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use atoll_cni::wire::AgentReply;
use atoll_cni::{CniError, ErrorCode};
use atoll_datapath::{OutsideConfig, PlainServices};
use atoll_model::compile::{PlainBook, PlainGroup, ServiceFront};
use atoll_plan::{Service, ServiceKey};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Service as ServiceObject};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use crate::health_ports::{Asked, Health, HealthPorts};
use crate::plain::Plain;
use crate::seen::{Delta, Tenancy};
use crate::watch::{Watch, at_hand, deltas, front, match_keys, tenancy};

/// How many news may wait. Watches wait when there are more.
const MAILBOX: usize = 1024;
/// After how long what failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// How often somebody looks whether the uplink is as it was.
const LOOK: Duration = Duration::from_secs(60);

/// Links that a plugin made for a plain pod, and where to answer once the pod is served.
#[derive(Debug)]
pub(crate) struct MadeLinks {
    /// Their names.
    pub(crate) links: Vec<String>,
    /// The way back to the plugin.
    pub(crate) reply: oneshot::Sender<AgentReply>,
}

/// What was seen in the API.
#[derive(Debug)]
enum News {
    /// Namespaces of no tenant.
    Namespaces(Delta<String, ()>),
    /// The services of one of them.
    Services(String, Delta<String, ServiceFront>),
    /// Its slices.
    Slices(String, Delta<String, PlainGroup>),
}

/// What of a namespace was seen whole.
#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    services: bool,
    slices: bool,
}

/// Everything that was seen, and whether it is all there is.
#[derive(Debug)]
struct Register {
    book: PlainBook,
    /// None before all of them were seen.
    namespaces: Option<BTreeMap<String, Listed>>,
}

impl Register {
    fn new(node: &str, zone: Option<String>, outside: Vec<IpAddr>) -> Self {
        let mut book = PlainBook::new(node, zone);
        book.enter_at(outside);
        Register { book, namespaces: None }
    }

    /// The namespaces that are to be watched.
    fn namespaces(&self) -> BTreeSet<String> {
        self.namespaces.iter().flat_map(BTreeMap::keys).cloned().collect()
    }

    fn is_whole(&self) -> bool {
        let listed = |namespaces: &BTreeMap<String, Listed>| {
            namespaces.values().all(|listed| listed.services && listed.slices)
        };
        self.namespaces.as_ref().is_some_and(listed)
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Namespaces(delta) => self.hear_namespaces(delta),
            News::Services(namespace, delta) => self.hear_services(&namespace, delta),
            News::Slices(namespace, delta) => self.hear_slices(&namespace, delta),
        }
    }

    fn hear_namespaces(&mut self, delta: Delta<String, ()>) {
        let mut now = self.namespaces();
        match delta {
            Delta::All(all) => now = all.into_keys().collect(),
            Delta::Put(name, ()) => drop(now.insert(name)),
            Delta::Gone(name) => drop(now.remove(&name)),
        }
        let known = self.namespaces.get_or_insert_default();
        let left: Vec<_> = known.keys().filter(|name| !now.contains(*name)).cloned().collect();
        for name in &left {
            known.remove(name);
            self.book.leave(name);
        }
        for name in now {
            known.entry(name).or_default();
        }
    }

    /// What is seen of a namespace, unless it is left already.
    fn listed(&mut self, namespace: &str) -> Option<&mut Listed> {
        self.namespaces.as_mut()?.get_mut(namespace)
    }

    fn hear_services(&mut self, namespace: &str, delta: Delta<String, ServiceFront>) {
        let Some(listed) = self.listed(namespace) else { return };
        listed.services |= matches!(delta, Delta::All(_));
        let known = self.book.services_of(namespace);
        for (key, front) in changes(namespace, known, delta) {
            self.book.put_service(&key, front);
        }
    }

    fn hear_slices(&mut self, namespace: &str, delta: Delta<String, PlainGroup>) {
        let Some(listed) = self.listed(namespace) else { return };
        listed.slices |= matches!(delta, Delta::All(_));
        let known = self.book.slices_of(namespace);
        for (key, group) in changes(namespace, known, delta) {
            self.book.put_slice(&key, group);
        }
    }
}

type ObjectKey = (String, String);

/// What changes in a namespace of which these are known.
fn changes<V>(
    namespace: &str,
    known: Vec<ObjectKey>,
    delta: Delta<String, V>,
) -> Vec<(ObjectKey, Option<V>)> {
    let key = |name: String| (namespace.to_owned(), name);
    match delta {
        Delta::All(all) => {
            let gone = known.into_iter().filter(|(_, name)| !all.contains_key(name));
            let gone: Vec<_> = gone.map(|key| (key, None)).collect();
            let there = all.into_iter().map(|(name, value)| (key(name), Some(value)));
            gone.into_iter().chain(there).collect()
        }
        Delta::Put(name, value) => vec![(key(name), Some(value))],
        Delta::Gone(name) => vec![(key(name), None)],
    }
}

/// What is needed of a kernel: a real one, or one made of maps for tests.
trait PlainKernel: Send {
    fn set(&mut self, wanted: &BTreeMap<ServiceKey, Service>) -> Result<()>;
    fn put(&mut self, key: ServiceKey, service: Option<&Service>) -> Result<()>;
    fn serve(&mut self, link: &str) -> impl Future<Output = Result<()>> + Send;
    fn serve_outside(&mut self, is_needed: bool) -> impl Future<Output = Result<()>> + Send;
    fn outside_addresses(&mut self) -> impl Future<Output = Result<Vec<IpAddr>>> + Send;
}

impl PlainKernel for PlainServices {
    fn set(&mut self, wanted: &BTreeMap<ServiceKey, Service>) -> Result<()> {
        Ok(PlainServices::set(self, wanted)?)
    }

    fn put(&mut self, key: ServiceKey, service: Option<&Service>) -> Result<()> {
        Ok(PlainServices::put(self, key, service)?)
    }

    async fn serve(&mut self, link: &str) -> Result<()> {
        Ok(PlainServices::serve(self, link).await?)
    }

    async fn serve_outside(&mut self, is_needed: bool) -> Result<()> {
        Ok(PlainServices::serve_outside(self, is_needed).await?)
    }

    async fn outside_addresses(&mut self) -> Result<Vec<IpAddr>> {
        Ok(PlainServices::outside_addresses(self).await?)
    }
}

/// Brings what was seen to the kernel, and answers for links.
struct Desk<K> {
    register: Register,
    kernel: K,
    waiting: Vec<MadeLinks>,
    /// Whether the kernel has everything but what was touched since.
    is_written: bool,
    /// Whether clients from outside are served; none where nobody has looked.
    is_entered: Option<bool>,
    /// What the outside is told of load balancers.
    health: HealthPorts,
}

impl<K: PlainKernel> Desk<K> {
    fn new(register: Register, kernel: K, health: HealthPorts) -> Self {
        Desk { register, kernel, waiting: vec![], is_written: false, is_entered: None, health }
    }

    /// Whether something failed that is to be tried again.
    fn is_late(&self) -> bool {
        self.register.is_whole() && !(self.is_written && self.is_entered.is_some())
    }

    /// Does what can be done.
    async fn work(&mut self) {
        if !self.is_written && !self.register.is_whole() {
            return;
        }
        let written = self.write();
        self.answer_health();
        match written {
            Ok(()) => self.answer().await,
            Err(error) => {
                tracing::warn!(error = told(&error), "plain services are not as they should be");
                return;
            }
        }
        if let Err(error) = self.enter().await {
            tracing::warn!(error = told(&error), "node ports of plain services are not led");
        }
    }

    fn write(&mut self) -> Result<()> {
        let touched = self.register.book.take_touched();
        let served = self.register.book.served();
        let was_written = std::mem::replace(&mut self.is_written, false);
        if was_written {
            for key in touched {
                self.kernel.put(key, served.get(&key))?;
            }
        } else {
            self.kernel.set(served)?;
        }
        self.is_written = true;
        Ok(())
    }

    /// Says at each port for it how its load balancer fares here.
    fn answer_health(&mut self) {
        let is_led = self.is_written;
        let asked = self.register.book.health().map(|it| {
            let health = Health { service: it.service.clone(), ready: it.ready, is_led };
            (it.port, Asked { tenant: None, uid: it.uid.to_owned(), health: Some(health) })
        });
        self.health.answer(self.register.book.entered_at(), &asked.collect());
    }

    /// Serves clients from outside while there is a node port. Pods do not wait for that.
    async fn enter(&mut self) -> Result<()> {
        let is_needed = self.register.book.is_entered();
        if self.is_entered == Some(is_needed) {
            return Ok(());
        }
        self.is_entered = None;
        self.kernel.serve_outside(is_needed).await?;
        self.is_entered = Some(is_needed);
        Ok(())
    }

    /// Looks whether the uplink is as it was, and has the addresses that it had. What cannot be seen is
    /// taken to be as it was.
    async fn look(&mut self) {
        self.is_entered = None;
        match self.kernel.outside_addresses().await {
            Ok(addresses) => self.register.book.enter_at(addresses),
            Err(error) => {
                tracing::warn!(error = told(&error), "the node's own addresses cannot be seen");
            }
        }
    }

    async fn answer(&mut self) {
        for MadeLinks { links, reply } in std::mem::take(&mut self.waiting) {
            // Whoever asked may have gone away, and will ask again.
            let _ = reply.send(self.serve(&links).await);
        }
    }

    async fn serve(&mut self, links: &[String]) -> AgentReply {
        for link in links {
            if let Err(error) = self.kernel.serve(link).await {
                let said = format!("the services of the pod behind link {link} cannot be led");
                return AgentReply::Failed(
                    CniError::new(ErrorCode::TryAgainLater, said).because(told(&error)),
                );
            }
        }
        AgentReply::Done
    }
}

/// Leads the services of this node's plain pods, for good. Where there is no plain network or its
/// services are another's, nothing of ours is left on the node.
pub(crate) async fn keep(
    client: Client,
    (node, bpf_root): (&str, &Path),
    plain: Option<(&Plain, OutsideConfig)>,
    (mut made, health): (Receiver<MadeLinks>, HealthPorts),
) -> Result<()> {
    let Some((plain, outside)) = plain else {
        if let Err(error) = PlainServices::withdraw(bpf_root).await {
            tracing::warn!(
                error = told(&error.into()),
                "plain services are led no more, and left something"
            );
        }
        return std::future::pending().await;
    };
    let (kernel, outside) = open(bpf_root, plain, outside).await;
    let mut desk = Desk::new(Register::new(node, plain.zone(), outside), kernel, health);
    let mut look = tokio::time::interval(LOOK);
    let (tell, mut news) = channel(MAILBOX);
    let source = Source { client, tell };
    let _namespaces = source.namespaces();
    let (mut services, mut slices) = (BTreeMap::new(), BTreeMap::new());
    loop {
        tokio::select! {
            Some(heard) = news.recv() => desk.register.hear(heard),
            Some(links) = made.recv() => desk.waiting.push(links),
            () = tokio::time::sleep(AGAIN), if desk.is_late() => {}
            _ = look.tick() => desk.look().await,
        }
        while let Ok(heard) = news.try_recv() {
            desk.register.hear(heard);
        }
        let namespaces = desk.register.namespaces();
        match_keys(&mut services, &namespaces, |name| source.services(name));
        match_keys(&mut slices, &namespaces, |name| source.slices(name));
        desk.work().await;
    }
}

/// The programs on the links of all plain pods that are there, and those of the node. A kernel that
/// refuses is asked again: tenants' pods have nothing to do with it.
/// Gives also the node's addresses that clients from outside come to.
async fn open(
    bpf_root: &Path,
    plain: &Plain,
    outside: OutsideConfig,
) -> (PlainServices, Vec<IpAddr>) {
    loop {
        let opened = async {
            let mut kernel = PlainServices::open(bpf_root, outside).await?;
            kernel.serve_all(&plain.own_ranges()).await?;
            let addresses = kernel.outside_addresses().await?;
            anyhow::Ok((kernel, addresses))
        };
        match opened.await {
            Ok((kernel, addresses)) => {
                serve_node(&kernel);
                return (kernel, addresses);
            }
            Err(error) => {
                tracing::warn!(error = told(&error), "plain services cannot be led");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Pods are served also where the node's own processes cannot be.
fn serve_node(kernel: &PlainServices) {
    if let Err(error) = kernel.serve_node() {
        let error = told(&error.into());
        tracing::warn!(error, "plain services are led for pods, not for the node's own processes");
    }
}

/// An error with its causes.
fn told(error: &anyhow::Error) -> String {
    format!("{error:#}")
}

/// Where watches begin, and where what they see goes.
struct Source {
    client: Client,
    tell: Sender<News>,
}

impl Source {
    /// In their newest state: one that became a tenant's a moment ago is no longer nobody's.
    fn namespaces(&self) -> Watch {
        Watch::start(follow::<PartialObjectMeta<Namespace>, _>(
            Api::all(self.client.clone()),
            watcher::Config::default(),
            |namespace| (tenancy(namespace) == Tenancy::Nobody).then_some(()),
            (self.tell.clone(), News::Namespaces),
        ))
    }

    fn services(&self, namespace: &str) -> Watch {
        let name = namespace.to_owned();
        Watch::start(follow::<ServiceObject, _>(
            Api::namespaced(self.client.clone(), namespace),
            at_hand(),
            front,
            (self.tell.clone(), move |delta| News::Services(name.clone(), delta)),
        ))
    }

    fn slices(&self, namespace: &str) -> Watch {
        let name = namespace.to_owned();
        Watch::start(follow::<EndpointSlice, _>(
            Api::namespaced(self.client.clone(), namespace),
            at_hand(),
            PlainGroup::read,
            (self.tell.clone(), move |delta| News::Slices(name.clone(), delta)),
        ))
    }
}

/// Watches for good and tells every change.
async fn follow<R, V>(
    api: Api<R>,
    config: watcher::Config,
    read: impl Fn(&R) -> Option<V> + Send,
    (tell, wrap): (Sender<News>, impl Fn(Delta<String, V>) -> News + Send),
) where
    R: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher(api, config).default_backoff();
    let read = |object: &R| Some((object.name_any(), read(object)?));
    let mut deltas = std::pin::pin!(deltas(events, read, R::name_any));
    while let Some(delta) = deltas.next().await {
        if tell.send(wrap(delta)).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
