//! Probes and hooks of tenants' pods, which the kubelet of this node asks for and the agent makes:
//! it alone can call the very pod that is meant, where two have one address.
//!
//! The rules: what is checked is what stands in the pod's own sheet, and whom it is checked at is
//! that pod's own interface; what is not known, or not known for sure, has failed.

mod check;
mod grpc;
mod http;
mod serve;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use atoll_abi::{Door, aliases_of};
use atoll_model::probes::{Check, PROBE_PORT, ProbeSheet};
use atoll_plan::HostInterface;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// How long after a failure the place is asked for again.
const RETRY: Duration = Duration::from_secs(5);

/// A pod of this node by namespace and name.
pub(crate) type PodName = (String, String);

/// A pod that has a sheet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    /// Its UID.
    pub(crate) uid: String,
    /// Its sheet.
    pub(crate) sheet: Arc<ProbeSheet>,
}

/// How a pod is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    /// The address that it knows itself by.
    own: IpAddr,
    /// The address by which the node calls it.
    called: IpAddr,
    /// The address that the node calls from.
    from: IpAddr,
}

/// A pod that can be checked.
#[derive(Clone, Debug)]
struct Subject {
    sheet: Arc<ProbeSheet>,
    line: Line,
}

/// Those who can be checked, by namespace and the name of their sheet. Two that claim one sheet are
/// there as none.
type Subjects = Arc<ArcSwap<HashMap<(String, String), Option<Subject>>>>;

/// The place where the kubelet asks. It ends with this value.
pub(crate) struct Probes {
    subjects: Subjects,
    task: JoinHandle<()>,
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Probes {
    /// Answers the kubelet of this node from now on. A node where it cannot has its network all the
    /// same.
    pub(crate) fn start() -> Probes {
        let subjects = Subjects::default();
        let known = subjects.clone();
        let task = tokio::spawn(async move { serve::run(listen().await, known).await });
        Probes { subjects, task }
    }

    #[cfg(test)]
    fn start_at(listener: TcpListener) -> Probes {
        let subjects = Subjects::default();
        let task = tokio::spawn(serve::run(listener, subjects.clone()));
        Probes { subjects, task }
    }

    /// From now on these pods can be checked: those that have a sheet, and an interface here.
    pub(crate) fn know(
        &self,
        pods: &BTreeMap<PodName, Probed>,
        interfaces: &BTreeMap<u32, HostInterface>,
        primaries: &BTreeMap<String, (HostInterface, IpAddr)>,
    ) {
        let indexes = interfaces.iter().map(|(index, name)| (name, *index)).collect();
        let line = |uid: &String| line(primaries.get(uid)?, &indexes);
        self.know_lines(pods, line);
    }

    fn know_lines(&self, pods: &BTreeMap<PodName, Probed>, line: impl Fn(&String) -> Option<Line>) {
        let mut known: HashMap<_, Option<Subject>> = HashMap::new();
        for ((namespace, _), pod) in pods {
            let Some(line) = line(&pod.uid) else { continue };
            let subject = Subject { sheet: pod.sheet.clone(), line };
            let key = (namespace.clone(), pod.sheet.id.clone());
            known.entry(key).and_modify(|it| *it = None).or_insert(Some(subject));
        }
        self.subjects.store(Arc::new(known));
    }
}

/// Tries until the place is ours.
async fn listen() -> TcpListener {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, PROBE_PORT));
    loop {
        match TcpListener::bind(at).await {
            Ok(listener) => return listener,
            Err(error) => tracing::error!(%at, %error, "cannot answer for probes"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn line(
    (name, own): &(HostInterface, IpAddr),
    indexes: &HashMap<&HostInterface, u32>,
) -> Option<Line> {
    let family = usize::from(own.is_ipv6());
    let called = aliases_of(*indexes.get(name)?)[family];
    Some(Line { own: *own, called, from: Door::Prober.listeners()[family] })
}

/// What to check of whom.
fn find(subjects: &Subjects, path: &str) -> Result<(Check, Line), String> {
    let path =
        path.strip_prefix(atoll_model::probes::PROBE_PATH).and_then(|it| it.strip_prefix('/'));
    let parts: Vec<&str> = path.unwrap_or_default().splitn(3, '/').collect();
    let [namespace, sheet, key] = parts[..] else {
        return Err("the path must be /probe/NAMESPACE/SHEET/CONTAINER/MOMENT".to_owned());
    };
    let known = subjects.load();
    let subject = known.get(&(namespace.to_owned(), sheet.to_owned()));
    let subject =
        subject.ok_or("no pod of this node that has its network is known by this sheet")?;
    let subject = subject.as_ref().ok_or("two pods claim this sheet, and neither is checked")?;
    let check = subject.sheet.checks.get(key).ok_or("the pod's sheet has no such check")?;
    Ok((check.clone(), subject.line))
}

#[cfg(test)]
mod tests;
