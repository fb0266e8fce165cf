//! `ClusterNetworkPolicy`, rule by rule.
//!
//! The rule kept here is the API's own word for what is not understood: an `Accept` rule then
//! matches nothing, a `Deny` or `Pass` rule denies everything. Where tier, priority, subject or
//! networks are not understood, the policy stands first of all, is about every pod it could mean,
//! accepts nothing, and denies what it would pass.

use atoll_api::marks::TENANT;
use atoll_types::Label;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::networks::aimed_at;
use crate::cluster_policy::{
    ClusterNetworkPolicy, WrittenDestination, WrittenNumbers, WrittenPeer, WrittenPods,
    WrittenPort, WrittenProtocol, WrittenRule, WrittenSubject,
};
use crate::facts::Protocol;
use crate::policy::{
    Action, Direction, Namespaces, Peer, Policy, PolicyKey, Rule, RulePlace, Subject, Tier,
};
use crate::ports::{PortMatch, PortRange};
use crate::report::{Instead, Read, Reader, Reason};
use crate::selector::Selector;

/// Why a part of a rule cannot be read: the kind, the field below the rule, and the words.
type Wrong = (Reason, String, String);

/// Reads a policy of administrators.
pub fn read_cluster_policy(object: &ClusterNetworkPolicy) -> Read {
    let (key, tenant) = key_of(object);
    let mut reader = Reader::new(key);
    if let Err(name) = &tenant {
        let field = format!("metadata.labels[{TENANT}]");
        let message = format!("{name:?} cannot be a tenant's name");
        reader.note((Reason::Shape, Instead::Strictest), &field, message);
    }
    let cluster = reader.key.tenant.is_none();
    let networks = aimed_at(&object.metadata, &mut reader);
    let tier = tier(&mut reader, &object.spec.tier, cluster);
    let priority = priority(&mut reader, &object.spec.priority);
    let subject = subject(&mut reader, &object.spec.subject);
    let unknown = &object.spec.unknown;
    for field in unknown.keys() {
        let field = format!("spec.{field}");
        reader.note((Reason::Shape, Instead::Strictest), &field, "is not a known field");
    }
    let placed = unknown.is_empty() && tenant.is_ok() && tier.is_ok() && priority.is_ok();
    let strict = !placed || networks.is_err() || subject.is_err();
    let mut read = |direction, rules: &Value| {
        let rules = rules_of(&mut reader, direction, rules);
        let rules = if strict { strictest(rules) } else { rules };
        Some(rules).filter(|rules| !rules.is_empty())
    };
    let ingress = read(Direction::Ingress, &object.spec.ingress);
    let egress = read(Direction::Egress, &object.spec.egress);
    let first = if cluster { Tier::ClusterAdmin } else { Tier::TenantAdmin };
    let policy = Policy {
        key: reader.key.clone(),
        tier: if strict { first } else { tier.unwrap_or(first) },
        priority: if strict { 0 } else { priority.unwrap_or(0) },
        subject: subject.unwrap_or_else(|()| everywhere()),
        networks: networks.unwrap_or(None),
        ingress,
        egress,
    };
    Read { policy, reports: reader.reports }
}

/// The policy's key. A policy of a tenant that cannot be is the cluster's, and not understood.
fn key_of(object: &ClusterNetworkPolicy) -> (PolicyKey, Result<(), String>) {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let mut labels = object.metadata.labels.iter().flatten();
    let Some((_, written)) = labels.find(|(key, _)| *key == TENANT) else {
        return (PolicyKey::cluster(None, name), Ok(()));
    };
    let tenant: Option<Label> = written.parse().ok();
    let understood = if tenant.is_some() { Ok(()) } else { Err(written.clone()) };
    (PolicyKey::cluster(tenant, name), understood)
}

fn everywhere() -> Subject {
    let namespaces = Namespaces::Labelled(Selector::default());
    Subject { namespaces, pods: Selector::default() }
}

fn tier(reader: &mut Reader, written: &Value, cluster: bool) -> Result<Tier, ()> {
    match (written.as_str(), cluster) {
        (Some("Admin"), true) => Ok(Tier::ClusterAdmin),
        (Some("Admin"), false) => Ok(Tier::TenantAdmin),
        (Some("Baseline"), true) => Ok(Tier::ClusterBaseline),
        (Some("Baseline"), false) => Ok(Tier::TenantBaseline),
        _ => {
            let message = format!("{written} is neither Admin nor Baseline");
            reader.note((Reason::Shape, Instead::Strictest), "spec.tier", message);
            Err(())
        }
    }
}

fn priority(reader: &mut Reader, written: &Value) -> Result<u16, ()> {
    let number = written.as_u64().filter(|number| *number <= 1000);
    number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| {
        let message = format!("{written} is not a number between 0 and 1000");
        reader.note((Reason::Shape, Instead::Strictest), "spec.priority", message);
    })
}

