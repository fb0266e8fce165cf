//! What a pod asks of its interfaces: the first, further ones in the same network, and one more
//! for each extra network.
//!
//! The rule: the same words always give the same interfaces in the same order, and each has a
//! name of its own.

use std::collections::BTreeSet;
use std::net::IpAddr;

use atoll_api::{InterfaceType, Reason, marks};
use atoll_types::{Label, MacAddr};
use serde::Deserialize;

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

/// An interface as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    network: Option<String>,
    subnet: Option<String>,
    ip: Option<String>,
    #[serde(default)]
    ips: Vec<String>,
    mac: Option<String>,
    name: Option<String>,
    port: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// An extra network as it is written: just its name, or with what is asked of the interface.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenNetwork {
    Name(String),
    Full(Box<Written>),
}

/// Where something was written.
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
    let written: Vec<Written> = json(text, mark, r#"[{"ip": "10.0.0.5"}]"#)?;
    if written.is_empty() {
        return Err(malformed(format!("{mark}: the list is empty")));
    }
    let placed = written.into_iter().enumerate();
    placed.map(|(position, nic)| nic.within_pods_network(Place { mark, position })).collect()
}

fn parse_extra(text: &str) -> Result<Vec<Asked>, Malformed> {
    let mark = marks::EXTRA_NETWORKS;
    let written: Vec<WrittenNetwork> = match text.trim_start().starts_with('[') {
        true => json(text, mark, r#"["net-b", {"network": "net-c", "name": "net1"}]"#)?,
        false => text.split(',').map(|item| WrittenNetwork::Name(item.trim().into())).collect(),
    };
    let placed = written.into_iter().enumerate();
    placed.map(|(position, network)| network.parse(Place { mark, position })).collect()
}

fn json<T: for<'a> Deserialize<'a>>(text: &str, mark: &str, like: &str) -> Result<T, Malformed> {
    serde_json::from_str(text)
        .map_err(|error| malformed(format!("{mark} must be JSON like {like}: {error}")))
}

impl WrittenNetwork {
    fn parse(self, place: Place) -> Result<Asked, Malformed> {
        let written = match self {
            WrittenNetwork::Full(written) => *written,
            WrittenNetwork::Name(text) => {
                let (network, name) = match text.split_once('@') {
                    Some((network, name)) => (network.to_owned(), Some(name.to_owned())),
                    None => (text, None),
                };
                Written { network: Some(network), name, ..Written::default() }
            }
        };
        if given(written.network.clone()).is_none() && given(written.port.clone()).is_none() {
            return Err(place.wrong("network", "names no network"));
        }
        written.parse(place)
    }
}

impl Written {
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
            subnet: given(self.subnet),
            ips: addresses(given(self.ip), self.ips, &place)?,
            mac: parsed(self.mac).map_err(|error| place.wrong("mac", error))?,
            port: given(self.port),
            kind: interface_type(self.kind).map_err(|error| place.wrong("type", error))?,
        };
        if nic.port.is_some() && (nic.asks_for_place() || nic.mac.is_some()) {
            let why = "a port made beforehand has its subnet, addresses and mac already";
            return Err(place.wrong("port", why));
        }
        Ok(Asked { nic, name, place })
    }
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
        parsed.map_err(|_| place.wrong(field, format!("{text:?} is not an IP address")))
    };
    let parsed = ip.into_iter().chain(ips).map(parse).collect::<Result<Vec<_>, _>>()?;
    let fours = parsed.iter().filter(|ip| ip.is_ipv4()).count();
    if fours > 1 || parsed.len() - fours > 1 {
        return Err(place.wrong(field, "an interface has one address of each family"));
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
        Some(name) if name.as_str().len() > LONGEST_NAME => {
            Err(format!("\"{name}\" is longer than {LONGEST_NAME} characters"))
        }
        Some(name) if name.as_str() == "lo" => Err("\"lo\" is every pod's loopback".into()),
        name => Ok(name),
    }
}

