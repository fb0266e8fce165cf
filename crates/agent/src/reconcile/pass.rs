//! One pass: compile what should be, compare with what is, apply the difference.

use std::path::Path;
use std::time::Duration;

use atoll_datapath::Tended;
use atoll_model::compile::{Complaint, compile};
use atoll_plan::{
    HostInterface, NodePlan, Observed, Resolver, ServiceKey, Step, diff, diff_services,
};
use atoll_types::InfraMode;
use tokio::time::Instant;

use super::{Attendants, LONGEST_RETRY, RETRY, Reconciler};
use crate::infra::Infra;
use crate::kernel::Kernel;
use crate::names::Names;
use crate::report::{NetworkReport, Report};

impl<K: Kernel, F> Reconciler<K, F> {
    /// Brings the kernel to what was seen. Before everything has been seen once, it does nothing:
    /// what is there stays. Failed steps are tried again in their turn.
    pub(super) async fn pass(&mut self) {
        if !self.complete {
            return;
        }
        self.retry_at = None;
        let policy = self.write_policy();
        let shared = !self.look_anew || self.tend().await;
        let mut plan = self.compile();
        let is_fresh = self.look_anew || self.observed.is_none();
        let looked = match self.look().await {
            Ok(observed) => {
                self.apply_with_services(&mut plan, observed, is_fresh).await;
                true
            }
            Err(error) => {
                tracing::error!(%error, "cannot look at the kernel");
                false
            }
        };
        let known = self.introduce_pods();
        self.listeners.forget_names();
        self.plan_retry(policy && shared && looked && known);
    }

    /// A pass that somebody waits for.
    pub(super) async fn pass_now(&mut self) {
        self.is_awaited = true;
        self.pass().await;
        self.is_awaited = false;
    }

    /// Tells the kernel what policy says, before anything is raised that it is about.
    pub(super) fn write_policy(&mut self) -> bool {
        let complete = self.complete;
        let kernel = &mut self.kernel;
        self.attendants
            .policies
            .as_mut()
            .is_none_or(|policies| !complete || policies.publish(kernel))
    }

    /// What failed outside of a pass is tried again with the next.
    pub(super) fn plan_retry_unless(&mut self, done: bool) {
        if !done {
            return self.plan_retry(false);
        }
        let due = self.next_step();
        self.retry_at = self.retry_at.into_iter().chain(due).min();
    }

    /// When the first step that failed is to be tried again.
    fn next_step(&mut self) -> Option<Instant> {
        self.gauges.set(self.services.held(), self.setbacks.len());
        self.setbacks.next_due(Instant::now())
    }

