//! Controllers that are killed, and those that come after.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_api::{Claim, Network, Port, Subnet, Tenant};
use atoll_controller::ControllerConfig;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, ListParams};
use kube::client::Body;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::net::{TcpSocket, TcpStream};
use tower::BoxError;

use crate::subject::{Subject, eventually, hasty, make, pod, remove_pods};

async fn versions<K>(subject: &Subject) -> BTreeMap<String, String>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let list = subject.all::<K>().list(&ListParams::default()).await.unwrap();
    let version = |object: K| (object.name_any(), object.resource_version().unwrap());
    list.into_iter().map(version).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_controller_writes_nothing_where_nothing_changed() {
    let subject = Subject::new("calm").await;
    let controller = subject.start(hasty());
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    make(&subject.pods(&acme), pod("web")).await;
    subject.port_of(&acme, "web").await;
    eventually(|| async {
        let subnet = subject.all::<Subnet>().get(&format!("{acme}.default.10-0-0-0-16")).await;
        let tenant = subject.all::<Tenant>().get(&acme).await.unwrap();
        let counted = tenant.status.is_some_and(|status| status.ports == 1);
        subnet.unwrap().status.filter(|status| status.used == 1 && counted)
    })
    .await;
    controller.stop().await;
    let mut before = everything(&subject).await;
    let mut written = Vec::new();
    // One that is stopped may have left a word to its successor, but not each of them to the next.
    for number in 0..5 {
        written = written_by_the_next(&subject, number, &mut before).await;
        if written.is_empty() {
            break;
        }
    }
    assert_eq!(written, Vec::<String>::new(), "each controller writes them anew");
    let _last = subject.start(hasty());
    subject.remove_tenant(&acme).await;
}

/// Has another controller work for a new tenant, and gives what it has written of what was there
/// before, which is as it left it.
async fn written_by_the_next(
    subject: &Subject,
    number: usize,
    before: &mut BTreeMap<String, String>,
) -> Vec<String> {
    let next = subject.start(hasty());
    let later = subject.unique(&format!("later{number}"));
    subject.make_tenant(&later, "10.0.0.0/16").await;
    subject.network_in_phase(&format!("{later}.default"), "Active").await;
    let mut after = everything(subject).await;
    subject.remove_tenant(&later).await;
    next.stop().await;
    after.retain(|name, _| before.contains_key(name));
    let changed = before.iter().filter(|(name, version)| after.get(*name) != Some(version));
    let written = changed.map(|(name, _)| name.clone()).collect();
    *before = after;
    written
}