fn subject(reader: &mut Reader, written: &Value) -> Result<Subject, ()> {
    let read = serde_json::from_value::<WrittenSubject>(written.clone())
        .map_err(|error| (Reason::Shape, String::new(), error.to_string()))
        .and_then(|subject| match (subject.namespaces, subject.pods) {
            (Some(namespaces), None) => in_namespaces(&namespaces),
            (None, Some(pods)) => pods_of(&pods),
            _ => {
                let message = "must have exactly one of namespaces and pods".to_owned();
                Err((Reason::Shape, String::new(), message))
            }
        });
    read.map_err(|(reason, field, message)| {
        let field = format!("spec.subject{field}");
        reader.note((reason, Instead::Strictest), &field, message);
    })
}

fn strictest(rules: Vec<Rule>) -> Vec<Rule> {
    let kept = rules.into_iter().filter(|rule| rule.action != Action::Accept);
    kept.map(|rule| Rule { action: Action::Deny, ..rule }).collect()
}

/// The rules of a direction. What is no list is a rule that cannot be read.
fn rules_of(reader: &mut Reader, direction: Direction, written: &Value) -> Vec<Rule> {
    let rules = match written {
        Value::Null => &[],
        Value::Array(rules) => rules.as_slice(),
        other => std::slice::from_ref(other),
    };
    let rules = rules.iter().enumerate();
    rules.map(|(index, value)| rule(reader, direction, index, value)).collect()
}

fn rule(reader: &mut Reader, direction: Direction, index: usize, value: &Value) -> Rule {
    let field = format!("spec.{direction}[{index}]");
    let place = RulePlace {
        index: u16::try_from(index).unwrap_or(u16::MAX),
        name: value["name"].as_str().map(ToOwned::to_owned),
    };
    understand(direction, value, place.clone()).unwrap_or_else(|(reason, below, message)| {
        let closed = fail_closed(value["action"].as_str(), place);
        let instead = match closed.action {
            Action::Accept => Instead::AllowsNothing,
            Action::Deny | Action::Pass => Instead::DeniesAll,
        };
        reader.note((reason, instead), &format!("{field}{below}"), message);
        closed
    })
}

/// What the API asks of a rule that is not understood.
fn fail_closed(action: Option<&str>, place: RulePlace) -> Rule {
    match action {
        Some("Accept") => {
            Rule { action: Action::Accept, place, peers: Some(Vec::new()), ports: None }
        }
        _ => Rule { action: Action::Deny, place, peers: None, ports: None },
    }
}

fn understand(direction: Direction, value: &Value, place: RulePlace) -> Result<Rule, Wrong> {
    let wrong = |error: serde_json::Error| (Reason::Shape, String::new(), error.to_string());
    let written: WrittenRule = serde_json::from_value(value.clone()).map_err(wrong)?;
    let action = action(&written.action)?;
    let (peers, ports) = (peers(direction, &written)?, ports(&written)?);
    let nameless = peers.iter().any(|peer| !matches!(peer, Peer::Pods(_)));
    let named = ports.iter().flatten().any(|port| matches!(port, PortMatch::Named(..)));
    if nameless && named {
        let message = "nodes and networks have no ports with names".to_owned();
        return Err((Reason::Port, String::new(), message));
    }
    Ok(Rule { action, place, peers: Some(peers), ports })
}

fn action(written: &str) -> Result<Action, Wrong> {
    match written {
        "Accept" => Ok(Action::Accept),
        "Deny" => Ok(Action::Deny),
        "Pass" => Ok(Action::Pass),
        _ => {
            let message = format!("{written:?} is none of Accept, Deny, Pass");
            Err((Reason::Shape, ".action".to_owned(), message))
        }
    }
}

fn peers(direction: Direction, rule: &WrittenRule) -> Result<Vec<Peer>, Wrong> {
    let (field, written, other) = match direction {
        Direction::Ingress => ("from", &rule.from, &rule.to),
        Direction::Egress => ("to", &rule.to, &rule.from),
    };
    let wrong = |message: &str| (Reason::Peer, format!(".{field}"), message.to_owned());
    let written = written.as_deref().filter(|peers| !peers.is_empty());
    let written = written.ok_or_else(|| wrong("must have at least one peer"))?;
    if other.is_some() {
        return Err(wrong("a rule of this direction has no such peers"));
    }
    let mut peers = Vec::new();
    for (at, peer) in written.iter().enumerate() {
        let below = |(reason, below, message)| (reason, format!(".{field}[{at}]{below}"), message);
        peers.extend(peer_of(direction, peer).map_err(below)?);
    }
    Ok(peers)
}

fn peer_of(direction: Direction, peer: &WrittenPeer) -> Result<Vec<Peer>, Wrong> {
    let WrittenPeer { namespaces, pods, nodes, networks, domain_names } = peer;
    if domain_names.is_some() {
        let message = "names of hosts are not enforced; name ranges of addresses".to_owned();
        return Err((Reason::DomainNames, ".domainNames".to_owned(), message));
    }
    match (namespaces, pods, nodes, networks) {
        (Some(namespaces), None, None, None) => Ok(vec![Peer::Pods(in_namespaces(namespaces)?)]),
        (None, Some(pods), None, None) => Ok(vec![Peer::Pods(pods_of(pods)?)]),
        (None, None, Some(nodes), None) if direction == Direction::Egress => {
            Ok(vec![Peer::Nodes(selector(".nodes", nodes)?)])
        }
        (None, None, None, Some(networks)) if direction == Direction::Egress => blocks(networks),
        _ => {
            let message = "must have exactly one kind of peer that this direction knows".to_owned();
            Err((Reason::Peer, String::new(), message))
        }
    }
}

