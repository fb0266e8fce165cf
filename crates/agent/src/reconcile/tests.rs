//! The actor against a kernel made of maps: what it promises to the runtime, and what it never
//! does to pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_abi::Traffic as Counters;
use atoll_api::EgressMode;
use atoll_cni::wire::{AgentReply, AgentRequest, Volume};
use atoll_cni::{AttachmentId, AttachmentRequest, ErrorCode};
use atoll_datapath::{DropCount, Event, Tended, Traffic};
use atoll_model::compile::{Outlet, PlacedPort};
use atoll_plan::{Closed, Egress, HostInterface, Observed, ServiceRoom, Step};
use atoll_policy::{Changes, Tables};
use atoll_types::{MacAddr, NetworkId, PodRef};
use tempfile::TempDir;
use tokio::sync::mpsc::{Receiver, Sender, channel, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::pass::patience;
use super::{Attendants, Audience, Reconciler, Timing};
use crate::attachments::AttachmentStore;
use crate::kernel::Kernel;
use crate::seen::{Change, Delta, Exposure, Joined, Scope, Tenancy};
use crate::serve::Request;

mod services;

/// Soon enough for a test that waits for a look.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Longer than any test takes, however busy the machine is.
const NEVER: Duration = Duration::from_secs(3600);

/// A kernel that does as told, unless it was told to fail.
#[derive(Clone, Default)]
pub(super) struct MapKernel(pub(super) Arc<Mutex<MapKernelState>>);

#[derive(Default)]
pub(super) struct MapKernelState {
    observed: Observed,
    refuses_to_raise: Option<HostInterface>,
    /// It takes no service that is new to it.
    refuses_services: bool,
    /// How often it was asked for one all the same.
    refused: usize,
    service_room: Option<ServiceRoom>,
    steps: usize,
    /// What the neighbours were told, word by word.
    announced: Vec<BTreeSet<IpAddr>>,
    /// How often it was looked at.
    looks: usize,
    /// How often it was asked for the size of packets: once in each pass, and at other times.
    asked: usize,
    pod_mtu: u32,
    /// The tunnel is broken, with this size of packets once it is repaired.
    broken: Option<u32>,
    news: Option<Sender<()>>,
    /// Where the kernel tells what happens to packets, while somebody listens.
    pub(super) events: Option<Sender<Vec<Event>>>,
}

impl Kernel for MapKernel {
    fn pod_mtu(&self) -> u32 {
        let mut state = self.0.lock().unwrap();
        state.asked += 1;
        state.pod_mtu
    }

    async fn tend(&mut self) -> anyhow::Result<Tended> {
        let mut state = self.0.lock().unwrap();
        let Some(mtu) = state.broken.take() else { return Ok(Tended::InOrder) };
        state.pod_mtu = mtu;
        Ok(Tended::OpenedAnew)
    }

    fn news(&self) -> anyhow::Result<Receiver<()>> {
        let (sender, receiver) = channel(1);
        self.0.lock().unwrap().news = Some(sender);
        Ok(receiver)
    }

    fn events(&self) -> anyhow::Result<Receiver<Vec<Event>>> {
        let (sender, receiver) = channel(1);
        self.0.lock().unwrap().events = Some(sender);
        Ok(receiver)
    }

    async fn observe(&self) -> anyhow::Result<Observed> {
        let mut state = self.0.lock().unwrap();
        state.looks += 1;
        Ok(state.observed.clone())
    }

    fn service_room(&self) -> Option<ServiceRoom> {
        self.0.lock().unwrap().service_room
    }

    async fn apply(&mut self, step: &Step) -> anyhow::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.steps += 1;
        if matches!(step, Step::RaiseInterface(name) if state.refuses_to_raise.as_ref() == Some(name))
        {
            anyhow::bail!("told to fail");
        }
        if matches!(step, Step::PutService(..)) && state.refuses_services {
            state.refused += 1;
            anyhow::bail!("the map is full");
        }
        state.observed.note(step);
        Ok(())
    }

    fn announce(&self, addresses: &BTreeSet<IpAddr>) -> anyhow::Result<()> {
        self.0.lock().unwrap().announced.push(addresses.clone());
        Ok(())
    }

    fn replace_policy(&mut self, _: &Tables) -> anyhow::Result<()> {
        Ok(())
    }

    fn change_policy(&mut self, _: &Changes) -> anyhow::Result<()> {
        Ok(())
    }

    fn policy_rule(&self, number: u32) -> anyhow::Result<Option<u32>> {
        Ok(Some(number))
    }

    fn decide_anew(&mut self, _: &BTreeSet<NetworkId>) -> anyhow::Result<()> {
        Ok(())
    }

    fn drops(&self) -> anyhow::Result<Vec<DropCount>> {
        Ok(Vec::new())
    }

    /// As if each interface had sent and received as much as its place among all says.
    fn traffic(&self) -> anyhow::Result<Vec<Traffic>> {
        let interfaces = self.0.lock().unwrap().observed.interfaces.clone();
        let guarded = interfaces.into_iter().filter_map(|(name, it)| Some((name, it.guard?)));
        let counted = (1..).zip(guarded).map(|(number, (interface, guard))| Traffic {
            interface,
            network: guard.network,
            counters: Counters {
                sent_packets: number,
                received_bytes: 60 * number,
                ..Counters::default()
            },
        });
        Ok(counted.collect())
    }

    fn askers(&self) -> anyhow::Result<BTreeMap<u32, HostInterface>> {
        let interfaces = self.0.lock().unwrap().observed.interfaces.clone();
        Ok((1..).zip(interfaces.into_keys()).collect())
    }
}

