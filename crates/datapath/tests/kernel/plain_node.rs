//! Services of no tenant's namespaces for the node's own processes: a socket of the node speaks to an
//! address that nobody has, and one of those behind it answers. Each case in both families.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use atoll_datapath::PlainServices;
use atoll_testkit::{Hears, Namespace, Stops, eventually};
use aya::programs::links::{FdLink, PinnedLink};

use crate::plain_stage::{
    BOTH, Host, Stage, TARGET, accept, accept_any, ask, exchange, front, listen, open, udp,
};
use crate::talk::LIMIT;

/// A node whose own processes are led to exactly these.
fn leading(chosen: impl Fn(&Stage) -> Vec<&Host>) -> Stage {
    let stage = Stage::serving(chosen);
    stage.worker.run(|state| state.plain.serve_node().unwrap());
    stage
}

fn connect(from: &Namespace, to: SocketAddr) -> io::Result<TcpStream> {
    from.run(|| {
        let stream = TcpStream::connect_timeout(&to, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(stream)
    })
}

fn any(v4: bool) -> IpAddr {
    if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// A socket that is bound to no address and connected to nobody.
fn asker(from: &Namespace, v4: bool) -> UdpSocket {
    let socket = from.run(|| UdpSocket::bind((any(v4), 0)).unwrap());
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

fn straight(host: &Host, v4: bool) -> SocketAddr {
    SocketAddr::new(host.ip(v4), TARGET)
}

fn is_refused<T: std::fmt::Debug>(outcome: io::Result<T>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

/// Whoever is not led has no way to the service's address.
fn is_not_led<T: std::fmt::Debug>(outcome: io::Result<T>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable, "{error}");
}

#[test]
fn the_nodes_processes_are_led_to_pods_and_machines_and_see_the_service() {
    let backends: [fn(&Stage) -> Vec<&Host>; 2] =
        [|stage| vec![&stage.near], |stage| vec![&stage.far]];
    for chosen in backends {
        let stage = leading(chosen);
        let server = chosen(&stage)[0];
        for v4 in BOTH {
            let listener = listen(server, v4);
            let ours = connect(&stage.node, front(v4)).unwrap();
            assert_eq!(ours.peer_addr().unwrap(), front(v4));
            let (theirs, from) = accept(&listener);
            assert_eq!(from, ours.local_addr().unwrap());
            exchange(&ours, &theirs, 100_000);
            let (asker, answerer) = (asker(&stage.node, v4), udp(server, v4, TARGET));
            for _ in 0..3 {
                let from = ask(&asker, &answerer, front(v4), 64);
                assert_eq!(from.port(), asker.local_addr().unwrap().port());
            }
        }
    }
}

#[test]
fn a_datagram_socket_that_is_connected_to_a_service_hears_the_service() {
    let stage = leading(|stage| vec![&stage.far]);
    for v4 in BOTH {
        let (asker, answerer) = (asker(&stage.node, v4), udp(&stage.far, v4, TARGET));
        asker.connect(front(v4)).unwrap();
        assert_eq!(asker.peer_addr().unwrap(), front(v4));
        asker.send(b"?").unwrap();
        let (mut heard, mut answer) = ([0; 8], [0; 8]);
        let (_, from) = answerer.hear_from(&mut heard).unwrap();
        assert_eq!(from, asker.local_addr().unwrap());
        answerer.send_to(b"!", from).unwrap();
        assert_eq!(asker.hear_from(&mut answer).unwrap(), (1, front(v4)));
    }
}

/// An address of IPv4 as a socket of IPv6 says it.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

#[test]
fn a_socket_of_both_families_is_led_by_either() {
    let stage = leading(|stage| vec![&stage.near]);
    for v4 in BOTH {
        let to = mapped(front(v4));
        let listener = listen(&stage.near, v4);
        let ours = connect(&stage.node, to).unwrap();
        assert_eq!(ours.peer_addr().unwrap(), to);
        exchange(&ours, &accept(&listener).0, 1000);
        let (asker, answerer) = (asker(&stage.node, false), udp(&stage.near, v4, TARGET));
        ask(&asker, &answerer, to, 64);
    }
}

#[test]
fn a_service_that_nobody_stands_behind_refuses_the_nodes_processes_at_once() {
    let stage = leading(|stage| vec![&stage.near]);
    for v4 in BOTH {
        let _listener = listen(&stage.near, v4);
        connect(&stage.node, front(v4)).unwrap();
    }
    stage.serve_nobody();
    for v4 in BOTH {
        is_refused(connect(&stage.node, front(v4)));
        let asker = asker(&stage.node, v4);
        is_refused(asker.send_to(b"?", front(v4)));
        is_refused(asker.connect(front(v4)));
    }
}

#[test]
fn nodes_of_one_kernel_lead_their_own_processes_and_nobody_elses() {
    let stages = [leading(|stage| vec![&stage.near]), leading(|stage| vec![&stage.near])];
    let unled = Stage::serving(|stage| vec![&stage.near]);
    for v4 in BOTH {
        let listeners = stages.each_ref().map(|stage| listen(&stage.near, v4));
        for (place, stage) in stages.iter().enumerate() {
            let _ours = connect(&stage.node, front(v4)).unwrap();
            assert_eq!(accept_any(&[&listeners[0], &listeners[1]]).0, place);
            is_not_led(connect(&stage.far.namespace, front(v4)));
            is_not_led(asker(&stage.far.namespace, v4).send_to(b"?", front(v4)));
        }
        is_not_led(connect(&unled.node, front(v4)));
    }
}

#[test]
fn what_a_process_says_to_no_service_goes_where_it_was_sent() {
    let stage = leading(|stage| vec![&stage.near]);
    for v4 in BOTH {
        let listener = listen(&stage.near, v4);
        let ours = connect(&stage.node, straight(&stage.near, v4)).unwrap();
        assert_eq!(ours.peer_addr().unwrap(), straight(&stage.near, v4));
        exchange(&ours, &accept(&listener).0, 1000);
        let (asker, answerer) = (asker(&stage.node, v4), udp(&stage.near, v4, TARGET));
        for to in [straight(&stage.near, v4), front(v4), straight(&stage.near, v4), front(v4)] {
            ask(&asker, &answerer, to, 64);
        }
    }
}

#[test]
fn a_process_keeps_its_stream_and_its_datagrams_move_with_the_service() {
    let stage = leading(|stage| vec![&stage.near]);
    for v4 in BOTH {
        stage.serve(&[&stage.near], None);
        let listener = listen(&stage.near, v4);
        let [near, far] = [&stage.near, &stage.far].map(|host| udp(host, v4, TARGET));
        let ours = connect(&stage.node, front(v4)).unwrap();
        let (theirs, _) = accept(&listener);
        let asker = asker(&stage.node, v4);
        for _ in 0..3 {
            ask(&asker, &near, front(v4), 64);
        }
        stage.serve(&[&stage.far], None);
        exchange(&ours, &theirs, 1000);
        ask(&asker, &far, front(v4), 64);
        stage.serve_nobody();
        exchange(&ours, &theirs, 1000);
        assert_eq!(ours.peer_addr().unwrap(), front(v4));
    }
}

#[test]
fn processes_are_spread_and_kept_together_where_the_service_says_so() {
    let stage = leading(|stage| vec![&stage.near, &stage.far]);
    for v4 in BOTH {
        let (near, far) = (listen(&stage.near, v4), listen(&stage.far, v4));
        let led_to_near = || {
            let led = (0..40).filter(|_| {
                let _ours = connect(&stage.node, front(v4)).unwrap();
                accept_any(&[&near, &far]).0 == 0
            });
            led.count()
        };
        stage.serve(&[&stage.near, &stage.far], None);
        let apart = led_to_near();
        assert!((1..40).contains(&apart), "{apart} of 40");
        stage.serve(&[&stage.near, &stage.far], Some(Duration::from_secs(3600)));
        let together = led_to_near();
        assert!(together == 0 || together == 40, "{together} of 40");
    }
}

/// The numbers of the links that are pinned, and of their programs.
fn links(root: &Path) -> Vec<(u32, u32)> {
    let links = std::fs::read_dir(root.join("plain/links")).unwrap();
    let mut links: Vec<_> = links.map(|link| link.unwrap().path()).collect();
    links.sort();
    let info = |link: PathBuf| {
        let info = FdLink::from(PinnedLink::from_pin(link).unwrap()).info().unwrap();
        (info.id(), info.program_id())
    };
    links.into_iter().map(info).collect()
}

/// Connects one after the other until told to end, and counts.
fn go_on_connecting(node: &Namespace, listener: &TcpListener, end: &AtomicBool, made: &AtomicU32) {
    while !end.load(Ordering::Relaxed) {
        let _ours = connect(node, front(true)).unwrap();
        accept(listener);
        made.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_agent_that_starts_again_replaces_the_nodes_programs_and_no_process_notices() {
    let stage = leading(|stage| vec![&stage.far]);
    let listener = listen(&stage.far, true);
    let (end, made) = (AtomicBool::new(false), AtomicU32::new(0));
    let await_more = || {
        let before = made.load(Ordering::Relaxed);
        eventually("more are led", || (made.load(Ordering::Relaxed) > before + 1).then_some(()));
    };
    std::thread::scope(|scope| {
        let _stops = Stops(&end);
        let going_on = scope.spawn(|| go_on_connecting(&stage.node, &listener, &end, &made));
        for _ in 0..3 {
            await_more();
            let (before, after) = stage.worker.run(|state| {
                let before = links(&state.root);
                state.plain = state.runtime.block_on(open(&state.root));
                state.plain.serve_node().unwrap();
                (before, links(&state.root))
            });
            assert_eq!((before.len(), after.len()), (8, 8));
            for (before, after) in before.iter().zip(&after) {
                assert_eq!(before.0, after.0, "another link");
                assert_ne!(before.1, after.1, "the same program");
            }
            await_more();
        }
        end.store(true, Ordering::Relaxed);
        going_on.join().unwrap();
    });
}

#[test]
fn withdrawn_the_nodes_processes_are_led_no_more_and_nothing_is_left() {
    let stage = leading(|stage| vec![&stage.near]);
    let listener = listen(&stage.near, true);
    connect(&stage.node, front(true)).unwrap();
    stage.worker.run(|state| {
        state.runtime.block_on(PlainServices::withdraw(&state.root)).unwrap();
        assert_eq!(state.bpf.files(), Vec::<PathBuf>::new());
    });
    // The kernel lets a link go in its own time.
    eventually("nobody is led", || {
        let outcome = connect(&stage.node, front(true));
        outcome.is_err_and(|error| error.kind() == ErrorKind::NetworkUnreachable).then_some(())
    });
    connect(&stage.node, listener.local_addr().unwrap()).unwrap();
}
