//! A network gets its VPC's number and a subnet for each of its ranges, and goes when no port is
//! in it any more.

use atoll_api::{self as api, ConditionType, NetworkPhase, Reason};
use atoll_types::{Cidr, NetworkId, NetworkName};
use atoll_vpc::{Moment, Overlap, first_overlap};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::flat::Block;
use super::{hold, let_go};
use crate::action::{Action, Decision, Target};
use crate::conditions::{Verdict, conditions, named, network_phase, with_condition};
use crate::intent::{
    Claim, Kind, Network, NetworkPlan, NetworkType, ObjectName, Tenant, Thing, Vpc,
    holder_of_block, holder_of_id, holder_of_vpc, subnet_name,
};
use crate::world::{Hosts, Now, World};

/// Why a range of a network is not served.
pub(super) type Conflict = Overlap<NetworkName>;

fn complaint(conflict: &Conflict, network: &NetworkName) -> String {
    format!(
        "{} of {network} overlaps {} of {}, which is in the same VPC",
        conflict.range, conflict.other_range, conflict.other
    )
}

/// How long a flat network waits before it looks again for a free block.
const NO_BLOCK_PAUSE: Moment = Moment::from_secs(5);

/// A VPC's number, or what is to be done about it.
enum Number {
    Held(NetworkId),
    Claimable(NetworkId),
    Stolen { id: NetworkId, holder: String },
    NoneFree,
}

impl World {
    /// The network of that name.
    pub(crate) fn network_named(&self, name: &NetworkName) -> Option<&Network> {
        self.networks.get(&ObjectName::cluster(name.to_string()))
    }

    pub(crate) fn decide_network(&mut self, name: &ObjectName, now: &Now) -> Decision {
        let Some(network) = self.networks.get(name).cloned() else { return Decision::nothing() };
        if network.meta.deleting {
            return self.take_down_network(&network, now);
        }
        if !network.meta.is_held() {
            return hold(Kind::Network, &network.meta);
        }
        match self.obstacle(&network) {
            Some((phase, verdict)) => self.complain_of_network(&network, phase, &verdict, now),
            None => match &network.plan {
                Ok(plan) => self.build_network(&network, plan, now),
                Err(_) => Decision::nothing(),
            },
        }
    }

    /// What keeps a network from being built at all.
    fn obstacle(&self, network: &Network) -> Option<(NetworkPhase, Verdict)> {
        let plan = match &network.plan {
            Ok(plan) => plan,
            Err(malformed) => return Some((NetworkPhase::Failed, malformed.into())),
        };
        let pending = |reason, message: String| {
            Some((NetworkPhase::Pending, Verdict::not_ready(reason, message)))
        };
        if let NetworkType::Other(type_) = &plan.type_ {
            let message = format!("no provider serves networks of type {type_}");
            return pending(Reason::NoProvider, message);
        }
        let tenant = &plan.name.tenant;
        let Some(owner) = self.tenants.get(&ObjectName::cluster(tenant.as_str())) else {
            return pending(Reason::TenantNotFound, format!("tenant {tenant} does not exist"));
        };
        if let Some(verdict) = self.over_services(owner, plan) {
            return Some((NetworkPhase::Failed, verdict));
        }
        if let Some(verdict) = self.over_network_quota(network, tenant) {
            return Some((NetworkPhase::Pending, verdict));
        }
        let unusable = plan.check_ranges().err()?;
        Some((NetworkPhase::Failed, Verdict::from(&unusable)))
    }

    /// A range that is also its tenant's for services would hide them.
    fn over_services(&self, tenant: &Tenant, plan: &NetworkPlan) -> Option<Verdict> {
        let services = self.service_ranges(tenant);
        let pairs = plan.cidrs.iter().flat_map(|range| services.iter().map(move |it| (range, it)));
        let (range, service) = pairs.into_iter().find(|(range, it)| range.overlaps(it))?;
        let message = format!(
            "{range} of {} overlaps {service}, from which services of tenant {} get addresses",
            plan.name, plan.name.tenant
        );
        Some(Verdict::not_ready(Reason::CidrOverlap, message))
    }

