//! Datagrams of pods, with addresses of the loopback in place of aliases: the last byte is the interface.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use atoll_model::export::Audience;
use tokio::task::JoinSet;

use super::super::limits::PER_POD;
use super::super::tests::infra;
use super::*;

/// How long a datagram that is to arrive may take on a busy machine, and how long one is waited for that
/// is not.
const LONG: Duration = Duration::from_secs(60);
const BRIEF: Duration = Duration::from_millis(200);

/// Pods 5 and 7 of acme, and pod 6 of globex, before a service.
struct Stage {
    at: SocketAddr,
    offer: Arc<ArcSwap<Offer>>,
    exchange: Exchange,
    _relay: JoinSet<()>,
}

async fn stage(last: u8, targets: Vec<SocketAddr>, patience: Patience) -> Stage {
    let exchange = infra([127, 79, 0, last]).exchange.clone();
    let at = SocketAddr::from(([127, 79, 0, last], 0));
    let listener = Arc::new(listen(at, None).unwrap());
    let at = listener.local_addr().unwrap();
    let offer = Arc::new(ArcSwap::from_pointee(Offer { to: Audience::All, targets }));
    let relay = Relay::new(listener, offer.clone(), exchange.clone(), patience);
    let mut tasks = JoinSet::new();
    tasks.spawn(relay.run(Duration::from_millis(5)));
    Stage { at, offer, exchange, _relay: tasks }
}

impl Stage {
    fn turned_away(&self, why: TurnAway) -> u64 {
        self.exchange.counters.all_turned_away(why)
    }

    fn offer(&self, to: Audience, targets: Vec<SocketAddr>) {
        self.offer.store(Arc::new(Offer { to, targets }));
    }
}

/// Of which the loopback has one for each pod.
async fn pod(last: u8) -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::new(127, 0, 0, last), 0)).await.unwrap()
}

/// Answers with its name and who asked it.
struct Server {
    at: SocketAddr,
    task: JoinSet<()>,
}

async fn server(name: &'static str) -> Server {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = socket.local_addr().unwrap();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut said = [0; 64];
        while let Ok((_, from)) = socket.recv_from(&mut said).await {
            socket.send_to(format!("{name} {from}").as_bytes(), from).await.unwrap();
        }
    });
    Server { at, task }
}

/// What is answered to one datagram; it must come from where it was sent to.
async fn ask(pod: &UdpSocket, at: SocketAddr, patience: Duration) -> Option<String> {
    pod.send_to(b"who?", at).await.unwrap();
    let mut heard = [0; 64];
    let (length, from) =
        tokio::time::timeout(patience, pod.recv_from(&mut heard)).await.ok()?.unwrap();
    assert_eq!(from, at);
    Some(String::from_utf8(heard[..length].to_vec()).unwrap())
}

/// Asks until this one answers.
async fn await_answer(pod: &UdpSocket, at: SocketAddr, name: &str) {
    let asking =
        async { while !ask(pod, at, BRIEF).await.is_some_and(|said| said.starts_with(name)) {} };
    tokio::time::timeout(LONG, asking).await.unwrap_or_else(|_| panic!("{name} never answers"));
}

#[tokio::test]
async fn datagrams_of_a_port_go_to_one_behind_the_service_and_answers_back_to_their_own_pod() {
    let servers = [server("one").await, server("two").await];
    let stage = stage(1, servers.iter().map(|it| it.at).collect(), Patience::default()).await;
    let pods = [pod(5).await, pod(6).await];
    let mut asked = BTreeSet::new();
    for pod in &pods {
        let said = ask(pod, stage.at, LONG).await.unwrap();
        assert_eq!(ask(pod, stage.at, LONG).await.as_ref(), Some(&said), "in one flow");
        asked.insert(said);
    }
    assert_eq!(asked.len(), 2, "each in turn, from a port of its own: {asked:?}");
    assert_eq!(stage.exchange.counters.all_passed_on(), 2);
    assert_eq!(ask(&pod(99).await, stage.at, BRIEF).await, None, "who is not known");
    assert_eq!(stage.turned_away(TurnAway::UnknownCaller), 1);
}

#[tokio::test]
async fn datagrams_of_a_tenant_that_may_not_call_go_nowhere_also_when_it_might_before() {
    let server = server("clock").await;
    let stage = stage(2, vec![server.at], Patience::default()).await;
    let (acme, globex) = (pod(5).await, pod(6).await);
    assert!(ask(&globex, stage.at, LONG).await.is_some());
    stage.offer(Audience::Listed(["acme".to_owned()].into()), vec![server.at]);
    assert_eq!(ask(&globex, stage.at, BRIEF).await, None);
    assert!(ask(&acme, stage.at, LONG).await.is_some());
    assert_eq!(stage.turned_away(TurnAway::NotExported), 1);
}

