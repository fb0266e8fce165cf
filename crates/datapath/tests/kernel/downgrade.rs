//! A version that comes after a newer one, under ten thousand packets a second. On the same layout it
//! takes over, and back. What it cannot read it refuses with a sentence: packets go on by the programs
//! and maps that are there, none is lost, none leaks, and nothing is reset.

use std::path::PathBuf;

use atoll_abi::LAYOUT_VERSION;
use atoll_datapath::{Attachment, Datapath, DatapathError};
use aya::maps::HashMap;
use aya::programs::links::{FdLink, PinnedLink};

use crate::fabric::{Node, POD_QUESTIONS, State, attachments, network};
use crate::talk::converse;
use crate::under_load::{Scene, nothing_is_lost_and_nothing_leaks, scene};
use crate::upgrade::layout;

/// What another version's programs have otherwise: a constant, and with it their code.
const OTHERWISE: u32 = POD_QUESTIONS / 2;

/// The numbers of the tunnel's program link and of the program in it.
fn at_tunnel(state: &State) -> (u32, u32) {
    let pin = layout(state, LAYOUT_VERSION).join("links/atoll-vx");
    let info = FdLink::from(PinnedLink::from_pin(pin).unwrap()).info().unwrap();
    (info.id(), info.program_id())
}

/// Has a version take over whose programs are told this.
fn come(node: &Node, questions: u32) {
    node.run(move |state| {
        state.config.pod_questions = questions;
        state.open();
    });
}

#[test]
fn other_programs_on_the_same_maps_take_over_and_back_and_lose_and_leak_nothing() {
    for attachment in attachments() {
        let scene = scene(attachment);
        let nodes = &scene.fabric.nodes;
        let before =
            (attachment == Attachment::Tcx).then(|| nodes[0].run(|state| at_tunnel(state)));
        let forged = nothing_is_lost_and_nothing_leaks(&scene, || {
            for questions in [OTHERWISE, POD_QUESTIONS, OTHERWISE, POD_QUESTIONS] {
                nodes.iter().for_each(|node| come(node, questions));
            }
        });
        scene.await_counted(forged);
        if let Some((link, program)) = before {
            let now = nodes[0].run(|state| at_tunnel(state));
            assert!(now.0 == link && now.1 != program, "replaced in its place: {now:?}");
        }
        converse(&scene.sender, &scene.far);
    }
}

/// Opens what is there, which must be refused, and be as it was afterwards.
fn is_refused(state: &mut State, expected: fn(&DatapathError) -> bool) {
    let before = state.bpf.files();
    let error = state.runtime.block_on(Datapath::open(&state.config)).unwrap_err();
    assert!(expected(&error), "{error}");
    assert_eq!(state.bpf.files(), before);
}

/// Under load, makes the first node look as a newer version left it, has this one refuse it, and the newer
/// one come back; some times.
fn is_refused_under_load(
    turn_on: fn(&State),
    turn_back: fn(&State),
    expected: fn(&DatapathError) -> bool,
) {
    let scene = scene(attachments()[0]);
    let forged = nothing_is_lost_and_nothing_leaks(&scene, || {
        for _ in 0..3 {
            scene.fabric.nodes[0].run(move |state| {
                state.datapath = None;
                turn_on(state);
                is_refused(state, expected);
                is_refused(state, expected);
                turn_back(state);
                state.open();
            });
        }
    });
    nothing_was_reset(&scene, forged);
}

/// Every forged packet is counted still, and the connection that all packets were of is there.
fn nothing_was_reset(scene: &Scene, forged: u64) {
    scene.await_counted(forged);
    let known = scene.fabric.nodes[0].connections(network(100));
    assert!(known.iter().any(|it| it.client.port() == 1000 && it.server.port() == 2000));
    converse(&scene.sender, &scene.far);
}

const NEWER: u32 = LAYOUT_VERSION + 1;

#[test]
fn a_newer_layout_is_refused_under_load_and_everything_goes_on_as_before() {
    is_refused_under_load(
        |state| std::fs::rename(layout(state, LAYOUT_VERSION), layout(state, NEWER)).unwrap(),
        |state| std::fs::rename(layout(state, NEWER), layout(state, LAYOUT_VERSION)).unwrap(),
        |error| matches!(error, DatapathError::OtherLayout(_)),
    );
}

/// Where the map of nodes is pinned, and where it is kept while another is there.
fn peers(state: &State) -> [PathBuf; 2] {
    [layout(state, LAYOUT_VERSION).join("maps/peers"), state.config.bpf_root.join("peers")]
}

#[test]
fn a_map_of_another_shape_is_refused_under_load_and_everything_goes_on_as_before() {
    is_refused_under_load(
        |state| {
            let [at, kept] = peers(state);
            std::fs::rename(&at, kept).unwrap();
            HashMap::<_, [u8; 4], [u8; 4]>::create(1, 1).unwrap().pin(at).unwrap();
        },
        |state| {
            let [at, kept] = peers(state);
            std::fs::remove_file(&at).unwrap();
            std::fs::rename(kept, at).unwrap();
        },
        |error| matches!(error, DatapathError::WrongMap { .. }),
    );
}