    fn build_network(&mut self, network: &Network, plan: &NetworkPlan, now: &Now) -> Decision {
        let (accepted, conflicts) = self.sort_ranges(network, plan);
        if let (true, Some(conflict)) = (accepted.is_empty(), conflicts.first()) {
            let verdict = Verdict::not_ready(Reason::CidrOverlap, complaint(conflict, &plan.name));
            return self.complain_of_network(network, NetworkPhase::Failed, &verdict, now);
        }
        let id = match self.number_of(network, &plan.vpc, now) {
            Number::Held(id) => id,
            Number::Claimable(id) => return claim_number(&plan.vpc, id),
            Number::Stolen { id, holder } => {
                let message = format!("network id {id} of this network is claimed by VPC {holder}");
                let verdict = Verdict::not_ready(Reason::InUse, message);
                return self.complain_of_network(network, NetworkPhase::Failed, &verdict, now);
            }
            Number::NoneFree => {
                let verdict = Verdict::not_ready(Reason::NoFreeNetworkId, "no network id is free");
                return self.complain_of_network(network, NetworkPhase::Pending, &verdict, now);
            }
        };
        match self.next_block(network, plan, id, now) {
            Block::Enough => {}
            Block::Claimable(block) => return claim_block(network, block),
            Block::NoneFree(verdict) => {
                let told = self.complain_of_network(network, NetworkPhase::Pending, &verdict, now);
                return told.and_again(now.moment + NO_BLOCK_PAUSE);
            }
        }
        let missing = self.missing_subnets(network, plan, &accepted);
        if !missing.is_empty() {
            return Decision::act(missing);
        }
        let egress = self.egress_steps(network, plan, now);
        if !egress.is_empty() {
            return Decision::act(egress);
        }
        self.open_network(network, plan, id, conflicts.first(), now)
    }

    /// The network serves the ranges that are its own; one that is not is complained about.
    fn open_network(
        &mut self,
        network: &Network,
        plan: &NetworkPlan,
        id: NetworkId,
        conflict: Option<&Conflict>,
        now: &Now,
    ) -> Decision {
        if let Some(verdict) = self.unacknowledged(network, plan) {
            return self.set_network_status(
                network,
                NetworkPhase::Pending,
                Some(id),
                &verdict,
                now,
            );
        }
        let target = Target::new(Kind::Network, &network.meta);
        let (verdict, said) = match conflict {
            None => {
                self.said.remove(&target.key);
                (Verdict::ready("pods can be attached"), None)
            }
            Some(conflict) => {
                let message = complaint(conflict, &plan.name);
                let said = self.say(target, Reason::CidrOverlap, &message);
                (Verdict::not_ready(Reason::CidrOverlap, message), said)
            }
        };
        let mut decision =
            self.set_network_status(network, NetworkPhase::Active, Some(id), &verdict, now);
        decision.actions.extend(said);
        decision
    }

    /// A network does not become Active before every node that has pods of it has taken them. Once
    /// it is, it stays: the next pod on the next node is not the others' matter.
    fn unacknowledged(&self, network: &Network, plan: &NetworkPlan) -> Option<Verdict> {
        let hosts = self.indexes.hosts_of_network.get(&plan.name)?;
        let unready = hosts.unready();
        (!network.is_active() && !unready.is_empty()).then(|| {
            let message =
                format!("waits for nodes to attach its pods: {}", named(unready.into_iter()));
            Verdict::not_ready(Reason::InProgress, message)
        })
    }

