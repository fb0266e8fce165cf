//! The record rules: one table of questions, each with what is answered. It is asked wherever names
//! are answered, and the answers are read by an independent library and by dig.

use std::io::{self, Read, Write};

use hickory_proto::op::Message;
use hickory_proto::rr::{Record, RecordType};

/// The rows that hold wherever there are the services of `acme` and of `umbrella`.
const TABLE: &str = include_str!("records.txt");

/// A question and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The network that asks.
    pub who: &'static str,
    /// The name.
    pub name: &'static str,
    /// The type, as people write it.
    pub kind: &'static str,
    /// Data in order of text, `NODATA`, or the code.
    pub expected: &'static str,
}

/// The rows of every place, and those that only one place has.
pub fn table(own: &'static str) -> Vec<Row> {
    let lines = TABLE.lines().chain(own.lines()).filter(|line| !line.starts_with('#'));
    lines.map(Row::read).collect()
}

/// The rows that a network asks.
pub fn rows_of(who: &str, table: &[Row]) -> Vec<Row> {
    table.iter().filter(|row| row.who == who).copied().collect()
}

impl Row {
    fn read(line: &'static str) -> Row {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [who, name, kind, expected] = cells[..] else { panic!("a row has four cells: {line}") };
        Row { who, name, kind, expected }
    }

    /// The packet that asks, with the largest UDP answer where it says one.
    pub fn question(&self, edns: Option<u16>) -> Vec<u8> {
        question(self.name, number(self.kind), edns)
    }

    /// Holds an answer to the row. A "no" carries the start of its zone, and nothing else does.
    ///
    /// # Panics
    /// When the answer is another one.
    pub fn holds(&self, answer: &Message) {
        let Row { who, name, kind, expected } = self;
        assert_eq!(summary(answer), *expected, "{who}: {name} {kind}");
        let zones = answer.authorities.iter().filter(|it| it.record_type() == RecordType::SOA);
        assert_eq!(zones.count(), self.zones(), "the SOA of {who}: {name} {kind}");
        assert_eq!(answer.metadata.authoritative, *expected != "REFUSED", "{who}: {name} {kind}");
    }

    /// Holds to the row what dig prints of an answer, with its answers and its authority.
    ///
    /// # Panics
    /// When dig read another answer.
    pub fn holds_for_dig(&self, output: &str) {
        let Row { who, name, kind, expected } = self;
        let mut data: Vec<String> = section(output, "ANSWER").iter().map(|it| rdata(it)).collect();
        data.sort();
        let status = output.split_once("status: ").map_or("", |(_, after)| after);
        let found = match (status.split(',').next().unwrap_or_default(), data.is_empty()) {
            ("NOERROR", true) => "NODATA".to_owned(),
            ("NOERROR", false) => data.join("; "),
            (other, _) => other.to_owned(),
        };
        assert_eq!(found, *expected, "dig of {who}: {name} {kind}\n{output}");
        let zones = section(output, "AUTHORITY").iter().filter(|it| it.contains("\tSOA\t")).count();
        assert_eq!(zones, self.zones(), "dig of {who}: {name} {kind}\n{output}");
        assert!(!output.contains("WARNING: Message"), "{output}");
    }

    fn zones(&self) -> usize {
        usize::from(["NODATA", "NXDOMAIN"].contains(&self.expected))
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

/// The packet of a question, with the id 0x0707.
pub fn question(name: &str, kind: u16, edns: Option<u16>) -> Vec<u8> {
    let mut packet = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())];
    packet.extend(wire_name(name));
    packet.extend(kind.to_be_bytes());
    packet.extend([0, 1]);
    if let Some(size) = edns {
        packet.extend([0, 0, 41]);
        packet.extend(size.to_be_bytes());
        packet.extend([0; 6]);
    }
    packet
}

/// A name as packets have it.
pub fn wire_name(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let mut wire: Vec<u8> =
        labels.flat_map(|label| [&[label.len() as u8][..], label.as_bytes()].concat()).collect();
    wire.push(0);
    wire
}

/// The number of a type.
///
/// # Panics
/// When there is no such type.
pub fn number(kind: &str) -> u16 {
    kind.parse::<RecordType>().unwrap_or_else(|_| panic!("{kind} is no type of a record")).into()
}

/// What an answer says, as the table does.
pub fn summary(answer: &Message) -> String {
    let code = answer.metadata.response_code.to_string();
    let mut data: Vec<String> = answer.answers.iter().map(text).collect();
    data.sort();
    match (code.as_str(), data.is_empty()) {
        ("No Error", true) => "NODATA".to_owned(),
        ("No Error", false) => data.join("; "),
        ("Non-Existent Domain", _) => "NXDOMAIN".to_owned(),
        ("Query Refused", _) => "REFUSED".to_owned(),
        ("Server Failure", _) => "SERVFAIL".to_owned(),
        (other, _) => other.to_owned(),
    }
}

fn text(record: &Record) -> String {
    let text = record.data.to_string();
    if record.record_type() == RecordType::TXT { format!("{text:?}") } else { text }
}

/// Sends a packet over TCP.
pub fn write_framed(stream: &mut impl Write, packet: &[u8]) -> io::Result<()> {
    stream.write_all(&[&(packet.len() as u16).to_be_bytes()[..], packet].concat())
}

/// Reads a packet over TCP.
pub fn read_framed(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut packet = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut packet)?;
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_place_come_after_those_of_every_place() {
        let rows = table("# a word\nback | web.shop | A | NXDOMAIN");
        assert!(rows.len() > 100, "{} rows", rows.len());
        let last = rows.last().unwrap();
        assert_eq!((last.who, last.name, last.kind), ("back", "web.shop", "A"));
        assert_eq!(rows_of("back", &rows).len(), 1);
    }

    #[test]
    fn what_dig_prints_is_held_to_its_row() {
        let row = Row { who: "acme", name: "web", kind: "A", expected: "10.0.0.1; 10.0.0.2" };
        let good = ";; ->>HEADER<<- opcode: QUERY, status: NOERROR, id: 7\n\n;; ANSWER SECTION:\n\
                    web.\t5\tIN\tA\t10.0.0.2\nweb.\t5\tIN\tA\t10.0.0.1\n\n";
        row.holds_for_dig(good);
        for other in [good.replace("10.0.0.2", "10.0.0.3"), good.replace("NOERROR", "SERVFAIL")] {
            std::panic::catch_unwind(|| row.holds_for_dig(&other)).unwrap_err();
        }
        let no = Row { expected: "NXDOMAIN", ..row };
        let said = "status: NXDOMAIN, id: 7\n;; AUTHORITY SECTION:\nlocal.\t5\tIN\tSOA\tns. h.\n";
        no.holds_for_dig(said);
        std::panic::catch_unwind(|| no.holds_for_dig("status: NXDOMAIN,")).unwrap_err();
    }

    #[test]
    fn what_is_framed_is_read_as_it_was_written() {
        let mut stream = vec![];
        write_framed(&mut stream, b"one").unwrap();
        write_framed(&mut stream, b"").unwrap();
        let mut stream = stream.as_slice();
        assert_eq!(read_framed(&mut stream).unwrap(), b"one");
        assert_eq!(read_framed(&mut stream).unwrap(), b"");
        read_framed(&mut stream).unwrap_err();
    }
}
