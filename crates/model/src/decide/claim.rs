//! A claim whose holder is gone, or has something else, is given back.
//!
//! Claims are made before what they are for, and news of both come on different ways. So a claim
//! without a holder is left alone for a while, and then only given back after a look at the real
//! objects.

use atoll_api::Reason;

use super::grant::holder_text;
use crate::action::{Action, Decision, Target, Tone};
use crate::intent::{Claim, Kind, ObjectName, Thing};
use crate::world::{Now, World};

impl World {
    pub(crate) fn decide_claim(&mut self, name: &ObjectName, now: &Now) -> Decision {
        let Some(claim) = self.claims.hold(name) else { return Decision::nothing() };
        let Some(thing) = &claim.thing else { return Decision::nothing() };
        if let Some(farewell) = self.farewell_to_service(&claim, thing) {
            return farewell;
        }
        let Some(proof) = self.proof_of_loss(&claim, thing) else {
            self.stray_since.remove(name);
            return thing.outside().map_or_else(Decision::nothing, |ip| self.seat(&claim, ip));
        };
        let since = *self.stray_since.entry(name.clone()).or_insert(now.moment);
        let due = since + self.settings.grace;
        if now.moment < due {
            return Decision::nothing().and_again(due);
        }
        let message = format!("{thing} was given back: {} has it no more", holder_text(&claim));
        let target = Target::new(Kind::Claim, &claim.meta);
        let report = Action::Say(target, Tone::Normal, Reason::Repaired, message);
        let release = self.give_back(thing.clone(), &claim.holder);
        Decision::act(proof.into_iter().chain([release, report]))
    }

    /// If nobody has what the claim is for: what to look at to be sure.
    fn proof_of_loss(&self, claim: &Claim, thing: &Thing) -> Option<Vec<Action>> {
        match thing {
            Thing::Address(address) => {
                let (port, uid) = claim.port_holder()?;
                let pod = pod_of_port(&port);
                let lost = match self.ports.get(&port).filter(|it| it.holder() == claim.holder) {
                    Some(found) => found.network().is_some() && !found.has(*address),
                    None => !self.is_awaited(&pod, uid),
                };
                lost.then(|| vec![self.confirm(Kind::Port, &port), self.confirm(Kind::Pod, &pod)])
            }
            Thing::Vip(vip) => self.proof_of_lost_vip(claim, vip),
            Thing::Outside(ip) => self.proof_of_lost_outside(claim, *ip),
            Thing::NetworkId(id) => {
                let vpc = claim.vpc_holder()?;
                let right = ObjectName::cluster(Thing::Vpc(vpc.clone()).to_string());
                (!self.vpcs.needs_id(&vpc, *id)).then(|| vec![self.confirm(Kind::Claim, &right)])
            }
            Thing::Block(_) => {
                let (network, uid) = claim.network_holder()?;
                let lost = self.networks.get(&network).is_none_or(|found| found.meta.uid != uid);
                lost.then(|| vec![self.confirm(Kind::Network, &network)])
            }
            Thing::Vpc(vpc) => {
                let lost = self.vpcs.networks.of_vpc(vpc).len() == 0;
                lost.then(Vec::new)
            }
        }
    }

    /// Whether a pod is there that will get this port.
    fn is_awaited(&self, pod: &ObjectName, uid: &str) -> bool {
        self.pods.get(pod).is_some_and(|pod| pod.meta.uid == uid && pod.needs_port())
    }
}

/// The pod that a port is named after.
pub(crate) fn pod_of_port(port: &ObjectName) -> ObjectName {
    let pod = port.name.rsplit_once('.').map_or(port.name.as_str(), |(pod, _)| pod);
    ObjectName::inside(port.namespace.clone(), pod)
}