    /// The nodes that have pods of a network, and whether all have taken them.
    fn nodes_of(&self, network: &Network) -> (api::NetworkNodes, Verdict) {
        let hosts = network.plan.as_ref().ok();
        let hosts = hosts.and_then(|plan| self.indexes.hosts_of_network.get(&plan.name));
        let nodes = hosts.map(Hosts::summary).unwrap_or_default();
        let message = format!(
            "{} of {} nodes with pods of it have attached them all",
            nodes.ready, nodes.total
        );
        let verdict = match nodes.ready == nodes.total {
            true => Verdict::ready(message),
            false => Verdict::not_ready(Reason::InProgress, message),
        };
        (nodes, verdict)
    }

    /// The ranges of a network that are its own, and those that another network has.
    pub(super) fn sort_ranges(
        &self,
        network: &Network,
        plan: &NetworkPlan,
    ) -> (Vec<Cidr>, Vec<Conflict>) {
        let (mut accepted, mut conflicts) = (Vec::new(), Vec::new());
        for range in self.ranges_of(network, plan) {
            match self.conflict(network, plan, &range) {
                Some(conflict) => conflicts.push(conflict),
                None => accepted.push(range),
            }
        }
        (accepted, conflicts)
    }

    /// A range belongs to the network that has a subnet for it; before there is one, to the older.
    /// A block belongs to the network that claimed it.
    fn conflict(&self, network: &Network, plan: &NetworkPlan, range: &Cidr) -> Option<Conflict> {
        if plan.type_ == NetworkType::Flat {
            return None;
        }
        let ours = self.rank(network, &plan.name, range);
        let others = self.indexes.networks_of_vpc.of(&plan.vpc);
        let others = others
            .filter(|other| **other != network.meta.name)
            .filter_map(|other| self.networks.get(other))
            .filter_map(|other| Some((other, other.plan.as_ref().ok()?)))
            .flat_map(|(other, plan)| plan.cidrs.iter().map(move |cidr| (other, plan, cidr)))
            .map(|(other, plan, cidr)| (&plan.name, *cidr, self.rank(other, &plan.name, cidr)));
        let overlap = first_overlap(*range, &ours, others)?;
        let Overlap { range, other_range, other } = overlap;
        Some(Overlap { range, other_range, other: other.clone() })
    }