/// An actor at work, with the ends of its channels.
pub(super) struct Agent {
    pub(super) kernel: MapKernel,
    pub(super) changes: Sender<Change>,
    requests: Sender<Request>,
    pub(super) audience: Sender<Audience>,
    /// The networks to follow, as told each time.
    followed: Arc<Mutex<Vec<BTreeSet<NetworkId>>>>,
    state: TempDir,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Agent {
    pub(super) fn start() -> Agent {
        Agent::timed(LOOK_AGAIN, NEVER)
    }

    /// One that soon tells who waits for a port that there is none.
    fn impatient() -> Agent {
        Agent::timed(NEVER, Duration::from_secs(1))
    }

    /// One that does not look at the kernel of itself.
    fn trusting() -> Agent {
        Agent::timed(NEVER, NEVER)
    }

    fn timed(look_again: Duration, port_patience: Duration) -> Agent {
        let kernel = MapKernel::default();
        let timing = Timing { look_again, port_patience };
        Agent::start_with(kernel, timing)
    }

    /// One that does not look of itself, with room for so many services.
    fn with_room_for(services: usize) -> Agent {
        let kernel = MapKernel::default();
        let room = ServiceRoom { services, slots: services, backends: services, sources: services };
        kernel.0.lock().unwrap().service_room = Some(room);
        Agent::start_with(kernel, Timing { look_again: NEVER, port_patience: NEVER })
    }

    fn start_with(kernel: MapKernel, timing: Timing) -> Agent {
        kernel.0.lock().unwrap().pod_mtu = 1450;
        Agent::start_on(kernel, tempfile::tempdir().unwrap(), timing)
    }

    fn start_on(kernel: MapKernel, state: TempDir, timing: Timing) -> Agent {
        let (changes, changes_seen) = channel(16);
        let (requests, requests_seen) = channel(16);
        let followed = Arc::new(Mutex::new(Vec::new()));
        let sink = followed.clone();
        let reconciler = Reconciler::new(
            "node1",
            kernel.clone(),
            AttachmentStore::open(state.path()).unwrap(),
            Attendants::default(),
            move |scope: &Scope| {
                sink.lock()
                    .unwrap()
                    .push(scope.networks.values().map(|presence| presence.id).collect());
            },
            unbounded_channel().0,
            timing,
        );
        let (audience, audience_seen) = channel(16);
        let task = tokio::spawn(reconciler.run(changes_seen, requests_seen, audience_seen));
        Agent { kernel, changes, requests, audience, followed, state, task }
    }

    /// Ends the actor as a crash would, and starts another one in its place.
    async fn restart(self) -> Agent {
        self.task.abort();
        let _aborted = self.task.await;
        let timing = Timing { look_again: LOOK_AGAIN, port_patience: NEVER };
        Agent::start_on(self.kernel, self.state, timing)
    }

    pub(super) async fn change(&self, change: Change) {
        self.changes.send(change).await.unwrap();
    }

    pub(super) async fn ask(&self, ask: AgentRequest) -> AgentReply {
        self.ask_later(ask).await.await.unwrap()
    }

    async fn ask_later(&self, ask: AgentRequest) -> oneshot::Receiver<AgentReply> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request { ask, reply }).await.unwrap();
        answer
    }

    /// Lists everything once: two nodes, and these ports of network 1.
    pub(super) async fn see(&self, ports: &[PlacedPort]) {
        let nodes =
            [("node1".into(), [192, 0, 2, 1].into()), ("node2".into(), [192, 0, 2, 2].into())];
        self.change(Change::Nodes(Delta::All(nodes.into()))).await;
        self.change(Change::Pools(Delta::All(BTreeMap::new()))).await;
        self.change(Change::Answered(Delta::All(BTreeMap::new()))).await;
        for exposure in Exposure::ALL {
            self.change(Change::Exposed(exposure, Delta::All(BTreeMap::new()))).await;
        }
        let entries = ports.iter().map(|port| (key(port), port.clone()));
        let own = entries.clone().filter(|(_, port)| port.node.as_deref() == Some("node1"));
        let own = own.map(|(key, port)| (key, joined(&port))).collect();
        self.change(Change::OwnPorts(Delta::All(own))).await;
        let acme = "acme".parse().unwrap();
        self.change(Change::Siblings(acme, Delta::All(BTreeMap::new()))).await;
        self.change(Change::NetworkPorts(network(1), Delta::All(entries.collect()))).await;
        self.change(Change::Network("acme.default".into(), Delta::All(BTreeMap::new()))).await;
        self.change(Change::Outlet("acme.default".into(), Delta::All(BTreeMap::new()))).await;
        self.change(Change::Held("acme.default".into(), Delta::All(BTreeMap::new()))).await;
    }

    /// Waits until everything has been seen.
    async fn settle(&self) {
        while self.ask(AgentRequest::Status).await != AgentReply::Done {
            tokio::task::yield_now().await;
        }
    }

    fn refuse_to_raise(&self, pod: &str) {
        let id = id(pod);
        let name = HostInterface::for_attachment(&id.container_id, &id.interface);
        self.kernel.0.lock().unwrap().refuses_to_raise = Some(name);
    }

    fn observed(&self) -> Observed {
        self.kernel.0.lock().unwrap().observed.clone()
    }
}

