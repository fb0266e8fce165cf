//! Doors to the outside that were opened to the pods of another network: these reach the service as any
//! client outside does, wherever they, the backend and the node that is spoken to are. A third network
//! never does.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use atoll_datapath::DropReason;
use atoll_testkit::{Hears, eventually};

use crate::balancers::exchange;
use crate::fabric::network;
use crate::openings_stage::{
    INVITED, Layout, NODE_PORT, NODES, OPEN, PORT, STRANGER, Scene, TARGET, edge, face, voice,
};
use crate::outside::FAR;
use crate::talk::{BRIEF, LIMIT, await_refusal, connect, listen, udp};

fn places() -> impl Iterator<Item = (usize, usize)> {
    (0..NODES).flat_map(|one| (0..NODES).map(move |other| (one, other)))
}

#[test]
fn who_was_invited_reaches_a_load_balancer_wherever_its_node_and_the_backend_are() {
    let scene = Scene::laid_out(OPEN);
    for (holder, behind) in places() {
        let layout = Layout { holder, behind: Some(behind), ..OPEN };
        scene.lay_out(layout);
        for far in FAR {
            scene.try_tcp(layout, SocketAddr::new(edge(far), PORT));
        }
    }
    scene.check_kernels();
}

#[test]
fn who_was_invited_reaches_a_port_of_every_node_wherever_the_backend_is() {
    let scene = Scene::laid_out(OPEN);
    for behind in 0..NODES {
        let layout = Layout { behind: Some(behind), ..OPEN };
        scene.lay_out(layout);
        for at in FAR.into_iter().flat_map(|far| scene.nodes(far)) {
            scene.try_tcp(layout, SocketAddr::new(at, NODE_PORT));
        }
    }
    scene.check_kernels();
}

#[test]
fn a_network_that_leaves_by_an_address_of_its_own_is_seen_by_it_wherever_that_is() {
    let scene = Scene::laid_out(OPEN);
    for (exit, holder) in places() {
        let layout = Layout { exit: Some(exit), holder, behind: Some(1), ..OPEN };
        scene.lay_out(layout);
        for far in FAR {
            scene.try_tcp(layout, SocketAddr::new(edge(far), PORT));
            scene.try_tcp(layout, SocketAddr::new(scene.nodes(far)[holder], NODE_PORT));
        }
    }
    scene.check_kernels();
}

/// A question of this size reaches the backend at `at`, and the answer comes from there.
fn ask(client: &UdpSocket, server: &UdpSocket, at: SocketAddr, size: usize) {
    let sent: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
    let mut heard = vec![0; 8000];
    client.send_to(&sent, at).unwrap();
    let (length, seen) = server.hear_from(&mut heard).unwrap();
    assert!(heard[..length] == sent, "what arrived at {at} is not what was sent");
    server.send_to(&sent, seen).unwrap();
    assert_eq!(client.hear_from(&mut heard).unwrap(), (size, at));
}

#[test]
fn datagrams_pass_both_ways_also_in_fragments_and_a_stranger_is_not_heard() {
    let scene = Scene::laid_out(OPEN);
    for (from, (holder, behind)) in (40_000..).zip([(0, 0), (0, 1), (1, 0), (1, 2)]) {
        scene.lay_out(Layout { holder, behind: Some(behind), ..OPEN });
        for far in FAR {
            let server = udp(voice(&scene.backends[behind], far), TARGET);
            let client = udp(scene.invited(far), from);
            for at in [(edge(far), PORT), (scene.nodes(far)[holder], NODE_PORT)] {
                ask(&client, &server, at.into(), 5);
                ask(&client, &server, at.into(), 5000);
                let before = scene.closed(STRANGER);
                udp(scene.stranger(far), from).send_to(b"hello", at).unwrap();
                eventually("it is dropped", || (scene.closed(STRANGER) > before).then_some(()));
            }
            server.set_read_timeout(Some(BRIEF)).unwrap();
            server.hear_from(&mut [0; 16]).unwrap_err();
        }
    }
}

