//! Another version comes, and the one before it comes back, while pods talk: agents are exchanged for
//! another program in its place, and for the first again.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use atoll_datapath::DropReason;
use atoll_testkit::eventually;
use atoll_testkit::load::{Load, Party};
use tempfile::TempDir;

use crate::fixture::{Lab, end_agent_and_await_the_next};
use crate::threats::{NODES, Player, Stage, assert_silence};

/// Where a lab has its program from, which can be exchanged there.
pub(crate) struct Shelf(TempDir);

impl Shelf {
    /// With the program that is tested.
    pub(crate) fn new() -> Self {
        let shelf = Shelf(tempfile::tempdir().unwrap());
        shelf.put_the_first();
        shelf
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.0.path().join("atoll")
    }

    /// The program that is tested, in a file of its own.
    pub(crate) fn put_the_first(&self) {
        self.put(b"");
    }

    /// None: no agent can start.
    pub(crate) fn clear(&self) {
        fs::remove_file(self.program()).unwrap();
    }

    /// One that is another, to whoever compares.
    pub(crate) fn put_another(&self) {
        self.put(b"another");
    }

    fn put(&self, more: &[u8]) {
        let next = self.0.path().join("next");
        fs::copy(env!("CARGO_BIN_EXE_atoll"), &next).unwrap();
        OpenOptions::new().append(true).open(&next).unwrap().write_all(more).unwrap();
        fs::rename(next, self.program()).unwrap();
    }

    /// Ends a node's agent by a signal; the next one is what lies on the shelf.
    pub(crate) fn exchange(&self, lab: &Lab, node: &str, signal: &str) {
        end_agent_and_await_the_next(lab, node, signal);
        let pid = lab.agent_pid(node).unwrap();
        let run = fs::metadata(format!("/proc/{pid}/exe")).unwrap().ino();
        assert_eq!(run, fs::metadata(self.program()).unwrap().ino(), "{node} runs another file");
    }
}

fn party(player: &Player) -> Party<'_> {
    Party { namespace: &player.namespace, face: player.face }
}

/// Pods talk and forge while this happens: nothing is lost, nothing leaks, and every counter goes on.
pub(crate) fn nothing_is_lost_or_leaks_while(stage: &Stage, disturb: impl FnOnce()) {
    let counted =
        || stage.dropped("node1", Some("globex.default"), DropReason::SpoofedAddress.name());
    let (before, unheard) = (counted(), stage.twin.packets());
    let load = Load {
        sender: party(&stage.near),
        receiver: party(&stage.far),
        forger: party(&stage.foreign),
    };
    let sent = load.goes_on_while(disturb);
    assert_silence(&unheard, "the node is disturbed");
    eventually(&format!("all {} forged packets are counted", sent.forged), || {
        (counted() >= before + sent.forged).then_some(())
    });
}

#[test]
fn agents_exchanged_for_another_program_and_back_under_load_lose_and_leak_nothing() {
    let shelf = Shelf::new();
    let stage = Stage::set_in(Lab::up_from(&shelf.program(), 3));
    nothing_is_lost_or_leaks_while(&stage, || {
        for put in [Shelf::put_another, Shelf::put_the_first] {
            put(&shelf);
            NODES.iter().for_each(|node| shelf.exchange(&stage.lab, node, "-TERM"));
        }
    });
    stage.lab.reach("acme/near", "tcp", "10.0.0.7:8080").good();
}
