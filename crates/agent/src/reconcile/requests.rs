//! What the container runtime asks, answered once the kernel has it.

use atoll_cni::wire::{AgentReply, AgentRequest, DropReport};
use atoll_cni::{Attached, AttachmentId, AttachmentRequest, CniError, ErrorCode};
use atoll_datapath::DropCount;
use atoll_model::compile::Attachment;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Reconciler;
use crate::attachments::attachment;
use crate::kernel::Kernel;
use crate::report::AttachedReport;
use crate::serve::Request;

/// An ADD whose port has not been seen yet.
#[derive(Debug)]
pub(super) struct Waiting {
    request: AttachmentRequest,
    reply: oneshot::Sender<AgentReply>,
    pub(super) deadline: Instant,
}

impl<K: Kernel, F> Reconciler<K, F> {
    pub(super) async fn on_request(&mut self, request: Request) {
        let answer = match request.ask {
            AgentRequest::Add(add) => return self.on_add(add, request.reply).await,
            AgentRequest::Del(id) => self.del(&id).await,
            AgentRequest::Gc(valid) => self.collect_garbage(&valid).await,
            AgentRequest::Check(id) => self.check(&id).await,
            AgentRequest::Status => self.status(),
            AgentRequest::Drops => self.drops(),
        };
        send(request.reply, answer);
    }

    async fn on_add(&mut self, request: AttachmentRequest, reply: oneshot::Sender<AgentReply>) {
        if self.can_serve(&request) {
            let answer = self.add(&request).await;
            return send(reply, answer);
        }
        let deadline = Instant::now() + self.timing.port_patience;
        self.waiting.push(Waiting { request, reply, deadline });
    }

    fn can_serve(&self, request: &AttachmentRequest) -> bool {
        self.complete && self.seen.port_for(&self.node, &attachment(request)).is_some()
    }

