//! A server under load, in processes of its own: started for one round, gone after it.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use atoll_apiserver::{ApiConfig, ApiServer};
use clap::Args;
use tempfile::TempDir;

use crate::pinned::cpu_of;

/// Prints how the server of `real/with-api` is reached and waits for the end of its input.
const HOLD: &str = "echo \"$KUBECONFIG $WITH_API_READY_MS $WITH_API_PIDS\"; exec cat";

/// A running server.
pub(crate) struct Server {
    pub(crate) kubeconfig: PathBuf,
    /// Milliseconds from its start until it was ready.
    pub(super) ready: f64,
    processes: Vec<u32>,
    keeper: Child,
    _folder: Option<TempDir>,
}

impl Server {
    /// The embedded one, in another process of this program.
    pub(crate) fn embedded() -> Result<Server> {
        let folder = tempfile::tempdir().context("cannot make a folder for the objects")?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.arg("serve").arg(folder.path());
        Server::start(command, Some(folder))
    }

    /// A real one that writes to disk as ours does, and is followed by nobody else.
    pub(crate) fn real() -> Result<Server> {
        let mut command = Command::new("real/with-api");
        command.args(["bash", "-c", HOLD]).env("WITH_API_MEASURED", "1");
        Server::start(command, None)
    }

    fn start(mut command: Command, folder: Option<TempDir>) -> Result<Server> {
        let shown = format!("{command:?}");
        let mut keeper = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {shown}; run this in the clone's folder"))?;
        let mut line = String::new();
        let output = keeper.stdout.take().context("the server has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let mut words = line.split_whitespace();
        let (Some(kubeconfig), Some(ready)) = (words.next(), words.next()) else {
            bail!("{shown} did not start: it said {line:?}");
        };
        let processes = words.map(str::parse).collect::<Result<Vec<u32>, _>>()?;
        let ready = ready.parse()?;
        Ok(Server { kubeconfig: kubeconfig.into(), ready, processes, keeper, _folder: folder })
    }

    /// What its processes hold in memory.
    pub(super) fn megabytes(&self) -> Result<f64> {
        let held = self.processes.iter().map(|pid| resident(*pid));
        Ok(held.sum::<Result<f64>>()? / 1024.0)
    }

    /// Seconds of CPU that its processes have had.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let nanoseconds = self.processes.iter().map(|pid| cpu_of(*pid)).sum::<Result<u64>>()?;
        Ok(nanoseconds as f64 / 1e9)
    }
}

fn resident(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kilobytes.with_context(|| format!("{path} does not say what is resident"))
}

impl Drop for Server {
    /// Both end with their input.
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        if let Err(error) = self.keeper.wait() {
            eprintln!("cannot wait for a server to end: {error}");
        }
    }
}

/// The embedded API until its input ends.
#[derive(Args)]
pub(crate) struct Serve {
    /// Where its objects are
    folder: PathBuf,
}

/// Serves, and says how it is reached, how long it took and which process it is.
pub(crate) fn serve(arguments: &Serve) -> Result<()> {
    let start = Instant::now();
    let folder = &arguments.folder;
    let server = ApiServer::open(&ApiConfig {
        store: folder.join("store.redb"),
        tls_dir: folder.join("tls"),
        names: vec!["127.0.0.1".to_owned()],
    })?;
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
    let kubeconfig = folder.join("kubeconfig");
    let url = format!("https://{}", listener.local_addr()?);
    std::fs::write(&kubeconfig, server.kubeconfig(&url))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let serving = runtime.spawn(server.serve(vec![listener], end_of_input()));
    runtime.block_on(until_ready(&kubeconfig))?;
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    println!("{} {milliseconds:.1} {}", kubeconfig.display(), std::process::id());
    runtime.block_on(serving)??;
    Ok(())
}

async fn until_ready(kubeconfig: &Path) -> Result<()> {
    let client = super::load::client(kubeconfig).await?;
    let said = super::load::get(&client, "/readyz").await?;
    ensure!(said == "ok", "the server says {said:?} when asked whether it is ready");
    Ok(())
}

async fn end_of_input() {
    let read = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    // However reading ends, there is nobody left to serve.
    let _ = tokio::task::spawn_blocking(read).await;
}
