//! What pods notice when the agent of their node dies, or is replaced: packets lost that should have
//! arrived, and packets that arrived though they must not. And what they notice when a node dies.

mod death;

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use atoll_testkit::Namespace;
use atoll_testkit::load::{FORGED, UNDER_WAY, at_a_steady_pace, count, listen, roomy};

use crate::cni::Runtime;
use crate::document::{Judged, Section};
use crate::goal::Goal;
use crate::node::{AgentNode, PlannedPod};
use crate::sample::Sample;
use crate::table::Table;

/// How long packets flow before and after a fault.
const AROUND: Duration = Duration::from_millis(500);
/// What comes later than this after the last packet was sent is lost.
const LATE: Duration = Duration::from_secs(10);
/// How often it is looked whether all has come.
const PAUSE: Duration = Duration::from_millis(2);
const PORT: u16 = 2000;
/// In two tenants' networks: whom packets are for, and at the same address whom they are not for.
const TARGET: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

const NOTES: &str = "\
A node with the real agent and three pods: in one tenant's network a sender and a receiver, and in \
another's a sender with the very address of the first, whose packets to the receiver's address must not \
arrive. Both send ten thousand packets a second. *Killed*: SIGKILL, and started again. *Replaced*: \
asked to end, and another program file started, as an upgrade does.";

/// A fault.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed,
    Replaced,
}

impl Fault {
    const ALL: [Fault; 2] = [Fault::Killed, Fault::Replaced];

    fn name(self) -> &'static str {
        match self {
            Fault::Killed => "agent killed and started again",
            Fault::Replaced => "agent replaced by another program",
        }
    }
}

/// What was seen around one kind of fault.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    sent: u64,
    arrived: u64,
    forged: u64,
    leaked: u64,
    /// Milliseconds until the agent was ready again, by fault.
    away: Vec<f64>,
}

/// Does each fault so many times.
pub(crate) fn measure(atoll: &Path, times: usize) -> Result<Section> {
    let folder = tempfile::tempdir()?;
    let other = folder.path().join("atoll");
    std::fs::copy(atoll, &other).with_context(|| format!("cannot copy {}", atoll.display()))?;
    let mut scene = Scene::set(atoll)?;
    let mut seen = vec![];
    for fault in Fault::ALL {
        eprintln!("faults: {}", fault.name());
        seen.push((fault, scene.around(times, |node| node.suffer(fault, [atoll, &other]))?));
    }
    drop(scene);
    let (dead, moved) = death::measure(atoll, times)?;
    Ok(Section {
        title: "Faults",
        notes: format!("{NOTES}\n\n{}\n\nEach {times} times in a row.", death::NOTES),
        tables: vec![
            ("Under ten thousand packets a second".into(), table(&seen)),
            ("A node dies".into(), dead),
        ],
        plots: vec![],
        judged: seen.iter().flat_map(|(fault, seen)| judge(*fault, seen)).chain(moved).collect(),
    })
}

fn table(seen: &[(Fault, Seen)]) -> Table {
    let columns =
        ["fault", "packets sent", "lost", "forbidden packets sent", "leaked", "ready again ms"];
    let mut table = Table::new(columns);
    for (fault, seen) in seen {
        table.row([
            fault.name().to_owned(),
            seen.sent.to_string(),
            (seen.sent - seen.arrived).to_string(),
            seen.forged.to_string(),
            seen.leaked.to_string(),
            format!("{:.0}", Sample::new(seen.away.iter().copied()).median()),
        ]);
    }
    table
}

fn judge(fault: Fault, seen: &Seen) -> Vec<Judged> {
    let none = |what: &str, count: u64| {
        let what = format!("{}: packets {what}", fault.name());
        Judged::new(what, Goal::AtMost(0.0), &Sample::new([count as f64]))
    };
    vec![none("lost", seen.sent - seen.arrived), none("leaked", seen.leaked)]
}