#[tokio::test]
async fn the_next_datagram_goes_to_another_where_one_is_gone_or_refuses() {
    let (one, two) = (server("one").await, server("two").await);
    let stage = stage(3, vec![one.at], Patience::default()).await;
    let pod = pod(5).await;
    await_answer(&pod, stage.at, "one").await;
    stage.offer(Audience::All, vec![two.at]);
    await_answer(&pod, stage.at, "two").await;
    stage.offer(Audience::All, vec![one.at, two.at]);
    await_answer(&pod, stage.at, "two").await;
    drop(two.task);
    await_answer(&pod, stage.at, "one").await;
    stage.offer(Audience::All, vec![]);
    assert_eq!(ask(&pod, stage.at, BRIEF).await, None);
    assert!(stage.turned_away(TurnAway::NoTarget) >= 1);
    stage.offer(Audience::All, vec![one.at]);
    await_answer(&pod, stage.at, "one").await;
}

/// Looks often enough that whatever is over has ended.
async fn await_looks() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[tokio::test]
async fn a_flow_that_is_silent_too_long_ends() {
    let mute = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let patience = Patience { unanswered: Duration::ZERO, ..Patience::default() };
    let stage = stage(4, vec![mute.local_addr().unwrap()], patience).await;
    let caller = pod(5).await;
    let mut seen = BTreeSet::new();
    let asking = async {
        while seen.len() < 2 {
            caller.send_to(b"who?", stage.at).await.unwrap();
            seen.insert(mute.recv_from(&mut [0; 8]).await.unwrap().1);
        }
    };
    tokio::time::timeout(LONG, asking).await.expect("another socket speaks for the pod");
}

#[tokio::test]
async fn a_flow_that_was_answered_may_be_silent_for_longer() {
    let server = server("clock").await;
    let patience = Patience { unanswered: Duration::ZERO, ..Patience::default() };
    let stage = stage(8, vec![server.at], patience).await;
    let caller = pod(5).await;
    let first = loop {
        if let Some(said) = ask(&caller, stage.at, BRIEF).await {
            break said;
        }
    };
    await_looks().await;
    assert_eq!(ask(&caller, stage.at, LONG).await, Some(first), "by the same socket");
}

#[tokio::test]
async fn a_pod_with_as_many_flows_as_it_may_have_loses_one_that_rests_and_its_neighbour_none() {
    let server = server("clock").await;
    let rest = Duration::ZERO;
    let stage = stage(5, vec![server.at], Patience { rest, ..Patience::default() }).await;
    let neighbour = pod(7).await;
    let before = ask(&neighbour, stage.at, LONG).await;
    let first = pod(5).await;
    let said = ask(&first, stage.at, LONG).await;
    let mut more = Vec::new();
    for _ in 0..PER_POD {
        let another = pod(5).await;
        assert!(ask(&another, stage.at, LONG).await.is_some());
        more.push(another);
    }
    assert_ne!(ask(&first, stage.at, LONG).await, said, "its flow is another");
    assert_eq!(ask(&neighbour, stage.at, LONG).await, before, "its flow is the same");
    assert_eq!(stage.turned_away(TurnAway::PodLimit), 0);
}

#[tokio::test]
async fn a_pod_whose_flows_are_all_at_work_gets_no_more_and_its_neighbour_does() {
    let server = server("clock").await;
    let rest = LONG;
    let stage = stage(6, vec![server.at], Patience { rest, ..Patience::default() }).await;
    let mut held = Vec::new();
    for _ in 0..PER_POD {
        let another = pod(5).await;
        assert!(ask(&another, stage.at, LONG).await.is_some());
        held.push(another);
    }
    assert_eq!(ask(&pod(5).await, stage.at, BRIEF).await, None);
    assert_eq!(stage.turned_away(TurnAway::PodLimit), 1);
    assert!(ask(&pod(7).await, stage.at, LONG).await.is_some());
}

#[tokio::test]
async fn a_datagram_as_large_as_it_may_be_arrives_and_a_larger_one_does_not() {
    let hears = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let stage = stage(7, vec![hears.local_addr().unwrap()], Patience::default()).await;
    let pod = pod(5).await;
    let mut heard = vec![0; 2 * LARGEST];
    for size in [LARGEST + 1, LARGEST, 0] {
        pod.send_to(&vec![7; size], stage.at).await.unwrap();
    }
    let hearing =
        async { [hears.recv(&mut heard).await.unwrap(), hears.recv(&mut [0]).await.unwrap()] };
    let sizes = tokio::time::timeout(LONG, hearing).await.expect("both arrive");
    assert_eq!(sizes, [LARGEST, 0]);
}
