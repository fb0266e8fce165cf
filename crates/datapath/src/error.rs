//! What can go wrong, said as what was tried. The cause is always the error's source.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use atoll_plan::HostInterface;

/// A failure of the datapath.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// The BPF root is not on a BPF file system.
    #[error(
        "{} is not on a BPF file system: mount one with `mount -t bpf bpf /sys/fs/bpf` and put \
         the BPF root below it",
        .0.display()
    )]
    NotBpfFileSystem(PathBuf),
    /// Pins of another layout are there.
    #[error(
        "{} holds maps of another version of Atoll, which this one cannot read: drain the node \
         and remove that version's datapath first",
        .0.display()
    )]
    OtherLayout(PathBuf),
    /// A pinned map is not what its name and version say.
    #[error("the pinned map {} has {found}, not {expected}: remove it", path.display())]
    WrongMap {
        /// The pin.
        path: PathBuf,
        /// What it has.
        found: String,
        /// What it should have.
        expected: String,
    },
    /// No link has the underlay address.
    #[error("no link of this node has the underlay address {0}: set the node's own address")]
    NoUplink(IpAddr),
    /// The uplink's packets are too small for a tunnel.
    #[error("link {link} has an MTU of {mtu}, which leaves too little for tunnelled packets")]
    UplinkTooNarrow {
        /// The uplink's name.
        link: String,
        /// Its MTU.
        mtu: u32,
    },
    /// Our tunnel device's name is used by something else.
    #[error("link {0} exists but is no VXLAN device of ours: rename or remove it")]
    OverlayNameTaken(&'static str),
    /// The pod already has an interface of that name.
    #[error("the pod's namespace {} already has an interface {name}", sandbox.display())]
    InterfaceTaken {
        /// The interface's name inside the pod.
        name: String,
        /// The pod's namespace.
        sandbox: PathBuf,
    },
    /// The pod's namespace cannot be opened.
    #[error("cannot open the pod's network namespace {}", path.display())]
    NoSandbox {
        /// The namespace's path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A step names an interface that is not there.
    #[error("link {0} does not exist")]
    NoInterface(HostInterface),
    /// An interface would be raised before anything checks what it sends.
    #[error("interface {0} is not guarded, so it stays down")]
    NotGuarded(HostInterface),
    /// More addresses than the kernel's layout has room for.
    #[error("an interface may have {max} addresses, not {0}", max = atoll_abi::MAX_SOURCES)]
    TooManySources(usize),
    /// More backends than the kernel's layout has room for.
    #[error("a service may have {max} backends, not {0}", max = crate::spread::MOST_BACKENDS)]
    TooManyBackends(usize),
    /// A link that is no plain pod's is to have the programs of one.
    #[error("link {0} is no side of a plain pod's pair, so its services are not led")]
    NoPodsLink(String),
    /// Two networks have one node port.
    #[error("node port {0} leads to a service of another network already")]
    NodePortTaken(u16),
    /// The node's own sockets take every port.
    #[error(
        "net.ipv4.ip_local_port_range leaves pods no ports to speak to the outside from: narrow it, \
         32768 60999 is the kernel's own"
    )]
    NoPortsLeft,
    /// Policy was changed before it was written once.
    #[error("no tables of policy are in force that could be changed")]
    NoPolicyYet,
    /// A map has no room.
    #[error("the map {0} is full: this node has more of them than it can hold")]
    MapFull(&'static str),
    /// A node with an address that the tunnel cannot reach.
    #[error("node {0} has no underlay address of the family that this node's tunnel uses")]
    OtherFamily(IpAddr),
    /// Something of the system said no.
    #[error("cannot {attempt}")]
    Failed {
        /// What was tried, with what.
        attempt: String,
        /// Why it failed.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Removal went on to the end and met these.
    #[error("{0}")]
    Remains(Remains),
}

/// What could not be removed.
#[derive(Debug)]
pub struct Remains(pub Vec<DatapathError>);

impl fmt::Display for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} things could not be removed; {}", self.0.len(), self.list())
    }
}

impl Remains {
    /// Every failure with its causes.
    fn list(&self) -> String {
        self.0.iter().map(with_causes).collect::<Vec<_>>().join("; ")
    }
}

fn with_causes(error: &DatapathError) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(deeper) = cause {
        texts.push(deeper.to_string());
        cause = deeper.source();
    }
    texts.join(": ")
}

/// A step of a plan that could not be done.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}")]
pub struct StepError {
    /// The step, as it prints.
    pub step: String,
    /// Why.
    pub source: DatapathError,
}

/// Says what was tried when something fails.
pub(crate) trait Attempt<T> {
    /// Turns the error into "cannot `attempt`", with itself as the source.
    fn attempt(self, attempt: impl FnOnce() -> String) -> Result<T, DatapathError>;
}

impl<T, E: Error + Send + Sync + 'static> Attempt<T> for Result<T, E> {
    fn attempt(self, attempt: impl FnOnce() -> String) -> Result<T, DatapathError> {
        self.map_err(|error| DatapathError::Failed { attempt: attempt(), source: Box::new(error) })
    }
}