/// The first is what runtimes call it; others have the name they ask for, or the next `net1`…
fn settle_names(asked: Vec<Asked>) -> Result<Vec<Nic>, Malformed> {
    let mut taken: BTreeSet<Label> = BTreeSet::from([first_name()]);
    for (position, Asked { name, place, .. }) in asked.iter().enumerate() {
        let Some(name) = name else { continue };
        if position == 0 && name.as_str() != FIRST {
            let why = format!("a pod's first interface is always {FIRST}, not {name}");
            return Err(place.wrong("name", why));
        }
        if position > 0 && !taken.insert(name.clone()) {
            return Err(place.wrong("name", format!("two interfaces are called {name}")));
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
mod tests {
    use super::*;

    fn nics(text: &str) -> Vec<Nic> {
        parse(Some(text), None).unwrap()
    }

    fn message(text: &str) -> String {
        parse(Some(text), None).unwrap_err().message
    }

    fn names_and_networks(extra: &str) -> Vec<String> {
        let nics = parse(None, Some(extra)).unwrap();
        let network = |nic: &Nic| nic.network.as_ref().map_or("-".into(), Label::to_string);
        nics.iter().map(|nic| format!("{} {}", nic.name, network(nic))).collect()
    }

    #[test]
    fn a_pod_that_asks_for_nothing_has_one_interface() {
        let nics = parse(None, None).unwrap();
        assert_eq!(
            (nics.len(), nics[0].name.as_str(), nics[0].asks_for_place()),
            (1, "eth0", false)
        );
    }

    #[test]
    fn an_interface_is_a_veth_unless_a_tap_is_asked_for() {
        let nics = nics(r#"[{"type": "tap"}, {"type": "veth"}, {}]"#);
        let kinds: Vec<_> = nics.iter().map(|nic| nic.kind).collect();
        assert_eq!(kinds, [InterfaceType::Tap, InterfaceType::Veth, InterfaceType::Veth]);
        let wrong = message(r#"[{"type": "bridge"}]"#);
        assert_eq!(wrong, "atoll.dev/nics[0].type: \"bridge\" is neither veth nor tap");
    }

    #[test]
    fn a_pod_asks_for_subnet_address_and_name() {
        let nics = nics(r#"[{"subnet": "web", "ip": "10.0.0.5", "name": "eth0"}, {}]"#);
        assert_eq!(nics[0].subnet.as_deref(), Some("web"));
        assert_eq!(nics[0].ips, ["10.0.0.5".parse::<IpAddr>().unwrap()]);
        assert_eq!((nics[1].name.as_str(), nics[1].asks_for_place()), ("net1", false));
    }

    #[test]
    fn an_interface_may_ask_for_an_address_of_each_family() {
        let nics = nics(r#"[{"ips": ["10.0.0.5", "fd00::5"]}]"#);
        assert_eq!(nics[0].ips.len(), 2);
        assert!(message(r#"[{"ips": ["10.0.0.5", "10.0.0.6"]}]"#).contains("one address of each"));
        assert!(message(r#"[{"ip": "10.0.0.5", "ips": ["fd00::5"]}]"#).contains("one of both"));
    }

    #[test]
    fn extra_networks_are_written_as_json_or_as_a_short_list() {
        let expected = ["eth0 -", "net1 b", "net2 c"];
        assert_eq!(names_and_networks(r#"["b", {"network": "c"}]"#), expected);
        assert_eq!(names_and_networks("b, c"), expected);
        assert_eq!(names_and_networks("b@data,c"), ["eth0 -", "data b", "net1 c"]);
        assert_eq!(names_and_networks("b,c@net1"), ["eth0 -", "net2 b", "net1 c"]);
        assert_eq!(names_and_networks("b,b"), ["eth0 -", "net1 b", "net2 b"]);
    }

    #[test]
    fn what_is_wrong_with_an_extra_network_is_said_with_its_place() {
        let message = |text| parse(None, Some(text)).unwrap_err().message;
        assert_eq!(message("b,"), "atoll.dev/extra-networks[1].network: names no network");
        assert!(
            message("globex.b").starts_with("atoll.dev/extra-networks[0].network: \"globex.b\"")
        );
        assert!(message("b@data,c@data").contains("two interfaces are called data"));
        assert!(message("b@eth0").contains("two interfaces are called eth0"));
        assert!(message("[1]").starts_with("atoll.dev/extra-networks must be JSON like"));
        assert!(message(&["b"; 16].join(",")).contains("a pod may have 16"));
    }

    #[test]
    fn what_is_wrong_with_an_annotation_is_said_with_its_place() {
        assert_eq!(
            message(r#"[{"ip": "10.0.0"}]"#),
            "atoll.dev/nics[0].ip: \"10.0.0\" is not an IP address"
        );
        assert!(message(r#"[{}, {"name": "eth_0"}]"#).starts_with("atoll.dev/nics[1].name: "));
        assert!(message(r#"[{"name": "a-very-long-name"}]"#).contains("longer than 15"));
        assert!(message(r#"[{"name": "lo"}]"#).contains("loopback"));
        assert!(message(r#"[{"name": "net1"}]"#).contains("always eth0, not net1"));
        assert!(message(r#"[{"mac": "ff:ff:ff:ff:ff:ff"}]"#).contains("unicast"));
        assert!(message(r#"[{"port": "mine", "ip": "10.0.0.5"}]"#).contains("already"));
        assert!(message(r#"[{"network": "b"}]"#).contains("use atoll.dev/extra-networks"));
        assert!(message("ten").starts_with("atoll.dev/nics must be JSON like"));
        assert!(message(r#"[{"adress": "10.0.0.5"}]"#).contains("adress"));
        assert_eq!(message("[]"), "atoll.dev/nics: the list is empty");
    }
}
