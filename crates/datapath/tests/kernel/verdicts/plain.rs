//! What the tables of plain pods share: how a program of theirs is found, and who sends.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use atoll_datapath::{DropReason, PlainServices};
use atoll_types::MacAddr;

use super::judge::Outcome;
use super::subject::Subject;
use super::{Packet, Row, Table};
use crate::forge::{Face, Origin, packet, summed_datagram, tcp};
use crate::plain_stage::{Host, Stage, State};

/// The port that clients speak from.
pub(super) const CLIENT: u16 = 4000;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// What the first packet of a stream says, and its answer.
pub(super) const OPENS: u8 = 2;
pub(super) const ACCEPTS: u8 = 0x12;

/// A program that is in force on a link of the stage's node.
pub(super) fn table(stage: &Stage, program: &'static str, link: &str) -> Table {
    let shown = stage.node.ip(&format!("-o link show {link}"));
    let link = shown.split(':').next().unwrap().parse().unwrap();
    Table::of(stage.worker.run(move |state| {
        Subject::in_force(&state.root.join("plain"), "plain_drops", program, link)
    }))
}

/// Holds a program to rows.
pub(super) fn hold<P: Into<Packet>>(stage: &Stage, table: &Table, rows: Vec<Row<P>>) {
    let run = |subject: Arc<Mutex<Subject>>, packets: Vec<Packet>| -> Vec<Outcome> {
        let run =
            move |state: &mut State| subject.lock().unwrap().run_all(&packets, || counts(state));
        stage.worker.run(run)
    };
    table.judge(rows, run);
}

fn counts(state: &State) -> Vec<u64> {
    let drops = PlainServices::drops(&state.root).unwrap();
    let of = |reason: &DropReason| {
        drops.iter().filter(|it| it.reason == *reason).map(|it| it.packets).sum()
    };
    DropReason::ALL.iter().map(of).collect()
}

pub(super) fn origin(host: &Host, v4: bool) -> Origin {
    let face = Face { mac: MacAddr::for_ip(host.ip(true)), ip: host.ipv4, ipv6: host.ipv6 };
    Origin { face, ip: host.ip(v4) }
}

/// A datagram of a host from one of its ports.
pub(super) fn datagram(from: Origin, port: u16, to: SocketAddr) -> Vec<u8> {
    packet(from, to.ip(), UDP, &summed_datagram((from.ip, to.ip()), (port, to.port()), b"x"))
}

/// A packet of a stream from one of a host's ports.
pub(super) fn stream(from: Origin, port: u16, to: SocketAddr, flags: u8) -> Vec<u8> {
    packet(from, to.ip(), TCP, &tcp((port, to.port()), flags))
}