async fn everything(subject: &Subject) -> BTreeMap<String, String> {
    let mut all = versions::<Tenant>(subject).await;
    all.append(&mut versions::<Network>(subject).await);
    all.append(&mut versions::<Subnet>(subject).await);
    all.append(&mut versions::<Port>(subject).await);
    all.append(&mut versions::<Claim>(subject).await);
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_killed_in_the_middle_lose_and_double_nothing() {
    const PODS: usize = 60;
    let subject = Subject::new("killed").await;
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/24").await;
    let pods = subject.pods(&acme);
    for number in 0..PODS {
        make(&pods, pod(&format!("web-{number}"))).await;
    }
    for wanted in [1, PODS / 3, PODS / 2] {
        let controller = subject.start(hasty());
        eventually(|| async { (ports(&subject, &acme).await >= wanted).then_some(()) }).await;
        controller.kill();
    }
    let _last = subject.start(ControllerConfig { claim_grace: 1, ..hasty() });
    eventually(|| async { (ports(&subject, &acme).await == PODS).then_some(()) }).await;
    eventually(|| async { (address_claims(&subject).await == PODS).then_some(()) }).await;
    remove_pods(&pods).await;
    eventually(|| async { (address_claims(&subject).await == 0).then_some(()) }).await;
    subject.remove_tenant(&acme).await;
}

async fn ports(subject: &Subject, namespace: &str) -> usize {
    subject.ports(namespace).list(&ListParams::default()).await.unwrap().items.len()
}

async fn address_claims(subject: &Subject) -> usize {
    let claims = subject.claims().await;
    claims.iter().filter(|claim| claim.name_any().starts_with("address.")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_controllers_with_a_lease_one_works_and_the_other_goes_on_after_it() {
    let subject = Subject::new("lease").await;
    let elected = || ControllerConfig { lease_namespace: Some("default".into()), ..hasty() };
    let first = subject.start(elected());
    let (acme, later) = (subject.unique("acme"), subject.unique("later"));
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    subject.network_in_phase(&format!("{acme}.default"), "Active").await;
    let leases = Api::<Lease>::namespaced(subject.client.clone(), "default");
    let holder = || async { leases.get("atoll-controller").await.unwrap().spec.unwrap() };
    let before = holder().await.holder_identity;
    let _second = subject.start(elected());
    first.kill();
    subject.make_tenant(&later, "10.0.0.0/16").await;
    subject.network_in_phase(&format!("{later}.default"), "Active").await;
    assert_ne!(holder().await.holder_identity, before);
    subject.remove_tenant(&acme).await;
    subject.remove_tenant(&later).await;
    leases.delete("atoll-controller", &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_told_to_end_gives_its_lease_up_and_no_others() {
    let subject = Subject::new("given-up").await;
    let elected = || ControllerConfig { lease_namespace: Some("default".into()), ..hasty() };
    let leases = Api::<Lease>::namespaced(subject.client.clone(), "default");
    let holder = || async {
        let lease = leases.get_opt("atoll-controller").await.unwrap();
        lease.and_then(|lease| lease.spec?.holder_identity)
    };
    let first = subject.start(elected());
    let before = eventually(holder).await;
    subject.start(elected()).stop().await;
    assert_eq!(holder().await, Some(before), "the one that works goes on");
    first.stop().await;
    assert_eq!(holder().await, None, "whoever comes next need not wait");
    leases.delete("atoll-controller", &DeleteParams::default()).await.unwrap();
}

/// One who waits for an answer that never comes.
struct Waits(Arc<AtomicUsize>);

impl Waits {
    fn among(all: &Arc<AtomicUsize>) -> Waits {
        all.fetch_add(1, Ordering::SeqCst);
        Waits(all.clone())
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An API that has no certificate of ours yet, keeps what it is given, and answers nothing else; and how
/// many wait for that.
fn api_of_few_words() -> (Client, Arc<AtomicUsize>) {
    let waiting = Arc::<AtomicUsize>::default();
    let all = waiting.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let waits = Waits::among(&all);
        async move {
            let (status, said) = match (request.method(), request.uri().path().rsplit('/').nth(1)) {
                (&http::Method::GET, Some("secrets")) => {
                    let missing = json!({"kind": "Status", "code": 404, "reason": "NotFound"});
                    (404, missing.to_string().into_bytes())
                }
                (_, Some("mutatingwebhookconfigurations")) => {
                    (200, json!({"metadata": {"name": "atoll-probes"}}).to_string().into_bytes())
                }
                (&http::Method::POST, _) => {
                    (201, request.into_body().collect_bytes().await?.to_vec())
                }
                _ => std::future::pending().await,
            };
            drop(waits);
            Ok::<_, BoxError>(http::Response::builder().status(status).body(Body::from(said))?)
        }
    });
    (Client::new(service, "default"), waiting)
}

/// A port of this machine that nobody else gets: others may have it beside us, and only if they ask for
/// that very one.
fn port_of_our_own() -> (TcpSocket, SocketAddr) {
    let held = TcpSocket::new_v4().unwrap();
    held.set_reuseport(true).unwrap();
    held.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let at = held.local_addr().unwrap();
    (held, at)
}

/// A controller that goes on answering for so many seconds once it is told to end, and was told: it does
/// nothing else any more.
async fn told_to_end(at: SocketAddr, admission_linger: u64) -> impl Future<Output = ()> {
    let (client, waiting) = api_of_few_words();
    let config = ControllerConfig { admission_address: Some(at), admission_linger, ..hasty() };
    let running = Subject::start_with(client, config);
    let waiting = || waiting.load(Ordering::SeqCst);
    eventually(|| async { (waiting() > 0).then_some(()) }).await;
    eventually(|| async { TcpStream::connect(at).await.ok() }).await;
    let ended = running.tell_to_end();
    eventually(|| async { (waiting() == 0).then_some(()) }).await;
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_told_to_end_answers_for_a_while_what_it_is_still_asked() {
    let (_held, at) = port_of_our_own();
    let hours = told_to_end(at, 10_000).await;
    assert!(TcpStream::connect(at).await.is_ok(), "it may still be asked");
    drop(hours);
    let (_held, at) = port_of_our_own();
    told_to_end(at, 0).await.await;
    assert!(TcpStream::connect(at).await.is_err(), "it has ended");
}