    fn rank<'a>(&self, network: &'a Network, name: &NetworkName, range: &Cidr) -> impl Ord + 'a {
        let subnet = ObjectName::cluster(subnet_name(name, range));
        (self.subnets.get(&subnet).is_none(), network.meta.age_order())
    }

    /// The number of a VPC: the one it was given, else one that its networks tell, else a new one.
    fn number_of(&mut self, network: &Network, vpc: &Vpc, now: &Now) -> Number {
        let given = self.claim_on(&Thing::Vpc(vpc.clone())).and_then(Claim::given_id);
        let Some(id) = given.or_else(|| self.told_number(network, vpc)) else {
            return self.propose_number(vpc, now);
        };
        match self.claim_on(&Thing::NetworkId(id)) {
            Some(claim) if claim.holder == holder_of_vpc(vpc) && given.is_some() => {
                self.numbers.id_proposals.remove(vpc);
                Number::Held(id)
            }
            Some(claim) if claim.holder != holder_of_vpc(vpc) => {
                Number::Stolen { id, holder: claim.holder.name.clone() }
            }
            Some(_) | None => Number::Claimable(id),
        }
    }

    fn told_number(&self, network: &Network, vpc: &Vpc) -> Option<NetworkId> {
        let siblings = self.indexes.networks_of_vpc.of(vpc);
        let told = siblings.filter_map(|name| self.networks.get(name)?.id());
        network.id().or_else(|| told.min())
    }

    fn propose_number(&mut self, vpc: &Vpc, now: &Now) -> Number {
        let standing = self.numbers.id_proposals.get(vpc).copied().filter(|id| {
            let claim = self.claim_on(&Thing::NetworkId(*id));
            claim.is_none_or(|claim| claim.holder == holder_of_vpc(vpc))
        });
        let claimed = self.indexes.ids_claimed_by_vpc.of(vpc).next().copied();
        match claimed.or(standing).or_else(|| self.numbers.ids.propose(now.moment)) {
            Some(id) => {
                self.numbers.id_proposals.insert(vpc.clone(), id);
                Number::Claimable(id)
            }
            None => Number::NoneFree,
        }
    }

    fn missing_subnets(
        &self,
        network: &Network,
        plan: &NetworkPlan,
        accepted: &[Cidr],
    ) -> Vec<Action> {
        let has_subnet = |name: &String| self.subnets.get(&ObjectName::cluster(name)).is_some();
        accepted
            .iter()
            .map(|range| (range, subnet_name(&plan.name, range)))
            .filter(|(_, name)| !has_subnet(name))
            .map(|(range, name)| Action::CreateSubnet(Box::new(subnet(network, &name, range))))
            .collect()
    }

    fn take_down_network(&mut self, network: &Network, now: &Now) -> Decision {
        if !network.meta.is_held() {
            return Decision::nothing();
        }
        let Ok(plan) = &network.plan else { return let_go(Kind::Network, &network.meta).into() };
        if let Some(waiting) = self.inside_network(&plan.name) {
            return self.terminating(network, Reason::InUse, waiting, now);
        }
        let subnets: Vec<Action> = self.subnets_to_delete(&plan.name);
        if !subnets.is_empty() {
            return Decision::act(subnets);
        }
        if self.indexes.subnets_of_network.of(&plan.name).len() > 0 {
            let message = "waits for its subnets to go".to_owned();
            return self.terminating(network, Reason::InProgress, message, now);
        }
        let mut returns = self.blocks_to_return(network);
        returns.extend(self.egress_to_return(network, &[]));
        if !returns.is_empty() {
            return Decision::act(returns);
        }
        self.forget_block_proposal(network, now);
        self.give_up_number(network, &plan.vpc, now)
    }

    fn inside_network(&self, name: &NetworkName) -> Option<String> {
        let ports = self.indexes.ports_of_network.of(name);
        if ports.len() == 0 {
            return None;
        }
        let pod_of = |port: &ObjectName| {
            let bound = self.ports.get(port).and_then(|port| port.bound.as_ref());
            bound.map_or_else(|| format!("(none, port {port})"), |bound| bound.pod.to_string())
        };
        Some(format!("is used by pods {}", named(ports.map(pod_of))))
    }

    fn subnets_to_delete(&self, name: &NetworkName) -> Vec<Action> {
        let subnets = self.indexes.subnets_of_network.of(name);
        subnets
            .filter_map(|subnet| self.subnets.get(subnet))
            .filter(|subnet| !subnet.meta.deleting)
            .map(|subnet| Action::Delete(Target::new(Kind::Subnet, &subnet.meta)))
            .collect()
    }

    /// The last network of a VPC gives its number back before it goes.
    fn give_up_number(&mut self, network: &Network, vpc: &Vpc, now: &Now) -> Decision {
        let farewell = let_go(Kind::Network, &network.meta);
        if self.indexes.networks_of_vpc.of(vpc).len() > 1 {
            return farewell.into();
        }
        self.forget_number_proposal(vpc, now);
        let right = Thing::Vpc(vpc.clone());
        let Some(id) = self.claim_on(&right).and_then(Claim::given_id) else {
            return farewell.into();
        };
        if let Some(held) = self.indexes.addresses.get(&id) {
            let message = format!("waits for {} addresses to be given back", held.len());
            return self.terminating(network, Reason::InUse, message, now);
        }
        Decision::act([
            self.give_back(right, &holder_of_id(id)),
            self.give_back(Thing::NetworkId(id), &holder_of_vpc(vpc)),
            farewell,
        ])
    }

    fn forget_number_proposal(&mut self, vpc: &Vpc, now: &Now) {
        let Some(id) = self.numbers.id_proposals.remove(vpc) else { return };
        if self.claim_on(&Thing::NetworkId(id)).is_none() {
            self.numbers.ids.free(id, now.moment);
        }
    }

    /// The ranges that a network serves, as people read them.
    fn served_ranges(&self, network: &Network) -> Vec<String> {
        let Ok(plan) = &network.plan else { return Vec::new() };
        self.sort_ranges(network, plan).0.iter().map(ToString::to_string).collect()
    }

    fn terminating(
        &self,
        network: &Network,
        reason: Reason,
        message: String,
        now: &Now,
    ) -> Decision {
        let verdict = Verdict::not_ready(reason, message);
        self.set_network_status(network, NetworkPhase::Terminating, network.id(), &verdict, now)
    }

    fn complain_of_network(
        &mut self,
        network: &Network,
        phase: NetworkPhase,
        verdict: &Verdict,
        now: &Now,
    ) -> Decision {
        let target = Target::new(Kind::Network, &network.meta);
        let said = self.say(target, verdict.reason, &verdict.message);
        let mut decision = self.set_network_status(network, phase, network.id(), verdict, now);
        decision.actions.extend(said);
        decision
    }

    fn set_network_status(
        &self,
        network: &Network,
        phase: NetworkPhase,
        id: Option<NetworkId>,
        verdict: &Verdict,
        now: &Now,
    ) -> Decision {
        let standing = network.status.clone().unwrap_or_default();
        let (nodes, programmed) = self.nodes_of(network);
        let said = conditions(verdict, &network.meta, &standing.conditions, &now.time);
        let said = self.with_egress(network, &said, now);
        let kind = ConditionType::Programmed;
        let plan = network.plan.as_ref().ok();
        let dns: Vec<String> = plan
            .iter()
            .flat_map(|plan| self.dns_addresses(plan))
            .map(|ip| ip.to_string())
            .collect();
        let status = api::NetworkStatus {
            phase: network_phase(standing.phase, phase),
            id: id.map(NetworkId::get).or(standing.id),
            cidrs: self.served_ranges(network),
            isolation: plan.map(NetworkPlan::isolation),
            dns_service_ip: dns.first().cloned(),
            dns_service_ips: dns,
            dns_mode: plan.map(|plan| self.dns_mode(plan)).unwrap_or_default(),
            nodes: Some(nodes),
            conditions: with_condition(kind, &programmed, &network.meta, &said, &now.time),
        };
        if network.status.as_ref() == Some(&status) {
            return Decision::nothing();
        }
        let target = Target::new(Kind::Network, &network.meta);
        Action::SetNetworkStatus(target, Box::new(status)).into()
    }
}

fn claim_block(network: &Network, block: Cidr) -> Decision {
    let holder = holder_of_block(&network.meta.name, &network.meta.uid);
    Action::Claim(Thing::Block(block), holder).into()
}

/// Both halves of a number: the id for the VPC, and the VPC's right to this one id.
fn claim_number(vpc: &Vpc, id: NetworkId) -> Decision {
    Decision::act([
        Action::Claim(Thing::NetworkId(id), holder_of_vpc(vpc)),
        Action::Claim(Thing::Vpc(vpc.clone()), holder_of_id(id)),
    ])
}

fn subnet(network: &Network, name: &str, range: &Cidr) -> api::Subnet {
    let spec = api::SubnetSpec {
        network: network.meta.name.name.clone(),
        cidr: range.to_string(),
        ..api::SubnetSpec::default()
    };
    let mut subnet = api::Subnet::new(name, spec);
    subnet.metadata.owner_references = Some(vec![OwnerReference {
        api_version: format!("{}/v1alpha1", api::GROUP),
        kind: "Network".into(),
        name: network.meta.name.name.clone(),
        uid: network.meta.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    subnet.metadata.finalizers = Some(vec![api::FINALIZER.to_owned()]);
    subnet
}
