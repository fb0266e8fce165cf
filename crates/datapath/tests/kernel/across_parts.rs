//! Datagrams in parts that a service leads into another network of its tenant: they arrive whole, there
//! and back, and no client's part is taken for another's, whatever numbers they have. Each case in two
//! tenants alike in every address.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use atoll_datapath::DropReason;
use atoll_testkit::{Hears, eventually};

use crate::across::two_tenants;
use crate::fabric::{Fabric, network};
use crate::forge;
use crate::fragments::in_fragments;
use crate::services::{PORT, TARGET, front, vip, voice, voices};
use crate::talk::{Voice, udp};

const UDP: u8 = 17;

/// The service as somebody to whom parts are sent.
fn service(client: Voice<'_>) -> Voice<'_> {
    Voice { pod: client.pod, ip: vip(client.ip) }
}

/// A datagram of the client to the service, in parts.
fn parts(client: Voice, number: u16, from: u16, content: &[u8]) -> Vec<Vec<u8>> {
    in_fragments((client, service(client)), number, (from, PORT), content)
}

#[test]
fn large_datagrams_pass_into_another_network_and_back_here_and_elsewhere() {
    let fabric = Fabric::of(2);
    let tenants = two_tenants(&fabric);
    for place in [0, 1] {
        for tenant in &tenants {
            fabric.lead_across(tenant.client.network, &[tenant.backends()[place]]);
        }
        for (tenant, family) in tenants.iter().flat_map(|it| [(it, 0), (it, 1)]) {
            let client = voices(&tenant.client)[family];
            let (asker, answerer) =
                (udp(client, 0), udp(voice(client, tenant.backends()[place]), TARGET));
            for round in 1..4 {
                let (sent, mut heard) = (vec![round; 5000], vec![0; 8000]);
                asker.send_to(&sent, front(client.ip)).unwrap();
                let (length, seen) = answerer.hear_from(&mut heard).unwrap();
                assert!(heard[..length] == sent, "what arrived is not what was sent");
                assert_eq!(seen.ip(), vip(client.ip));
                answerer.send_to(&sent, seen).unwrap();
                let (length, from) = asker.hear_from(&mut heard).unwrap();
                assert!(heard[..length] == sent, "what came back is not what was sent");
                assert_eq!(from, front(client.ip), "from where it was asked");
            }
        }
    }
}

/// What the backend hears of two clients whose parts come by turns, and whom it sees.
fn heard_of(clients: [Voice; 2], server: Voice, number: u16) -> BTreeSet<(Vec<u8>, SocketAddr)> {
    let answerer = udp(server, TARGET);
    let sockets = clients.map(|client| client.pod.packets());
    let datagrams =
        [0, 1].map(|which| parts(clients[which], number, 5000, &[7 + which as u8; 2000]));
    for place in 0..datagrams[0].len() {
        for (socket, parts) in sockets.iter().zip(&datagrams) {
            socket.send(&parts[place]).unwrap();
        }
    }
    let hear = |_| {
        let mut heard = vec![0; 3000];
        let (length, seen) = answerer.hear_from(&mut heard).unwrap();
        heard.truncate(length);
        (heard, seen)
    };
    [0, 1].map(hear).into()
}

#[test]
fn parts_of_two_clients_with_one_address_port_and_number_are_each_taken_for_its_own() {
    let fabric = Fabric::of(2);
    let thirds = [150, 250].map(network);
    let twins = thirds.map(|third| fabric.planned_pod(0, third, "10.0.0.1"));
    for (tenant, twin) in two_tenants(&fabric).iter().zip(&twins) {
        for server in tenant.backends() {
            for from in [tenant.client.network, twin.network] {
                fabric.lead_across(from, &[server]);
            }
            for family in [0, 1] {
                let clients = [&tenant.client, twin].map(|it| voices(it)[family]);
                let server = voice(clients[0], server);
                let heard = heard_of(clients, server, 77);
                let words: Vec<_> = heard.iter().map(|(word, _)| word.clone()).collect();
                assert!(words == [[7; 2000].to_vec(), [8; 2000].to_vec()], "each is whole");
                let seen: BTreeSet<_> = heard.iter().map(|(_, seen)| *seen).collect();
                assert_eq!(seen.len(), 2, "and has a client of its own: {seen:?}");
            }
        }
    }
}

#[test]
fn a_part_that_overwrites_the_ports_or_comes_before_them_is_led_nowhere() {
    let fabric = Fabric::of(2);
    let [tenant, _other] = two_tenants(&fabric);
    let from = tenant.client.network;
    for (place, server) in tenant.backends().into_iter().enumerate() {
        fabric.lead_across(from, &[server]);
        for (family, client) in voices(&tenant.client).into_iter().enumerate() {
            let number = (1 + 2 * place + family) as u16;
            let socket = client.pod.packets();
            let dropped = |reason, frame: &[u8]| {
                let before = fabric.nodes[0].dropped(Some(from), reason);
                socket.send(frame).unwrap();
                eventually(&format!("it was dropped as {reason}"), || {
                    (fabric.nodes[0].dropped(Some(from), reason) > before).then_some(())
                });
            };
            let answerer = udp(voice(client, server), TARGET);
            let whole = parts(client, number, 6000, &[5; 1000]);
            dropped(DropReason::NoEndpoint, &whole[1]);
            socket.send(&whole[0]).unwrap();
            let ends = (client, service(client));
            let over = forge::fragment(ends, UDP, number, (16, true), &[9; 64]);
            dropped(DropReason::OverlappingFragment, &over);
            socket.send(&whole[1]).unwrap();
            let mut heard = vec![0; 2000];
            let length = answerer.hear(&mut heard).unwrap();
            assert!(heard[..length] == [5; 1000], "the rest arrives whole");
        }
    }
}
