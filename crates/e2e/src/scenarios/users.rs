//! What users do with kubectl.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use atoll_realnodes::wait_until;
use atoll_toolbox::Answer;
use serde_json::json;

use crate::kubectl::PATIENCE;
use crate::stage::{Stage, in_tree};

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

/// The users of a tenant, as the example binds them, see and change what is the tenant's own and nothing
/// of another.
pub(crate) fn of_a_tenant(stage: &Stage) -> Result<()> {
    let bindings = std::fs::read_to_string(in_tree("examples/tenant-users.yaml"))?;
    stage.kubectl.apply(&bindings)?;
    let own = network("acme.of-users", "acme");
    wait_until("the users of acme to make a network of it", PATIENCE, || {
        Ok(as_user(stage, &["create", "-f", "-"], &own)?.is_ok())
    })?;
    stage.kubectl.wait_for("it to be Active", &["network", "acme.of-users"], |network| {
        network["status"]["phase"] == "Active"
    })?;
    wait_until("the users of acme to read it", PATIENCE, || {
        Ok(as_user(stage, &["get", "network", "acme.of-users"], "")?.is_ok())
    })?;
    may(stage, &["get", "network", "acme.default"], "")?;
    may(stage, &["get", "pods", "--namespace=acme"], "")?;
    may(stage, &["get", "ports", "--namespace=acme"], "")?;
    may_not(stage, &["get", "network", "globex.default"], "", "forbidden")?;
    may_not(stage, &["get", "networks"], "", "forbidden")?;
    may_not(stage, &["get", "tenants"], "", "forbidden")?;
    may_not(stage, &["get", "pods", "--namespace=globex"], "", "forbidden")?;
    may_not(stage, &["get", "ports", "--namespace=globex"], "", "forbidden")?;
    may_not(stage, &["delete", "network", "globex.default"], "", "forbidden")?;
    let theirs = network("globex.of-users", "globex");
    may_not(stage, &["create", "-f", "-"], &theirs, "tenant globex")?;
    let label = ["label", "namespace", "acme", "--overwrite", "atoll.dev/tenant=globex"];
    may_not(stage, &label, "", "forbidden")?;
    may(stage, &["delete", "network", "acme.of-users"], "")?;
    stage.kubectl.delete(&bindings).map(drop)
}

fn network(name: &str, tenant: &str) -> String {
    json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Network", "metadata": {"name": name},
           "spec": {"tenant": tenant, "type": "vpc", "cidrs": ["10.9.0.0/16"]}})
    .to_string()
}

/// What kubectl says to one of them.
fn as_user(stage: &Stage, arguments: &[&str], input: &str) -> Result<Result<String, String>> {
    let user = ["--as=alice", "--as-group=acme-users", "--as-group=system:authenticated"];
    let output = stage.kubectl.feed(&[&user[..], arguments].concat(), input)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}

fn may(stage: &Stage, arguments: &[&str], input: &str) -> Result<()> {
    let said = as_user(stage, arguments, input)?;
    ensure!(said.is_ok(), "a user of acme may not {}: {said:?}", arguments.join(" "));
    Ok(())
}

fn may_not(stage: &Stage, arguments: &[&str], input: &str, words: &str) -> Result<()> {
    let said = as_user(stage, arguments, input)?;
    let refused = said.as_ref().is_err_and(|said| said.to_lowercase().contains(words));
    ensure!(refused, "a user of acme, told to {}: {said:?}", arguments.join(" "));
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