pub(super) fn network(number: u32) -> NetworkId {
    NetworkId::try_from(number).unwrap()
}

fn joined(port: &PlacedPort) -> Joined {
    Joined { network: port.network, name: port.network_name.clone() }
}

fn key(port: &PlacedPort) -> (String, String) {
    (port.pod.namespace.clone(), format!("{}.{}", port.pod.name, port.interface))
}

pub(super) fn port(pod: &str, last: u8, node: &str) -> PlacedPort {
    let ip = [10, 0, 0, last].into();
    PlacedPort {
        network: network(1),
        network_name: "acme.default".into(),
        ips: vec![ip],
        mac: MacAddr::for_ip(ip),
        pod: PodRef::new("acme", pod),
        pod_uid: format!("uid-of-{pod}"),
        interface: "eth0".into(),
        device: atoll_plan::Device::Veth,
        node: Some(node.into()),
        others: BTreeSet::new(),
        routes: BTreeSet::new(),
    }
}

fn id(pod: &str) -> AttachmentId {
    AttachmentId { container_id: format!("container-of-{pod}"), interface: "eth0".into() }
}

pub(super) fn add(pod: &str) -> AgentRequest {
    AgentRequest::Add(AttachmentRequest {
        id: id(pod),
        sandbox: "/proc/self/ns/net".into(),
        pod: PodRef::new("acme", pod),
        pod_uid: Some(format!("uid-of-{pod}")),
    })
}

/// The same pod's ADD from a sandbox that the runtime made later.
fn add_again(pod: &str) -> AgentRequest {
    let AgentRequest::Add(request) = add(pod) else { panic!("an ADD") };
    let container_id = format!("later-{}", request.id.container_id);
    AgentRequest::Add(AttachmentRequest {
        id: AttachmentId { container_id, ..request.id },
        ..request
    })
}

