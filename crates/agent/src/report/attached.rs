//! That a port's interface was made, written into the port's status.
//!
//! The rule of this file: it is written until the API has heard it or will not hear it. What is written
//! again is true still: the port may have been kept for another pod meanwhile.

use atoll_api::{Port, PortPhase, PortStatus};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Error, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::seen::PortKey;

/// How long after it was not heard a report is said again.
const AGAIN: Duration = Duration::from_secs(1);

/// A port's interface was made.
#[derive(Debug)]
pub(crate) struct AttachedReport {
    /// The port.
    pub(crate) port: PortKey,
    /// The UID of the pod that has it.
    pub(crate) pod_uid: String,
    /// The name of the interface's host side.
    pub(crate) host_interface: String,
}

impl AttachedReport {
    /// Writes it for the first time.
    pub(super) async fn write(&self, client: &Client) -> kube::Result<()> {
        self.patch(client, json!({"status": self.status()})).await
    }

    /// Writes it once more, unless the port is gone or another pod's.
    async fn write_again(&self, client: &Client) -> kube::Result<()> {
        let port = self.api(client).get_opt(&self.port.1).await?;
        let Some(port) = port.filter(|port| port.spec.pod_uid == self.pod_uid) else {
            return Ok(());
        };
        let seen = json!({"resourceVersion": port.resource_version()});
        self.patch(client, json!({"metadata": seen, "status": self.status()})).await
    }

    fn status(&self) -> PortStatus {
        let host_interface = Some(self.host_interface.clone());
        PortStatus { phase: PortPhase::Attached, host_interface }
    }

    async fn patch(&self, client: &Client, change: Value) -> kube::Result<()> {
        let (api, params) = (self.api(client), PatchParams::default());
        api.patch_status(&self.port.1, &params, &Patch::Merge(change)).await.map(drop)
    }

    fn api(&self, client: &Client) -> Api<Port> {
        Api::namespaced(client.clone(), &self.port.0)
    }
}

/// What was not heard, and when it is said again.
#[derive(Debug, Default)]
pub(super) struct Unheard {
    reports: Vec<AttachedReport>,
    again_at: Option<Instant>,
}

impl Unheard {
    /// Keeps a report that was not heard, where it may be later.
    pub(super) fn keep(&mut self, report: AttachedReport, error: &Error) {
        if may_be_heard_later(error) {
            self.reports.push(report);
            self.again_at.get_or_insert(Instant::now() + AGAIN);
        }
    }

    /// Done when it is time to say them again; never, where there is nothing to say.
    pub(super) async fn are_due(&self) {
        match self.again_at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Says each once more.
    pub(super) async fn write_again(&mut self, client: &Client) {
        self.again_at = None;
        for report in std::mem::take(&mut self.reports) {
            if let Err(error) = report.write_again(client).await {
                tracing::warn!(?report, %error, "cannot tell the cluster");
                self.keep(report, &error);
            }
        }
    }
}

/// Whether the API may take another time what it did not take now: it was not reached, is busy, or
/// has another version of the object by now.
fn may_be_heard_later(error: &Error) -> bool {
    const CONFLICT: u16 = 409;
    const TOO_MANY: u16 = 429;
    match error {
        Error::Api(status) => matches!(status.code, CONFLICT | TOO_MANY | 500..),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::{Method, Request, Response};
    use kube::client::Body;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::super::{Report, start};
    use super::*;

    /// An API that is away for the first requests; each port there is another pod's but `web`, and what
    /// is asked is told.
    fn api(away_for: usize) -> (Client, UnboundedReceiver<String>) {
        let (asked, told) = unbounded_channel();
        let requests = Arc::new(AtomicUsize::new(0));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let is_away = requests.fetch_add(1, Ordering::Relaxed) < away_for;
            let _nobody_asks_any_more = asked.send(format!("{method} {path}"));
            async move { if is_away { Err("the API is away") } else { Ok(answer(&method, &path)) } }
        });
        (Client::new(service, "default"), told)
    }

    fn answer(method: &Method, path: &str) -> Response<Body> {
        let is_web = path.contains("/web.eth0");
        if *method == Method::PATCH && !is_web {
            let status =
                json!({"kind": "Status", "code": 422, "message": "no", "reason": "Invalid"});
            return Response::builder()
                .status(422)
                .body(status.to_string().into_bytes().into())
                .unwrap();
        }
        let uid = if is_web { "u-web" } else { "another" };
        let port = json!({
            "apiVersion": "atoll.dev/v1alpha1", "kind": "Port",
            "metadata": {"name": "web.eth0", "namespace": "shop", "resourceVersion": "7"},
            "spec": {"network": "acme.default", "pod": "web", "podUID": uid},
        });
        Response::new(port.to_string().into_bytes().into())
    }

    fn report(pod: &str) -> Report {
        let port = ("shop".to_owned(), format!("{pod}.eth0"));
        let (pod_uid, host_interface) = (format!("u-{pod}"), format!("atoll-{pod}"));
        Report::Attached(AttachedReport { port, pod_uid, host_interface })
    }

    #[tokio::test]
    async fn a_port_is_told_of_until_it_was_heard_and_not_where_another_pod_has_it_by_then() {
        let (client, mut told) = api(2);
        let reports = start(client, "node1");
        reports.send(report("db")).unwrap();
        reports.send(report("web")).unwrap();
        let mut asked = Vec::new();
        for _ in 0..5 {
            let words = told.recv().await.unwrap();
            let (method, path) = words.split_once(' ').unwrap();
            let name = path.split('/').find(|part| part.ends_with(".eth0")).unwrap();
            asked.push(format!("{method} {name}"));
        }
        let first = ["PATCH db.eth0", "PATCH web.eth0"];
        let again = ["GET db.eth0", "GET web.eth0", "PATCH web.eth0"];
        assert_eq!(asked, [&first[..], &again].concat());
    }

    #[tokio::test]
    async fn what_the_api_will_not_hear_is_not_said_again() {
        let (client, mut told) = api(0);
        let reports = start(client, "node1");
        reports.send(report("db")).unwrap();
        drop(reports);
        let mut asked = 0;
        while told.recv().await.is_some() {
            asked += 1;
        }
        assert_eq!(asked, 1, "and nobody waits for it");
    }

    #[test]
    fn what_is_only_away_or_busy_may_hear_later() {
        let answered = |code: u16| {
            let status = json!({"code": code, "message": "", "reason": ""});
            Error::Api(serde_json::from_value(status).unwrap())
        };
        for later in [409, 429, 500, 503] {
            assert!(may_be_heard_later(&answered(later)), "{later}");
        }
        for never in [403, 404, 422] {
            assert!(!may_be_heard_later(&answered(never)), "{never}");
        }
    }
}
