//! Who waits for what, and what people hear of it.
//!
//! The rule: what mostly solves itself is not worth a word before it has lasted a while, and
//! whoever waits is looked at again when what it waits for changes.

use atoll_api::{ClaimHolder, Reason};
use atoll_types::NetworkName;
use atoll_vpc::Moment;

use crate::action::{Action, Decision, Key, Target};
use crate::conditions::Verdict;
use crate::intent::{Kind, Malformed, ObjectName, Thing};
use crate::world::{Now, World};

/// What a pod or a port waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wait {
    /// A network.
    network: Option<NetworkName>,
    /// An address that somebody else has.
    thing: Option<Thing>,
    /// A port that was made beforehand.
    port: Option<ObjectName>,
}

/// A pod or a port that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    wait: Wait,
    reason: Reason,
    since: Moment,
}

/// How long something that mostly solves itself may last before people are told.
fn patience(reason: Reason) -> Moment {
    match reason {
        Reason::NetworkNotFound | Reason::PortNotFound | Reason::PortNotReady => {
            Moment::from_secs(1)
        }
        Reason::NetworkNotReady | Reason::SubnetNotReady => Moment::from_secs(5),
        _ => Moment::ZERO,
    }
}

/// Why a pod has no port, or a port no address yet.
pub(super) struct Complaint {
    reason: Reason,
    message: String,
    wait: Box<Wait>,
    again: Option<Moment>,
}

impl Complaint {
    pub(super) fn new(reason: Reason, message: String) -> Self {
        Complaint { reason, message, wait: Box::default(), again: None }
    }

    pub(super) fn waiting_for(self, network: &NetworkName, thing: Option<Thing>) -> Self {
        let wait = Wait { network: Some(network.clone()), thing, port: None };
        Complaint { wait: Box::new(wait), ..self }
    }

    pub(super) fn waiting_for_thing(self, thing: Thing) -> Self {
        let wait = Wait { thing: Some(thing), ..Wait::default() };
        Complaint { wait: Box::new(wait), ..self }
    }

    pub(super) fn waiting_for_port(self, port: &ObjectName) -> Self {
        let wait = Wait { port: Some(port.clone()), ..Wait::default() };
        Complaint { wait: Box::new(wait), ..self }
    }

    /// The same as a verdict.
    pub(super) fn into_verdict(self) -> Verdict {
        Verdict::not_ready(self.reason, self.message)
    }

    /// Even if nothing happens, the matter is looked at again at `moment`.
    pub(super) fn again_at(self, moment: Moment) -> Self {
        Complaint { again: Some(moment), ..self }
    }
}

impl From<&Malformed> for Complaint {
    fn from(malformed: &Malformed) -> Self {
        Complaint::new(malformed.reason, malformed.message.clone())
    }
}

impl World {
    /// Lets `target` wait and tells people why, once that is worth a word. What was claimed for it
    /// by `holders` earlier would keep a network that goes from going.
    pub(super) fn complain(
        &mut self,
        target: Target,
        complaint: Complaint,
        before: Option<Waiting>,
        holders: &[ClaimHolder],
        now: &Now,
    ) -> Decision {
        let Complaint { reason, message, wait, again } = complaint;
        let same = before.filter(|waiting| waiting.reason == reason);
        let since = same.map_or(now.moment, |waiting| waiting.since);
        holders.iter().for_each(|holder| self.drop_proposals(&port_of(holder), now.moment));
        let network = wait.network.clone();
        self.start_waiting(&target.key, Waiting { wait: *wait, reason, since });
        let farewell = network.and_then(|it| self.let_go_of_network(holders, &it, since, now));
        if let Some(decision) = farewell {
            return decision;
        }
        let due = since + patience(reason);
        if now.moment < due {
            return Decision::nothing().and_again(due);
        }
        let said = self.say(target, reason, &message);
        Decision { actions: said.into_iter().collect(), again }
    }

    /// Gives back what ports that do not exist yet have claimed, if the network that they wait for
    /// goes.
    fn let_go_of_network(
        &self,
        holders: &[ClaimHolder],
        network: &NetworkName,
        since: Moment,
        now: &Now,
    ) -> Option<Decision> {
        let lives = self.network_named(network).is_some_and(|network| !network.meta.deleting);
        let returns: Vec<Action> = holders.iter().flat_map(|it| self.unused_claims(it)).collect();
        if lives || returns.is_empty() {
            return None;
        }
        let due = since + self.settings.grace;
        if now.moment < due {
            return Some(Decision::nothing().and_again(due));
        }
        let look = self.confirm(Kind::Network, &ObjectName::cluster(network.to_string()));
        Some(Decision::act([look].into_iter().chain(returns)))
    }

    /// The return of claims that were made for a port that does not have them.
    fn unused_claims(&self, holder: &ClaimHolder) -> Vec<Action> {
        let name = port_of(holder);
        let port = self.ports.get(&name);
        let held = self.vpcs.holdings().held_by(&name);
        let unused = held.filter(|address| port.is_none_or(|port| !port.has(*address)));
        let mine = unused
            .map(Thing::Address)
            .filter(|thing| self.claim_on(thing).is_some_and(|claim| claim.holder == *holder));
        mine.map(|thing| self.give_back(thing, holder)).collect()
    }

    fn start_waiting(&mut self, key: &Key, waiting: Waiting) {
        let Wait { network, thing, port } = &waiting.wait;
        if let Some(network) = network {
            self.indexes.waiting_for_network.add(network.clone(), key.clone());
        }
        if let Some(thing) = thing {
            self.indexes.waiting_for_thing.add(thing.clone(), key.clone());
        }
        if let Some(port) = port {
            self.indexes.waiting_for_port.add(port.clone(), key.clone());
        }
        self.indexes.waits.insert(key.clone(), waiting);
    }

    pub(crate) fn stop_waiting(&mut self, key: &Key) -> Option<Waiting> {
        let waiting = self.indexes.waits.remove(key)?;
        let Wait { network, thing, port } = &waiting.wait;
        if let Some(network) = network {
            self.indexes.waiting_for_network.remove(network, key);
        }
        if let Some(thing) = thing {
            self.indexes.waiting_for_thing.remove(thing, key);
        }
        if let Some(port) = port {
            self.indexes.waiting_for_port.remove(port, key);
        }
        Some(waiting)
    }
}

fn port_of(holder: &ClaimHolder) -> ObjectName {
    ObjectName::inside(holder.namespace.clone().unwrap_or_default(), holder.name.clone())
}
