//! The actor: one message at a time, then one pass of plan, diff, apply.

mod announce;
mod audience;
mod health;
mod pass;
mod requests;
mod setbacks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::iter;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use atoll_model::compile::{Complaint, Occupant};
use atoll_plan::{HostInterface, Observed, Resolver};
use atoll_types::{Cidr, InfraMode};
use tokio::sync::mpsc::{Receiver, UnboundedSender};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

pub(crate) use crate::reconcile::audience::{Audience, Listener};

use crate::attachments::AttachmentStore;
use crate::gauges::Gauges;
use crate::health_ports::HealthPorts;
use crate::infra::Infra;
use crate::kernel::Kernel;
use crate::names::Names;
use crate::policy::Policies;
use crate::probe::Probes;
use crate::reconcile::announce::Untold;
use crate::reconcile::audience::Listeners;
use crate::reconcile::requests::Waiting;
use crate::reconcile::setbacks::Setbacks;
use crate::report::{Report, ServiceReport};
use crate::seen::{Change, Scope, Seen};
use crate::serve::Request;
use crate::services::Services;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// How often the kernel is looked at anew, to find what others changed in it.
    pub(crate) look_again: Duration,
    /// How long an ADD waits for its pod's port before the runtime is told to try again.
    pub(crate) port_patience: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing { look_again: Duration::from_secs(30), port_patience: Duration::from_secs(10) }
    }
}

/// How long after it failed a step, or a pass, is tried again. Each time it fails again, twice as long.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// How long after word of a change the kernel is looked at: what comes meanwhile needs no look of
/// its own.
const NOTICE: Duration = Duration::from_millis(300);

/// Changes or requests taken in before a pass, at most, so that a flood cannot hold it off.
const BATCH: usize = 512;

/// What the agent does for pods beside the kernel.
#[derive(Default)]
pub(crate) struct Attendants {
    /// The resolver, where pods are answered at all.
    pub(crate) names: Option<Names>,
    /// Services of the cluster's own, where pods may call them.
    pub(crate) infra: Option<Infra>,
    /// What policy says, where it is enforced at all.
    pub(crate) policies: Option<Policies>,
    /// Probes and hooks, where the kubelet may ask for them.
    pub(crate) probes: Option<Probes>,
    /// What the outside is told of load balancers, where it may ask.
    pub(crate) health: Option<HealthPorts>,
}

/// Everything that changes on a node, and the only one to change it.
pub(crate) struct Reconciler<K, F> {
    node: String,
    kernel: K,
    seen: Seen,
    /// Everything has been seen once: from now on things may be taken away.
    complete: bool,
    store: AttachmentStore,
    attendants: Attendants,
    services: Services,
    follow: F,
    reports: UnboundedSender<Report>,
    timing: Timing,
    /// What the kernel has, as far as is known.
    observed: Option<Observed>,
    /// A step failed or time has passed: what is known may not be so.
    look_anew: bool,
    retry_at: Option<Instant>,
    /// How many passes in a row have failed otherwise than by a step.
    failures: u32,
    /// The steps that failed.
    setbacks: Setbacks,
    gauges: Gauges,
    /// Somebody waits for this pass, and what failed of pods is tried at once.
    is_awaited: bool,
    /// When to look because of a word from the kernel.
    notice_at: Option<Instant>,
    waiting: Vec<Waiting>,
    /// What the neighbours are to hear.
    untold: Untold,
    complaints: Vec<Complaint>,
    /// Who is behind each interface of the last plan.
    occupants: BTreeMap<HostInterface, Occupant>,
    /// Those who want to hear what happens to packets.
    listeners: Listeners,
    /// What an administrator lets no pod reach outside.
    denied: Vec<Cidr>,
    /// What an administrator says of infra.
    infra_mode: InfraMode,
    /// Where each pod of the last plan is probed, by its UID.
    primaries: BTreeMap<String, (HostInterface, IpAddr)>,
}

