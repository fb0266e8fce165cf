//! What a pod asks of its interfaces: the first, further ones in the same network, and one more
//! for each extra network.
//!
//! The rule: the same words always give the same interfaces in the same order, and each has a
//! name of its own.

use std::collections::BTreeSet;
use std::net::IpAddr;

use atoll_api::{InterfaceType, Reason, marks};
use atoll_types::{Label, MacAddr};
use serde_json::Value;

use super::Malformed;

/// One interface of a pod, and what the pod asks of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// The interface's name inside the pod.
    pub name: Label,
    /// The network, by the name its tenant gives it; the pod's own where none is named.
    pub network: Option<Label>,
    /// The subnet, by its object name or by what follows the network's name in it.
    pub subnet: Option<String>,
    /// Exactly these addresses, at most one of each family.
    pub ips: Vec<IpAddr>,
    /// Exactly this Ethernet address.
    pub mac: Option<MacAddr>,
    /// A port that was made beforehand.
    pub port: Option<String>,
    /// What the pod finds under its name.
    pub kind: InterfaceType,
}

impl Nic {
    /// Whether it asks for a place in its network, which a flat one does not give.
    pub fn asks_for_place(&self) -> bool {
        self.subnet.is_some() || !self.ips.is_empty()
    }

    /// The same interface, content with any place.
    pub fn content(&self) -> Nic {
        Nic { subnet: None, ips: Vec::new(), ..self.clone() }
    }
}

/// What container runtimes call a pod's first interface, whatever the pod says.
const FIRST: &str = "eth0";

/// How many interfaces a pod may have.
const MOST: usize = 16;

/// How long an interface's name may be in Linux.
const LONGEST_NAME: usize = 15;

/// What can be written of an interface.
const FIELDS: &str = "network, subnet, ip, ips, mac, name, port, type";

/// An interface as it is written.
#[derive(Default)]
struct Written {
    network: Option<String>,
    subnet: Option<String>,
    ip: Option<String>,
    ips: Vec<String>,
    mac: Option<String>,
    name: Option<String>,
    port: Option<String>,
    kind: Option<String>,
}

/// Where something was written.
#[derive(Clone, Copy)]
struct Place {
    mark: &'static str,
    position: usize,
}

/// An interface whose name is not settled yet.
struct Asked {
    nic: Nic,
    name: Option<Label>,
    place: Place,
}

/// The interfaces of a pod with these annotations: never none.
pub(super) fn parse(nics: Option<&str>, extra: Option<&str>) -> Result<Vec<Nic>, Malformed> {
    let mut asked = nics.map_or_else(|| Ok(Vec::new()), parse_nics)?;
    if asked.is_empty() {
        asked.push(Written::default().parse(Place { mark: marks::NICS, position: 0 })?);
    }
    asked.extend(extra.map_or_else(|| Ok(Vec::new()), parse_extra)?);
    if asked.len() > MOST {
        let count = asked.len();
        return Err(malformed(format!("{count} interfaces are asked for; a pod may have {MOST}")));
    }
    settle_names(asked)
}

fn parse_nics(text: &str) -> Result<Vec<Asked>, Malformed> {
    let mark = marks::NICS;
    let written = list(text, mark, NICS_LIKE)?;
    if written.is_empty() {
        let right = "leave the annotation out, or write [{}]";
        return Err(malformed(format!("{mark}: the list is empty; {right}")));
    }
    let placed =
        written.iter().enumerate().map(|(position, item)| (Place { mark, position }, item));
    placed.map(|(place, item)| Written::read(item, place)?.within_pods_network(place)).collect()
}

fn parse_extra(text: &str) -> Result<Vec<Asked>, Malformed> {
    let mark = marks::EXTRA_NETWORKS;
    let written: Vec<Value> = match text.trim_start().starts_with('[') {
        true => list(text, mark, EXTRA_LIKE)?,
        false => text.split(',').map(|item| item.trim().into()).collect(),
    };
    let placed =
        written.iter().enumerate().map(|(position, item)| (Place { mark, position }, item));
    placed.map(|(place, item)| extra_network(item, place)).collect()
}