/// An ADD of a pod whose namespace is at `sandbox`.
fn add_at(pod: &str, sandbox: &Path) -> AgentRequest {
    let AgentRequest::Add(request) = add(pod) else { panic!("an ADD") };
    AgentRequest::Add(AttachmentRequest { sandbox: sandbox.to_owned(), ..request })
}

fn code(reply: AgentReply) -> Option<ErrorCode> {
    match reply {
        AgentReply::Failed(error) => Some(error.code),
        AgentReply::Attached(_)
        | AgentReply::Done
        | AgentReply::Drops(_)
        | AgentReply::Traffic(_)
        | AgentReply::Name(_)
        | AgentReply::NotOurs => None,
    }
}

#[tokio::test]
async fn an_add_is_answered_once_the_kernel_has_the_interface() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1"), port("db", 6, "node2")]).await;
    let AgentReply::Attached(attached) = agent.ask(add("web")).await else { panic!("attached") };
    assert_eq!(attached.interfaces[0].ips, ["10.0.0.5".parse::<IpAddr>().unwrap()]);
    let observed = agent.observed();
    let interface = observed.interfaces.values().next().unwrap();
    assert!(interface.up && interface.guard.is_some());
    assert_eq!(observed.endpoints.len(), 2);
}

#[tokio::test]
async fn what_a_pod_sent_and_received_is_told_with_its_name_and_its_networks() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1"), port("db", 6, "node2")]).await;
    agent.ask(add("web")).await;
    let AgentReply::Traffic(told) = agent.ask(AgentRequest::Traffic).await else {
        panic!("counters")
    };
    let [web] = &told[..] else { panic!("one pod is here: {told:?}") };
    assert_eq!(web.pod.as_ref().map(|pod| pod.name.as_str()), Some("web"));
    assert_eq!(web.network, port("web", 5, "node1").network_name);
    assert_eq!(web.sent, Volume { packets: 1, bytes: 0 });
    assert_eq!(web.received, Volume { packets: 0, bytes: 60 });
    assert_eq!(web.dropped, Volume::default());
}

#[tokio::test]
async fn an_add_that_comes_before_its_port_waits_for_it() {
    let agent = Agent::start();
    agent.see(&[]).await;
    let answer = agent.ask_later(add("web")).await;
    agent.see(&[port("web", 5, "node1")]).await;
    assert!(matches!(answer.await.unwrap(), AgentReply::Attached(_)));
}

#[tokio::test]
async fn an_add_without_a_port_is_told_to_try_again_and_where_to_look() {
    let agent = Agent::impatient();
    agent.see(&[]).await;
    let AgentReply::Failed(error) = agent.ask(add("web")).await else { panic!("failed") };
    assert_eq!(error.code, ErrorCode::TryAgainLater);
    assert!(error.msg.contains("kubectl describe pod -n acme web"), "{}", error.msg);
    assert!(agent.observed().interfaces.is_empty());
}

#[tokio::test]
async fn a_del_ends_an_add_that_still_waits() {
    let agent = Agent::start();
    agent.see(&[]).await;
    let answer = agent.ask_later(add("web")).await;
    assert_eq!(agent.ask(AgentRequest::Del(id("web"))).await, AgentReply::Done);
    agent.see(&[port("web", 5, "node1")]).await;
    assert_eq!(code(answer.await.unwrap()), Some(ErrorCode::TryAgainLater));
    agent.see(&[port("web", 5, "node1")]).await;
    assert!(agent.observed().interfaces.is_empty());
}

#[tokio::test]
async fn a_sandbox_made_anew_takes_the_port_over_from_the_one_before() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1")]).await;
    agent.ask(add("web")).await;
    assert!(matches!(agent.ask(add_again("web")).await, AgentReply::Attached(_)));
    assert_eq!(agent.observed().interfaces.len(), 1);
    agent.ask(AgentRequest::Del(id("web"))).await;
    assert_eq!(agent.observed().interfaces.len(), 1, "the DEL of the one before comes late");
}

