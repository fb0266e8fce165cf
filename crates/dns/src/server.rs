//! The server: what is listened on, which networks it answers, and its end.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use atoll_zones::ZoneSet;
use socket2::SockRef;
use tokio::sync::{mpsc, oneshot};

use crate::asker::{Askers, NetworkKey};
use crate::config::{Config, Forwarding};
use crate::counters::{Counters, Counts};
use crate::ears::Ears;
use crate::feed::Feed;
use crate::hearing::hear_only;
use crate::limits::{Gate, Tally};
use crate::network::Networks;
use crate::slow::{self, Job};
use crate::tcp;
use crate::udp::Worker;

/// Questions that wait for the slow thread.
const MOST_JOBS: usize = 4096;

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address cannot be listened on.
    #[error("cannot listen for DNS at {address} over {over}; is something else there?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The protocol.
        over: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread for DNS")]
    Thread(#[source] io::Error),
}

/// What all threads of a server share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) askers: Box<dyn Askers>,
    pub(crate) networks: Networks,
    pub(crate) gate: Gate,
    pub(crate) forwards: Arc<Tally>,
    pub(crate) connections: Arc<Tally>,
    /// What belongs to no network.
    pub(crate) counters: Counters,
    start: Instant,
    stopped: AtomicBool,
}

impl Shared {
    pub(crate) fn nanos(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_nanos() as u64
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// The resolver of a node. It answers until it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    sockets: Vec<Arc<UdpSocket>>,
    listeners: Vec<TcpListener>,
    threads: Vec<JoinHandle<()>>,
    end: Option<oneshot::Sender<()>>,
}

impl Server {
    /// Starts to listen. Until a network's names are given, its pods are told to try again.
    pub fn new(config: Config, askers: impl Askers) -> Result<Server, ServerError> {
        let shared = Arc::new(Shared {
            networks: Networks::new(config.cache_bytes),
            gate: Gate::new(config.limits),
            askers: Box::new(askers),
            forwards: Arc::default(),
            connections: Arc::default(),
            counters: Counters::default(),
            start: Instant::now(),
            stopped: AtomicBool::new(false),
            config,
        });
        let (end, ended) = oneshot::channel();
        let (jobs, todo) = mpsc::channel(MOST_JOBS);
        let (sockets, listeners, threads) = (vec![], vec![], vec![]);
        let mut server = Server { shared, sockets, listeners, threads, end: Some(end) };
        for address in server.shared.config.listen.clone() {
            let ears = Ears::open(address, server.shared.config.threads.max(1))?;
            server.listeners.push(ears.connections);
            server.listen_udp(ears.datagrams, &jobs)?;
        }
        server.start_slow(todo, ended)?;
        Ok(server)
    }

    /// The names that a network has from now on, in place of all that it had.
    pub fn swap(&self, network: NetworkKey, zones: Arc<ZoneSet>) {
        self.shared.networks.make(network).zones.store(Some(zones));
    }

    /// What a network may ask outside from now on. What it learned before is forgotten.
    pub fn forward(&self, network: NetworkKey, forwarding: Forwarding) {
        let network = self.shared.networks.make(network);
        network.forwarding.store(Arc::new(forwarding));
        network.pending.forget();
        network.cache.clear();
    }

    /// What a network's names are made from, for resolvers that follow it; none where nobody may.
    pub fn feed(&self, network: NetworkKey, feed: Option<Arc<Feed>>) {
        self.shared.networks.make(network).feed.store(feed);
    }

    /// Forgets a network: nothing of it is answered any more.
    pub fn remove(&self, network: NetworkKey) {
        self.shared.networks.remove(network);
    }

    /// What was counted for a network.
    pub fn counts(&self, network: NetworkKey) -> Option<Counts> {
        self.ledger().counts(network)
    }

    /// What was counted and belongs to no network.
    pub fn strangers(&self) -> Counts {
        self.ledger().strangers()
    }

    /// All that is counted, for others to look at.
    pub fn ledger(&self) -> Ledger {
        Ledger(self.shared.clone())
    }

    /// Where it listens; a port that was left open has its number here.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let mut all: Vec<_> = self.sockets.iter().filter_map(|it| it.local_addr().ok()).collect();
        all.dedup();
        all
    }

    /// Hears this link alone from now on. Before, it hears every link.
    pub fn hear(&self, link: u32) -> io::Result<()> {
        self.sockets.iter().try_for_each(|socket| hear_only(socket, link))?;
        self.listeners.iter().try_for_each(|listener| hear_only(listener, link))
    }

    fn listen_udp(
        &mut self,
        sockets: Vec<UdpSocket>,
        jobs: &mpsc::Sender<Job>,
    ) -> Result<(), ServerError> {
        for socket in sockets.into_iter().map(Arc::new) {
            self.sockets.push(socket.clone());
            let worker = Worker { shared: self.shared.clone(), socket, jobs: jobs.clone() };
            self.start_thread("dns-udp", move || worker.run())?;
        }
        Ok(())
    }

    fn start_slow(
        &mut self,
        jobs: mpsc::Receiver<Job>,
        ended: oneshot::Receiver<()>,
    ) -> Result<(), ServerError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServerError::Thread)?;
        let inside = runtime.enter();
        for (listener, address) in self.listeners.iter().zip(self.addresses()) {
            let fail = |source| ServerError::Listen { address, over: "TCP", source };
            let listener = listener.try_clone().and_then(tokio::net::TcpListener::from_std);
            runtime.spawn(tcp::run(self.shared.clone(), listener.map_err(fail)?));
        }
        drop(inside);
        runtime.spawn(slow::run(self.shared.clone(), jobs));
        self.start_thread("dns-slow", move || {
            // The sender never sends: it is dropped when the server is.
            let _ = runtime.block_on(ended);
        })
    }

    fn start_thread(
        &mut self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), ServerError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        self.threads.push(thread.map_err(ServerError::Thread)?);
        Ok(())
    }
}

/// All that a server counts. It can be looked at from anywhere, at any time.
#[derive(Clone)]
pub struct Ledger(Arc<Shared>);

impl Ledger {
    /// What was counted for a network.
    pub fn counts(&self, network: NetworkKey) -> Option<Counts> {
        self.0.networks.get(network).map(|network| network.counters.look())
    }

    /// What was counted and belongs to no network.
    pub fn strangers(&self) -> Counts {
        self.0.counters.look()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.end.take();
        for socket in &self.sockets {
            // It wakes the thread that waits there; that the socket has no peer is no matter.
            let _ = SockRef::from(&**socket).shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a DNS thread ended in a panic");
            }
        }
    }
}
