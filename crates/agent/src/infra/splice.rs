//! Bytes between a caller and whom it called, both ways, until both have said all, one breaks off,
//! or neither says anything for too long.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::Instant;

/// What one direction may hold at a time.
const BUFFER: usize = 16 << 10;

/// Passes bytes both ways. Silence in both directions for `patience` ends it.
pub(super) async fn splice(
    caller: TcpStream,
    called: TcpStream,
    patience: Duration,
) -> io::Result<()> {
    let (from_caller, to_caller) = caller.into_split();
    let (from_called, to_called) = called.into_split();
    let (heard, silence) = watch::channel(Instant::now());
    let both = async {
        tokio::try_join!(pass(from_caller, to_called, &heard), pass(from_called, to_caller, &heard))
    };
    tokio::select! {
        ended = both => ended.map(|_| ()),
        () = too_long(silence, patience) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    heard: &watch::Sender<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = from.read(&mut buffer).await?;
        heard.send_replace(Instant::now());
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        heard.send_replace(Instant::now());
    }
}

/// Waits until nothing was heard for `patience`.
async fn too_long(heard: watch::Receiver<Instant>, patience: Duration) {
    loop {
        let end = *heard.borrow() + patience;
        if end <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(end).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (ours, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn bytes_pass_both_ways_and_an_end_said_by_one_is_heard_by_the_other() {
        let (mut caller, inner) = pair().await;
        let (outer, mut called) = pair().await;
        let spliced = tokio::spawn(splice(inner, outer, Duration::from_secs(60)));
        let question = vec![7; 300_000];
        let ask = async {
            caller.write_all(&question).await.unwrap();
            caller.shutdown().await.unwrap();
            let mut answer = String::new();
            caller.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = async {
            let mut heard = Vec::new();
            called.read_to_end(&mut heard).await.unwrap();
            called.write_all(b"well asked").await.unwrap();
            drop(called);
            heard
        };
        let (answered, heard) = tokio::join!(ask, answer);
        assert!(heard == question);
        assert_eq!(answered, "well asked");
        spliced.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn silence_in_both_directions_ends_it_and_a_word_of_either_keeps_it() {
        let (mut caller, inner) = pair().await;
        let (outer, mut called) = pair().await;
        let patience = Duration::from_secs(2);
        let spliced = tokio::spawn(splice(inner, outer, patience));
        let began = Instant::now();
        let mut word = [0; 4];
        while began.elapsed() < patience + patience / 4 {
            called.write_all(b"word").await.unwrap();
            caller.read_exact(&mut word).await.unwrap();
            tokio::time::sleep(patience / 30).await;
        }
        assert!(!spliced.is_finished());
        let ended = spliced.await.unwrap().unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        assert_eq!(caller.read(&mut word).await.unwrap_or(0), 0);
    }
}