#[tokio::test]
async fn an_add_repeated_gives_the_same_answer() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1")]).await;
    let first = agent.ask(add("web")).await;
    let steps = agent.kernel.0.lock().unwrap().steps;
    assert_eq!(agent.ask(add("web")).await, first);
    assert_eq!(agent.kernel.0.lock().unwrap().steps, steps, "the second ADD has nothing to do");
}

#[tokio::test]
async fn an_add_that_fails_half_way_leaves_nothing() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1")]).await;
    agent.refuse_to_raise("web");
    assert_eq!(code(agent.ask(add("web")).await), Some(ErrorCode::AttachFailed));
    let observed = agent.observed();
    assert_eq!((observed.interfaces, observed.endpoints), (BTreeMap::new(), BTreeMap::new()));
}

#[tokio::test]
async fn a_pod_that_cannot_be_repaired_does_not_stand_in_the_way_of_another() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1"), port("db", 6, "node1")]).await;
    agent.ask(add("web")).await;
    agent.kernel.0.lock().unwrap().observed.interfaces.clear();
    agent.refuse_to_raise("web");
    agent.ask(AgentRequest::Check(id("web"))).await;
    assert!(matches!(agent.ask(add("db")).await, AgentReply::Attached(_)));
}

#[tokio::test]
async fn a_del_is_repeatable_and_needs_no_add() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1")]).await;
    agent.ask(add("web")).await;
    for answer in [AgentReply::Done, AgentReply::NotOurs] {
        assert_eq!(agent.ask(AgentRequest::Del(id("web"))).await, answer);
        assert!(agent.observed().interfaces.is_empty());
    }
    assert_eq!(agent.ask(AgentRequest::Del(id("never-added"))).await, AgentReply::NotOurs);
}

#[tokio::test]
async fn a_restarted_agent_takes_nothing_away_before_it_has_seen_everything() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1")]).await;
    agent.ask(add("web")).await;
    let before = agent.observed();
    let agent = agent.restart().await;
    agent
        .change(Change::OwnPorts(Delta::All(
            [(key(&port("web", 5, "node1")), joined(&port("web", 5, "node1")))].into(),
        )))
        .await;
    let status = agent.ask(AgentRequest::Status).await;
    assert_eq!(code(status), Some(ErrorCode::NotAvailable));
    assert_eq!(agent.observed(), before);
    agent.see(&[port("web", 5, "node1")]).await;
    assert!(matches!(agent.ask(add("web")).await, AgentReply::Attached(_)));
    assert_eq!(agent.observed(), before);
}

#[tokio::test]
async fn a_network_is_followed_from_its_first_pod_here_to_its_last() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1"), port("db", 6, "node2")]).await;
    agent.ask(AgentRequest::Status).await;
    assert_eq!(agent.followed.lock().unwrap().last(), Some(&[network(1)].into()));
    assert_eq!(agent.observed().endpoints.len(), 1, "db is known because web is here");
    agent.change(Change::OwnPorts(Delta::Gone(key(&port("web", 5, "node1"))))).await;
    while !agent.observed().endpoints.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(agent.followed.lock().unwrap().last(), Some(&BTreeSet::new()));
}

#[tokio::test]
async fn a_network_that_left_and_came_back_at_once_is_listed_anew() {
    let agent = Agent::start();
    let (web, next, db) =
        (port("web", 5, "node1"), port("next", 7, "node1"), port("db", 6, "node2"));
    agent.see(&[web.clone(), db.clone()]).await;
    agent.ask(AgentRequest::Status).await;
    agent.followed.lock().unwrap().clear();
    agent.change(Change::OwnPorts(Delta::Gone(key(&web)))).await;
    agent.change(Change::OwnPorts(Delta::Put(key(&next), joined(&next)))).await;
    agent.change(Change::NetworkPorts(network(1), Delta::Put(key(&next), next.clone()))).await;
    let answer = agent.ask_later(add("next")).await;
    agent.see(&[next, db]).await;
    assert!(matches!(answer.await.unwrap(), AgentReply::Attached(_)));
    let followed = agent.followed.lock().unwrap().clone();
    assert_eq!(followed[..2], [BTreeSet::new(), [network(1)].into()]);
    assert_eq!(agent.observed().endpoints.len(), 2, "db is known though it did not change");
}

