//! How the controller comes to know everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_controller::ControllerConfig;
use kube::Client;
use kube::client::Body;
use serde_json::json;

use crate::subject::{Subject, make, pod, remove_pods};

/// How often lists were asked for.
#[derive(Default)]
struct Asked {
    streams: AtomicUsize,
    pages: AtomicUsize,
}

/// A client of a server that streams no lists, as one says it that has them turned off.
fn without_streams(client: Client, asked: Arc<Asked>) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let is_stream = query.contains("sendInitialEvents=true");
        asked.streams.fetch_add(usize::from(is_stream), Ordering::SeqCst);
        asked.pages.fetch_add(usize::from(query.contains("limit=")), Ordering::SeqCst);
        let client = client.clone();
        async move { if is_stream { Ok(refusal()) } else { client.send(request).await } }
    });
    Client::new(service, "default")
}

fn refusal() -> http::Response<Body> {
    let message =
        "sendInitialEvents is forbidden for watch unless the WatchList feature gate is on";
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Invalid", "code": 422});
    let body = Body::from(status.to_string().into_bytes());
    http::Response::builder().status(422).body(body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_server_streams_no_lists_a_controller_reads_pages_and_works() {
    let subject = Subject::new("pages").await;
    let acme = subject.unique("acme");
    subject.make_tenant(&acme, "10.0.0.0/16").await;
    make(&subject.pods(&acme), pod("early")).await;
    let asked = Arc::new(Asked::default());
    let client = without_streams(subject.client.clone(), asked.clone());
    let _controller = Subject::start_with(client, ControllerConfig::default());
    subject.port_of(&acme, "early").await;
    make(&subject.pods(&acme), pod("late")).await;
    subject.port_of(&acme, "late").await;
    let [streams, pages] = [&asked.streams, &asked.pages].map(|asked| asked.load(Ordering::SeqCst));
    assert!(streams > 0 && pages >= streams, "{streams} streams, {pages} pages");
    remove_pods(&subject.pods(&acme)).await;
    subject.remove_tenant(&acme).await;
}
