//! Pods from the request to their first packet, one after the other and many at once.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use atoll_api::Port;
use futures::{StreamExt, pin_mut};
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::task::JoinHandle;

use super::scene::Scene;
use crate::cni::Pod;

/// After this, the first datagram is sent again.
const AGAIN: Duration = Duration::from_millis(5);
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long after the request each stage was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stages {
    pub(super) port: Duration,
    pub(super) attached: Duration,
    pub(super) answered: Duration,
}

/// So many pods, each after the one before was answered.
pub(super) fn one_by_one(scene: &Scene<'_>, count: usize) -> Result<Vec<Stages>> {
    let seen = Seen::start(scene);
    let pods: Vec<Pod> =
        (0..count).map(|number| scene.planned(format!("alone-{number}"))).collect();
    let stages = pods.iter().map(|pod| start(scene, &seen, pod)).collect::<Result<_>>()?;
    pods.iter().try_for_each(|pod| scene.remove(pod))?;
    Ok(stages)
}

/// So many pods, all asked for at once.
pub(super) fn at_once(scene: &Scene<'_>, count: usize) -> Result<Vec<Stages>> {
    let seen = &Seen::start(scene);
    let pods: Vec<Pod> =
        (0..count).map(|number| scene.planned(format!("burst-{number}"))).collect();
    let stages = thread::scope(|scope| -> Result<_> {
        let starting = |pod| scope.spawn(move || start(scene, seen, pod));
        let starting: Vec<_> = pods.iter().map(starting).collect();
        starting.into_iter().map(|pod| pod.join().expect("a pod that starts")).collect()
    })?;
    pods.iter().try_for_each(|pod| scene.remove(pod))?;
    Ok(stages)
}

/// Asks for a pod and does what the kubelet does.
fn start(scene: &Scene<'_>, seen: &Seen, pod: &Pod) -> Result<Stages> {
    let since = Instant::now();
    scene.make_pod(&pod.name)?;
    scene.attach(pod)?;
    let attached = since.elapsed();
    let server = scene.server(1);
    pod.namespace.run(|| ask(server)).with_context(|| format!("pod {}", pod.name))?;
    let answered = since.elapsed();
    Ok(Stages { port: seen.when(&pod.name)?.duration_since(since), attached, answered })
}

/// Asks until it is answered.
fn ask(server: SocketAddr) -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(AGAIN))?;
    let begun = Instant::now();
    loop {
        // What is refused now may pass later; when it never does, nobody answers.
        let answered = socket.send(b"?").and_then(|_| socket.recv(&mut [0]));
        if answered.is_ok() {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "nobody answered at {server}");
    }
}

/// When ports were seen by another client, by pod.
struct Seen {
    ports: Arc<Mutex<HashMap<String, Instant>>>,
    watching: JoinHandle<()>,
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Seen {
    fn start(scene: &Scene<'_>) -> Self {
        let ports = Arc::new(Mutex::new(HashMap::new()));
        let watching = scene.node.runtime().spawn(watch(scene.ports(), ports.clone()));
        Seen { ports, watching }
    }

    fn when(&self, pod: &str) -> Result<Instant> {
        let begun = Instant::now();
        loop {
            if let Some(seen) = lock(&self.ports).get(pod) {
                return Ok(*seen);
            }
            ensure!(begun.elapsed() < PATIENCE, "nobody sees the port of {pod}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

async fn watch(ports: Api<Port>, seen: Arc<Mutex<HashMap<String, Instant>>>) {
    let events = watcher(ports, watcher::Config::default()).default_backoff().applied_objects();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        if let Ok(port) = event {
            lock(&seen).entry(port.spec.pod).or_insert_with(Instant::now);
        }
    }
}

fn lock(seen: &Mutex<HashMap<String, Instant>>) -> MutexGuard<'_, HashMap<String, Instant>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use atoll_testkit::Namespace;

    use super::*;
    use crate::volley::Answers;

    #[test]
    fn asking_goes_on_until_somebody_answers() {
        let namespace = Arc::new(Namespace::new());
        let server = SocketAddr::from(([127, 0, 0, 1], 7));
        let asking = {
            let namespace = namespace.clone();
            thread::spawn(move || namespace.run(|| ask(server)))
        };
        let _answers = Answers::start(&namespace, 7, |_| b'a').unwrap();
        asking.join().unwrap().unwrap();
    }
}
