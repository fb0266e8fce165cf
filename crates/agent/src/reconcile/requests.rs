//! What the container runtime asks, answered once the kernel has it.

use atoll_cni::wire::{AgentReply, AgentRequest, DropReport, NameQuestion, TrafficReport, Volume};
use atoll_cni::{
    Attached, AttachedInterface, AttachmentId, AttachmentRequest, CniError, ErrorCode,
};
use atoll_datapath::{DropCount, Traffic};
use atoll_model::compile::{Attachment, PlacedPort};
use atoll_plan::HostInterface;
use atoll_types::NetworkId;
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{BATCH, Reconciler};
use crate::attachments::attachment;
use crate::kernel::Kernel;
use crate::report::{AttachedReport, Report};
use crate::seen::PortKey;
use crate::serve::Request;

/// An ADD of which not every port has been seen yet.
#[derive(Debug)]
pub(super) struct Waiting {
    request: AttachmentRequest,
    reply: oneshot::Sender<AgentReply>,
    pub(super) deadline: Instant,
}

/// What was remembered or forgotten and must be so in the kernel before the runtime is answered.
#[derive(Debug)]
struct Promise {
    id: AttachmentId,
    what: Promised,
    reply: oneshot::Sender<AgentReply>,
}

#[derive(Debug)]
enum Promised {
    Attached(Box<Wanted>),
    /// Nothing is left, and what is said then.
    Gone(AgentReply),
}

/// Whose an ADD is.
enum Claim {
    /// Ours, with these ports.
    Ours(Vec<(PortKey, PlacedPort)>),
    /// No tenant's.
    NotOurs,
    /// Not known yet.
    NotYet,
}

/// A pod's interfaces, by the ports that they are for.
#[derive(Debug)]
struct Wanted {
    request: AttachmentRequest,
    ports: Vec<(PortKey, PlacedPort)>,
}

impl<K: Kernel, F> Reconciler<K, F> {
    /// Takes in what else has been asked meanwhile, so that a burst of pods shares one pass. What
    /// is asked of one interface twice is done twice, in order.
    pub(super) async fn on_requests(&mut self, first: Request, more: &mut Receiver<Request>) {
        let mut promises = Vec::new();
        let mut next = Some(first);
        for _ in 0..BATCH {
            let Some(request) = next else { break };
            if promises.iter().any(|promise: &Promise| is_about(&request.ask, &promise.id)) {
                self.keep(std::mem::take(&mut promises)).await;
            }
            promises.extend(self.begin(request).await);
            next = more.try_recv().ok();
        }
        self.keep(promises).await;
    }

    /// Answers what needs no pass, and promises the rest.
    async fn begin(&mut self, request: Request) -> Option<Promise> {
        let Request { ask, reply } = request;
        let answer = match ask {
            AgentRequest::Add(add) => return self.begin_add(add, reply),
            AgentRequest::Del(id) => return self.begin_del(id, reply),
            AgentRequest::Gc(valid) => self.collect_garbage(&valid).await,
            AgentRequest::Check(id) => self.check(&id).await,
            AgentRequest::Status => self.status(),
            AgentRequest::Drops => self.drops(),
            AgentRequest::Traffic => self.traffic(),
            AgentRequest::Name(question) => self.name(&question),
        };
        send(reply, answer);
        None
    }

    fn begin_add(
        &mut self,
        request: AttachmentRequest,
        reply: oneshot::Sender<AgentReply>,
    ) -> Option<Promise> {
        let ports = match self.claim(&request) {
            Claim::Ours(ports) => ports,
            Claim::NotOurs => {
                send(reply, Ok(AgentReply::NotOurs));
                return None;
            }
            Claim::NotYet => {
                let deadline = Instant::now() + self.timing.port_patience;
                self.waiting.push(Waiting { request, reply, deadline });
                return None;
            }
        };
        if let Err(error) = self.remember(&request) {
            send(reply, Err(error));
            return None;
        }
        let id = request.id.clone();
        let wanted = Box::new(Wanted { request, ports });
        Some(Promise { id, what: Promised::Attached(wanted), reply })
    }

    fn begin_del(
        &mut self,
        id: AttachmentId,
        reply: oneshot::Sender<AgentReply>,
    ) -> Option<Promise> {
        let was_ours = self.store.all().contains_key(&id)
            || self.waiting.iter().any(|waiting| waiting.request.id == id);
        if let Err(error) = self.forget(&id) {
            send(reply, Err(error));
            return None;
        }
        let answer = if was_ours { AgentReply::Done } else { AgentReply::NotOurs };
        Some(Promise { id, what: Promised::Gone(answer), reply })
    }

