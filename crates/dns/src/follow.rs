//! Hearing the feed of a network.
//!
//! Its rule: what was heard counts only up to a word that says it is whole.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::feed::{FEED, Word};

/// A source that says nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(20);
/// No word is longer.
const LONGEST: u32 = 16 << 20;

/// A connection to the source of a feed.
pub(crate) struct Following(TcpStream);

impl Following {
    /// Asks a server for the feed of the network that this process is in.
    pub(crate) async fn of(source: SocketAddr) -> Result<Self> {
        let mut stream = patience(TcpStream::connect(source)).await?;
        stream.write_all(&question()).await?;
        Ok(Following(stream))
    }

    /// The next word.
    pub(crate) async fn next(&mut self) -> Result<Word> {
        let len = patience(self.0.read_u32()).await?;
        if len > LONGEST {
            return Err(Error::new(ErrorKind::InvalidData, "what came is no feed"));
        }
        let mut bytes = vec![0; len as usize];
        patience(self.0.read_exact(&mut bytes)).await?;
        let word = Word::read(&bytes);
        word.ok_or_else(|| Error::new(ErrorKind::InvalidData, "a word that cannot be read"))
    }
}

/// A question for the root with the feed's type, as DNS over TCP frames it.
fn question() -> Vec<u8> {
    let mut packet = vec![0, 17, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    packet.extend(FEED.to_be_bytes());
    packet.extend([0, 1]);
    packet
}

async fn patience<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(SILENCE, work).await.map_err(|_| Error::from(ErrorKind::TimedOut))?
}