#[tokio::test]
async fn garbage_collection_keeps_exactly_what_it_is_told() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1"), port("db", 6, "node1")]).await;
    agent.ask(add("web")).await;
    agent.ask(add("db")).await;
    agent.ask(AgentRequest::Gc(vec![id("db")])).await;
    assert_eq!(agent.observed().interfaces.len(), 1);
    assert_eq!(agent.ask(AgentRequest::Check(id("db"))).await, AgentReply::Done);
    assert_eq!(agent.ask(AgentRequest::Check(id("web"))).await, AgentReply::NotOurs);
}

#[tokio::test]
async fn an_interface_deleted_by_hand_fails_the_check_and_is_repaired() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1")]).await;
    agent.ask(add("web")).await;
    let before = agent.observed();
    agent.kernel.0.lock().unwrap().observed.interfaces.clear();
    assert_eq!(code(agent.ask(AgentRequest::Check(id("web"))).await), Some(ErrorCode::CheckFailed));
    while agent.observed() != before {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_sandbox_that_is_gone_is_forgotten_and_one_that_cannot_be_seen_is_not() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1"), port("db", 6, "node1")]).await;
    let folders = tempfile::tempdir().unwrap();
    for (pod, folder) in [("web", "here"), ("db", "hidden")] {
        let folder = folders.path().join(folder);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("netns"), "").unwrap();
        agent.ask(add_at(pod, &folder.join("netns"))).await;
    }
    std::fs::remove_dir_all(folders.path().join("hidden")).unwrap();
    std::fs::remove_file(folders.path().join("here/netns")).unwrap();
    while agent.observed().interfaces.len() == 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(agent.ask(AgentRequest::Check(id("db"))).await, AgentReply::Done);
}

#[tokio::test]
async fn a_burst_of_requests_shares_one_pass_and_each_gets_its_own_answer() {
    let agent = Agent::impatient();
    let pods = ["a", "b", "c", "d"];
    agent.see(&[1, 2, 3].map(|last| port(pods[last as usize - 1], last, "node1"))).await;
    let mut answers = vec![];
    for pod in pods {
        answers.push(agent.ask_later(add(pod)).await);
    }
    let without_port = answers.pop().unwrap();
    for answer in answers {
        assert!(matches!(answer.await.unwrap(), AgentReply::Attached(_)));
    }
    assert_eq!(code(without_port.await.unwrap()), Some(ErrorCode::TryAgainLater));
    let before = agent.kernel.0.lock().unwrap().steps;
    let mut answers = vec![];
    for pod in pods {
        answers.push(agent.ask_later(AgentRequest::Del(id(pod))).await);
    }
    let without_port = answers.pop().unwrap();
    for answer in answers {
        assert_eq!(answer.await.unwrap(), AgentReply::Done);
    }
    assert_eq!(without_port.await.unwrap(), AgentReply::NotOurs);
    let three_endpoints_and_all_interfaces = 4;
    let steps = agent.kernel.0.lock().unwrap().steps - before;
    assert_eq!(steps, three_endpoints_and_all_interfaces);
}

#[tokio::test]
async fn what_a_burst_asks_of_one_interface_is_done_in_order() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1"), port("db", 6, "node1")]).await;
    assert!(matches!(agent.ask(add("db")).await, AgentReply::Attached(_)));
    let add_first = agent.ask_later(add("web")).await;
    let del = agent.ask_later(AgentRequest::Del(id("web"))).await;
    let add_again = agent.ask_later(add("web")).await;
    assert!(matches!(add_first.await.unwrap(), AgentReply::Attached(_)));
    assert_eq!(del.await.unwrap(), AgentReply::Done);
    assert!(matches!(add_again.await.unwrap(), AgentReply::Attached(_)));
    assert_eq!(agent.observed().interfaces.len(), 2);
}

/// A pod with a further interface, which its first one names.
fn two_ports(pod: &str) -> [PlacedPort; 2] {
    let first = PlacedPort { others: ["net1".to_owned()].into(), ..port(pod, 5, "node1") };
    let routes = ["10.1.0.0/16".parse().unwrap()].into();
    let further = PlacedPort { interface: "net1".into(), routes, ..port(pod, 6, "node1") };
    [first, further]
}

