//! The record rules on the lab: real pods ask the resolver in their `resolv.conf`, and the answers
//! are read by dig and by a second library.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use atoll_testkit::names::{Row, number, question, read_framed, rows_of, table, write_framed};
use atoll_testkit::{Hears, Namespace};
use hickory_proto::op::Message;

use crate::fixture::{Lab, await_condition};

pub(crate) const RESOLVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10)), 53);
const MANY: &str = "many.shop.svc.cluster.local";

/// The pod that asks for a network.
fn asker(who: &str) -> &'static str {
    match who {
        "acme" => "shop/asker",
        "back" => "back/asker",
        _ => "secret/asker",
    }
}

fn lab_with_all_records() -> Lab {
    let lab = Lab::up(2);
    lab.apply(include_str!("records.yaml")).good();
    lab.wait_for_pods();
    lab
}

/// The namespace of a pod, for sockets of this process.
pub(crate) fn inside(lab: &Lab, pod: &str) -> Namespace {
    Namespace::at(&lab.sandbox(pod))
}

/// Asks again where nothing comes, as every client does.
fn over_udp(question: &[u8]) -> Message {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(RESOLVER).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut answer = [0; 1500];
    for _ in 0..3 {
        socket.send(question).unwrap();
        if let Ok(len) = socket.hear(&mut answer) {
            return read(question, &answer[..len]);
        }
    }
    panic!("no answer to {question:?}")
}

fn over_tcp(stream: &mut TcpStream, question: &[u8]) -> Message {
    write_framed(stream, question).unwrap();
    read(question, &read_framed(stream).unwrap())
}

/// An answer, in which the question came back letter by letter.
fn read(question: &[u8], answer: &[u8]) -> Message {
    assert_eq!(answer[..2], question[..2], "the id");
    assert_eq!(answer[12..question.len()], question[12..], "the question");
    Message::from_vec(answer).unwrap()
}

fn check_by_library(lab: &Lab, rows: &[Row]) {
    let pod = inside(lab, asker(rows[0].who));
    pod.run(|| {
        let mut stream = TcpStream::connect(RESOLVER).unwrap();
        for row in rows {
            let packet = row.question(None);
            row.holds(&over_udp(&packet));
            row.holds(&over_tcp(&mut stream, &packet));
        }
    });
}

fn check_by_dig(lab: &Lab, rows: &[Row], over: &str) {
    let lines: Vec<String> = rows
        .iter()
        .map(|row| format!("{}. {}", row.name.trim_end_matches('.'), row.kind))
        .collect();
    let shown = ["+noall", "+comments", "+answer", "+authority", "+nocookie", over];
    let dig = [&["dig"], &shown[..], &["-f", "-"]].concat();
    let said = lab.exec_fed(asker(rows[0].who), &dig, &lines.join("\n")).good();
    let answers: Vec<&str> = said.split(";; Got answer:").skip(1).collect();
    assert_eq!(answers.len(), rows.len(), "{said}");
    rows.iter().zip(answers).for_each(|(row, output)| row.holds_for_dig(output));
}

/// An answer of sixty addresses does not fit a packet without EDNS.
fn check_truncation(lab: &Lab) {
    let pod = inside(lab, asker("acme"));
    let question = question(MANY, number("A"), None);
    let (cut, whole) = pod.run(|| {
        let mut stream = TcpStream::connect(RESOLVER).unwrap();
        (over_udp(&question), over_tcp(&mut stream, &question))
    });
    assert!(cut.metadata.truncation && cut.answers.len() < 60, "{}", cut.answers.len());
    assert_eq!((whole.metadata.truncation, whole.answers.len()), (false, 60));
    let said = lab.exec(asker("acme"), &["dig", "+short", "+noedns", MANY]).good();
    assert_eq!(said.lines().filter(|line| line.starts_with("203.")).count(), 60, "{said}");
}

#[test]
fn the_record_rules_hold_on_the_lab_for_dig_and_for_a_second_library_over_udp_and_tcp() {
    let lab = lab_with_all_records();
    let rows = table(include_str!("records.txt"));
    assert!(rows.len() >= 100, "{} rows", rows.len());
    let last = ["dig", "+short", "+tries=1", "vault.secret.svc.cluster.local"];
    for (who, name) in
        [("acme", MANY), ("back", "both.back.svc.cluster.local"), ("umbrella", last[3])]
    {
        let ask = ["dig", "+short", "+tries=1", name];
        await_condition(|| !lab.exec(asker(who), &ask).out.trim().is_empty()).expect(name);
    }
    for who in ["acme", "back", "umbrella"] {
        let own = rows_of(who, &rows);
        check_by_library(&lab, &own);
        check_by_dig(&lab, &own, "+notcp");
        check_by_dig(&lab, &own, "+tcp");
    }
    check_truncation(&lab);
}

/// A question with so many bytes changed or cut off, the same on every run.
fn broken(n: u32) -> Vec<u8> {
    let mut packet = question("web.shop.svc.cluster.local", number("A"), None);
    let mut state = n.wrapping_mul(0x9e37_79b9) | 1;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize % below
    };
    for _ in 0..=draw(6) {
        let at = draw(packet.len());
        packet[at] = draw(256) as u8;
    }
    packet.truncate(packet.len() - draw(packet.len()));
    packet
}

#[test]
fn malformed_questions_of_a_pod_leave_its_tenant_and_the_other_answered_on_the_lab() {
    let lab = lab_with_all_records();
    let ask = |who: &str, name: &str| {
        let said = lab.exec(asker(who), &["dig", "+short", name]).good();
        said.trim().to_owned()
    };
    let web = "web.shop.svc.cluster.local";
    await_condition(|| ask("acme", web) == "198.18.1.10").expect("names are there");
    let agent = lab.agent("node1");
    inside(&lab, asker("acme")).run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for n in 0..1_500 {
            socket.send_to(&broken(n), RESOLVER).unwrap();
        }
        for n in 0..50 {
            let mut stream = TcpStream::connect(RESOLVER).unwrap();
            let packet = broken(n);
            // One that is closed in the middle of our words has said what it thinks of them.
            let _closed = stream.write_all(&[&[n as u8, 255], &packet[..]].concat());
        }
    });
    await_condition(|| ask("acme", web) == "198.18.1.10").expect("its own is answered");
    assert_eq!(ask("umbrella", "vault.secret.svc.cluster.local"), "198.18.1.12");
    assert_eq!(lab.agent("node1"), agent, "the agent did not end");
}