    pub(super) async fn serve_waiting(&mut self) {
        let (ready, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .filter(|waiting| !waiting.reply.is_closed())
            .partition(|waiting| self.can_serve(&waiting.request));
        self.waiting = waiting;
        for waiting in ready {
            let answer = self.add(&waiting.request).await;
            send(waiting.reply, answer);
        }
    }

    pub(super) fn refuse_overdue(&mut self) {
        let now = Instant::now();
        self.refuse(|waiting| waiting.deadline <= now);
    }

    fn refuse(&mut self, is_over: impl Fn(&Waiting) -> bool) {
        let (over, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(is_over);
        self.waiting = waiting;
        for waiting in over {
            let error = self.no_port(&waiting.request);
            send(waiting.reply, Err(error));
        }
    }

    fn no_port(&self, request: &AttachmentRequest) -> CniError {
        let pod = &request.pod;
        let message = if self.complete {
            format!(
                "pod {pod} has no port yet: `kubectl describe pod -n {} {}` tells why",
                pod.namespace, pod.name
            )
        } else {
            format!("cannot attach pod {pod}: the agent has not read the cluster's state yet")
        };
        CniError::new(ErrorCode::TryAgainLater, message)
    }

    /// Makes the interface, or leaves nothing of it.
    async fn add(&mut self, request: &AttachmentRequest) -> Result<AgentReply, CniError> {
        let wanted = attachment(request);
        let (key, port) = self
            .seen
            .port_for(&self.node, &wanted)
            .map(|(key, port)| (key.clone(), port.clone()))
            .ok_or_else(|| self.no_port(request))?;
        self.store.insert(request).map_err(|error| failed("remember the attachment", &error))?;
        self.forget_former_sandboxes(request)?;
        self.pass().await;
        let name = wanted.host_interface;
        if !self.is_up(&name) {
            return Err(self.undo(request).await);
        }
        let host_interface = name.to_string();
        let _reporter_may_have_ended =
            self.reports.send(AttachedReport { port: key, host_interface: host_interface.clone() });
        Ok(AgentReply::Attached(Attached {
            host_interface,
            mac: port.mac,
            ips: port.ips,
            mtu: self.kernel.pod_mtu(),
        }))
    }

    /// A pod has one sandbox at a time. When the runtime makes another, the one before is over,
    /// whether its DEL came or not, and must not keep the port.
    fn forget_former_sandboxes(&mut self, request: &AttachmentRequest) -> Result<(), CniError> {
        let wanted = attachment(request);
        let is_former = |known: &Attachment| {
            known.pod == wanted.pod
                && known.interface == wanted.interface
                && known.host_interface != wanted.host_interface
        };
        let former = self.store.all().iter().filter(|(_, known)| is_former(known));
        for id in former.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            tracing::info!(pod = %request.pod, container = id.container_id, "sandbox was replaced");
            self.store.remove(&id).map_err(|error| failed("forget a former sandbox", &error))?;
        }
        Ok(())
    }

    async fn undo(&mut self, request: &AttachmentRequest) -> CniError {
        let message =
            format!("cannot make interface {} of pod {}", request.id.interface, request.pod);
        let error = CniError::new(ErrorCode::AttachFailed, message)
            .because("the agent's log on this node has the failed step");
        match self.del(&request.id).await {
            Ok(_) => error,
            Err(also) => error.because(also),
        }
    }

    /// Removes an attachment; gone already is gone, and one that waits is not made any more.
    async fn del(&mut self, id: &AttachmentId) -> Result<AgentReply, CniError> {
        self.refuse(|waiting| waiting.request.id == *id);
        self.store.remove(id).map_err(|error| failed("forget the attachment", &error))?;
        self.pass().await;
        Ok(AgentReply::Done)
    }

    async fn collect_garbage(&mut self, valid: &[AttachmentId]) -> Result<AgentReply, CniError> {
        let stale: Vec<_> =
            self.store.all().keys().filter(|id| !valid.contains(id)).cloned().collect();
        let mut outcome = Ok(AgentReply::Done);
        for id in stale {
            if let Err(error) = self.store.remove(&id) {
                outcome = Err(failed("forget an attachment", &error));
            }
        }
        self.pass().await;
        outcome
    }

    async fn check(&mut self, id: &AttachmentId) -> Result<AgentReply, CniError> {
        let not_there = || {
            let message = format!(
                "interface {} of container {} is not as it was made",
                id.interface, id.container_id
            );
            CniError::new(ErrorCode::CheckFailed, message)
        };
        let name = self.store.all().get(id).map(|known| known.host_interface.clone());
        let name = name.ok_or_else(not_there)?;
        let observed =
            self.kernel.observe().await.map_err(|error| failed("look at the kernel", &error))?;
        self.observed = Some(observed);
        if self.is_up(&name) { Ok(AgentReply::Done) } else { Err(not_there()) }
    }

    fn status(&self) -> Result<AgentReply, CniError> {
        if self.complete {
            return Ok(AgentReply::Done);
        }
        let message =
            "the agent has not read the cluster's state yet; is the API server reachable?";
        Err(CniError::new(ErrorCode::NotAvailable, message))
    }

    fn drops(&self) -> Result<AgentReply, CniError> {
        let counts =
            self.kernel.drops().map_err(|error| failed("read the drop counters", &error))?;
        Ok(AgentReply::Drops(counts.iter().map(|count| self.drop_report(count)).collect()))
    }

    fn drop_report(&self, count: &DropCount) -> DropReport {
        let name = |network| {
            let known = self.seen.network_name(network);
            known.map_or_else(|| network.to_string(), ToOwned::to_owned)
        };
        DropReport {
            network: count.network.map(name),
            reason: count.reason.name().to_owned(),
            meaning: count.reason.meaning().to_owned(),
            packets: count.packets,
            bytes: count.bytes,
        }
    }
}

fn failed(what: &str, error: &anyhow::Error) -> CniError {
    CniError::new(ErrorCode::AttachFailed, format!("cannot {what}")).because(format!("{error:#}"))
}

/// Whoever asked may have gone; then nobody needs the answer.
fn send(reply: oneshot::Sender<AgentReply>, answer: Result<AgentReply, CniError>) {
    let _gone = reply.send(answer.unwrap_or_else(AgentReply::Failed));
}