    /// Tells who is behind the interfaces that the kernel has to those who serve pods.
    pub(super) fn introduce_pods(&mut self) -> bool {
        if !self.hear_pods() {
            return false;
        }
        let Attendants { names, infra, probes, .. } = &self.attendants;
        if names.is_none() && infra.is_none() && probes.is_none() {
            return true;
        }
        let interfaces = match self.kernel.askers() {
            Ok(interfaces) => interfaces,
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "cannot tell which pods ask and call");
                return false;
            }
        };
        names.iter().for_each(|names| names.know(&interfaces, &self.occupants));
        infra.iter().for_each(|infra| infra.know(&interfaces, &self.occupants));
        let probed = self.seen.probed();
        probes.iter().for_each(|probes| probes.know(probed, &interfaces, &self.primaries));
        true
    }

    /// Has those who know pods by their aliases hear them by the node's link alone, which may be another
    /// by now. Whoever is not heard so becomes known to nobody.
    fn hear_pods(&mut self) -> bool {
        let Some(link) = self.kernel.node_link() else { return true };
        let Attendants { names, infra, .. } = &mut self.attendants;
        let names = names.as_mut().map_or(Ok(()), |names| names.hear(link));
        let infra = infra.as_mut().map_or(Ok(()), |infra| infra.hear(link));
        let Err(error) = names.and(infra) else { return true };
        tracing::error!(%error, link, "cannot hear pods by the node's link");
        false
    }

    /// Puts right what all pods share. Without it, what concerns one pod alone can still be done.
    async fn tend(&mut self) -> bool {
        match self.kernel.tend().await {
            Ok(Tended::InOrder) => {}
            Ok(Tended::OpenedAnew) => {
                tracing::info!(mtu = self.kernel.pod_mtu(), "the tunnel was put right");
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "cannot put the tunnel right");
                return false;
            }
        }
        true
    }

    /// What failed is tried again, later each time. A step has its own time.
    pub(super) fn plan_retry(&mut self, succeeded: bool) {
        let due = self.next_step();
        if succeeded {
            self.failures = 0;
            self.retry_at = due;
            return;
        }
        self.look_anew = true;
        self.retry_at = Some(Instant::now() + patience(self.failures));
        self.failures = self.failures.saturating_add(1);
    }

    fn compile(&mut self) -> NodePlan {
        let attachments = self.store.all().values();
        let names = self.attendants.names.as_ref();
        let cluster_dns = names.map_or_else(Resolver::default, Names::cluster);
        let led = self.services.led();
        let mut view =
            self.seen.view(&self.node, self.kernel.pod_mtu(), attachments, cluster_dns, led);
        view.fronts = self.attendants.infra.iter().flat_map(Infra::fronts).collect();
        view.denied.extend(&self.denied);
        view.forbidden = self.denied.iter().copied().collect();
        if self.infra_mode == InfraMode::Compatible {
            view.infra = self.seen.infra(&self.node);
            view.kept = self.seen.pool_ranges().chain(self.denied.iter().copied()).collect();
        }
        let compiled = compile(&view);
        for complaint in new_ones(&self.complaints, &compiled.complaints) {
            tracing::warn!(%complaint, "left out of the plan");
            if let Some(report) = NetworkReport::of(complaint) {
                let _reporter_may_have_ended = self.reports.send(Report::Network(report));
            }
        }
        self.complaints = compiled.complaints;
        self.occupants = compiled.occupants;
        self.primaries = compiled.primaries;
        compiled.plan
    }

    async fn look(&mut self) -> anyhow::Result<Observed> {
        match self.observed.take() {
            Some(known) if !self.look_anew => Ok(known),
            _ => self.kernel.observe().await,
        }
    }

    /// All steps, with those of services, which the plan has on loan. Where one failed, what is known may
    /// not be so; one that only waits changed nothing.
    async fn apply_with_services(
        &mut self,
        plan: &mut NodePlan,
        mut observed: Observed,
        is_fresh: bool,
    ) {
        if is_fresh {
            self.services.look(&observed.services);
        }
        self.services.settle(&observed.services);
        let (services, lent) = self.services.lend(&observed.services);
        let due = self.services.due();
        plan.services = services;
        self.setbacks.begin_pass();
        self.look_anew = !self.apply_all(diff(plan, &observed), &mut observed).await;
        self.setbacks.end_pass();
        self.services.give_back(std::mem::take(&mut plan.services), &lent);
        if is_fresh {
            self.services.look(&observed.services);
        }
        self.forget_gone(due, &observed);
        self.look_anew |= !self.serve_due(&mut observed).await;
        self.untold.look(&observed, Instant::now());
        self.observed = Some(observed);
    }

    /// What went makes room for others.
    fn forget_gone(&mut self, touched: Vec<ServiceKey>, observed: &Observed) {
        let gone = touched.into_iter().filter(|key| !observed.services.contains_key(key));
        gone.for_each(|key| self.services.gone(key));
    }

    /// The services that changed, where nothing else did.
    pub(super) async fn pass_services(&mut self) {
        if !self.complete {
            return;
        }
        if self.look_anew {
            return self.pass().await;
        }
        let Some(mut observed) = self.observed.take() else { return };
        let mut served = self.serve_due(&mut observed).await;
        served &= self.serve_due(&mut observed).await;
        self.look_anew = !served;
        self.observed = Some(observed);
    }

    /// The services that changed, and those that have room now: what goes makes some, so that whoever
    /// waits for it comes with the next time.
    async fn serve_due(&mut self, observed: &mut Observed) -> bool {
        self.services.settle(&observed.services);
        let due = self.services.due();
        let steps = diff_services(&due, self.services.served(), &observed.services);
        let succeeded = self.apply_all(steps, observed).await;
        self.forget_gone(due, observed);
        succeeded
    }

    /// Does all steps, also after one that failed; says whether none did.
    async fn apply_all(&mut self, steps: Vec<Step>, observed: &mut Observed) -> bool {
        let mut succeeded = true;
        for step in steps {
            succeeded &= self.must_wait(&step) || self.apply(&step, observed).await;
        }
        succeeded
    }

    /// Whether it is not the step's turn. What is asked of pods does not wait, and services always do.
    fn must_wait(&mut self, step: &Step) -> bool {
        let is_service = matches!(step, Step::PutService(..) | Step::RemoveService(_));
        let must_wait = self.setbacks.must_wait(step, Instant::now());
        must_wait && (is_service || !self.is_awaited)
    }

    async fn apply(&mut self, step: &Step, observed: &mut Observed) -> bool {
        match self.kernel.apply(step).await {
            Ok(()) => {
                tracing::info!(%step, "applied");
                self.setbacks.done(step);
                observed.note(step);
                self.untold.note(step, Instant::now());
                true
            }
            Err(error) => {
                let error = format!("{error:#}");
                if self.setbacks.failed(step, &error) {
                    tracing::error!(%step, error, "failed, and is tried again");
                }
                false
            }
        }
    }

    /// Whether the interface is up and guarded, as far as is known.
    pub(super) fn is_up(&self, name: &HostInterface) -> bool {
        let interface = self.observed.as_ref().and_then(|observed| observed.interfaces.get(name));
        interface.is_some_and(|seen| seen.exists && seen.up && seen.guard.is_some())
    }

    /// Forgets attachments whose pod is gone without the runtime having said so.
    pub(super) fn forget_vanished_sandboxes(&mut self) {
        let gone = self.store.all().iter().filter(|(_, known)| has_vanished(&known.sandbox));
        let gone: Vec<_> =
            gone.map(|(id, attachment)| (id.clone(), attachment.pod.clone())).collect();
        for (id, pod) in gone {
            tracing::info!(%pod, container = id.container_id, "sandbox is gone, attachment forgotten");
            if let Err(error) = self.store.remove(&id) {
                tracing::error!(%error, "cannot forget an attachment");
            }
        }
    }
}

/// How long to wait after so many failures in a row before this one.
pub(super) fn patience(failures: u32) -> Duration {
    RETRY.saturating_mul(1 << failures.min(6)).min(LONGEST_RETRY)
}

/// Whether a sandbox is gone for sure. One that cannot be looked at, or whose whole folder is not
/// there (a mount that this agent lacks), is not: every pod of the node would be cut off.
fn has_vanished(sandbox: &Path) -> bool {
    let folder_is_there = sandbox.parent().is_some_and(Path::exists);
    folder_is_there && matches!(sandbox.try_exists(), Ok(false))
}

/// What was not complained about before.
fn new_ones<'a>(
    before: &'a [Complaint],
    now: &'a [Complaint],
) -> impl Iterator<Item = &'a Complaint> {
    now.iter().filter(|complaint| !before.contains(complaint))
}
