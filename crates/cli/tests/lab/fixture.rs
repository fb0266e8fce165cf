//! A lab for one test, and the programs that are run against it. In its place may be a cluster of
//! real nodes.

mod real;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::Value;

use self::real::Real;

const ATOLL: &str = env!("CARGO_BIN_EXE_atoll");

/// How long something may take that must happen. Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(180);

/// A lab that goes when the test does.
pub(crate) struct Lab {
    pub(crate) name: String,
    pub(crate) kubeconfig: PathBuf,
    /// Where the test's own files are.
    folder: tempfile::TempDir,
    /// What is in the place of the lab.
    real: Option<Real>,
}

/// What a program printed, and whether it was content.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said { ok: output.status.success(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

impl Said {
    /// What was printed, where the program succeeded.
    pub(crate) fn good(self) -> String {
        assert!(self.ok, "failed: {}{}", self.out, self.err);
        self.out
    }

    /// What was complained about, where the program failed.
    pub(crate) fn bad(self) -> String {
        assert!(!self.ok, "succeeded: {}", self.out);
        self.err
    }

    pub(crate) fn json(self) -> Value {
        let text = self.good();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// Runs `atoll` with these arguments.
pub(crate) fn atoll(args: &[&str]) -> Said {
    atoll_command(args).output().unwrap().into()
}

pub(crate) fn atoll_command(args: &[&str]) -> Command {
    let mut command = Command::new(ATOLL);
    command.args(args).stdin(Stdio::null());
    command
}

/// A name that no other lab has, and none begins with.
pub(crate) fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}-{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Lab {
    /// A lab with this many nodes, ready.
    pub(crate) fn up(nodes: u8) -> Lab {
        Lab::up_with(nodes, &[])
    }

    /// A lab of two nodes for tests that keep to tenants of their own. It goes with the last of them.
    pub(crate) fn shared() -> Arc<Lab> {
        static SHARED: Mutex<Weak<Lab>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let lab = Arc::new(Lab::up(2));
            *shared = Arc::downgrade(&lab);
            lab
        })
    }