#[tokio::test]
async fn one_add_makes_every_interface_of_the_pod_and_one_del_takes_all_away() {
    let agent = Agent::start();
    agent.see(&two_ports("web")).await;
    let AgentReply::Attached(attached) = agent.ask(add("web")).await else { panic!("attached") };
    let names: Vec<_> = attached.interfaces.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["eth0", "net1"]);
    assert_eq!(attached.interfaces[1].routes, ["10.1.0.0/16".parse().unwrap()]);
    assert_eq!(agent.observed().interfaces.len(), 2);
    assert_eq!(agent.ask(AgentRequest::Check(id("web"))).await, AgentReply::Done);
    assert_eq!(agent.ask(AgentRequest::Del(id("web"))).await, AgentReply::Done);
    assert!(agent.observed().interfaces.is_empty() && agent.observed().endpoints.is_empty());
}

#[tokio::test]
async fn an_add_waits_until_every_port_of_the_pod_is_there() {
    let agent = Agent::start();
    let [first, further] = two_ports("web");
    agent.see(std::slice::from_ref(&first)).await;
    let answer = agent.ask_later(add("web")).await;
    agent.settle().await;
    assert!(agent.observed().interfaces.is_empty(), "half a pod is no pod");
    agent.see(&[first, further]).await;
    assert!(matches!(answer.await.unwrap(), AgentReply::Attached(_)));
    assert_eq!(agent.observed().interfaces.len(), 2);
}

#[tokio::test]
async fn an_add_of_which_one_interface_fails_leaves_none() {
    let agent = Agent::start();
    agent.see(&two_ports("web")).await;
    let further = HostInterface::for_attachment(&id("web").container_id, "net1");
    agent.kernel.0.lock().unwrap().refuses_to_raise = Some(further);
    assert_eq!(code(agent.ask(add("web")).await), Some(ErrorCode::AttachFailed));
    assert!(agent.observed().interfaces.is_empty());
}

#[tokio::test]
async fn a_check_and_a_collection_look_at_every_interface() {
    let agent = Agent::start();
    agent.see(&two_ports("web")).await;
    agent.ask(add("web")).await;
    let further = HostInterface::for_attachment(&id("web").container_id, "net1");
    agent.kernel.0.lock().unwrap().observed.interfaces.remove(&further);
    assert_eq!(code(agent.ask(AgentRequest::Check(id("web"))).await), Some(ErrorCode::CheckFailed));
    agent.ask(AgentRequest::Gc(vec![])).await;
    assert!(agent.observed().interfaces.is_empty());
}

#[tokio::test]
async fn a_pod_of_no_tenant_is_not_ours_and_one_of_an_unknown_namespace_waits() {
    let agent = Agent::start();
    agent.see(&[]).await;
    let answer = agent.ask_later(add("web")).await;
    let others = [("other".to_owned(), Tenancy::Nobody.into())];
    agent.change(Change::Namespaces(Delta::All(others.into()))).await;
    agent.settle().await;
    agent.change(Change::Namespaces(Delta::Put("acme".into(), Tenancy::Nobody.into()))).await;
    assert_eq!(answer.await.unwrap(), AgentReply::NotOurs);
    assert_eq!(agent.ask(add("web")).await, AgentReply::NotOurs);
    assert!(agent.observed().interfaces.is_empty());
}

#[tokio::test]
async fn a_tenants_pod_without_a_port_is_never_handed_on() {
    let agent = Agent::impatient();
    agent.see(&[]).await;
    let ours = [("acme".to_owned(), Tenancy::Tenant("acme.default".into()).into())];
    agent.change(Change::Namespaces(Delta::All(ours.into()))).await;
    assert_eq!(code(agent.ask(add("web")).await), Some(ErrorCode::TryAgainLater));
    agent.see(&[port("web", 5, "node1")]).await;
    assert!(matches!(agent.ask(add("web")).await, AgentReply::Attached(_)));
}

#[tokio::test]
async fn word_of_a_change_is_followed_by_a_look_and_running_pods_are_put_right() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1")]).await;
    agent.ask(add("web")).await;
    agent.kernel.0.lock().unwrap().broken = Some(8950);
    let news = agent.kernel.0.lock().unwrap().news.clone().unwrap();
    news.send(()).await.unwrap();
    while agent.observed().interfaces.values().any(|interface| interface.mtu != 8950) {
        tokio::task::yield_now().await;
    }
    assert_eq!(agent.kernel.0.lock().unwrap().broken, None);
    assert_eq!(agent.observed().interfaces.len(), 1);
}

