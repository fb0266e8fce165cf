//! What users do with kubectl.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
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

/// The plugin reads its configuration from standard input, and complains of what it finds there.
fn passes_input(stage: &Stage) -> Result<()> {
    let configuration = r#"{"cniVersion": "77.0.0", "name": "atoll"}"#;
    let output = stage.kubectl.exec_fed(("acme", "web"), &["atoll", "cni"], configuration)?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(said.contains("cniVersion 77.0.0 is not supported"), "it said {said:?}");
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
        let forward = ["port-forward", "--namespace", tenant, "pod/web", ":8080"];
        let mut forwarder = stage.kubectl.start(&forward)?;
        let answer = ask(local_port(&forwarder.line()?)?)?;
        ensure!(answer.pod == format!("{tenant}/web"), "answered by {}", answer.pod);
    }
    Ok(())
}

/// The port in `Forwarding from 127.0.0.1:43210 -> 8080`.
fn local_port(line: &str) -> Result<u16> {
    let port = line.split(" -> ").next().and_then(|text| text.rsplit(':').next());
    port.and_then(|port| port.parse().ok()).with_context(|| format!("no port in {line:?}"))
}

fn ask(port: u16) -> Result<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(b"who are you?\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).context("no answer came through")?;
    Ok(serde_json::from_str(&line)?)
}
