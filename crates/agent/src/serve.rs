//! The unix socket where the CNI plugin and the command line ask.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use atoll_cni::wire::{AgentReply, AgentRequest};
use atoll_cni::{CniError, ErrorCode};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;

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
            .map_err(|error: std::io::Error| error)
            .with_context(|| format!("cannot listen at {}", path.display()))?;
        Ok(Server { listener })
    }

    /// Takes questions for good.
    pub(crate) async fn run(self, requests: Sender<Request>) -> Result<()> {
        loop {
            let (stream, _) = self.listener.accept().await.context("cannot accept")?;
            tokio::spawn(converse(stream, requests.clone()));
        }
    }
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

async fn converse(stream: UnixStream, requests: Sender<Request>) {
    if let Err(error) = answer_one(stream, requests).await {
        tracing::debug!(%error, "a caller went away");
    }
}

async fn answer_one(stream: UnixStream, requests: Sender<Request>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut question = String::new();
    (&mut stream).take(LONGEST_QUESTION).read_line(&mut question).await?;
    let reply = match serde_json::from_str(&question) {
        Ok(ask) => ask_actor(ask, requests).await?,
        Err(error) => AgentReply::Failed(
            CniError::new(ErrorCode::Decode, "the agent did not understand the question")
                .because(error),
        ),
    };
    let mut line = serde_json::to_vec(&reply)?;
    line.push(b'\n');
    stream.get_mut().write_all(&line).await?;
    Ok(())
}

async fn ask_actor(ask: AgentRequest, requests: Sender<Request>) -> Result<AgentReply> {
    let (reply, answer) = oneshot::channel();
    requests.send(Request { ask, reply }).await?;
    Ok(answer.await?)
}
