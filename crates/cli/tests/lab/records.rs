//! The record rules on the lab: real pods ask the resolver in their `resolv.conf`, and the answers
//! are read by dig and by a second library.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use atoll_testkit::Namespace;
use hickory_proto::op::{Message, Query};
use hickory_proto::rr::{Name, RecordType};

use crate::fixture::{Lab, await_condition, state_dir};

const RESOLVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10)), 53);
const MANY: &str = "many.shop.svc.cluster.local";

struct Row {
    who: &'static str,
    name: &'static str,
    kind: &'static str,
    expected: &'static str,
}

fn table() -> Vec<Row> {
    let lines = include_str!("records.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [who, name, kind, expected] = cells[..] else { panic!("{line}") };
            Row { who, name, kind, expected }
        })
        .collect()
}

fn is_no(expected: &str) -> bool {
    ["NODATA", "NXDOMAIN"].contains(&expected)
}

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
    let (namespace, name) = pod.split_once('/').unwrap();
    let uid = ["get", "pod", name, "-n", namespace, "-o", "jsonpath={.metadata.uid}"];
    let uid = lab.kubectl(&uid).good();
    Namespace::at(&state_dir(&lab.name).join("netns").join(format!("pod-{uid}")))
}

fn question(row: &Row) -> Vec<u8> {
    let mut name = Name::from_ascii(row.name).unwrap();
    name.set_fqdn(true);
    let mut message = Message::query();
    message.add_query(Query::query(name, row.kind.parse::<RecordType>().unwrap()));
    message.to_vec().unwrap()
}

/// Asks again where nothing comes, as every client does.
fn over_udp(question: &[u8]) -> Message {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(RESOLVER).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut answer = [0; 1500];
    for _ in 0..3 {
        socket.send(question).unwrap();
        if let Ok(len) = socket.recv(&mut answer) {
            assert_eq!(answer[..2], question[..2], "the id");
            return Message::from_vec(&answer[..len]).unwrap();
        }
    }
    panic!("no answer to {question:?}")
}

fn over_tcp(stream: &mut TcpStream, question: &[u8]) -> Message {
    stream.write_all(&[&(question.len() as u16).to_be_bytes(), question].concat()).unwrap();
    let mut len = [0; 2];
    stream.read_exact(&mut len).unwrap();
    let mut answer = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut answer).unwrap();
    Message::from_vec(&answer).unwrap()
}

/// What an answer says, as the table does.
fn summary(answer: &Message) -> String {
    let text = |record: &hickory_proto::rr::Record| match record.record_type() {
        RecordType::TXT => format!("{:?}", record.data.to_string()),
        _ => record.data.to_string(),
    };
    let mut data: Vec<String> = answer.answers.iter().map(text).collect();
    data.sort();
    match (answer.metadata.response_code.to_string().as_str(), data.is_empty()) {
        ("No Error", true) => "NODATA".into(),
        ("No Error", false) => data.join("; "),
        ("Non-Existent Domain", _) => "NXDOMAIN".into(),
        ("Query Refused", _) => "REFUSED".into(),
        (other, _) => other.into(),
    }
}

fn check_by_library(lab: &Lab, rows: &[Row]) {
    let pod = inside(lab, asker(rows[0].who));
    pod.run(|| {
        let mut stream = TcpStream::connect(RESOLVER).unwrap();
        for row in rows {
            let packet = question(row);
            for answer in [over_udp(&packet), over_tcp(&mut stream, &packet)] {
                let Row { who, name, kind, expected } = row;
                assert_eq!(summary(&answer), *expected, "{who}: {name} {kind}");
                let zones = answer.authorities.iter();
                let zones = zones.filter(|it| it.record_type() == RecordType::SOA).count();
                assert_eq!(zones, usize::from(is_no(expected)), "the SOA of {who}: {name} {kind}");
            }
        }
    });
}