#[test]
fn where_nobody_takes_a_connection_the_client_is_refused_at_once() {
    let scene = Scene::laid_out(OPEN);
    for holder in [0, 1] {
        scene.lay_out(Layout { holder, behind: None, ..OPEN });
        for far in FAR {
            for at in [(edge(far), PORT), (scene.nodes(far)[holder], NODE_PORT)] {
                let refused = connect(scene.invited(far), 0, at.into(), LIMIT).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{at:?}");
                let asker = udp(scene.invited(far), 0);
                asker.connect(at).unwrap();
                await_refusal(&asker);
                scene.is_kept_out(scene.stranger(far), at.into());
            }
        }
    }
}

#[test]
fn exactly_the_port_is_open_and_nothing_else_at_the_address() {
    let scene = Scene::laid_out(OPEN);
    for (far, holder) in FAR.into_iter().flat_map(|far| [(far, 0), (far, 1)]) {
        let layout = Layout { holder, ..OPEN };
        scene.lay_out(layout);
        let [own, other, _] = scene.nodes(far);
        scene.try_tcp(layout, SocketAddr::new(edge(far), PORT));
        for (ip, port) in [
            (edge(far), PORT + 1),
            (edge(far), NODE_PORT),
            (own, PORT),
            (own, 10_250),
            (other, PORT),
            (other, NODE_PORT + 1),
            (face(STRANGER, far), PORT),
        ] {
            scene.is_kept_out(scene.invited(far), SocketAddr::new(ip, port));
        }
    }
}

/// Whether what is written still gets answers.
fn goes_on(mut ours: &TcpStream, mut theirs: &TcpStream) -> bool {
    ours.write_all(b"still there?").unwrap();
    theirs.set_read_timeout(Some(BRIEF)).unwrap();
    theirs.read_exact(&mut [0; 12]).is_ok()
}

#[test]
fn what_is_closed_again_ends_open_connections_and_lets_nobody_in_until_it_is_opened_anew() {
    let scene = Scene::laid_out(OPEN);
    for (far, holder) in FAR.into_iter().flat_map(|far| [(far, 0), (far, 1)]) {
        let layout = Layout { holder, behind: Some(2), ..OPEN };
        scene.lay_out(layout);
        let listener = listen(voice(&scene.backends[2], far), TARGET);
        for at in [(edge(far), PORT), (scene.nodes(far)[holder], NODE_PORT)] {
            let at = SocketAddr::from(at);
            let ours = connect(scene.invited(far), 0, at, LIMIT).unwrap();
            let (theirs, _) = listener.accept().unwrap();
            assert!(goes_on(&ours, &theirs), "{at} is open");
            scene.lay_out(Layout { is_open: false, ..layout });
            assert!(!goes_on(&ours, &theirs), "{at} was closed");
            scene.is_kept_out(scene.invited(far), at);
            scene.lay_out(layout);
            let anew = connect(scene.invited(far), 0, at, LIMIT).unwrap();
            exchange(&anew, &listener.accept().unwrap().0);
        }
    }
}

#[test]
fn a_network_without_egress_reaches_nothing_that_was_opened_to_it() {
    let scene = Scene::laid_out(OPEN);
    let invited = network(INVITED);
    for far in FAR {
        scene.try_tcp(OPEN, SocketAddr::new(edge(far), PORT));
    }
    scene.fabric.nodes[0].plan.lock().unwrap().egress.remove(&invited);
    scene.fabric.converge();
    for at in FAR.into_iter().flat_map(|far| [(edge(far), PORT), (scene.nodes(far)[0], NODE_PORT)])
    {
        let dropped = || scene.fabric.nodes[0].dropped(Some(invited), DropReason::NoEndpoint);
        let before = dropped();
        connect(scene.invited(at.0), 0, at.into(), BRIEF).unwrap_err();
        assert!(dropped() > before, "{at:?}");
    }
}
