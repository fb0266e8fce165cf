//! kubectl and atoll as a user types them; kubectl always with a limit of time.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use atoll_realnodes::wait_until;
use serde_json::Value;

/// A broken network can make kubectl wait for ever; this ends it.
const LIMIT_SECONDS: &str = "300";
/// How long the cluster may take to do what it was told, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// The atoll program for one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Atoll {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Atoll {
    pub(crate) fn new(program: PathBuf, kubeconfig: PathBuf) -> Self {
        Atoll { program, kubeconfig }
    }

    /// Runs it, and returns what it printed.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--kubeconfig").arg(&self.kubeconfig).stdin(Stdio::null());
        let output = command.output();
        let output = output.with_context(|| format!("cannot run {}", self.program.display()))?;
        printed(&format!("atoll {}", words(arguments)), output)
    }
}

/// kubectl for one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(crate) fn new(program: PathBuf, kubeconfig: PathBuf) -> Self {
        Kubectl { program, kubeconfig }
    }

    /// Of which cluster it is.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new("timeout");
        command.arg(LIMIT_SECONDS).arg(&self.program).args(arguments);
        command.env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null());
        command
    }

    /// Runs it, and returns what it printed.
    pub(crate) fn run(&self, arguments: &[impl AsRef<OsStr>]) -> Result<String> {
        let output = self.command(arguments).output().context("cannot run kubectl")?;
        printed(&format!("kubectl {}", words(arguments)), output)
    }

    /// Applies a manifest that is not in a file.
    pub(crate) fn apply(&self, manifest: &str) -> Result<String> {
        printed("kubectl apply", self.feed(&["apply", "-f", "-"], manifest)?)
    }

    /// Deletes what is in such a manifest, and waits until it is gone.
    pub(crate) fn delete(&self, manifest: &str) -> Result<String> {
        printed("kubectl delete", self.feed(&["delete", "-f", "-"], manifest)?)
    }

    /// Runs it with something on its standard input.
    pub(crate) fn feed(&self, arguments: &[&str], input: &str) -> Result<Output> {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot run kubectl")?;
        child.stdin.take().context("kubectl has no input")?.write_all(input.as_bytes())?;
        Ok(child.wait_with_output()?)
    }

    /// What the API has, as JSON.
    pub(crate) fn get(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.run(&[&["get", "-o", "json"], arguments].concat())?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Runs a command inside a pod; its exit code is kubectl's.
    pub(crate) fn exec(&self, namespace: &str, pod: &str, command: &[&str]) -> Result<Output> {
        let inside = ["exec", "--namespace", namespace, pod, "--"];
        self.command(&[&inside, command].concat()).output().context("cannot run kubectl")
    }

    /// The same, and it must succeed.
    pub(crate) fn exec_well(&self, namespace: &str, pod: &str, command: &[&str]) -> Result<String> {
        let output = self.exec(namespace, pod, command)?;
        printed(&format!("kubectl exec in {namespace}/{pod}: {}", command.join(" ")), output)
    }

    /// The same, with something on the command's standard input.
    pub(crate) fn exec_fed(
        &self,
        (namespace, pod): (&str, &str),
        command: &[&str],
        input: &str,
    ) -> Result<Output> {
        let inside = ["exec", "--stdin", "--namespace", namespace, pod, "--"];
        self.feed(&[&inside, command].concat(), input)
    }

    /// Starts it and leaves it running; what it prints can be read while it does.
    pub(crate) fn start(&self, arguments: &[&str]) -> Result<Running> {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::piped());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut child = child.context("cannot run kubectl")?;
        let output = BufReader::new(child.stdout.take().context("kubectl has no output")?);
        let input = child.stdin.take();
        Ok(Running { child, input, output })
    }

    /// Waits until what the API has satisfies `holds`.
    pub(crate) fn wait_for(
        &self,
        what: &str,
        arguments: &[&str],
        holds: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        wait_until(what, PATIENCE, || Ok(holds(&self.get(arguments)?)))
    }
}

/// A kubectl that runs; it ends with this value at the latest.
pub(crate) struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// The next line it prints.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    /// Says that nothing more will be said to it.
    pub(crate) fn end_input(&mut self) {
        drop(self.input.take());
    }

    /// Ends its input, and waits for the end that it takes from that.
    pub(crate) fn ended_by_its_input(mut self) -> Result<()> {
        self.end_input();
        let status = self.child.wait()?;
        ensure!(status.success(), "kubectl ended with {status}");
        Ok(())
    }

    /// Whether it has ended already.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn words(arguments: &[impl AsRef<OsStr>]) -> String {
    let words: Vec<_> = arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect();
    words.join(" ")
}

fn printed(what: &str, output: Output) -> Result<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{what} failed ({}): {}", output.status, said.trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// The objects of a list.
pub(crate) fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

/// Whether an object has a condition that is true.
pub(crate) fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        conditions.iter().any(|found| found["type"] == kind && found["status"] == "True")
    })
}
