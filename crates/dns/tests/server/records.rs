//! The record rules: one table, asked over UDP and TCP, read by an independent library and by dig.

use std::net::SocketAddr;
use std::process::Command;

use atoll_testkit::names::{Row, rows_of};
use hickory_proto::op::Message;

use crate::client::{Client, connect, question, read_framed, summary, write_framed};
use crate::shop::{ACME, UMBRELLA, config, empty, network, open};

fn table() -> Vec<Row> {
    atoll_testkit::names::table(include_str!("records.txt"))
}

/// The number of the network that asks.
fn number_of(row: &Row) -> u8 {
    if row.who == "acme" { ACME as u8 } else { UMBRELLA as u8 }
}

#[test]
fn the_record_rules_hold_over_udp() {
    let (_server, address) = open(config());
    let table = table();
    assert!(table.len() >= 100, "{} rows", table.len());
    for row in &table {
        row.holds(&Client::new(address, number_of(row), 9).ask(row.name, row.kind));
    }
}

#[test]
fn the_record_rules_hold_over_tcp_with_many_questions_on_one_connection() {
    let (_server, address) = open(config());
    for who in ["acme", "umbrella"] {
        let rows = rows_of(who, &table());
        let mut stream = connect(address, number_of(&rows[0]), 9);
        for row in &rows {
            write_framed(&mut stream, &row.question(None)).unwrap();
        }
        for row in &rows {
            row.holds(&Message::from_vec(&read_framed(&mut stream).unwrap()).unwrap());
        }
    }
}

#[test]
fn dig_reads_the_record_rules_the_same_way() {
    let (_server, address) = open(config());
    for row in table() {
        row.holds_for_dig(&dig(address, &row));
    }
}

fn dig(address: SocketAddr, row: &Row) -> String {
    let source = format!("127.0.{}.9", number_of(row));
    let (server, port) = (format!("@{}", address.ip()), address.port().to_string());
    let options = ["+noedns", "+tries=2", "+time=5", "+nocookie", "+notcp"];
    let mut dig = Command::new("dig");
    dig.args([&server, "-p", &port, "-b", &source]).args(options).args([row.name, row.kind]);
    let output = dig.output().expect("dig is missing: scripts/setup installs it");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_question_comes_back_letter_by_letter() {
    let (_server, address) = open(config());
    let packet = question("wEb.SHoP.svC.cluSTer.LOCAl", 1, None);
    let answer = Client::new(address, 1, 9).raw(&packet).unwrap();
    assert_eq!(answer[12..packet.len()], packet[12..]);
    assert_eq!(answer[..2], packet[..2], "the id");
}

/// A server with a service of many addresses.
fn many(count: u32) -> (atoll_dns::Server, SocketAddr) {
    let (server, address) = open(config());
    let addresses = (0..count).map(|n| std::net::Ipv4Addr::from_bits(0x0a01_0000 + n).into());
    let key = atoll_zones::ServiceKey {
        namespace: "shop".parse().unwrap(),
        name: "many".parse().unwrap(),
    };
    let backing = atoll_zones::Backing::Vip { addresses: addresses.collect(), ports: vec![] };
    let service = atoll_zones::Service { key, backing };
    let mut set = empty();
    let names =
        atoll_zones::Names::compile(&service, &[], &atoll_zones::Homes::default(), set.settings());
    set.put_service(&service.key, names);
    server.swap(network(ACME), set.into());
    (server, address)
}

#[test]
fn an_answer_that_does_not_fit_is_cut_between_records_and_whole_over_tcp() {
    let (server, address) = many(300);
    let client = Client::new(address, 1, 9);
    let asked = |edns| {
        let answer = client.raw(&question("many.shop.svc.cluster.local", 1, edns)).unwrap();
        (answer.len(), Message::from_vec(&answer).unwrap())
    };
    for (edns, limit) in [(None, 512), (Some(100), 512), (Some(900), 900), (Some(4096), 1232)] {
        let (len, answer) = asked(edns);
        assert!(answer.metadata.truncation && len <= limit && len > limit - 16, "{edns:?}: {len}");
        assert_eq!(answer.edns.is_some(), edns.is_some());
    }
    let mut stream = connect(address, 1, 9);
    write_framed(&mut stream, &question("many.shop.svc.cluster.local", 1, None)).unwrap();
    let whole = Message::from_vec(&read_framed(&mut stream).unwrap()).unwrap();
    assert_eq!((whole.answers.len(), whole.metadata.truncation), (300, false));
    assert_eq!(server.counts(network(ACME)).unwrap().truncated, 4);
}

#[test]
fn each_of_several_addresses_comes_first_in_turn() {
    let (_server, address) = many(10);
    let client = Client::new(address, 1, 9);
    let mut first: Vec<String> = (0..10)
        .map(|_| client.ask("many.shop.svc.cluster.local", "A").answers[0].data.to_string())
        .collect();
    first.sort();
    first.dedup();
    assert_eq!(first.len(), 10);
}

#[test]
fn an_unknown_version_of_edns_is_told_and_the_known_one_answered() {
    let (_server, address) = open(config());
    let client = Client::new(address, 1, 9);
    let mut packet = question("web.shop.svc.cluster.local", 1, Some(1232));
    let version = packet.len() - 5;
    packet[version] = 1;
    let answer = Message::from_vec(&client.raw(&packet).unwrap()).unwrap();
    assert_eq!(u16::from(answer.metadata.response_code), 16);
    assert_eq!(summary(&client.ask("web.shop.svc.cluster.local", "A")), "198.18.1.10");
}
