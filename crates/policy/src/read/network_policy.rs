//! `NetworkPolicy` of `networking.k8s.io/v1`.
//!
//! The rule kept here: such a policy only ever allows, so what is not understood allows nothing;
//! where its pods or directions are not understood, all that it could mean are isolated.

use atoll_types::Label;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::networks::aimed_at;
use crate::facts::Protocol;
use crate::policy::{Action, Namespaces, Peer, Policy, PolicyKey, Rule, RulePlace, Subject, Tier};
use crate::ports::{PortMatch, PortRange};
use crate::report::{Instead, Read, Reader, Reason};
use crate::selector::Selector;

/// Reads a policy of a tenant.
pub fn read_network_policy(tenant: &Label, object: &NetworkPolicy) -> Read {
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let name = object.metadata.name.clone().unwrap_or_default();
    let key = PolicyKey::namespaced(tenant.clone(), &namespace, &name);
    let mut reader = Reader::new(key);
    let spec = object.spec.clone().unwrap_or_default();
    let networks = aimed_at(&object.metadata, &mut reader);
    let subject = subject(&mut reader, spec.pod_selector.as_ref());
    let strict = networks.is_err() || subject.is_err();
    let mut directions = directions(&mut reader, &namespace, &spec);
    if strict {
        directions.iter_mut().flatten().for_each(Vec::clear);
    }
    let [ingress, egress] = directions;
    let policy = Policy {
        key: reader.key.clone(),
        tier: Tier::NetworkPolicy,
        priority: 0,
        subject: Subject {
            namespaces: Namespaces::Named(namespace),
            pods: subject.unwrap_or_default(),
        },
        networks: networks.unwrap_or(None),
        ingress,
        egress,
    };
    Read { policy, reports: reader.reports }
}

fn subject(reader: &mut Reader, written: Option<&LabelSelector>) -> Result<Selector, ()> {
    let selector = written.map_or(Ok(Selector::default()), Selector::try_from);
    selector.map_err(|error| {
        reader.note((Reason::Selector, Instead::Strictest), "spec.podSelector", error);
    })
}

/// The rules for ingress and for egress, where the policy has a say.
fn directions(
    reader: &mut Reader,
    namespace: &str,
    spec: &NetworkPolicySpec,
) -> [Option<Vec<Rule>>; 2] {
    let types = spec.policy_types.as_deref().unwrap_or_default();
    let unknown = types.iter().any(|name| name != "Ingress" && name != "Egress");
    if unknown {
        let message = format!("{types:?} has more than Ingress and Egress");
        reader.note((Reason::PolicyType, Instead::Strictest), "spec.policyTypes", message);
    }
    let named = |name: &str| unknown || types.iter().any(|given| given == name);
    let ingress = types.is_empty() || named("Ingress");
    let egress = named("Egress") || types.is_empty() && spec.egress.iter().flatten().count() > 0;
    let mut written = Rules { reader, namespace };
    let ingress = ingress.then(|| written.ingress(spec));
    let egress = egress.then(|| written.egress(spec));
    [ingress, egress]
}

struct Rules<'a> {
    reader: &'a mut Reader,
    namespace: &'a str,
}

