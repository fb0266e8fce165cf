//! Types of networks: the trouble of one is not another's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_api::Network;
use atoll_controller::ControllerConfig;
use kube::Client;

use crate::subject::{Subject, make, network, remove};

const WORKERS: usize = 3;
/// With as many that hang, nobody else would be looked at in time.
const NETWORKS: usize = 12;

/// How many writes hang, and how many did at most.
#[derive(Default)]
struct Hanging {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Hanging {
    /// Hangs for ever, or until whoever waits for it gives up.
    async fn hang(self: Arc<Self>) {
        struct Leaves(Arc<Hanging>);
        impl Drop for Leaves {
            fn drop(&mut self) {
                self.0.now.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let _leaves = Leaves(self);
        std::future::pending::<()>().await;
    }
}

/// A client whose writes to objects that have `word` in their name never end.
fn stalled(client: Client, word: &str, hanging: Arc<Hanging>) -> Client {
    let word = word.to_owned();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_write = request.method() != http::Method::GET;
        let hangs = is_write && request.uri().path().contains(&word);
        let (client, hanging) = (client.clone(), hanging.clone());
        async move {
            if hangs {
                hanging.hang().await;
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_of_network_that_hangs_delays_no_other_type() {
    let subject = Subject::new("types").await;
    let hanging = Arc::new(Hanging::default());
    let client = stalled(subject.client.clone(), ".stuck-", hanging.clone());
    let acme = subject.unique("acme");
    let networks = subject.all::<Network>();
    let stuck: Vec<String> = (0..NETWORKS).map(|n| format!("{acme}.stuck-{n}")).collect();
    for name in &stuck {
        make(&networks, network(name, "sdn", None, &[])).await;
    }
    let config = ControllerConfig { workers: WORKERS, ..ControllerConfig::default() };
    let controller = Subject::start_with(client, config.clone());
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    subject.network_in_phase(&format!("{acme}.default"), "Active").await;
    make(&networks, network(&format!("{acme}.flat"), "flat", None, &[])).await;
    subject.network_in_phase(&format!("{acme}.flat"), "Active").await;
    assert_eq!(hanging.most.load(Ordering::SeqCst), WORKERS, "it hung, within its share");

    controller.stop().await;
    let _better = subject.start(config);
    for name in &stuck {
        subject.network_in_phase(name, "Pending").await;
        remove(&networks, name).await;
    }
    remove(&networks, &format!("{acme}.flat")).await;
    subject.remove_tenant(&acme).await;
}