#[tokio::test]
async fn a_port_that_is_told_again_as_it_is_known_takes_no_pass_and_one_that_changed_does() {
    let agent = Agent::trusting();
    let web = port("web", 5, "node1");
    agent.see(std::slice::from_ref(&web)).await;
    agent.ask(add("web")).await;
    let asked = || agent.kernel.0.lock().unwrap().asked;
    let before = asked();
    agent.change(Change::OwnPorts(Delta::Put(key(&web), joined(&web)))).await;
    agent.change(Change::NetworkPorts(network(1), Delta::Put(key(&web), web.clone()))).await;
    agent.settle().await;
    assert_eq!(asked(), before);
    let moved = PlacedPort { mac: MacAddr::for_ip([10, 0, 0, 9].into()), ..web };
    agent.change(Change::NetworkPorts(network(1), Delta::Put(key(&moved), moved.clone()))).await;
    while asked() == before {
        tokio::task::yield_now().await;
    }
    let macs = agent.observed().endpoints.into_values().map(|endpoint| endpoint.unwrap().mac);
    assert_eq!(macs.collect::<Vec<_>>(), [moved.mac]);
}

#[test]
fn what_fails_again_and_again_is_tried_less_and_less_often() {
    let seconds: Vec<_> = (0..9).map(|failures| patience(failures).as_secs()).collect();
    assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert_eq!(patience(u32::MAX).as_secs(), 60);
}

#[tokio::test]
async fn what_failed_is_tried_again_without_anybody_asking() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1")]).await;
    agent.ask(add("web")).await;
    agent.refuse_to_raise("web");
    agent.kernel.0.lock().unwrap().observed.interfaces.clear();
    agent.see(&[port("web", 5, "node1")]).await;
    agent.ask(AgentRequest::Check(id("web"))).await;
    agent.kernel.0.lock().unwrap().refuses_to_raise = None;
    while !agent.observed().interfaces.values().any(|interface| interface.up) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn after_a_reboot_a_dead_sandbox_does_not_stand_in_the_way_of_the_pods_next_one() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1")]).await;
    agent.ask(add("web")).await;
    agent.kernel.0.lock().unwrap().observed = Observed::default();
    agent.refuse_to_raise("web");
    let agent = agent.restart().await;
    agent.see(&[port("web", 5, "node1")]).await;
    agent.settle().await;
    assert!(!agent.observed().interfaces.values().any(|interface| interface.up));
    assert!(matches!(agent.ask(add_again("web")).await, AgentReply::Attached(_)));
    assert_eq!(agent.observed().interfaces.len(), 1);
}

#[tokio::test]
async fn a_network_that_asks_for_egress_has_it_once_it_was_seen_and_no_node_is_reached_by_it() {
    let agent = Agent::start();
    agent.see(&[port("web", 5, "node1")]).await;
    agent.ask(add("web")).await;
    assert!(agent.observed().egress.is_empty());
    let ranges = ["10.0.0.0/16".parse().unwrap()].into();
    let outlet = Outlet { mode: EgressMode::Node, ranges, ..Outlet::default() };
    let put = Delta::Put("acme.default".into(), outlet);
    agent.change(Change::Outlet("acme.default".into(), put)).await;
    while agent.observed().egress.is_empty() {
        tokio::task::yield_now().await;
    }
    let seen = agent.observed();
    assert_eq!(seen.egress, [(network(1), Some(Egress::Node))].into());
    let is_closed =
        |to, range: &str| seen.closed.contains(&Closed { to, range: range.parse().unwrap() });
    assert!(is_closed(None, "192.0.2.1/32") && is_closed(None, "192.0.2.2/32"), "the nodes");
    assert!(is_closed(Some(network(1)), "10.0.0.0/16"), "its own");
    agent.change(Change::Outlet("acme.default".into(), Delta::Gone("acme.default".into()))).await;
    while !agent.observed().closed.is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(agent.observed().egress.is_empty());
}
