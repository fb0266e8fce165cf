//! The decisions of the programs as tables: a packet in, the verdict, the packet out and the reason that
//! is counted, by the real programs on the maps of a real node, run by the kernel's own test run. Nothing
//! is sent.
//!
//! The rule: a table says which reasons its rows drop for, and every reason there is stands in a table,
//! or beside the sentence that says why no packet of a test comes to it (`reasons`).

mod from_node;
mod from_overlay;
mod from_overlay_ways;
mod from_plain;
mod from_pod;
mod from_pod_limits;
mod from_uplink;
mod judge;
mod plain;
mod plain_outside;
mod policy;
mod reasons;
mod subject;
mod to_plain;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atoll_abi::NODE_LINK;
use atoll_datapath::DropReason;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::fabric::{Node, Pod, State};

pub(crate) use judge::REDIRECT;
use judge::{Outcome, found};
use subject::{Packet, Subject, Tunnel, maps};
pub(crate) use subject::{classifier, load, run};

/// A node that is there in what the others know, and nowhere else: nothing is sent.
const ANOTHER_NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 77, 2));

/// What should become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Dropped, under this reason.
    Drop(DropReason),
    /// To a pod, with this MAC in place of the gateway's and the packet as it was.
    To([u8; 6]),
    /// To a pod with this MAC, from and to other ends; the sender's port may be any.
    Led([u8; 6], IpAddr, SocketAddr),
    /// Back to the sender, as another packet, under this reason where it is also counted as dropped.
    Answer(Option<DropReason>),
    /// Out of the network: to the outside, or to the agent of the node. From and to these ends; the
    /// sender's port may be any.
    Leaves(IpAddr, SocketAddr),
    /// Left to whoever is next, and at last to the node's own stack, as it came.
    Pass,
    /// The same with other ends.
    PassLed(IpAddr, SocketAddr),
}

impl Verdict {
    fn reason(self) -> Option<DropReason> {
        match self {
            Verdict::Drop(reason) => Some(reason),
            Verdict::Answer(reason) => reason,
            Verdict::To(_) | Verdict::Led(..) | Verdict::Leaves(..) => None,
            Verdict::Pass | Verdict::PassLed(..) => None,
        }
    }
}

/// One row: what it is, the packet, and what becomes of it.
type Row<P = Packet> = (&'static str, P, Verdict);

/// A program, and the reasons of the rows that it was held to.
struct Table {
    subject: Arc<Mutex<Subject>>,
    reasons: RefCell<BTreeSet<DropReason>>,
}

impl Table {
    fn of(subject: Subject) -> Self {
        Table { subject: Arc::new(Mutex::new(subject)), reasons: RefCell::default() }
    }

    /// A program that a node has loaded; packets come to it by the link `link`.
    fn on(node: &Node, program: &'static str, link: &str) -> Self {
        let link = ifindex(node, link);
        let find = move |state: &mut State| Subject::in_force(&maps(state), "drops", program, link);
        Self::of(node.run(find))
    }

    /// `from_pod` at an interface that has so much time to spend on each question.
    fn asking(node: &Node, link: &str, question: Duration) -> Self {
        let (own, link) = (ifindex(node, NODE_LINK), ifindex(node, link));
        Self::of(node.run(move |state| Subject::asking(state, own, link, question)))
    }

    /// Runs every row on the node, in order, and says which went wrong.
    fn hold<P: Into<Packet>>(&self, node: &Node, rows: Vec<Row<P>>) {
        self.judge(rows, |subject, packets| {
            node.run(move |state| subject.lock().unwrap().run_all(&packets, || counts(state)))
        });
    }

    /// The same wherever `run` runs them.
    fn judge<P: Into<Packet>>(
        &self,
        rows: Vec<Row<P>>,
        run: impl FnOnce(Arc<Mutex<Subject>>, Vec<Packet>) -> Vec<Outcome>,
    ) {
        let rows: Vec<Row> = rows.into_iter().map(|(name, it, to)| (name, it.into(), to)).collect();
        self.reasons.borrow_mut().extend(rows.iter().filter_map(|(_, _, it)| it.reason()));
        let packets = rows.iter().map(|(_, packet, _)| packet.clone()).collect();
        let outcomes = run(Arc::clone(&self.subject), packets);
        let wrong = rows.iter().zip(&outcomes).filter_map(|((name, packet, expected), outcome)| {
            let found = found(&packet.frame, outcome);
            (found != Some(*expected))
                .then(|| format!("{name}: {found:?}, not {expected:?} ({outcome:?})"))
        });
        assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
    }

    /// The rows since the last time dropped packets for these reasons and no others.
    fn reasons_are(&self, said: &[DropReason]) {
        assert_eq!(self.reasons.take(), said.iter().copied().collect(), "those of the rows");
    }
}

impl Pod {
    /// Has its own kernel say nothing, which would be counted beside what a test runs.
    fn silence(&self) {
        self.namespace.ip("link set eth0 down");
    }
}

/// A scene that the tables of one program share, one after the other: to make one takes longer than all
/// their rows. It goes with the process.
type Shared<T> = LazyLock<Mutex<T>>;

/// The scene, also after another table found something wrong.
fn of<T>(shared: &Shared<T>) -> MutexGuard<'_, T> {
    raise_descriptors();
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As many as may be: scenes that stay have theirs beside those of other tests.
fn raise_descriptors() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
}

/// The index of a link of a node.
fn ifindex(node: &Node, link: &str) -> u32 {
    let shown = node.namespace.ip(&format!("-o link show {link}"));
    shown.split(':').next().unwrap().parse().unwrap()
}

/// The drops of every reason, by number.
fn counts(state: &State) -> Vec<u64> {
    let drops = state.datapath.as_ref().unwrap().drops().unwrap();
    let of = |reason: &DropReason| {
        let own = drops.iter().filter(|drop| drop.reason == *reason);
        own.map(|drop| drop.packets).sum()
    };
    DropReason::ALL.iter().map(of).collect()
}

/// A frame with other bytes at a place.
fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}
