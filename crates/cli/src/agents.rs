//! The agents that a command speaks with: that of this node, or those of every node of a lab.

use std::path::PathBuf;

use anyhow::Result;

/// Which agents.
#[derive(clap::Args)]
pub(crate) struct Agents {
    /// The socket of this node's agent.
    #[arg(long, default_value = "/run/atoll/agent.sock")]
    socket: PathBuf,
    /// Every node of this lab instead.
    #[arg(long, value_name = "NAME", conflicts_with = "socket")]
    lab: Option<String>,
}

impl Agents {
    /// The name of each one's node, and its socket.
    pub(crate) fn sockets(&self) -> Result<Vec<(String, PathBuf)>> {
        match &self.lab {
            Some(lab) => atoll_lab::agent_sockets(lab),
            None => Ok(vec![("this node".to_owned(), self.socket.clone())]),
        }
    }
}
