//! What users do with kubectl.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use atoll_toolbox::Answer;

use crate::stage::Stage;

/// An address that only the other tenant has.
const OF_NOBODY: &str = "10.0.0.22";

pub(crate) fn exec(stage: &Stage) -> Result<()> {
    let connect = |address| ["atoll", "toolbox", "connect", "tcp", address];
    let text = stage.kubectl.exec_well("acme", "web", &connect("10.0.0.6"))?;
    let answer: Answer = serde_json::from_str(&text)?;
    ensure!(answer.pod == "acme/db", "answered by {}", answer.pod);
    let refused = stage.kubectl.exec("acme", "web", &connect(OF_NOBODY))?;
    ensure!(refused.status.code() == Some(1), "the exit code is {:?}", refused.status);
    passes_input(stage)
}

/// The plugin, called by its own name, complains about what it read.
fn passes_input(stage: &Stage) -> Result<()> {
    let arguments = ["exec", "-i", "-n", "acme", "web", "--", "atoll", "cni"];
    let said = stage.kubectl.run_with_input(&arguments, "this is no JSON");
    let error = said.err().context("the plugin took what is no JSON")?.to_string();
    ensure!(error.contains("exit code 1"), "{error}");
    Ok(())
}

pub(crate) fn logs(stage: &Stage) -> Result<()> {
    for tenant in ["acme", "globex"] {
        let log = stage.kubectl.run(&["logs", "--namespace", tenant, "web"])?;
        let wanted = format!("serving on port 8080 as {tenant}/web");
        ensure!(log.contains(&wanted), "the log of {tenant}/web is {log:?}");
    }
    Ok(())
}

pub(crate) fn port_forward(stage: &Stage) -> Result<()> {
    for tenant in ["acme", "globex"] {
        let mut forwarder = Forwarder::start(stage, tenant)?;
        let port = forwarder.local_port()?;
        let answer = ask(port)?;
        ensure!(answer.pod == format!("{tenant}/web"), "answered by {}", answer.pod);
    }
    Ok(())
}

/// A running `kubectl port-forward`; it ends with this value. Its output stays open, because it
/// ends when it cannot write.
struct Forwarder {
    kubectl: Child,
    output: BufReader<ChildStdout>,
}

impl Forwarder {
    fn start(stage: &Stage, tenant: &str) -> Result<Self> {
        let arguments = ["port-forward", "--namespace", tenant, "pod/web", ":8080"];
        let mut kubectl = stage.kubectl.start(&arguments)?;
        let output = BufReader::new(kubectl.stdout.take().context("kubectl has no output")?);
        Ok(Forwarder { kubectl, output })
    }

    /// The port that it says it listens on.
    fn local_port(&mut self) -> Result<u16> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let port = line.split(" -> ").next().and_then(|text| text.rsplit(':').next());
        port.and_then(|port| port.parse().ok()).with_context(|| format!("no port in {line:?}"))
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

fn ask(port: u16) -> Result<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(b"who are you?\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).context("no answer came through")?;
    Ok(serde_json::from_str(&line)?)
}