impl Rules<'_> {
    fn ingress(&mut self, spec: &NetworkPolicySpec) -> Vec<Rule> {
        let rules = spec.ingress.iter().flatten().enumerate();
        rules
            .map(|(index, rule)| {
                let field = format!("spec.ingress[{index}]");
                let peers = self.peers(&format!("{field}.from"), rule.from.as_deref());
                accept(index, peers, self.ports(&field, rule.ports.as_deref()))
            })
            .collect()
    }

    fn egress(&mut self, spec: &NetworkPolicySpec) -> Vec<Rule> {
        let rules = spec.egress.iter().flatten().enumerate();
        rules
            .map(|(index, rule)| {
                let field = format!("spec.egress[{index}]");
                let peers = self.peers(&format!("{field}.to"), rule.to.as_deref());
                accept(index, peers, self.ports(&field, rule.ports.as_deref()))
            })
            .collect()
    }

    fn peers(&mut self, field: &str, written: Option<&[NetworkPolicyPeer]>) -> Option<Vec<Peer>> {
        let written = written.filter(|peers| !peers.is_empty())?;
        let peers = written.iter().enumerate();
        Some(peers.filter_map(|(at, peer)| self.peer(&format!("{field}[{at}]"), peer)).collect())
    }

    fn peer(&mut self, field: &str, peer: &NetworkPolicyPeer) -> Option<Peer> {
        match (&peer.ip_block, &peer.namespace_selector, &peer.pod_selector) {
            (Some(block), None, None) => self.block(&format!("{field}.ipBlock"), block),
            (None, None, None) => {
                let message = "names neither pods, nor namespaces, nor a block of addresses";
                self.reader.note((Reason::Peer, Instead::AllowsNothing), field, message);
                None
            }
            (None, namespaces, pods) => self.pods(field, namespaces.as_ref(), pods.as_ref()),
            (Some(_), _, _) => {
                let message = "names a block of addresses and a selector at once";
                self.reader.note((Reason::Peer, Instead::AllowsNothing), field, message);
                None
            }
        }
    }

    fn pods(
        &mut self,
        field: &str,
        namespaces: Option<&LabelSelector>,
        pods: Option<&LabelSelector>,
    ) -> Option<Peer> {
        let namespaces = match namespaces {
            None => Namespaces::Named(self.namespace.to_owned()),
            Some(written) => {
                Namespaces::Labelled(self.selector(&format!("{field}.namespaceSelector"), written)?)
            }
        };
        let pods = match pods {
            None => Selector::default(),
            Some(written) => self.selector(&format!("{field}.podSelector"), written)?,
        };
        Some(Peer::Pods(Subject { namespaces, pods }))
    }

    fn selector(&mut self, field: &str, written: &LabelSelector) -> Option<Selector> {
        let selector = Selector::try_from(written);
        self.understood(Reason::Selector, field, selector)
    }

    fn block(&mut self, field: &str, block: &IPBlock) -> Option<Peer> {
        let cidr = super::range(&block.cidr);
        let cidr = self.understood(Reason::Range, &format!("{field}.cidr"), cidr)?;
        let mut except = std::collections::BTreeSet::new();
        for (at, text) in block.except.iter().flatten().enumerate() {
            let field = format!("{field}.except[{at}]");
            let range = self.understood(Reason::Range, &field, super::range(text))?;
            if cidr.contains_cidr(&range) {
                except.insert(range);
            } else if range.contains_cidr(&cidr) {
                let message = format!("{range} holds the whole block {cidr}");
                self.reader.note((Reason::Except, Instead::AllowsNothing), &field, message);
                return None;
            } else {
                let message = format!("{range} is not inside of {cidr}");
                self.reader.note((Reason::Except, Instead::LeftOut), &field, message);
            }
        }
        Some(Peer::Block { cidr, except })
    }

    fn ports(
        &mut self,
        field: &str,
        written: Option<&[NetworkPolicyPort]>,
    ) -> Option<Vec<PortMatch>> {
        let written = written.filter(|ports| !ports.is_empty())?;
        let ports = written.iter().enumerate();
        Some(
            ports
                .filter_map(|(at, port)| self.port(&format!("{field}.ports[{at}]"), port))
                .collect(),
        )
    }

    fn port(&mut self, field: &str, written: &NetworkPolicyPort) -> Option<PortMatch> {
        let name = written.protocol.as_deref().unwrap_or("TCP");
        let protocol =
            Protocol::named(name).ok_or_else(|| format!("{name:?} is none of TCP, UDP, SCTP"));
        let protocol = self.understood(Reason::Protocol, &format!("{field}.protocol"), protocol)?;
        let numbers = match (&written.port, written.end_port) {
            (None, None) => Ok(PortRange::ALL),
            (Some(IntOrString::String(name)), None) => {
                return Some(PortMatch::Named(Some(protocol), name.clone()));
            }
            (Some(IntOrString::Int(first)), last) => ports_between(*first, last.unwrap_or(*first)),
            (_, Some(_)) => Err("endPort needs a port that is a number".to_owned()),
        };
        let numbers = self.understood(Reason::Port, &format!("{field}.port"), numbers)?;
        Some(PortMatch::Numbers(protocol, numbers))
    }

    fn understood<T, E: std::fmt::Display>(
        &mut self,
        reason: Reason,
        field: &str,
        read: Result<T, E>,
    ) -> Option<T> {
        read.map_err(|error| self.reader.note((reason, Instead::AllowsNothing), field, error)).ok()
    }
}

fn ports_between(first: i32, last: i32) -> Result<PortRange, String> {
    let (first, last) = (super::port(first.into())?, super::port(last.into())?);
    PortRange::new(first, last).ok_or_else(|| format!("endPort {last} is below port {first}"))
}

fn accept(index: usize, peers: Option<Vec<Peer>>, ports: Option<Vec<PortMatch>>) -> Rule {
    let index = u16::try_from(index).unwrap_or(u16::MAX);
    Rule { action: Action::Accept, place: RulePlace { index, name: None }, peers, ports }
}