impl<K: Kernel, F: FnMut(&Scope)> Reconciler<K, F> {
    /// Starts with nothing seen. `follow` is told whenever the networks on this node, or their
    /// namespaces, may have changed.
    pub(crate) fn new(
        node: &str,
        kernel: K,
        store: AttachmentStore,
        attendants: Attendants,
        follow: F,
        reports: UnboundedSender<Report>,
        timing: Timing,
    ) -> Self {
        let names = attendants.names.as_ref();
        let cluster_dns = names.map_or_else(Resolver::default, Names::cluster);
        let services = Services::new(node, cluster_dns).within(kernel.service_room());
        Reconciler {
            node: node.to_owned(),
            kernel,
            seen: Seen::default(),
            complete: false,
            store,
            attendants,
            services,
            follow,
            reports,
            timing,
            observed: None,
            look_anew: true,
            retry_at: None,
            failures: 0,
            setbacks: Setbacks::default(),
            gauges: Gauges::default(),
            is_awaited: false,
            notice_at: None,
            waiting: Vec::new(),
            untold: Untold::default(),
            complaints: Vec::new(),
            occupants: BTreeMap::new(),
            listeners: Listeners::default(),
            denied: Vec::new(),
            infra_mode: InfraMode::Isolated,
            primaries: BTreeMap::new(),
        }
    }

    /// Lets no pod reach these outside.
    pub(crate) fn denying(self, denied: &[Cidr]) -> Self {
        Reconciler { denied: denied.to_vec(), ..self }
    }

    /// Keeps networks from infra, or lets them there.
    pub(crate) fn with_infra(self, infra_mode: InfraMode) -> Self {
        Reconciler { infra_mode, ..self }
    }

    /// Tells there what is not as it should be.
    pub(crate) fn counted_by(self, gauges: Gauges) -> Self {
        Reconciler { gauges, ..self }
    }