    /// The same, with more said to `atoll lab up`.
    pub(crate) fn up_with(nodes: u8, options: &[&str]) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        if let Some(real) = Real::find() {
            assert!(options.is_empty(), "a cluster that is there already hears no {options:?}");
            let (name, kubeconfig) = (real.name(), real.kubeconfig());
            return Lab { name, kubeconfig, folder, real: Some(real) };
        }
        Lab::start(Path::new(ATOLL), nodes, options, folder)
    }

    /// The same, run by a program of the test's own.
    pub(crate) fn up_from(program: &Path, nodes: u8) -> Lab {
        Lab::start(program, nodes, &[], tempfile::tempdir().unwrap())
    }

    fn start(program: &Path, nodes: u8, options: &[&str], folder: tempfile::TempDir) -> Lab {
        let mut lab = Lab { name: unique_name(), kubeconfig: PathBuf::new(), folder, real: None };
        let mut up = Command::new(program);
        up.args(["lab", "up", "--name", &lab.name, "--nodes", &nodes.to_string()]).args(options);
        Said::from(up.stdin(Stdio::null()).output().unwrap()).good();
        lab.kubeconfig = atoll(&["lab", "kubeconfig", "--name", &lab.name]).good().trim().into();
        lab
    }

    /// A lab with the two tenants of the example, all pods ready.
    pub(crate) fn with_two_tenants() -> Lab {
        Lab::up(3).filled_with_two_tenants()
    }

    /// The same lab with the two tenants of the example, all pods ready.
    pub(crate) fn filled_with_two_tenants(self) -> Lab {
        self.apply(&std::fs::read_to_string(example("two-tenants.yaml")).unwrap()).good();
        self.wait_for_pods();
        self
    }

    /// The kubeconfig of the lab's administrator.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubectl that also runs inside a pod.
    pub(crate) fn kubectl_program() -> String {
        repository().join("scripts/kubectl").canonicalize().unwrap().display().to_string()
    }

    /// The same by the name that it has in pods.
    pub(crate) fn kubectl_in_pods(&self) -> String {
        if self.real.is_some() { "kubectl".to_owned() } else { Lab::kubectl_program() }
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> Said {
        let mut command = Command::new(Lab::kubectl_program());
        command.arg("--request-timeout=30s").args(args).env("KUBECONFIG", &self.kubeconfig);
        command.stdin(Stdio::null()).output().unwrap().into()
    }

    /// Runs `atoll` against this lab's API.
    pub(crate) fn atoll(&self, args: &[&str]) -> Said {
        atoll_command(args).env("KUBECONFIG", &self.kubeconfig).output().unwrap().into()
    }

    /// Writes a file that goes with the test.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    }

    /// Applies objects written in YAML.
    pub(crate) fn apply(&self, yaml: &str) -> Said {
        self.apply_with(&[], yaml)
    }

    /// Applies objects that name no namespace in this one.
    pub(crate) fn apply_in(&self, namespace: &str, yaml: &str) -> Said {
        self.apply_with(&["-n", namespace], yaml)
    }

    fn apply_with(&self, options: &[&str], yaml: &str) -> Said {
        let file = self.manifest(yaml);
        self.kubectl(&[&["apply", "-f", file.to_str().unwrap()], options].concat())
    }

    /// A file with objects as this place takes them.
    pub(crate) fn manifest(&self, yaml: &str) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("applied-{}.yaml", NEXT.fetch_add(1, Ordering::Relaxed));
        match self.real {
            Some(_) => self.file(&name, &real::dressed(yaml)),
            None => self.file(&name, yaml),
        }
    }

    pub(crate) fn wait_for_pods(&self) {
        let wait = ["wait", "--for=condition=Ready", "pods", "--all", "-A", "--timeout=180s"];
        self.kubectl(&wait).good();
    }

    /// Waits until all pods of a namespace are ready.
    pub(crate) fn wait_for_pods_of(&self, namespace: &str) {
        let pods = ["pods", "--all", "-n", namespace];
        self.kubectl(&[&["wait", "--for=condition=Ready", "--timeout=180s"], &pods[..]].concat())
            .good();
    }

    /// Runs a command inside a pod (`namespace/pod`).
    pub(crate) fn exec(&self, pod: &str, command: &[&str]) -> Said {
        self.exec_command(pod, command).output().unwrap().into()
    }

    pub(crate) fn exec_command(&self, pod: &str, command: &[&str]) -> Command {
        let (namespace, pod) = pod.split_once('/').unwrap();
        if let Some(real) = &self.real {
            return real.exec_command(namespace, pod, command);
        }
        let lab = ["lab", "exec", "--name", &self.name, "-n", namespace, pod, "--"];
        atoll_command(&[&lab, command].concat())
    }

    /// The same, with something on the command's standard input.
    pub(crate) fn exec_fed(&self, pod: &str, command: &[&str], input: &str) -> Said {
        let mut command = self.exec_command(pod, command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut to = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || to.write_all(input.as_bytes()));
            child.wait_with_output().unwrap().into()
        })
    }

    /// What a pod (`namespace/pod`) wrote.
    pub(crate) fn logs(&self, pod: &str) -> Said {
        let (namespace, pod) = pod.split_once('/').unwrap();
        if self.real.is_some() {
            return self.kubectl(&["logs", "-n", namespace, pod]);
        }
        atoll(&["lab", "logs", "--name", &self.name, "-n", namespace, pod])
    }

    /// What the agent of a pod's node would tell the pod about a name.
    pub(crate) fn query(&self, pod: &str, name: &str) -> Said {
        if let Some(real) = &self.real {
            return real.query(pod, name);
        }
        atoll(&["dns", "query", "--lab", &self.name, "--as", pod, name])
    }

    /// The rules of packet filters that a node has, without what others bring to a real one.
    pub(crate) fn rules(&self, node: &str) -> String {
        let lists = [&["nft", "list", "ruleset"][..], &["iptables-save"], &["ip6tables-save"]];
        let rules: String = lists.iter().map(|list| self.node(node, list).good()).collect();
        if self.real.is_some() { real::without_others(&rules) } else { rules }
    }

    /// Asks a server from inside a pod who it is, once.
    pub(crate) fn connect(&self, pod: &str, protocol: &str, to: &str) -> Said {
        self.exec(pod, &["atoll", "toolbox", "connect", protocol, to])
    }

    /// The same where a server is to answer: a pod is ready before its program listens.
    pub(crate) fn reach(&self, pod: &str, protocol: &str, to: &str) -> Said {
        let mut said = self.connect(pod, protocol, to);
        let _in_vain = await_condition(|| {
            said.ok || {
                said = self.connect(pod, protocol, to);
                said.ok
            }
        });
        said
    }

    /// Runs a command inside a node.
    pub(crate) fn node(&self, node: &str, command: &[&str]) -> Said {
        if let Some(real) = &self.real {
            return real.node(node, command);
        }
        let lab = ["lab", "node", "--name", &self.name, node, "--"];
        atoll(&[&lab, command].concat())
    }

    /// Packets dropped on all nodes for `reason`, of `network` where it is given.
    pub(crate) fn drops(&self, network: Option<&str>, reason: &str) -> u64 {
        let nodes = match &self.real {
            Some(real) => Value::from(real.drops()),
            None => atoll(&["drops", "--lab", &self.name, "-o", "json"]).json(),
        };
        let drops =
            nodes.as_array().unwrap().iter().flat_map(|node| node["drops"].as_array().unwrap());
        let ours = drops.filter(|drop| {
            drop["reason"] == reason && network.is_none_or(|network| drop["network"] == network)
        });
        ours.map(|drop| drop["packets"].as_u64().unwrap()).sum()
    }

    /// Where the network namespace of a node, or of the wires between them (`fabric`), can be opened.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        match &self.real {
            Some(real) => real.place(name),
            None => state_dir(&self.name).join("netns").join(name),
        }
    }

    /// Where that of a pod (`namespace/pod`) can be opened.
    pub(crate) fn sandbox(&self, pod: &str) -> PathBuf {
        if let Some(real) = &self.real {
            return real.sandbox(pod);
        }
        let (namespace, name) = pod.split_once('/').unwrap();
        let uid = ["get", "pod", name, "-n", namespace, "-o", "jsonpath={.metadata.uid}"];
        self.place(&format!("pod-{}", self.kubectl(&uid).good()))
    }

    /// Where a node of a lab has its maps and programs pinned.
    pub(crate) fn pins(&self, node: &str) -> PathBuf {
        assert!(self.real.is_none(), "a real node has a BPF file system of its own");
        state_dir(&self.name).join("bpf").join(node)
    }

    /// Where those of all pods can be opened.
    pub(crate) fn sandboxes(&self) -> BTreeSet<PathBuf> {
        if let Some(real) = &self.real {
            return real.sandboxes();
        }
        let all = std::fs::read_dir(state_dir(&self.name).join("netns")).unwrap();
        let all = all.map(|entry| entry.unwrap().path());
        all.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("pod-")).collect()
    }

    /// Where a node's agent answers.
    pub(crate) fn agent_socket(&self, node: &str) -> PathBuf {
        match &self.real {
            Some(real) => real.files(node).join("run/atoll/agent.sock"),
            None => state_dir(&self.name).join(format!("nodes/{node}/agent.sock")),
        }
    }

    /// Sends a signal to a node's agent.
    pub(crate) fn signal_agent(&self, node: &str, signal: &str) {
        if let Some(real) = &self.real {
            return real.signal_agent(node, signal);
        }
        let pid = self.agent_pid(node).expect("the agent runs").to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Lets a node stand still, so that nobody hears that it is well; or lets it go on.
    pub(crate) fn signal_node(&self, node: &str, signal: &str) {
        if let Some(real) = &self.real {
            real.signal_kubelet(node, signal);
        }
        self.signal_agent(node, signal);
    }

    /// What tells the agent that a node has from the one before it and from the next.
    pub(crate) fn agent(&self, node: &str) -> Option<String> {
        match &self.real {
            Some(real) => real.agent(node),
            None => self.agent_pid(node).map(|pid| pid.to_string()),
        }
    }

    /// The pid of a node's agent.
    pub(crate) fn agent_pid(&self, node: &str) -> Option<u32> {
        let status = atoll(&["lab", "status", "--name", &self.name, "-o", "json"]).json();
        let nodes = status["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|entry| entry["name"] == node).unwrap();
        node["agent"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
    }

    /// Waits until `kubectl get` of this prints what `wanted` accepts.
    pub(crate) fn eventually(&self, get: &[&str], wanted: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        await_condition(|| {
            let said = self.kubectl(get);
            last = format!("{}{}", said.out, said.err);
            wanted(&last)
        })
        .unwrap_or_else(|()| panic!("kubectl {get:?} went on saying: {last}"));
        last
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(real) = &self.real {
            let cleared = real.clear();
            assert!(cleared.is_ok() || std::thread::panicking(), "what was brought does not go");
            return;
        }
        if std::thread::panicking() {
            show_logs(&self.name);
        }
        let down = atoll(&["lab", "down", "--name", &self.name]);
        if !down.ok {
            eprintln!("lab {} did not go down: {}", self.name, down.err);
        }
    }
}

fn show_logs(name: &str) {
    let tail = "tail -n 40 \"$1\"/*.log \"$1\"/*/*.log \"$1\"/nodes/*/*.log 2>/dev/null";
    let dir = state_dir(name);
    let logs = Command::new("sh").args(["-c", tail, "sh"]).arg(dir).output().unwrap();
    eprintln!("{}", String::from_utf8_lossy(&logs.stdout));
}

/// Where a lab keeps its state.
pub(crate) fn state_dir(name: &str) -> PathBuf {
    Path::new("/run/atoll/lab").join(name)
}

/// One of the examples that people read.
pub(crate) fn example(name: &str) -> PathBuf {
    repository().join("examples").join(name)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Ends a node's agent without a warning, and waits for the next one.
pub(crate) fn kill_agent_and_await_the_next(lab: &Lab, node: &str) {
    end_agent_and_await_the_next(lab, node, "-KILL");
}

/// Ends a node's agent by a signal, and waits for the next one.
pub(crate) fn end_agent_and_await_the_next(lab: &Lab, node: &str, signal: &str) {
    let before = lab.agent(node).expect("the agent runs");
    lab.signal_agent(node, signal);
    if let Some(real) = &lab.real {
        real.replace_agent(node);
    }
    await_condition(|| lab.agent(node).is_some_and(|now| now != before))
        .expect("another agent takes its place");
}

/// What `gives` comes to give.
pub(crate) fn await_some<T>(mut gives: impl FnMut() -> Option<T>) -> T {
    let mut given = None;
    let _in_vain = await_condition(|| {
        given = gives();
        given.is_some()
    });
    given.expect("it comes")
}

/// Waits until `holds`, or gives up.
pub(crate) fn await_condition(mut holds: impl FnMut() -> bool) -> Result<(), ()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > deadline {
            return Err(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
