//! The unix socket where the CNI plugin and the command line ask.
//!
//! The rule of this file: who cannot be taken is told nothing and asks again. It never ends the agent,
//! which has others to serve.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use atoll_cni::wire::{AgentReply, AgentRequest, Call, Word};
use atoll_cni::{CniError, ErrorCode};
use futures::{Stream, StreamExt, stream};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use crate::plain_services::MadeLinks;
use crate::reconcile::{Audience, Listener};

/// The longest question; a list of every attachment of a full node fits.
const LONGEST_QUESTION: u64 = 1 << 20;

/// A question and where its answer goes.
#[derive(Debug)]
pub(crate) struct Request {
    /// The question.
    pub(crate) ask: AgentRequest,
    /// The way back to who asked.
    pub(crate) reply: oneshot::Sender<AgentReply>,
}

/// Where questions go, and where listeners do.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    /// The mailbox of questions.
    pub(crate) requests: Sender<Request>,
    /// The mailbox of those who come and go to listen.
    pub(crate) audience: Sender<Audience>,
    /// The mailbox of links of plain pods, where their services are led.
    pub(crate) plain: Option<Sender<MadeLinks>>,
}

/// How many words may wait for a listener before some are missed.
const WORDS: usize = 4096;

/// How long after one who could not be taken the next is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// The listening socket.
pub(crate) struct Server {
    listener: UnixListener,
}

impl Server {
    /// Listens at `path` with mode 0600. The socket gets its mode before it gets its name, so
    /// that at no time others could open it.
    pub(crate) fn bind(path: &Path) -> Result<Self> {
        let draft = path.with_extension("draft");
        let bind = || {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            remove_if_there(&draft)?;
            let listener = UnixListener::bind(&draft)?;
            fs::set_permissions(&draft, Permissions::from_mode(0o600))?;
            fs::rename(&draft, path)?;
            Ok(listener)
        };
        let listener = bind()
            .map_err(|error: io::Error| error)
            .with_context(|| format!("cannot listen at {}", path.display()))?;
        Ok(Server { listener })
    }

    /// Takes questions for good.
    pub(crate) async fn run(self, actor: Actor) {
        let callers = stream::poll_fn(move |context| {
            let taken = self.listener.poll_accept(context);
            taken.map(|taken| Some(taken.map(|(stream, _)| stream)))
        });
        take_all(callers, actor).await;
    }
}

async fn take_all(mut callers: impl Stream<Item = io::Result<UnixStream>> + Unpin, actor: Actor) {
    while let Some(caller) = callers.next().await {
        match caller {
            Ok(stream) => drop(tokio::spawn(converse(stream, actor.clone()))),
            Err(error) => {
                tracing::warn!(%error, "cannot take a question; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

async fn converse(stream: UnixStream, actor: Actor) {
    if let Err(error) = answer(stream, actor).await {
        tracing::debug!(%error, "a caller went away");
    }
}

async fn answer(stream: UnixStream, actor: Actor) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut question = String::new();
    (&mut stream).take(LONGEST_QUESTION).read_line(&mut question).await?;
    let reply = match serde_json::from_str(&question) {
        Ok(Call::Ask(ask)) => ask_actor(ask, &actor.requests).await?,
        Ok(Call::Made(made)) => tell_made(made.plain_links, actor.plain.as_ref()).await?,
        Ok(Call::Listen(wish)) => {
            let (words, told) = channel(WORDS);
            let listener = Listener::new(wish.observe, words);
            actor.audience.send(Audience::Joins(listener)).await?;
            let ended = pass_on(told, &mut stream).await;
            actor.audience.send(Audience::Left).await?;
            return ended;
        }
        Err(error) => AgentReply::Failed(
            CniError::new(ErrorCode::Decode, "the agent did not understand the question")
                .because(error),
        ),
    };
    stream.get_mut().write_all(&line(&reply)?).await?;
    Ok(())
}

/// Tells what there is to tell until the listener goes away or nothing can come any more.
async fn pass_on(mut told: Receiver<Word>, stream: &mut BufReader<UnixStream>) -> Result<()> {
    let (reader, mut writer) = stream.get_mut().split();
    let mut silence = [0; 1];
    let mut reader = BufReader::new(reader);
    loop {
        tokio::select! {
            word = told.recv() => match word {
                Some(word) => writer.write_all(&line(&word)?).await?,
                None => return Ok(()),
            },
            _end = reader.read(&mut silence) => return Ok(()),
        }
    }
}

fn line(said: &impl serde::Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    Ok(line)
}

async fn ask_actor(ask: AgentRequest, requests: &Sender<Request>) -> Result<AgentReply> {
    let (reply, answer) = oneshot::channel();
    requests.send(Request { ask, reply }).await?;
    Ok(answer.await?)
}

/// Where nobody leads the services of plain pods, nothing is left to do.
async fn tell_made(links: Vec<String>, desk: Option<&Sender<MadeLinks>>) -> Result<AgentReply> {
    let Some(desk) = desk else { return Ok(AgentReply::Done) };
    let (reply, answer) = oneshot::channel();
    desk.send(MadeLinks { links, reply }).await?;
    Ok(answer.await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_who_cannot_be_taken_does_not_end_the_agent_and_the_next_is_answered() {
        let (mut asking, asked) = UnixStream::pair().unwrap();
        let too_many_open = || Err(io::Error::from(nix::errno::Errno::EMFILE));
        let broken_off = Err(io::ErrorKind::ConnectionAborted.into());
        let callers = stream::iter([too_many_open(), broken_off, Ok(asked), too_many_open()]);
        let (requests, mut questions) = channel(1);
        let actor = Actor { requests, audience: channel(1).0, plain: None };
        asking.write_all(&line(&AgentRequest::Status).unwrap()).await.unwrap();
        let answering = async {
            let Request { ask, reply } = questions.recv().await.unwrap();
            assert_eq!(ask, AgentRequest::Status);
            reply.send(AgentReply::Done).unwrap();
        };
        tokio::join!(take_all(callers, actor), answering);
        let mut answer = String::new();
        asking.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer.as_bytes(), line(&AgentReply::Done).unwrap());
    }
}
