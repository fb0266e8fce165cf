//! Services of plain pods: a pod speaks to an address that nobody has, and one of those behind it answers.
//! Each case in both families.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use atoll_testkit::Hears;

use atoll_datapath::PlainServices;
use atoll_plan::{Backend, PLAIN, Service};
use atoll_types::{NetAddr, Protocol};

use crate::fabric::{Fabric, network};
use crate::plain_stage::{
    BOTH, Host, OUTSIDE, Stage, TARGET, accept, accept_any, ask, connect, exchange, front, key,
    listen, open, udp, vip,
};
use crate::talk::{BRIEF, LIMIT};

#[test]
fn a_service_leads_to_pods_and_machines_which_see_the_clients_own_address() {
    let backends: [fn(&Stage) -> Vec<&Host>; 2] =
        [|stage| vec![&stage.near], |stage| vec![&stage.far]];
    for chosen in backends {
        let stage = Stage::serving(chosen);
        let (client, server) = (&stage.client, chosen(&stage)[0]);
        for v4 in BOTH {
            let listener = listen(server, v4);
            let ours = connect(client, 0, front(v4)).unwrap();
            assert_eq!(ours.peer_addr().unwrap(), front(v4));
            let (theirs, from) = accept(&listener);
            assert_eq!(from, ours.local_addr().unwrap());
            exchange(&ours, &theirs, 300_000);
            let (asker, answerer) = (udp(client, v4, 0), udp(server, v4, TARGET));
            for _ in 0..3 {
                let from = ask(&asker, &answerer, front(v4), 64);
                assert_eq!(from, asker.local_addr().unwrap());
            }
        }
    }
}

#[test]
fn what_is_to_no_service_passes_as_it_is() {
    let stage = Stage::serving(|stage| vec![&stage.far]);
    for v4 in BOTH {
        let listener = listen(&stage.near, v4);
        for other in [&stage.client, &stage.far] {
            let ours = connect(other, 0, SocketAddr::new(stage.near.ip(v4), TARGET)).unwrap();
            let (theirs, from) = accept(&listener);
            assert_eq!(from, ours.local_addr().unwrap());
            exchange(&ours, &theirs, 50_000);
        }
        let (asker, answerer) = (udp(&stage.client, v4, 0), udp(&stage.near, v4, TARGET));
        ask(&asker, &answerer, answerer.local_addr().unwrap(), 64);
    }
}