const NICS_LIKE: &str = r#"[{"ip": "10.0.0.5"}]"#;
const EXTRA_LIKE: &str = r#"["net-b", {"network": "net-c", "name": "net1"}]"#;

fn list(text: &str, mark: &str, like: &str) -> Result<Vec<Value>, Malformed> {
    serde_json::from_str(text)
        .map_err(|error| malformed(format!("{mark} must be a JSON list like {like}: {error}")))
}

/// An extra network is just its name, or has what is asked of the interface.
fn extra_network(item: &Value, place: Place) -> Result<Asked, Malformed> {
    let written = match item {
        Value::String(text) => Written::short(text),
        item => Written::read(item, place)?,
    };
    if given(written.network.clone()).is_none() && given(written.port.clone()).is_none() {
        return Err(place.wrong("network", "names no network; write one of the tenant's own"));
    }
    written.parse(place)
}

impl Written {
    /// `network` or `network@name`.
    fn short(text: &str) -> Self {
        let (network, name) = match text.split_once('@') {
            Some((network, name)) => (network, Some(name.to_owned())),
            None => (text, None),
        };
        Written { network: Some(network.to_owned()), name, ..Written::default() }
    }

    fn read(item: &Value, place: Place) -> Result<Self, Malformed> {
        let Value::Object(fields) = item else {
            let Place { mark, position } = place;
            let right = format!("it must be an object with {FIELDS}");
            return Err(malformed(format!("{mark}[{position}]: {item} is none; {right}")));
        };
        let mut written = Written::default();
        for (field, value) in fields {
            let slot = match field.as_str() {
                "network" => &mut written.network,
                "subnet" => &mut written.subnet,
                "ip" => &mut written.ip,
                "mac" => &mut written.mac,
                "name" => &mut written.name,
                "port" => &mut written.port,
                "type" => &mut written.kind,
                "ips" => {
                    written.ips = texts(value).map_err(|error| place.wrong(field, error))?;
                    continue;
                }
                _ => return Err(place.wrong(field, format!("no such field; there are {FIELDS}"))),
            };
            *slot = text(value).map_err(|error| place.wrong(field, error))?;
        }
        Ok(written)
    }

    fn within_pods_network(self, place: Place) -> Result<Asked, Malformed> {
        if self.network.is_some() {
            let mark = marks::EXTRA_NETWORKS;
            let instead = format!("these are all in the pod's network; use {mark}");
            return Err(place.wrong("network", instead));
        }
        self.parse(place)
    }

    fn parse(self, place: Place) -> Result<Asked, Malformed> {
        let name = interface_name(self.name).map_err(|error| place.wrong("name", error))?;
        let nic = Nic {
            name: first_name(),
            network: parsed(self.network).map_err(|error| place.wrong("network", error))?,
            subnet: object_name(self.subnet).map_err(|error| place.wrong("subnet", error))?,
            ips: addresses(given(self.ip), self.ips, &place)?,
            mac: parsed(self.mac).map_err(|error| place.wrong("mac", error))?,
            port: object_name(self.port).map_err(|error| place.wrong("port", error))?,
            kind: interface_type(self.kind).map_err(|error| place.wrong("type", error))?,
        };
        if nic.port.is_some() && (nic.asks_for_place() || nic.mac.is_some()) {
            let why =
                "a port made beforehand has its subnet, addresses and mac already; leave them out";
            return Err(place.wrong("port", why));
        }
        Ok(Asked { nic, name, place })
    }
}

fn text(value: &Value) -> Result<Option<String>, String> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        other => Err(format!("{other} is no text; write it in quotes")),
    }
}

fn texts(value: &Value) -> Result<Vec<String>, String> {
    let right = r#"it must be a list like ["10.0.0.5", "fd00::5"]"#;
    let Value::Array(items) = value else { return Err(format!("{value} is none; {right}")) };
    let text = |item: &Value| item.as_str().map(str::to_owned);
    items.iter().map(text).collect::<Option<_>>().ok_or_else(|| format!("{value}: {right}"))
}

fn first_name() -> Label {
    FIRST.parse().unwrap_or_else(|_| unreachable!("{FIRST} is a name"))
}

fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn parsed<T: std::str::FromStr<Err: ToString>>(text: Option<String>) -> Result<Option<T>, String> {
    given(text).map(|text| text.parse().map_err(|error: T::Err| error.to_string())).transpose()
}

/// The name of a subnet or of a port, as Kubernetes lets them be.
fn object_name(text: Option<String>) -> Result<Option<String>, String> {
    let fits = |letter: char| {
        letter.is_ascii_lowercase() || letter.is_ascii_digit() || ['-', '.'].contains(&letter)
    };
    match given(text) {
        Some(name) if !name.chars().all(fits) || name.len() > 253 => {
            let right = "one has lower-case letters, digits, dashes and dots";
            Err(format!("{name:?} is no object's name: {right}"))
        }
        name => Ok(name),
    }
}

/// At most one address of each family, from either field.
fn addresses(
    ip: Option<String>,
    ips: Vec<String>,
    place: &Place,
) -> Result<Vec<IpAddr>, Malformed> {
    if ip.is_some() && !ips.is_empty() {
        return Err(place.wrong("ips", "ip is given too; give one of both"));
    }
    let field = if ip.is_some() { "ip" } else { "ips" };
    let parse = |text: String| {
        let parsed = text.parse::<IpAddr>().map(|ip| ip.to_canonical());
        parsed
            .map_err(|_| place.wrong(field, format!("{text:?} is not an IP address like 10.0.0.5")))
    };
    let parsed = ip.into_iter().chain(ips).map(parse).collect::<Result<Vec<_>, _>>()?;
    let fours = parsed.iter().filter(|ip| ip.is_ipv4()).count();
    if fours > 1 || parsed.len() - fours > 1 {
        return Err(place.wrong(field, "an interface has at most one address of each family"));
    }
    Ok(parsed)
}

fn interface_type(text: Option<String>) -> Result<InterfaceType, String> {
    match given(text).as_deref() {
        None | Some("veth") => Ok(InterfaceType::Veth),
        Some("tap") => Ok(InterfaceType::Tap),
        Some(other) => Err(format!("{other:?} is neither veth nor tap")),
    }
}

/// Ports are named after their interface, so that it is a DNS label.
fn interface_name(text: Option<String>) -> Result<Option<Label>, String> {
    match parsed::<Label>(text)? {
        Some(name) if name.as_str().len() > LONGEST_NAME => Err(format!(
            "\"{name}\" is longer than the {LONGEST_NAME} characters that Linux allows"
        )),
        Some(name) if name.as_str() == "lo" => {
            Err("\"lo\" is every pod's loopback; take another name".into())
        }
        name => Ok(name),
    }
}

/// The first is what runtimes call it; others have the name they ask for, or the next `net1`…
fn settle_names(asked: Vec<Asked>) -> Result<Vec<Nic>, Malformed> {
    let mut taken: BTreeSet<Label> = BTreeSet::from([first_name()]);
    for (position, Asked { name, place, .. }) in asked.iter().enumerate() {
        let Some(name) = name else { continue };
        if position == 0 && name.as_str() != FIRST {
            let why =
                format!("a pod's first interface is always {FIRST}, not {name}; leave it out");
            return Err(place.wrong("name", why));
        }
        if position > 0 && !taken.insert(name.clone()) {
            return Err(place.wrong(
                "name",
                format!("two interfaces are called {name}; give each a name of its own"),
            ));
        }
    }
    let mut free = (1..).filter_map(|number| format!("net{number}").parse::<Label>().ok());
    let mut free = move |taken: &BTreeSet<Label>| free.find(|name| !taken.contains(name));
    let named = asked.into_iter().enumerate().map(|(position, asked)| {
        let name = asked.name.or_else(|| if position == 0 { None } else { free(&taken) });
        Nic { name: name.unwrap_or_else(first_name), ..asked.nic }
    });
    Ok(named.collect())
}

impl Place {
    fn wrong(&self, field: &str, error: impl std::fmt::Display) -> Malformed {
        malformed(format!("{}[{}].{field}: {error}", self.mark, self.position))
    }
}

fn malformed(message: String) -> Malformed {
    Malformed::new(Reason::RequestMalformed, message)
}

#[cfg(test)]
mod tests;
