//! A cluster by its name: what tests and the command line ask of it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use atoll_types::Label;

use crate::fabric::{CONTROL, CONTROL_ADDRESS, Node};
use crate::home::Home;
use crate::up::UpOptions;
use crate::{control_plane, down, node, processes, reference, store, traces, up};

/// A cluster, up or not.
#[derive(Clone, Debug)]
pub struct Cluster {
    home: Home,
}

impl Cluster {
    /// The cluster called `name`.
    pub fn named(name: &Label) -> Self {
        Cluster { home: Home::of(name) }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        self.home.name().as_str()
    }

    /// Makes it. Its nodes are NotReady until somebody brings a CNI plugin.
    pub fn up(&self, options: &UpOptions) -> Result<()> {
        up::up(&self.home, options)
    }

    /// Removes it without a trace, whatever state it is in. Repeatable.
    pub fn down(&self) -> Result<()> {
        down::down(&self.home)
    }

    /// What is left of it on this machine, wherever it is: nothing when it is down.
    pub fn traces(&self) -> Vec<String> {
        traces::of(&self.home)
    }

    /// The kubeconfig of its administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.kubeconfig()
    }

    /// The folder with the logs of all its programs.
    pub fn logs(&self) -> PathBuf {
        self.home.logs()
    }

    /// The log of one program of a node.
    pub fn log(&self, node: Node, program: &str) -> PathBuf {
        self.home.log(&node::program(node, program))
    }

    /// Its nodes.
    pub fn nodes(&self) -> Vec<Node> {
        self.home.nodes()
    }

    /// Where nodes reach the API without help of any service address: host and port.
    pub fn api_endpoint(&self) -> (String, u16) {
        (CONTROL_ADDRESS.to_string(), control_plane::API_PORT)
    }

    /// kubectl of the cluster's own version.
    pub fn kubectl(&self) -> Command {
        up::kubectl_command(&self.home)
    }

    /// A command that will run inside a node.
    pub fn on_node(&self, node: Node, program: &str) -> Result<Command> {
        let init = self.init_of(node)?;
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={init}"));
        command.args(["--net", "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--", program]);
        Ok(command)
    }

    /// Where this machine finds a node's files, for as long as the node runs.
    pub fn files(&self, node: Node) -> Result<PathBuf> {
        Ok(PathBuf::from(format!("/proc/{}/root", self.init_of(node)?)))
    }

    /// Puts the images of an OCI archive into every node.
    pub fn load(&self, archive: &Path) -> Result<()> {
        let nodes = self.nodes();
        ensure!(!nodes.is_empty(), "cluster {} is not up", self.home.name());
        nodes.into_iter().try_for_each(|node| self.load_on(node, archive))
    }

    fn load_on(&self, node: Node, archive: &Path) -> Result<()> {
        let file = File::open(archive)
            .with_context(|| format!("cannot read the image {}", archive.display()))?;
        let mut import = self.on_node(node, "ctr")?;
        import.args(["--namespace=k8s.io", "images", "import", "-"]);
        let output = import.stdin(Stdio::from(file)).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let archive = archive.display();
        ensure!(output.status.success(), "{node} does not take {archive}: {}", said.trim());
        Ok(())
    }

    /// Ends a node as a power cut would.
    pub fn kill_node(&self, node: Node) -> Result<()> {
        processes::end_inside(&[self.home.namespace(&node.to_string())])
    }

    /// Starts a node that was killed.
    pub fn start_node(&self, node: Node) -> Result<()> {
        ensure!(self.init_of(node).is_err(), "{node} runs already");
        node::start(&self.home, node)
    }

    /// Ends the API server, as a crash would; its store stays.
    pub fn stop_api(&self) -> Result<()> {
        processes::end_named(&self.home.namespace(CONTROL), control_plane::API_SERVER)
    }

    /// Starts the API server again.
    pub fn start_api(&self) -> Result<()> {
        control_plane::api_server(&self.home).start(&self.home).map(drop)
    }

    /// Keeps what the API has now, for [`Cluster::restore_store`]. The API is away meanwhile.
    pub fn save_store(&self) -> Result<()> {
        store::save(&self.home)
    }

    /// Gives the API what it had when its store was kept, and starts everything of Kubernetes again
    /// that remembers more: the control plane, and the kubelets.
    pub fn restore_store(&self) -> Result<()> {
        store::restore(&self.home)?;
        self.nodes().into_iter().try_for_each(|node| self.end_kubelet(node))
    }

    /// The node starts it again.
    fn end_kubelet(&self, node: Node) -> Result<()> {
        let ended = self.on_node(node, "sh")?.args(["-c", "kill $(pidof kubelet)"]).status()?;
        ensure!(ended.success(), "there is no kubelet on {node}");
        Ok(())
    }

    /// Brings another network than ours: the reference `bridge` plugin. Nodes are Ready by it.
    pub fn bring_bridge(&self) -> Result<()> {
        reference::bring(self)
    }

    /// Takes that network away again. Nodes are not Ready without it.
    pub fn take_bridge_away(&self) -> Result<()> {
        reference::take_away(self)
    }

    fn init_of(&self, node: Node) -> Result<i32> {
        let known = self.nodes();
        ensure!(known.contains(&node), "cluster {} has no {node}", self.home.name());
        processes::init_of(&self.home.namespace(&node.to_string()))
            .with_context(|| format!("{node} is not running"))
    }
}
