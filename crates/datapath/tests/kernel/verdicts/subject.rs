//! A program under test, and how a packet comes to it.
//!
//! The rule: the program is the very one that the node has loaded, with the constants that it has. What
//! no bytes of a packet can say, the tunnel that it came by and a tag that the card took off, is set by a
//! program before it (`envelope.bpf.c`).

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_abi::LAYOUT_VERSION;
use atoll_datapath::DropReason;
use aya::maps::{Array, MapInfo, ProgramArray};
use aya::programs::{
    ProgramFd, ProgramInfo, SchedClassifier, TestRun, TestRunOptions, loaded_programs,
};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use super::judge::Outcome;
use crate::fabric::State;

/// The offset of the interface's index in what the kernel gives a program, and the size of that.
const IFINDEX_AT: usize = 40;
const CONTEXT_SIZE: usize = 192;

/// What the nodes of a fabric give pods.
const POD_MTU: u32 = 1450;

static ENVELOPE: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/envelope.o"));
static FROM_POD: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/from_pod.o"));

/// The tunnel that a packet came by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tunnel {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) network: u32,
}

/// A packet, and how it comes.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) frame: Vec<u8>,
    pub(super) tunnel: Option<Tunnel>,
    pub(super) tag: Option<u16>,
    /// Another link than the program's own.
    pub(super) link: Option<u32>,
}

impl From<Vec<u8>> for Packet {
    fn from(frame: Vec<u8>) -> Self {
        Packet { frame, tunnel: None, tag: None, link: None }
    }
}

impl Packet {
    pub(super) fn tagged(self, tag: u16) -> Self {
        Packet { tag: Some(tag), ..self }
    }

    pub(super) fn by_link(self, link: u32) -> Self {
        Packet { link: Some(link), ..self }
    }

    pub(super) fn by(self, tunnel: Tunnel) -> Self {
        Packet { tunnel: Some(tunnel), ..self }
    }

    /// As the program before reads it.
    fn letter(&self) -> [u32; 12] {
        let mut letter = [0; 12];
        letter[3] = self.tag.unwrap_or_default().into();
        if let Some(tunnel) = self.tunnel {
            letter[..3].copy_from_slice(&[1, tunnel.from.is_ipv6().into(), tunnel.network]);
            letter[4..8].copy_from_slice(&words(tunnel.from));
            letter[8..].copy_from_slice(&words(tunnel.to));
        }
        letter
    }
}

fn words(ip: IpAddr) -> [u32; 4] {
    match ip {
        IpAddr::V4(ip) => [ip.to_bits(), 0, 0, 0],
        IpAddr::V6(ip) => bytemuck::cast(ip.octets()),
    }
}

pub(super) struct Subject {
    envelope: Ebpf,
    link: u32,
    /// The program where it was loaded for this alone; it lives as long.
    _own: Option<Ebpf>,
}

impl Subject {
    /// The very program `name` that is loaded on the maps in `dir`, of which `drops` is one.
    pub(super) fn in_force(dir: &Path, drops: &str, name: &str, link: u32) -> Self {
        let map = MapInfo::from_pin(dir.join(drops)).unwrap().id();
        let has_map = |info: &ProgramInfo| {
            info.map_ids().is_ok_and(|ids| ids.is_some_and(|ids| ids.contains(&map)))
        };
        let named = |info: &ProgramInfo| info.name_as_str() == Some(name);
        let found = loaded_programs().flatten().find(|info| named(info) && has_map(info));
        Self::before(&found.unwrap().fd().unwrap(), link, None)
    }

    /// `from_pod` on the maps of a node, where each question of a pod costs so much time.
    pub(super) fn asking(state: &State, node: u32, link: u32, question: Duration) -> Self {
        let nanos = u64::try_from(question.as_nanos()).unwrap();
        let mut loader = EbpfLoader::new();
        loader
            .default_map_pin_directory(maps(state))
            .override_global("NODE_IFINDEX", &node, false)
            .override_global("POD_MTU", &POD_MTU, false)
            .override_global("QUESTION_NANOS", &nanos, false);
        let mut object = loader.load(FROM_POD).unwrap();
        let program = classifier(&mut object, "from_pod");
        program.load().unwrap();
        let fd = program.info().unwrap().fd().unwrap();
        Self::before(&fd, link, Some(object))
    }

    fn before(program: &ProgramFd, link: u32, own: Option<Ebpf>) -> Self {
        let mut envelope = Ebpf::load(ENVELOPE).unwrap();
        classifier(&mut envelope, "envelope").load().unwrap();
        let mut subjects = ProgramArray::try_from(envelope.map_mut("subjects").unwrap()).unwrap();
        subjects.set(0, program, 0).unwrap();
        Subject { envelope, link, _own: own }
    }

    /// What becomes of each packet, in order. `counts` are the drops of every reason by number.
    pub(super) fn run_all(
        &mut self,
        packets: &[Packet],
        counts: impl Fn() -> Vec<u64>,
    ) -> Vec<Outcome> {
        let run = |packet| {
            let before = counts();
            let (code, out) = self.run(packet);
            let after = counts();
            let changed = DropReason::ALL.iter().zip(before.iter().zip(&after));
            let counted = changed.filter(|(_, (was, is))| is > was).map(|(it, _)| *it).collect();
            Outcome { code, out, counted }
        };
        packets.iter().map(run).collect()
    }

    fn run(&mut self, packet: &Packet) -> (u32, Vec<u8>) {
        let letters = self.envelope.map_mut("letters").unwrap();
        let mut letters: Array<_, [u32; 12]> = letters.try_into().unwrap();
        letters.set(0, packet.letter(), 0).unwrap();
        let link = packet.link.unwrap_or(self.link);
        run(classifier(&mut self.envelope, "envelope"), link, &packet.frame)
    }
}

/// `from_pod`, loaded a second time on the node's own maps.
pub(crate) fn load(state: &State) -> Ebpf {
    let mut loader = EbpfLoader::new();
    loader
        .default_map_pin_directory(maps(state))
        .override_global("OVERLAY_IFINDEX", &1_u32, false)
        .override_global("POD_MTU", &POD_MTU, false);
    let mut object = loader.load(FROM_POD).unwrap();
    classifier(&mut object, "from_pod").load().unwrap();
    object
}

/// Where a node's maps are.
pub(super) fn maps(state: &State) -> PathBuf {
    state.config.bpf_root.join(format!("v{LAYOUT_VERSION}/maps"))
}

pub(crate) fn classifier<'a>(object: &'a mut Ebpf, program: &str) -> &'a mut SchedClassifier {
    object.program_mut(program).unwrap().try_into().unwrap()
}

/// What a program says of a frame from the interface, and what it made of it.
pub(crate) fn run(program: &SchedClassifier, ifindex: u32, frame: &[u8]) -> (u32, Vec<u8>) {
    let mut context = vec![0; CONTEXT_SIZE];
    context[IFINDEX_AT..IFINDEX_AT + 4].copy_from_slice(&ifindex.to_ne_bytes());
    let mut out = vec![0; 4096];
    let mut options = TestRunOptions::new();
    options.data_in = Some(frame);
    options.data_out = Some(&mut out);
    options.ctx_in = Some(&context);
    let result = program.test_run(options).unwrap();
    let size = result.data_size_out as usize;
    out.truncate(size);
    (result.return_value, out)
}
