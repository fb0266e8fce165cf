//! Questions over TCP, several on one connection.
//!
//! Its rule: a connection that is silent, slow, or one of too many of its pod or tenant is closed; it
//! never holds anything but its own few buffers.

use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;

use crate::answer::{Question, Step, answer};
use crate::asker::Asker;
use crate::counters::Refused;
use crate::feed::{FEED, Feed};
use crate::hearing::hear_all;
use crate::limits::{Permit, Share, Whose};
use crate::network::Network;
use crate::query::{Query, Unfit};
use crate::reply::{self, TCP_BUFFER, Way};
use crate::server::Shared;
use crate::slow;

/// Questions of one connection that wait for upstreams at one moment.
const MOST_WAITING: usize = 16;
/// No sound question is longer; what announces more is closed.
const LONGEST: usize = 4096;

/// So many bytes of a feed are gathered before they are sent.
const PORTION: usize = 64 << 10;

/// Takes connections as long as the server lives.
pub(crate) async fn run(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        // What is accepted hears every link: it outlives the one that it came by.
        if hear_all(&stream).is_err() {
            continue;
        }
        let Some(asker) = shared.askers.asker(from) else {
            shared.counters.refused(Refused::UnknownAsker);
            continue;
        };
        let Some(place) = place(&shared, &asker) else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            serve(shared, asker, stream).await;
            drop(place);
        });
    }
}

/// A place for one more connection of the asker; none where its pod or its tenant has too many.
fn place(shared: &Shared, asker: &Asker) -> Option<Permit> {
    let all = shared.config.tcp_connections;
    let share = Share { pod: shared.config.limits.pod_connections, tenant: all, all };
    let refused = match shared.connections.take(asker, share) {
        Ok(place) => return Some(place),
        Err(Whose::Pod(_)) => Refused::PodConnections,
        Err(Whose::Tenant(_)) => Refused::TenantConnections,
    };
    shared.networks.with(asker.network, |network| network.counters.refused(refused));
    None
}

type Writer = Arc<Mutex<OwnedWriteHalf>>;

async fn serve(shared: Arc<Shared>, asker: Asker, stream: TcpStream) {
    let (mut reading, writing) = stream.into_split();
    let connection = Connection {
        writer: Arc::new(Mutex::new(writing)),
        waiting: Arc::new(Semaphore::new(MOST_WAITING)),
        shared,
        asker,
    };
    let mut packet = vec![];
    loop {
        let question = timeout(connection.shared.config.tcp_idle, async {
            let len = usize::from(reading.read_u16().await?);
            if len > LONGEST {
                return Err(std::io::ErrorKind::InvalidData.into());
            }
            packet.resize(len, 0);
            reading.read_exact(&mut packet).await
        });
        if !matches!(question.await, Ok(Ok(_))) || connection.take(&packet).await.is_none() {
            return;
        }
    }
}

struct Connection {
    shared: Arc<Shared>,
    asker: Asker,
    writer: Writer,
    waiting: Arc<Semaphore>,
}

impl Connection {
    /// Answers one question; none where the connection is to be closed.
    async fn take(&self, packet: &[u8]) -> Option<()> {
        let network = self.shared.networks.get(self.asker.network);
        let Some(network) = network else {
            self.shared.counters.refused(Refused::NoView);
            return None;
        };
        network.counters.query();
        let entry = self.shared.gate.enter(&self.asker, self.shared.nanos(Instant::now()));
        if let Err(why) = entry {
            network.counters.refused(why);
            return None;
        }
        match self.local(&network, packet) {
            Local::Close => None,
            Local::Answer(answer) => send(&self.shared, &self.writer, &answer).await,
            Local::Ask => self.ask(network, packet.to_vec()).await,
            Local::Feed(feed) => self.tell(&feed).await,
        }
    }

    fn local(&self, network: &Network, packet: &[u8]) -> Local {
        let mut query = Query::new();
        let mut out = vec![0; TCP_BUFFER];
        let len = match query.read(packet) {
            Err(unfit) => {
                network.counters.refused(Refused::Malformed);
                match unfit {
                    Unfit::Silence => return Local::Close,
                    Unfit::Say(rcode) => reply::unfit(&query, packet, rcode, &mut out),
                }
            }
            Ok(()) => {
                if let (FEED, Some(feed)) = (query.kind, network.feed.load_full()) {
                    return Local::Feed(Arc::downgrade(&feed));
                }
                let question = Question { query: &query, packet, way: Way::Tcp, turn: 0 };
                match answer(network, question, &mut out) {
                    Step::Done(len) => len,
                    Step::Ask => return Local::Ask,
                }
            }
        };
        out.truncate(len);
        Local::Answer(out)
    }

    /// Tells a follower what is so and what changes, until one of both goes. Where nothing changes
    /// it hears that, so that each side notices when the other is gone.
    async fn tell(&self, feed: &Weak<Feed>) -> Option<()> {
        let mut news = feed.upgrade()?.news();
        let mut heard = 0;
        loop {
            news.mark_unchanged();
            let (words, commit) = feed.upgrade()?.since(heard);
            heard = commit;
            let mut bytes = vec![];
            for word in words {
                word.write(&mut bytes);
                if bytes.len() > PORTION {
                    write(&self.shared, &self.writer, &std::mem::take(&mut bytes)).await?;
                }
            }
            write(&self.shared, &self.writer, &bytes).await?;
            if let Ok(Err(_)) = timeout(self.shared.config.tcp_idle / 2, news.changed()).await {
                return None;
            }
        }
    }

    /// Asks outside while the next questions of the connection are read.
    async fn ask(&self, network: Arc<Network>, packet: Vec<u8>) -> Option<()> {
        let place = self.waiting.clone().acquire_owned().await.ok()?;
        let (shared, asker, writer) = (self.shared.clone(), self.asker, self.writer.clone());
        tokio::spawn(async move {
            let answer = slow::outside(&shared, &asker, &network, &packet, Way::Tcp).await;
            send(&shared, &writer, &answer).await;
            drop(place);
        });
        Some(())
    }
}

enum Local {
    Answer(Vec<u8>),
    Ask,
    Feed(Weak<Feed>),
    Close,
}

async fn send(shared: &Shared, writer: &Writer, answer: &[u8]) -> Option<()> {
    let mut framed = (answer.len() as u16).to_be_bytes().to_vec();
    framed.extend(answer);
    write(shared, writer, &framed).await
}

async fn write(shared: &Shared, writer: &Writer, bytes: &[u8]) -> Option<()> {
    let mut writer = writer.lock().await;
    let sent = timeout(shared.config.tcp_idle, writer.write_all(bytes)).await;
    sent.ok()?.ok()
}
