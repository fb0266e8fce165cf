//! A resolver for one network alone, which follows the feed of that network.
//!
//! Its rules: it listens first when it knows the network's names whole. When it loses its source it
//! goes on with what it knows, and asks the source again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use atoll_zones::{Fact, Settings, View};

use crate::asker::{Asker, NetworkKey, PodId, TenantId};
use crate::config::{Config, Forwarding, Limits, Rate};
use crate::feed::{OUTSIDE, SETTINGS, Word};
use crate::follow::Following;
use crate::server::{Server, ServerError};

const ONLY: NetworkKey = NetworkKey(1);
const TENANT: TenantId = TenantId(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// All pods of the network may ask so often together: nobody else is served here.
const EVERYBODY: Rate = Rate { per_second: 1_000_000, burst: 1_000_000 };

/// Why a secondary cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SecondaryError {
    /// It cannot listen.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// A resolver for one network.
pub struct Secondary {
    listen: Vec<SocketAddr>,
    source: SocketAddr,
    server: Option<Server>,
    /// Whether the server was told that it may ask outside.
    asks_outside: bool,
}

impl Secondary {
    /// A resolver that will answer at these addresses what the source tells, and that asks the
    /// source for names outside.
    pub fn new(listen: Vec<SocketAddr>, source: SocketAddr) -> Self {
        Secondary { listen, source, server: None, asks_outside: false }
    }

    /// Follows and answers for good.
    pub async fn run(mut self) -> Result<(), SecondaryError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let mut heard = Heard::default();
            let error = match Following::of(self.source).await {
                Ok(mut following) => self.follow(&mut following, &mut heard).await?,
                Err(error) => error,
            };
            if heard.was_whole {
                pause = FIRST_PAUSE;
            }
            tracing::warn!(source = %self.source, %error, "the feed ended; asking for it again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn follow(
        &mut self,
        following: &mut Following,
        heard: &mut Heard,
    ) -> Result<io::Error, SecondaryError> {
        loop {
            match following.next().await {
                Err(error) => return Ok(error),
                Ok(word) => {
                    if let Err(error) = self.hear(word, heard).await? {
                        return Ok(error);
                    }
                }
            }
        }
    }

    async fn hear(
        &mut self,
        word: Word,
        heard: &mut Heard,
    ) -> Result<io::Result<()>, SecondaryError> {
        if word != Word::Whole {
            return Ok(heard.take(word));
        }
        heard.was_whole = true;
        if let (true, Some(view)) = (std::mem::take(&mut heard.is_news), &heard.view) {
            let zones = Arc::new(view.zones().clone());
            let server = match self.server.take() {
                Some(server) => server,
                None => self.start().await?,
            };
            if std::mem::replace(&mut self.asks_outside, heard.outside) != heard.outside {
                server.forward(ONLY, self.outside());
            }
            server.swap(ONLY, zones);
            self.server = Some(server);
        }
        Ok(Ok(()))
    }

    /// The source refuses what the network refuses.
    fn outside(&self) -> Forwarding {
        let upstreams = self.asks_outside.then_some(self.source).into_iter().collect();
        Forwarding { upstreams, refuse_private: false }
    }

    /// The server has a runtime of its own, which must not be made inside of ours.
    async fn start(&self) -> Result<Server, ServerError> {
        let limits = Limits { tenant: EVERYBODY, ..Limits::default() };
        let usual = Config::default();
        let config = Config {
            listen: self.listen.clone(),
            limits,
            // The one tenant that asks here can have half.
            tcp_connections: 2 * usual.tcp_connections,
            ..usual
        };
        let numbers = RandomState::new();
        let askers = move |from: SocketAddr| {
            let pod = PodId(numbers.hash_one(from.ip()));
            Some(Asker { network: ONLY, pod, tenant: TENANT })
        };
        let started = tokio::task::spawn_blocking(move || Server::new(config, askers)).await;
        started.unwrap_or_else(|error| Err(ServerError::Thread(io::Error::other(error))))
    }
}

/// What was heard over one connection.
#[derive(Default)]
struct Heard {
    view: Option<View>,
    /// Whether names outside can be asked for.
    outside: bool,
    /// Something is other than at the last whole word.
    is_news: bool,
    was_whole: bool,
}

impl Heard {
    fn take(&mut self, word: Word) -> io::Result<()> {
        self.is_news = true;
        match (word, &mut self.view) {
            (Word::Anew, _) => *self = Heard { is_news: true, ..Heard::default() },
            (Word::Put(name, _), _) if name == OUTSIDE => self.outside = true,
            (Word::Gone(name), _) if name == OUTSIDE => self.outside = false,
            (Word::Put(name, thing), view) if name == SETTINGS => {
                let settings: Settings = serde_json::from_slice(&thing)?;
                *view = Some(View::new(settings));
            }
            (Word::Put(_, thing), Some(view)) => view.learn(serde_json::from_slice(&thing)?),
            (Word::Gone(name), Some(view)) => view.learn(gone(&name)?),
            (Word::Put(..) | Word::Gone(_), None) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a fact before the settings",
                ));
            }
            (Word::Whole, _) => {}
        }
        Ok(())
    }
}

/// The fact that something is gone, from the name that it had.
fn gone(name: &str) -> io::Result<Fact> {
    let fact = Fact::gone(name);
    fact.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "nothing has such a name"))
}