    /// Whose an ADD is. That it has no port does not make it nobody's: the port may be on its way.
    fn claim(&self, request: &AttachmentRequest) -> Claim {
        match self.ports_for(&attachment(request)) {
            Some(ports) if self.is_policed(&ports) => Claim::Ours(ports),
            Some(_) => Claim::NotYet,
            None if self.seen.is_nobodys(&request.pod.namespace) => Claim::NotOurs,
            None => Claim::NotYet,
        }
    }

    /// Whether the kernel knows by which policies the pod is judged.
    fn is_policed(&self, ports: &[(PortKey, PlacedPort)]) -> bool {
        let addresses = ports.iter().flat_map(|(_, port)| port.addresses());
        self.attendants.policies.as_ref().is_none_or(|policies| policies.knows(addresses))
    }

    /// Makes the kernel match, then answers: an interface is there, or nothing of it is left.
    async fn keep(&mut self, promises: Vec<Promise>) {
        if promises.is_empty() {
            return;
        }
        self.pass_now().await;
        for Promise { what, reply, .. } in promises {
            let answer = match what {
                Promised::Attached(wanted) => self.attached(*wanted).await,
                Promised::Gone(answer) => Ok(answer),
            };
            send(reply, answer);
        }
    }

    /// All ports of the pod that an attachment is for; none before all are there.
    fn ports_for(&self, attachment: &Attachment) -> Option<Vec<(PortKey, PlacedPort)>> {
        let found = self.complete.then(|| self.seen.ports_for(&self.node, attachment)).flatten()?;
        Some(found.into_iter().map(|(key, port)| (key.clone(), port.clone())).collect())
    }