impl AgentNode {
    fn suffer(&mut self, fault: Fault, programs: [&Path; 2]) -> Result<()> {
        match fault {
            Fault::Killed => self.restart(programs[0]),
            Fault::Replaced => {
                self.end_agent()?;
                self.restart(programs[1])
            }
        }
    }
}

/// A node with three pods.
struct Scene {
    node: AgentNode,
    sender: Arc<Namespace>,
    receiver: Arc<Namespace>,
    stranger: Arc<Namespace>,
}

impl Scene {
    fn set(atoll: &Path) -> Result<Self> {
        let pod = |name: &str, network, ip: Ipv4Addr| PlannedPod { name: name.into(), network, ip };
        let from = Ipv4Addr::new(10, 0, 0, 1);
        let pods = [pod("sender", 1, from), pod("receiver", 1, TARGET), pod("stranger", 2, from)];
        let node = AgentNode::start(atoll, &pods)?;
        let runtime = Runtime::of(atoll, &node)?;
        let [sender, receiver, stranger] = pods.each_ref().map(|pod| runtime.attach(pod));
        Ok(Scene { node, sender: sender?, receiver: receiver?, stranger: stranger? })
    }

    /// Both send while `fault` happens again and again.
    fn around(
        &mut self,
        times: usize,
        fault: impl Fn(&mut AgentNode) -> Result<()>,
    ) -> Result<Seen> {
        let (stop, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let [sent, forged, arrived, leaked] = [const { AtomicU64::new(0) }; 4];
        let server = self.receiver.run(|| UdpSocket::bind(("0.0.0.0", PORT)))?;
        let server = roomy(server);
        let [honest, foreign] = [&self.sender, &self.stranger].map(|pod| pod.run(sender));
        let (honest, foreign) = (honest?, foreign?);
        let has_room = || count(&sent).saturating_sub(count(&arrived)) < UNDER_WAY;
        let mut away = vec![];
        let happened = thread::scope(|scope| -> Result<()> {
            scope.spawn(|| listen(&server, &ended, [&arrived, &leaked]));
            scope.spawn(|| at_a_steady_pace(&stop, &sent, has_room, |_| send(&honest, b"honest")));
            scope.spawn(|| at_a_steady_pace(&stop, &forged, || true, |_| send(&foreign, FORGED)));
            let happened = (0..times).try_for_each(|_| {
                thread::sleep(AROUND);
                let begun = Instant::now();
                fault(&mut self.node)?;
                away.push(begun.elapsed().as_secs_f64() * 1e3);
                thread::sleep(AROUND);
                Ok(())
            });
            stop.store(true, Ordering::Relaxed);
            await_last(&sent, &arrived);
            ended.store(true, Ordering::Relaxed);
            happened
        });
        happened?;
        let [sent, forged, arrived, leaked] =
            [sent, forged, arrived, leaked].map(AtomicU64::into_inner);
        Ok(Seen { sent, arrived, forged, leaked, away })
    }
}

fn sender() -> Result<UdpSocket> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect((TARGET, PORT))?;
    Ok(socket)
}

/// What a closed network makes of it shows at the other end.
fn send(socket: &UdpSocket, word: &[u8]) {
    let _ = socket.send(word);
}

/// Waits until all that was sent arrived, or is late.
fn await_last(sent: &AtomicU64, arrived: &AtomicU64) {
    let since = Instant::now();
    while count(arrived) < count(sent) && since.elapsed() < LATE {
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Verdict;

    #[test]
    fn a_lost_packet_and_a_leaked_one_are_missed_goals() {
        let seen =
            |arrived, leaked| Seen { sent: 10, arrived, forged: 10, leaked, away: vec![1.0] };
        let verdicts = |seen: &Seen| {
            judge(Fault::Killed, seen).iter().map(|it| it.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&seen(10, 0)), [Verdict::Met; 2]);
        assert_eq!(verdicts(&seen(9, 1)), [Verdict::Missed; 2]);
    }
}