fn a_datagram_is_refused(client: &Host, v4: bool) {
    let asker = udp(client, v4, 0);
    asker.connect(front(v4)).unwrap();
    asker.send(b"?").unwrap();
    let refused = asker.hear(&mut [0; 8]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
}

#[test]
fn a_service_that_nobody_stands_behind_refuses_at_once() {
    let stage = Stage::serving(|stage| vec![&stage.near]);
    for v4 in BOTH {
        let _listener = listen(&stage.near, v4);
        connect(&stage.client, 0, front(v4)).unwrap();
    }
    stage.serve_nobody();
    for v4 in BOTH {
        let refused = connect(&stage.client, 0, front(v4)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
        a_datagram_is_refused(&stage.client, v4);
    }
}

#[test]
fn a_pod_that_is_its_own_backend_reaches_itself_by_the_services_address() {
    let stage = Stage::serving(|stage| vec![&stage.client]);
    for v4 in BOTH {
        let listener = listen(&stage.client, v4);
        let ours = connect(&stage.client, 0, front(v4)).unwrap();
        let (theirs, from) = accept(&listener);
        assert_eq!(from, SocketAddr::new(vip(v4), ours.local_addr().unwrap().port()));
        exchange(&ours, &theirs, 100_000);
        let (asker, answerer) = (udp(&stage.client, v4, 0), udp(&stage.client, v4, TARGET));
        assert_eq!(ask(&asker, &answerer, front(v4), 64).ip(), vip(v4));
        assert_eq!(ask(&asker, &answerer, front(v4), 4000).ip(), vip(v4));
    }
}

#[test]
fn a_stream_stays_with_its_backend_and_a_datagram_moves() {
    let stage = Stage::serving(|stage| vec![&stage.near]);
    for v4 in BOTH {
        stage.serve(&[&stage.near], None);
        let (near, far) = (listen(&stage.near, v4), listen(&stage.far, v4));
        let sockets = [&stage.near, &stage.far].map(|host| udp(host, v4, TARGET));
        let ours = connect(&stage.client, 0, front(v4)).unwrap();
        let (theirs, _) = accept(&near);
        let asker = udp(&stage.client, v4, 0);
        ask(&asker, &sockets[0], front(v4), 64);
        stage.serve(&[&stage.far], None);
        exchange(&ours, &theirs, 10_000);
        ask(&asker, &sockets[1], front(v4), 64);
        let another = connect(&stage.client, 0, front(v4)).unwrap();
        exchange(&another, &accept(&far).0, 10_000);
        stage.serve_nobody();
        exchange(&ours, &theirs, 10_000);
    }
}

#[test]
fn datagrams_in_parts_find_their_way_and_back() {
    let stage = Stage::serving(|stage| vec![&stage.far]);
    for v4 in BOTH {
        let (asker, answerer) = (udp(&stage.client, v4, 0), udp(&stage.far, v4, TARGET));
        let from = ask(&asker, &answerer, front(v4), 20_000);
        assert_eq!(from, asker.local_addr().unwrap());
    }
}

#[test]
fn connections_are_spread_and_clients_are_kept_together_where_the_service_says_so() {
    let stage = Stage::serving(|stage| vec![&stage.near, &stage.far]);
    // From ports of their own: what comes from one that was used before is led as before.
    let led_to_near = |v4: bool, ports: Range<u16>| {
        let (near, far) = (listen(&stage.near, v4), listen(&stage.far, v4));
        let led = ports.filter(|port| {
            let _ours = connect(&stage.client, *port, front(v4)).unwrap();
            accept_any(&[&near, &far]).0 == 0
        });
        led.count()
    };
    for v4 in BOTH {
        stage.serve(&[&stage.near, &stage.far], None);
        let near = led_to_near(v4, 4000..4040);
        assert!((1..40).contains(&near), "{near} of 40");
        stage.serve(&[&stage.near, &stage.far], Some(Duration::from_secs(60)));
        let near = led_to_near(v4, 4040..4080);
        assert!(near == 0 || near == 40, "{near} of 40");
    }
}

#[test]
fn two_connections_never_have_the_same_ends() {
    let stage = Stage::serving(|stage| vec![&stage.near, &stage.far]);
    for v4 in BOTH {
        let (near, far) = (listen(&stage.near, v4), listen(&stage.far, v4));
        let straight = SocketAddr::new(stage.near.ip(v4), TARGET);
        for port in 4000..4010 {
            let ours = connect(&stage.client, port, straight).unwrap();
            let (theirs, _) = accept(&near);
            let through = connect(&stage.client, port, front(v4)).unwrap();
            let (led, _) = accept(&far);
            exchange(&ours, &theirs, 1000);
            exchange(&through, &led, 1000);
        }
        stage.serve(&[&stage.near], None);
        let ours = connect(&stage.client, 5000, front(v4)).unwrap();
        let (theirs, _) = accept(&near);
        let refused = connect(&stage.client, 5000, straight).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
        exchange(&ours, &theirs, 1000);
        stage.serve(&[&stage.near, &stage.far], None);
    }
}

#[test]
fn what_a_backends_machine_says_of_a_datagram_reaches_the_client() {
    let stage = Stage::serving(|stage| vec![&stage.far]);
    for v4 in BOTH {
        a_datagram_is_refused(&stage.client, v4);
    }
}

#[test]
fn an_agent_that_starts_again_replaces_the_programs_and_connections_go_on() {
    let stage = Stage::serving(|stage| vec![&stage.far]);
    for v4 in BOTH {
        let listener = listen(&stage.far, v4);
        let ours = connect(&stage.client, 0, front(v4)).unwrap();
        let (theirs, _) = accept(&listener);
        let filters = || stage.node.run(filters_of_client);
        let before = filters();
        stage.worker.run(|state| state.plain = state.runtime.block_on(open(&state.root)));
        let after = filters();
        assert_eq!((before.len(), after.len()), (2, 2), "{before:?} {after:?}");
        assert!(before.iter().all(|filter| !after.contains(filter)), "{before:?} {after:?}");
        exchange(&ours, &theirs, 10_000);
        connect(&stage.client, 0, front(v4)).unwrap();
    }
}

/// The programs of ours on the client's link, by their kernel's numbers.
fn filters_of_client() -> Vec<String> {
    let list = |way: &str| {
        let output = Command::new("tc").args(["filter", "show", "dev", "veth2", way]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let ours = text.lines().filter(|line| line.contains("_plain"));
        ours.map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    [list("ingress"), list("egress")].concat()
}

#[test]
fn withdrawn_nothing_is_left_and_what_is_to_no_service_goes_on() {
    let stage = Stage::serving(|stage| vec![&stage.near]);
    let listener = listen(&stage.near, true);
    connect(&stage.client, 0, front(true)).unwrap();
    stage.worker.run(|state| {
        for _ in 0..2 {
            state.runtime.block_on(PlainServices::withdraw(&state.root)).unwrap();
        }
        assert_eq!(state.bpf.files(), Vec::<PathBuf>::new());
    });
    assert_eq!(stage.node.run(filters_of_client), Vec::<String>::new());
    connect(&stage.client, 0, listener.local_addr().unwrap()).unwrap();
    let led = stage.client.namespace.run(|| TcpStream::connect_timeout(&front(true), BRIEF));
    assert!(led.is_err(), "it is still led");
}

#[test]
fn a_tenants_pod_on_the_same_node_is_not_led_and_its_link_is_left_alone() {
    let fabric = Fabric::of(1);
    let tenant = [fabric.pod(0, network(1), "10.0.0.1"), fabric.pod(0, network(1), "10.0.0.2")];
    let link = tenant[0].host_side.as_str().to_owned();
    let node = &fabric.nodes[0];
    let (ip, port) = (tenant[1].ip.into(), TARGET.try_into().unwrap());
    let refused = node.run(move |state| {
        let root = state.config.bpf_root.clone();
        let mut plain = state.runtime.block_on(PlainServices::open(&root, OUTSIDE)).unwrap();
        let backends = [Backend { addr: NetAddr::new(PLAIN, ip), port }].into();
        let service = Service { backends, ..Service::default() };
        plain.put(key(vip(true), Protocol::Tcp), Some(&service)).unwrap();
        state.runtime.block_on(plain.serve(&link)).unwrap_err().to_string()
    });
    assert!(refused.contains("is no side of a plain pod's pair"), "{refused}");
    let _listener = crate::talk::listen(tenant[1].v4(), TARGET);
    let straight = SocketAddr::new(tenant[1].ip.into(), TARGET);
    crate::talk::connect(tenant[0].v4(), 0, straight, LIMIT).unwrap();
    assert!(crate::talk::connect(tenant[0].v4(), 0, front(true), BRIEF).is_err());
    assert_eq!(node.observe().services, BTreeMap::new());
}