fn check_by_dig(lab: &Lab, rows: &[Row], over: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("questions");
    let lines: Vec<String> = rows
        .iter()
        .map(|row| format!("{}. {}", row.name.trim_end_matches('.'), row.kind))
        .collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let shown = ["+noall", "+comments", "+answer", "+authority", "+nocookie", over];
    let dig = [&["dig"], &shown[..], &["-f", file.to_str().unwrap()]].concat();
    let said = lab.exec(asker(rows[0].who), &dig).good();
    let answers: Vec<&str> = said.split(";; Got answer:").skip(1).collect();
    assert_eq!(answers.len(), rows.len(), "{said}");
    for (row, output) in rows.iter().zip(answers) {
        let mut data: Vec<String> = section(output, "ANSWER").iter().map(|it| rdata(it)).collect();
        data.sort();
        let status = output.split_once("status: ").map_or("", |(_, rest)| rest);
        let found = match (status.split(',').next().unwrap_or_default(), data.is_empty()) {
            ("NOERROR", true) => "NODATA".to_owned(),
            ("NOERROR", false) => data.join("; "),
            (other, _) => other.to_owned(),
        };
        assert_eq!(found, row.expected, "dig of {}: {} {}\n{output}", row.who, row.name, row.kind);
        let zones = section(output, "AUTHORITY").iter().filter(|it| it.contains("\tSOA\t")).count();
        assert_eq!(zones, usize::from(is_no(row.expected)), "{} {}\n{output}", row.name, row.kind);
    }
}

fn section<'a>(output: &'a str, name: &str) -> Vec<&'a str> {
    let title = format!(";; {name} SECTION:");
    let lines = output.lines().skip_while(|line| *line != title).skip(1);
    lines.take_while(|line| !line.is_empty()).collect()
}

/// What stands after the owner, the time, the class and the type.
fn rdata(line: &str) -> String {
    line.split_whitespace().skip(4).collect::<Vec<_>>().join(" ")
}

/// An answer of sixty addresses does not fit a packet without EDNS.
fn check_truncation(lab: &Lab) {
    let pod = inside(lab, asker("acme"));
    let row = Row { who: "acme", name: MANY, kind: "A", expected: "" };
    let (cut, whole) = pod.run(|| {
        let mut stream = TcpStream::connect(RESOLVER).unwrap();
        (over_udp(&question(&row)), over_tcp(&mut stream, &question(&row)))
    });
    assert!(cut.metadata.truncation && cut.answers.len() < 60, "{}", cut.answers.len());
    assert_eq!((whole.metadata.truncation, whole.answers.len()), (false, 60));
    let said = lab.exec(asker("acme"), &["dig", "+short", "+noedns", MANY]).good();
    assert_eq!(said.lines().filter(|line| line.starts_with("203.")).count(), 60, "{said}");
}

#[test]
fn the_record_rules_hold_on_the_lab_for_dig_and_for_a_second_library_over_udp_and_tcp() {
    let lab = lab_with_all_records();
    let rows = table();
    assert!(rows.len() >= 100, "{} rows", rows.len());
    let last = ["dig", "+short", "+tries=1", "vault.secret.svc.cluster.local"];
    for (who, name) in
        [("acme", MANY), ("back", "both.back.svc.cluster.local"), ("umbrella", last[3])]
    {
        let ask = ["dig", "+short", "+tries=1", name];
        await_condition(|| !lab.exec(asker(who), &ask).out.trim().is_empty()).expect(name);
    }
    for who in ["acme", "back", "umbrella"] {
        let own: Vec<Row> = table().into_iter().filter(|row| row.who == who).collect();
        check_by_library(&lab, &own);
        check_by_dig(&lab, &own, "+notcp");
        check_by_dig(&lab, &own, "+tcp");
    }
    check_truncation(&lab);
}

/// A question with so many bytes changed or cut off, the same on every run.
fn broken(n: u32) -> Vec<u8> {
    let row = Row { who: "", name: "web.shop.svc.cluster.local", kind: "A", expected: "" };
    let mut packet = question(&row);
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
    let agent = lab.agent_pid("node1");
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
    assert_eq!(lab.agent_pid("node1"), agent, "the agent did not end");
}