    /// Takes messages for good.
    pub(crate) async fn run(
        mut self,
        mut changes: Receiver<Change>,
        mut requests: Receiver<Request>,
        mut audience: Receiver<Audience>,
    ) -> Result<()> {
        let mut news = self.kernel.news()?;
        let period = self.timing.look_again;
        let mut look_again = interval_at(Instant::now() + period, period);
        look_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let alarm = self.next_alarm();
            tokio::select! {
                Some(change) = changes.recv() => self.on_changes(change, &mut changes).await,
                Some(request) = requests.recv() => self.on_requests(request, &mut requests).await,
                Some(()) = news.recv() => self.on_news(),
                Some(who) = audience.recv() => self.on_audience(who),
                Some(events) = self.listeners.next() => self.tell(&events),
                _ = look_again.tick() => self.on_look_again().await,
                () = wait_for(alarm) => self.on_alarm().await,
                else => return Ok(()),
            }
        }
    }

    async fn on_changes(&mut self, first: Change, more: &mut Receiver<Change>) {
        let (mut is_new, mut concerns_kernel) = (false, false);
        let batch = iter::once(first).chain(iter::from_fn(|| more.try_recv().ok())).take(BATCH);
        for change in batch {
            if self.seen.knows(&change) {
                continue;
            }
            is_new = true;
            concerns_kernel |= change.concerns_kernel();
            self.take_in(change);
        }
        if !is_new {
            return;
        }
        concerns_kernel |= self.services.resolvers_moved();
        self.complete |= self.seen.is_complete()
            && self.attendants.policies.as_ref().is_none_or(Policies::is_complete);
        self.inform_attendants();
        if concerns_kernel {
            self.pass().await;
            self.serve_waiting().await;
        } else {
            self.pass_services().await;
            let done = self.write_policy() & self.introduce_pods();
            self.plan_retry_unless(done);
            self.serve_waiting().await;
        }
        self.answer_health();
        self.tell_of_services();
        self.tell_of_policies();
    }

    /// The watches follow at every change of this node's ports, not once for a batch: a network
    /// that left and came back in between must be listed anew. So with namespaces.
    fn take_in(&mut self, change: Change) {
        let moves = matches!(
            change,
            Change::OwnPorts(_)
                | Change::Answered(_)
                | Change::Exposed(..)
                | Change::Outlet(..)
                | Change::Siblings(..)
                | Change::Namespaces(_)
                | Change::Api(_)
                | Change::Exports(_)
        );
        if let Some(names) = &mut self.attendants.names {
            names.absorb(&change);
        }
        self.services.absorb(&change);
        if let Some(policies) = &mut self.attendants.policies {
            policies.absorb(&change);
        }
        let network = match &change {
            Change::Network(name, _) => Some(name.clone()),
            _ => None,
        };
        let closes = matches!(change, Change::Nodes(_) | Change::Pools(_));
        let answers = matches!(change, Change::Answered(_));
        self.untold.hear(&change);
        self.seen.absorb(change);
        if answers {
            self.untold.keep(&self.seen.answered_addresses());
        }
        if closes {
            self.close_upstreams();
        }
        if let Some(name) = network {
            self.services.lead_resolvers(&name, self.seen.dns_of(&name).as_ref());
        }
        if moves {
            self.follow_scope();
        }
    }

    /// Networks have the agent ask outside for names, as its node: what is closed to their pods is
    /// closed to that, too.
    fn close_upstreams(&mut self) {
        if let (Some(names), Some(mut closed)) = (&mut self.attendants.names, self.seen.closed()) {
            closed.extend(&self.denied);
            names.close(closed);
        }
    }

    fn follow_scope(&mut self) {
        let scope = self.seen.scope();
        if let Some(policies) = &mut self.attendants.policies {
            policies.follow(&scope, &self.seen);
        }
        if let Some(names) = &mut self.attendants.names {
            names.follow(&scope, &self.seen);
        }
        self.services.follow(&scope, &self.seen);
        (self.follow)(&scope);
    }

    fn tell_of_services(&mut self) {
        for (service, uid, complaint) in self.services.untold() {
            tracing::warn!(%service, %complaint, "not served");
            let report = Report::Service(ServiceReport::of(&service, &uid, &complaint));
            let _reporter_may_have_ended = self.reports.send(report);
        }
    }

    fn tell_of_policies(&mut self) {
        let untold = self.attendants.policies.as_mut().map(Policies::untold);
        for held in untold.into_iter().flatten() {
            if let Some(complaint) = &held.complaint {
                tracing::warn!(subject = ?held.subject, complaint, "policy is held");
            }
            let _reporter_may_have_ended = self.reports.send(Report::Held(held));
        }
    }

    /// Tells what was seen to those who need it beside the kernel.
    fn inform_attendants(&mut self) {
        if let Some(infra) = &mut self.attendants.infra {
            infra.offer(&self.seen.backed());
        }
        if let Some(names) = &mut self.attendants.names {
            if self.seen.has_seen_exports() {
                names.export(&self.seen.exported());
            }
            names.publish();
        }
    }

    async fn on_look_again(&mut self) {
        self.look_anew = true;
        self.forget_vanished_sandboxes();
        self.inform_attendants();
        self.pass().await;
        self.answer_health();
        self.tell_of_policies();
        if let Err(error) = self.kernel.collect() {
            tracing::warn!(error = format!("{error:#}"), "cannot forget networks that are gone");
        }
    }

    fn on_news(&mut self) {
        self.notice_at.get_or_insert(Instant::now() + NOTICE);
    }

    async fn on_alarm(&mut self) {
        if self.notice_at.is_some_and(|at| at <= Instant::now()) {
            self.notice_at = None;
            self.look_anew = true;
            self.pass().await;
        }
        if self.retry_at.is_some_and(|at| at <= Instant::now()) {
            self.pass().await;
            self.answer_health();
        }
        self.refuse_overdue();
        self.announce();
    }

    fn next_alarm(&self) -> Option<Instant> {
        let deadlines = self.waiting.iter().map(|waiting| waiting.deadline);
        let others = [self.retry_at, self.notice_at, self.untold.next_at()];
        deadlines.chain(others.into_iter().flatten()).min()
    }
}

async fn wait_for(alarm: Option<Instant>) {
    match alarm {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