    pub(super) async fn serve_waiting(&mut self) {
        let (ready, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .filter(|waiting| !waiting.reply.is_closed())
            .partition(|waiting| !matches!(self.claim(&waiting.request), Claim::NotYet));
        self.waiting = waiting;
        let promises = ready.into_iter();
        let promises =
            promises.filter_map(|waiting| self.begin_add(waiting.request, waiting.reply));
        let promises = promises.collect();
        self.keep(promises).await;
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
        let has_ports = self.ports_for(&attachment(request)).is_some();
        let policies = self.attendants.policies.as_ref();
        let message = if has_ports && policies.is_some_and(|policies| policies.has_no_room(pod)) {
            format!(
                "pod {pod} has no room: its tenant has as many entries of policy on this node as it \
                 leaves to others; fewer distinct labels and narrower rules need fewer"
            )
        } else if has_ports {
            format!("the policies for pod {pod} are not in place yet; the agent's log tells more")
        } else if self.complete {
            format!(
                "pod {pod} does not have all its ports yet: `kubectl describe pod -n {} {}` tells why",
                pod.namespace, pod.name
            )
        } else {
            format!("cannot attach pod {pod}: the agent has not read the cluster's state yet")
        };
        CniError::new(ErrorCode::TryAgainLater, message)
    }

    /// The interfaces as the runtime is told of them, or nothing of any.
    async fn attached(&mut self, wanted: Wanted) -> Result<AgentReply, CniError> {
        let Wanted { request, ports } = wanted;
        let asked = attachment(&request);
        let names = ports.iter().map(|(_, port)| asked.host_interface(port));
        let names: Vec<HostInterface> = names.collect();
        if !names.iter().all(|name| self.is_up(name)) {
            return Err(self.undo(&request).await);
        }
        let made = ports.into_iter().zip(names);
        let interfaces = made.map(|((key, port), name)| self.report(key, port, &name)).collect();
        Ok(AgentReply::Attached(Attached { interfaces, mtu: self.kernel.pod_mtu() }))
    }

    /// Tells the cluster of an interface that was made, and gives what the runtime is told.
    fn report(&self, key: PortKey, port: PlacedPort, name: &HostInterface) -> AttachedInterface {
        let host_interface = name.to_string();
        let report = AttachedReport {
            port: key,
            pod_uid: port.pod_uid.clone(),
            host_interface: host_interface.clone(),
        };
        let _reporter_may_have_ended = self.reports.send(Report::Attached(report));
        AttachedInterface {
            name: port.interface,
            host_interface,
            mac: port.mac,
            ips: port.ips,
            routes: port.routes.into_iter().collect(),
        }
    }

    fn remember(&mut self, request: &AttachmentRequest) -> Result<(), CniError> {
        self.store.insert(request).map_err(|error| failed("remember the attachment", &error))?;
        self.forget_former_sandboxes(request)
    }

    /// A pod has one sandbox at a time. When the runtime makes another, the one before is over,
    /// whether its DEL came or not, and must not keep the port.
    fn forget_former_sandboxes(&mut self, request: &AttachmentRequest) -> Result<(), CniError> {
        let wanted = attachment(request);
        let is_former = |known: &Attachment| {
            known.pod == wanted.pod
                && known.interface == wanted.interface
                && known.container_id != wanted.container_id
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
        let forgotten = self.forget(&request.id);
        self.pass_now().await;
        match forgotten {
            Ok(()) => error,
            Err(also) => error.because(also),
        }
    }

    /// Forgets an attachment; gone already is gone, and one that waits is not made any more.
    fn forget(&mut self, id: &AttachmentId) -> Result<(), CniError> {
        self.refuse(|waiting| waiting.request.id == *id);
        self.store.remove(id).map_err(|error| failed("forget the attachment", &error))
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
        self.pass_now().await;
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
        let Some(known) = self.store.all().get(id).cloned() else {
            return Ok(AgentReply::NotOurs);
        };
        let ports = self.ports_for(&known).ok_or_else(not_there)?;
        let observed =
            self.kernel.observe().await.map_err(|error| failed("look at the kernel", &error))?;
        self.observed = Some(observed);
        let is_up = |(_, port): &(_, PlacedPort)| self.is_up(&known.host_interface(port));
        if ports.iter().all(is_up) { Ok(AgentReply::Done) } else { Err(not_there()) }
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

    fn traffic(&self) -> Result<AgentReply, CniError> {
        let counted =
            self.kernel.traffic().map_err(|error| failed("read the traffic counters", &error))?;
        Ok(AgentReply::Traffic(counted.iter().map(|it| self.traffic_report(it)).collect()))
    }

    fn traffic_report(&self, counted: &Traffic) -> TrafficReport {
        let pod = self.occupants.get(&counted.interface).map(|occupant| occupant.pod.clone());
        let is_its =
            |port: &&PlacedPort| port.network == counted.network && Some(&port.pod) == pod.as_ref();
        let port = self.seen.ports().map(|(_, port)| port).find(is_its);
        let network = match port {
            Some(port) => port.network_name.clone(),
            None => self.name_or_number(counted.network),
        };
        let sums = &counted.counters;
        TrafficReport {
            pod,
            interface: counted.interface.to_string(),
            network,
            sent: Volume { packets: sums.sent_packets, bytes: sums.sent_bytes },
            received: Volume { packets: sums.received_packets, bytes: sums.received_bytes },
            dropped: Volume { packets: sums.dropped_packets, bytes: sums.dropped_bytes },
        }
    }

    fn name_or_number(&self, network: NetworkId) -> String {
        let known = self.seen.network_name(network);
        known.map_or_else(|| network.to_string(), ToOwned::to_owned)
    }

    /// What a pod of this node would be told about a name.
    fn name(&self, question: &NameQuestion) -> Result<AgentReply, CniError> {
        let Some(names) = &self.attendants.names else {
            let message = "the agent answers no names; start it with --cluster-dns";
            return Err(CniError::new(ErrorCode::NotAvailable, message));
        };
        let occupant = self.occupants.values().find(|occupant| occupant.pod == question.pod);
        let Some(occupant) = occupant else { return Ok(AgentReply::NotOurs) };
        let report = names.report(occupant, question);
        report.map(AgentReply::Name).map_err(|error| failed("look the name up", &error))
    }

    fn drop_report(&self, count: &DropCount) -> DropReport {
        DropReport {
            network: count.network.map(|network| self.name_or_number(network)),
            reason: count.reason.name().to_owned(),
            meaning: count.reason.meaning().to_owned(),
            packets: count.packets,
            bytes: count.bytes,
        }
    }
}

fn is_about(ask: &AgentRequest, id: &AttachmentId) -> bool {
    match ask {
        AgentRequest::Add(add) => add.id == *id,
        AgentRequest::Del(asked) | AgentRequest::Check(asked) => asked == id,
        AgentRequest::Gc(_) => true,
        AgentRequest::Status
        | AgentRequest::Drops
        | AgentRequest::Traffic
        | AgentRequest::Name(_) => false,
    }
}

pub(super) fn failed(what: &str, error: &anyhow::Error) -> CniError {
    CniError::new(ErrorCode::AttachFailed, format!("cannot {what}")).because(format!("{error:#}"))
}

/// Whoever asked may have gone; then nobody needs the answer.
fn send(reply: oneshot::Sender<AgentReply>, answer: Result<AgentReply, CniError>) {
    let _gone = reply.send(answer.unwrap_or_else(AgentReply::Failed));
}
