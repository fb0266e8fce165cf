//! One pass: compile what should be, compare with what is, apply the difference.

use std::path::Path;
use std::time::Duration;

use atoll_datapath::Tended;
use atoll_model::compile::{Complaint, compile};
use atoll_plan::{HostInterface, NodePlan, Observed, Resolver, Step, diff, diff_services};
use atoll_types::InfraMode;
use tokio::time::Instant;

use super::{Attendants, LONGEST_RETRY, RETRY, Reconciler};
use crate::infra::Infra;
use crate::kernel::Kernel;
use crate::names::Names;
use crate::report::{NetworkReport, Report};

impl<K: Kernel, F> Reconciler<K, F> {
    /// Brings the kernel to what was seen. Before everything has been seen once, it does nothing:
    /// what is there stays. Failed steps are tried again soon.
    pub(super) async fn pass(&mut self) {
        if !self.complete {
            return;
        }
        self.retry_at = None;
        let policy = self.write_policy();
        let shared = !self.look_anew || self.tend().await;
        let mut plan = self.compile();
        let own = match self.look().await {
            Ok(observed) => self.apply_with_services(&mut plan, observed).await,
            Err(error) => {
                tracing::error!(%error, "cannot look at the kernel");
                false
            }
        };
        let known = self.introduce_pods();
        self.listeners.forget_names();
        self.plan_retry(policy && shared && own && known);
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
            self.plan_retry(false);
        }
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

    /// What failed is tried again, later each time.
    pub(super) fn plan_retry(&mut self, succeeded: bool) {
        if succeeded {
            self.failures = 0;
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

    /// All steps, with those of services, which the plan has on loan.
    async fn apply_with_services(&mut self, plan: &mut NodePlan, observed: Observed) -> bool {
        let (services, lent) = self.services.lend(&observed.services);
        let _the_plan_has_them_all = self.services.due();
        plan.services = services;
        let succeeded = self.apply_all(plan, observed).await;
        self.services.give_back(std::mem::take(&mut plan.services), &lent);
        succeeded
    }

    /// The services that changed, where nothing else did.
    pub(super) async fn pass_services(&mut self) -> bool {
        if !self.complete {
            return true;
        }
        if self.look_anew {
            self.pass().await;
            return true;
        }
        let Some(mut observed) = self.observed.take() else { return true };
        let due = self.services.due();
        let steps = diff_services(&due, self.services.served(), &observed.services);
        let mut succeeded = true;
        for step in steps {
            succeeded &= self.apply(&step, &mut observed).await;
        }
        self.observed = Some(observed);
        succeeded
    }

    /// Does all steps, also after one that failed; says whether none did.
    async fn apply_all(&mut self, plan: &NodePlan, mut observed: Observed) -> bool {
        let mut succeeded = true;
        for step in diff(plan, &observed) {
            succeeded &= self.apply(&step, &mut observed).await;
        }
        self.look_anew = !succeeded;
        self.observed = Some(observed);
        succeeded
    }

    async fn apply(&mut self, step: &Step, observed: &mut Observed) -> bool {
        match self.kernel.apply(step).await {
            Ok(()) => {
                tracing::info!(%step, "applied");
                observed.note(step);
                self.untold.note(step, Instant::now());
                true
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(%step, error, "failed");
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