fn blocks(written: &[String]) -> Result<Vec<Peer>, Wrong> {
    if written.is_empty() {
        return Err((Reason::Range, ".networks".to_owned(), "must name a range".to_owned()));
    }
    let block = |(at, text): (usize, &String)| {
        let wrong = |message| (Reason::Range, format!(".networks[{at}]"), message);
        let cidr = super::range(text).map_err(wrong)?;
        Ok(Peer::Block { cidr, except: std::collections::BTreeSet::new() })
    };
    written.iter().enumerate().map(block).collect()
}

fn in_namespaces(namespaces: &LabelSelector) -> Result<Subject, Wrong> {
    let namespaces = Namespaces::Labelled(selector(".namespaces", namespaces)?);
    Ok(Subject { namespaces, pods: Selector::default() })
}

fn pods_of(pods: &WrittenPods) -> Result<Subject, Wrong> {
    let namespaces = selector(".pods.namespaceSelector", &pods.namespace_selector)?;
    let pods = selector(".pods.podSelector", &pods.pod_selector)?;
    Ok(Subject { namespaces: Namespaces::Labelled(namespaces), pods })
}

fn selector(field: &str, written: &LabelSelector) -> Result<Selector, Wrong> {
    Selector::try_from(written)
        .map_err(|error| (Reason::Selector, field.to_owned(), error.to_string()))
}

fn ports(rule: &WrittenRule) -> Result<Option<Vec<PortMatch>>, Wrong> {
    match (&rule.protocols, &rule.ports) {
        (None, None) => Ok(None),
        (Some(protocols), None) => each(".protocols", protocols, protocol).map(Some),
        (None, Some(ports)) => each(".ports", ports, older_port).map(Some),
        (Some(_), Some(_)) => {
            let message = "protocols and ports cannot both be set".to_owned();
            Err((Reason::Port, ".ports".to_owned(), message))
        }
    }
}

fn each<T>(
    field: &str,
    written: &[T],
    read: impl Fn(&T) -> Result<PortMatch, String>,
) -> Result<Vec<PortMatch>, Wrong> {
    if written.is_empty() {
        return Err((Reason::Port, field.to_owned(), "must have at least one entry".to_owned()));
    }
    let entries = written.iter().enumerate();
    let read = entries.map(|(at, entry)| {
        read(entry).map_err(|message| (Reason::Port, format!("{field}[{at}]"), message))
    });
    read.collect()
}

fn protocol(written: &WrittenProtocol) -> Result<PortMatch, String> {
    let WrittenProtocol { tcp, udp, sctp, destination_named_port } = written;
    match (tcp, udp, sctp, destination_named_port) {
        (Some(tcp), None, None, None) => destination(Protocol::Tcp, tcp),
        (None, Some(udp), None, None) => destination(Protocol::Udp, udp),
        (None, None, Some(sctp), None) => destination(Protocol::Sctp, sctp),
        (None, None, None, Some(name)) => Ok(PortMatch::Named(None, name.clone())),
        _ => Err("must have exactly one of tcp, udp, sctp, destinationNamedPort".to_owned()),
    }
}

fn destination(protocol: Protocol, written: &WrittenDestination) -> Result<PortMatch, String> {
    match &written.destination_port {
        Some(WrittenNumbers { number: Some(number), range: None }) => {
            numbers(protocol, *number, *number)
        }
        Some(WrittenNumbers { number: None, range: Some(range) }) => {
            numbers(protocol, range.start, range.end)
        }
        _ => Err("destinationPort must have exactly one of number and range".to_owned()),
    }
}

fn older_port(written: &WrittenPort) -> Result<PortMatch, String> {
    match (&written.port_number, &written.port_range, &written.named_port) {
        (Some(one), None, None) => {
            numbers(protocol_named(one.protocol.as_deref())?, one.port, one.port)
        }
        (None, Some(range), None) => {
            numbers(protocol_named(range.protocol.as_deref())?, range.start, range.end)
        }
        (None, None, Some(name)) => Ok(PortMatch::Named(None, name.clone())),
        _ => Err("must have exactly one of portNumber, portRange, namedPort".to_owned()),
    }
}

fn protocol_named(name: Option<&str>) -> Result<Protocol, String> {
    let name = name.unwrap_or("TCP");
    Protocol::named(name).ok_or_else(|| format!("{name:?} is none of TCP, UDP, SCTP"))
}

fn numbers(protocol: Protocol, first: i64, last: i64) -> Result<PortMatch, String> {
    let (first, last) = (super::port(first)?, super::port(last)?);
    let range = PortRange::new(first, last);
    let range = range.ok_or_else(|| format!("the range ends at {last} before {first}"))?;
    Ok(PortMatch::Numbers(protocol, range))
}
