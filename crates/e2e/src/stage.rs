//! Where the suite runs: on clusters of its own, or on one that somebody gave.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use atoll_realnodes::{Cluster, UpOptions};
use atoll_types::Label;

use crate::Options;
use crate::install;
use crate::kubectl::{Atoll, Kubectl};
use crate::looks::Looks;

/// How many clusters are made where none was given.
pub(crate) const CLUSTERS: usize = 3;
const NODES: u8 = 3;
/// What the nodes of our own clusters get their podCIDRs from.
const OWN_PODS: &str = "10.244.0.0/16";

/// A cluster, and how to speak to it.
pub(crate) struct Stage {
    pub(crate) kubectl: Kubectl,
    atoll: Atoll,
    own: Option<(Cluster, UpOptions)>,
    api_server: Option<(String, String)>,
    /// What else `atoll install` is told.
    settings: Vec<String>,
    plain_network: Option<String>,
    helm: Option<PathBuf>,
    lab_tests: Option<PathBuf>,
    api_away: Duration,
    /// What nodes of our own had before Atoll came to them for the first time.
    before: OnceLock<Looks>,
}

impl Stage {
    /// The one that was given, or ours. Nothing is made yet.
    pub(crate) fn all(options: &Options) -> Result<Vec<Self>> {
        match &options.kubeconfig {
            Some(kubeconfig) => Ok(vec![given(options, kubeconfig)?]),
            None => names(&options.name)?.iter().map(|name| own(options, name)).collect(),
        }
    }

    /// What its lines and its logs are known by.
    pub(crate) fn name(&self) -> &str {
        self.own_cluster().map_or("given", Cluster::name)
    }

    /// Prints a line that says which cluster it is about.
    pub(crate) fn tell(&self, line: &str) {
        println!("{:6} {line}", self.name());
    }

    /// Makes our own cluster, with the images on its nodes.
    pub(crate) fn raise(&self) -> Result<()> {
        let (cluster, options) = self.own.as_ref().context("this cluster is not ours to make")?;
        cluster.down()?;
        cluster.up(options)?;
        ["pause", "atoll"].iter().try_for_each(|image| cluster.load(&archive(image)))
    }

    /// The API's host and port where the nodes cannot use its service address.
    pub(crate) fn api_server(&self) -> Option<&(String, String)> {
        self.api_server.as_ref()
    }

    /// The program that installs charts.
    pub(crate) fn helm(&self) -> Option<&Path> {
        self.helm.as_deref()
    }

    /// What `atoll install` is told here.
    pub(crate) fn settings(&self) -> Vec<String> {
        let place = self.api_server.iter();
        let place =
            place.flat_map(|(host, port)| ["--api-server".into(), format!("{host}:{port}")]);
        place.chain(self.settings.iter().cloned()).collect()
    }

    /// The program that a user installs with.
    pub(crate) fn atoll(&self, arguments: &[&str]) -> Result<String> {
        self.atoll.run(arguments)
    }

    /// The cluster, where its nodes are ours to kill.
    pub(crate) fn own_cluster(&self) -> Option<&Cluster> {
        self.own.as_ref().map(|(cluster, _)| cluster)
    }

    /// What the nodes have their podCIDRs from, where Atoll may be the network of all pods.
    pub(crate) fn plain_network(&self) -> Option<&str> {
        self.plain_network.as_deref()
    }

    /// Looks at nodes of our own, to which Atoll did not come yet.
    pub(crate) fn look_first(&self) -> Result<()> {
        if let (Some(cluster), None) = (self.own_cluster(), self.before.get()) {
            let looks = Looks::at(cluster)?;
            self.before.get_or_init(|| looks);
        }
        Ok(())
    }

    /// What they had then, where this run saw it.
    pub(crate) fn first_looks(&self) -> Option<(&Cluster, &Looks)> {
        self.own_cluster().zip(self.before.get())
    }

    /// The program of the lab's tests.
    pub(crate) fn lab_tests(&self) -> Option<&Path> {
        self.lab_tests.as_deref()
    }

    /// How long the API is to be away.
    pub(crate) fn api_away(&self) -> Duration {
        self.api_away
    }

    /// The logs of the cluster's own programs, where they are at hand.
    pub(crate) fn logs(&self) -> Option<PathBuf> {
        self.own.as_ref().map(|(cluster, _)| cluster.logs())
    }

    /// Removes what the suite made; says what it could not.
    pub(crate) fn clear(&self) -> bool {
        let cleared = match &self.own {
            Some((cluster, _)) => self.take_down(cluster),
            None => install::remove(self),
        };
        let name = self.name();
        cleared
            .inspect_err(|error| eprintln!("e2e: not all of {name} was removed: {error:#}"))
            .is_ok()
    }

    /// Down means that nothing is left, wherever one looks.
    fn take_down(&self, cluster: &Cluster) -> Result<()> {
        cluster.down()?;
        let left = cluster.traces();
        ensure!(left.is_empty(), "{}", left.join(", "));
        self.tell("the cluster is down, and nothing is left of it");
        Ok(())
    }
}

/// The first has the name itself.
fn names(first: &Label) -> Result<Vec<Label>> {
    let others = (2..=CLUSTERS).map(|number| Ok(format!("{first}-{number}").parse()?));
    std::iter::once(Ok(first.clone())).chain(others).collect()
}

fn own(options: &Options, name: &Label) -> Result<Stage> {
    let kubernetes = options.kubernetes.clone().context("give --kubernetes")?;
    let cluster = Cluster::named(name);
    let kubectl = Kubectl::new(kubernetes.join("kubectl"), cluster.kubeconfig());
    let (host, port) = cluster.api_endpoint();
    let up = UpOptions { nodes: NODES, port: 0, kubernetes };
    let atoll = Atoll::new(options.atoll.clone(), cluster.kubeconfig());
    let api_server = Some((host, port.to_string()));
    let plain_network = Some(OWN_PODS.to_owned());
    let own = Some((cluster, up));
    Ok(Stage { own, plain_network, ..stage(options, kubectl, atoll, api_server) })
}

fn given(options: &Options, kubeconfig: &Path) -> Result<Stage> {
    let api_server = options.api_server.as_ref().map(|address| {
        let (host, port) = address.rsplit_once(':').context("E2E_API_SERVER is not HOST:PORT")?;
        Ok::<_, anyhow::Error>((host.to_owned(), port.to_owned()))
    });
    let kubectl = Kubectl::new(in_tree("scripts/kubectl"), kubeconfig.to_owned());
    let atoll = Atoll::new(options.atoll.clone(), kubeconfig.to_owned());
    Ok(stage(options, kubectl, atoll, api_server.transpose()?))
}

fn stage(
    options: &Options,
    kubectl: Kubectl,
    atoll: Atoll,
    api_server: Option<(String, String)>,
) -> Stage {
    let (helm, lab_tests) = (options.helm.clone(), options.lab_tests.clone());
    let api_away = Duration::from_secs(options.api_away);
    let (settings, plain_network) = (options.install.clone(), options.plain_network.clone());
    Stage {
        kubectl,
        atoll,
        own: None,
        api_server,
        settings,
        plain_network,
        helm,
        lab_tests,
        api_away,
        before: OnceLock::new(),
    }
}

/// A file of this tree.
pub(crate) fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// An image, as `cargo xtask image` wrote it.
pub(crate) fn archive(image: &str) -> PathBuf {
    in_tree(&format!("target/images/{image}.tar"))
}
