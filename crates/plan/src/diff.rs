//! From what is to what should be, in an order that is safe at every point.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_types::NetworkId;

use crate::{
    Endpoint, HostInterface, NodePlan, Observed, ObservedInterface, Place, PodInterface, Reach,
    Service, ServiceKey, Step,
};

/// The steps that turn `observed` into `desired`. They first say whose networks will be here, so that
/// none is taken for a tenant of its own when it comes, then make (peers, interfaces, guards,
/// endpoints, doors, services, what is closed outside and of infra before any way there, and only
/// then raise interfaces and answer for addresses), then break (what was opened, addresses, ways outside and to infra,
/// services, endpoints, interfaces, doors, peers). An interface that must be replaced is taken away
/// before it is made anew.
pub fn diff(desired: &NodePlan, observed: &Observed) -> Vec<Step> {
    let make = shared_among(desired, observed)
        .into_iter()
        .chain(peers_added(desired, observed))
        .chain(interfaces_made(desired, observed))
        .chain(endpoints_put(desired, observed))
        .chain(doors_put(desired, observed))
        .chain(services_put(desired, observed))
        .chain(service_doors_put(desired, observed))
        .chain(outside_closed(desired, observed))
        .chain(egress_put(desired, observed))
        .chain(openings_put(desired, observed))
        .chain(infra_put(desired, observed))
        .chain(let_to_infra(desired, observed))
        .chain(interfaces_raised(desired, observed))
        .chain(addresses_held(desired, observed));
    let unmake = openings_removed(desired, observed)
        .chain(addresses_released(desired, observed))
        .chain(kept_from_infra(desired, observed))
        .chain(infra_removed(desired, observed))
        .chain(egress_removed(desired, observed))
        .chain(outside_opened(desired, observed))
        .chain(services_removed(desired, observed))
        .chain(endpoints_removed(desired, observed))
        .chain(interfaces_removed(desired, observed))
        .chain(doors_removed(desired, observed))
        .chain(service_doors_removed(desired, observed))
        .chain(peers_removed(desired, observed));
    make.chain(unmake).collect()
}

/// Of a network that leaves, nobody needs to be told whose it is.
fn shared_among(desired: &NodePlan, observed: &Observed) -> Option<Step> {
    let stay: BTreeSet<NetworkId> = desired.tenants.iter().flatten().copied().collect();
    let staying = observed.tenants.iter().map(|networks| networks & &stay);
    let known: BTreeSet<_> = staying.filter(|networks| !networks.is_empty()).collect();
    (known != desired.tenants).then(|| Step::ShareAmong(desired.tenants.clone()))
}

fn peers_added<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    missing(&desired.peers, &observed.peers).map(Step::AddPeer)
}

fn peers_removed<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    missing(&observed.peers, &desired.peers).map(Step::RemovePeer)
}

fn missing<'a>(
    wanted: &'a BTreeSet<IpAddr>,
    present: &'a BTreeSet<IpAddr>,
) -> impl Iterator<Item = IpAddr> + 'a {
    wanted.difference(present).copied()
}

fn interfaces_made<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    desired.interfaces.iter().flat_map(|(name, interface)| {
        interface_steps(name, interface, observed.interfaces.get(name))
    })
}

fn interface_steps(
    name: &HostInterface,
    wanted: &PodInterface,
    seen: Option<&ObservedInterface>,
) -> Vec<Step> {
    let create = Step::CreateInterface(name.clone(), wanted.clone());
    let guard = Step::GuardInterface(name.clone(), wanted.guard.clone());
    match need(wanted, seen) {
        Need::Adjust { size, routes } => adjustments(name, wanted, size, routes),
        Need::Guard => vec![guard],
        Need::Create => vec![create, guard],
        Need::Replace => vec![Step::RemoveInterfaces([name.clone()].into()), create, guard],
    }
}

fn adjustments(name: &HostInterface, wanted: &PodInterface, size: bool, routes: bool) -> Vec<Step> {
    let resize = size.then(|| Step::ResizeInterface(name.clone(), wanted.clone()));
    let route = routes.then(|| Step::RouteInterface(name.clone(), wanted.clone()));
    resize.into_iter().chain(route).collect()
}

/// What an interface needs to become as wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Adjust { size: bool, routes: bool },
    Guard,
    Create,
    Replace,
}

fn need(wanted: &PodInterface, seen: Option<&ObservedInterface>) -> Need {
    match seen {
        None => Need::Create,
        Some(ObservedInterface { exists: false, .. }) => Need::Replace,
        Some(ObservedInterface { guard: None, .. }) => Need::Guard,
        Some(ObservedInterface { guard: Some(guard), mtu, reach, .. })
            if *guard == wanted.guard =>
        {
            Need::Adjust { size: *mtu != wanted.mtu, routes: needs_routes(wanted, reach.as_ref()) }
        }
        Some(ObservedInterface { guard: Some(_), .. }) => Need::Replace,
    }
}

/// Only the routes of a pod with several interfaces can change, or be unknown to who comes anew.
fn needs_routes(wanted: &PodInterface, seen: Option<&Reach>) -> bool {
    wanted.has_siblings && seen != Some(&wanted.reach)
}

fn interfaces_raised<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    desired
        .interfaces
        .iter()
        .filter(|(name, wanted)| {
            let seen = observed.interfaces.get(*name);
            !seen.is_some_and(|seen| seen.up && seen.guard.as_ref() == Some(&wanted.guard))
        })
        .map(|(name, _)| Step::RaiseInterface(name.clone()))
}

/// All in one step, where there are any.
fn interfaces_removed(desired: &NodePlan, observed: &Observed) -> Option<Step> {
    let names = observed.interfaces.keys().filter(|name| !desired.interfaces.contains_key(*name));
    let names: BTreeSet<_> = names.cloned().collect();
    (!names.is_empty()).then_some(Step::RemoveInterfaces(names))
}

fn endpoints_put<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    desired
        .endpoints
        .iter()
        .filter(|(addr, wanted)| {
            let seen = observed.endpoints.get(addr).and_then(Option::as_ref);
            seen != Some(wanted) || is_behind_a_new_link(wanted, desired, observed)
        })
        .map(|(addr, endpoint)| Step::PutEndpoint(*addr, endpoint.clone()))
}

/// A link that is made anew has another number than the one the endpoint was programmed with.
fn is_behind_a_new_link(endpoint: &Endpoint, desired: &NodePlan, observed: &Observed) -> bool {
    let Place::Here(name) = &endpoint.place else { return false };
    let Some(wanted) = desired.interfaces.get(name) else { return false };
    matches!(need(wanted, observed.interfaces.get(name)), Need::Create | Need::Replace)
}

fn doors_put<'a>(desired: &'a NodePlan, observed: &'a Observed) -> impl Iterator<Item = Step> + 'a {
    let wanted = desired.doors.iter();
    let missing = wanted.filter(|(network, doors)| observed.doors.get(network) != Some(doors));
    missing.map(|(network, doors)| Step::PutDoors(*network, *doors))
}

fn doors_removed<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    let unwanted = observed.doors.keys().filter(|network| !desired.doors.contains_key(network));
    unwanted.map(|network| Step::RemoveDoors(*network))
}

/// The steps for these services alone, in the same order: what they cost does not grow with the
/// services that did not change.
pub fn diff_services<'a>(
    touched: impl IntoIterator<Item = &'a ServiceKey>,
    desired: &BTreeMap<ServiceKey, Service>,
    observed: &BTreeMap<ServiceKey, Service>,
) -> Vec<Step> {
    let (mut make, mut unmake) = (Vec::new(), Vec::new());
    for key in touched {
        match (desired.get(key), observed.get(key)) {
            (Some(wanted), seen) if seen != Some(wanted) => {
                make.push(Step::PutService(*key, wanted.clone()));
            }
            (None, Some(_)) => unmake.push(Step::RemoveService(*key)),
            (Some(_), _) | (None, None) => {}
        }
    }
    make.append(&mut unmake);
    make
}

fn services_put<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    let wanted = desired.services.iter();
    let missing = wanted.filter(|(key, service)| observed.services.get(key) != Some(service));
    missing.map(|(key, service)| Step::PutService(*key, service.clone()))
}

fn services_removed<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    let unwanted = observed.services.keys().filter(|key| !desired.services.contains_key(key));
    unwanted.map(|key| Step::RemoveService(*key))
}

fn service_doors_put<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    let seen = |door| observed.service_doors.get(door).copied().flatten();
    let missing = desired.service_doors.iter().filter(move |it| seen(it.0) != Some(*it.1));
    missing.map(|(door, listener)| Step::PutServiceDoor(*door, *listener))
}

fn service_doors_removed<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    let seen = observed.service_doors.keys();
    let unwanted = seen.filter(|door| !desired.service_doors.contains_key(door));
    unwanted.map(|door| Step::RemoveServiceDoor(*door))
}

fn outside_closed<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    desired.closed.difference(&observed.closed).map(|closed| Step::CloseOutside(*closed))
}

fn outside_opened<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    observed.closed.difference(&desired.closed).map(|closed| Step::OpenOutside(*closed))
}

fn egress_put<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    let seen = |network| observed.egress.get(network).copied().flatten();
    let missing = desired.egress.iter().filter(move |it| seen(it.0) != Some(*it.1));
    missing.map(|(network, egress)| Step::PutEgress(*network, *egress))
}

fn egress_removed<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    let unwanted = observed.egress.keys().filter(|network| !desired.egress.contains_key(network));
    unwanted.map(|network| Step::RemoveEgress(*network))
}

fn openings_put<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    let wanted = desired.openings.iter();
    let missing =
        wanted.filter(|(opening, is_here)| observed.openings.get(opening) != Some(is_here));
    missing.map(|(opening, is_here)| Step::PutOpening(*opening, *is_here))
}

fn openings_removed<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    let seen = observed.openings.keys();
    let unwanted = seen.filter(|opening| !desired.openings.contains_key(opening));
    unwanted.map(|opening| Step::RemoveOpening(*opening))
}

/// What is closed goes first: it may lie within what is not.
fn infra_put(desired: &NodePlan, observed: &Observed) -> Vec<Step> {
    let wanted = desired.infra.iter();
    let missing = wanted.filter(|(range, infra)| observed.infra.get(range) != Some(infra));
    let mut missing: Vec<_> = missing.map(|(range, infra)| (*infra, *range)).collect();
    missing.sort();
    missing.into_iter().map(|(infra, range)| Step::PutInfra(range, infra)).collect()
}

/// And goes last.
fn infra_removed(desired: &NodePlan, observed: &Observed) -> Vec<Step> {
    let seen = observed.infra.iter();
    let unwanted = seen.filter(|(range, _)| !desired.infra.contains_key(range));
    let mut unwanted: Vec<_> = unwanted.map(|(range, infra)| (*infra, *range)).collect();
    unwanted.sort();
    unwanted.into_iter().rev().map(|(_, range)| Step::RemoveInfra(range)).collect()
}

fn let_to_infra<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    let is_right = |network: &NetworkId| observed.compatible.get(network) == Some(&true);
    let missing = desired.compatible.iter().filter(move |network| !is_right(network));
    missing.map(|network| Step::LetToInfra(*network))
}

fn kept_from_infra<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    let seen = observed.compatible.keys();
    let unwanted = seen.filter(|network| !desired.compatible.contains(network));
    unwanted.map(|network| Step::KeepFromInfra(*network))
}

fn addresses_held<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    let seen = |ip| observed.held.get(ip).copied().flatten();
    let missing = desired.held.iter().filter(move |it| seen(it.0) != Some(*it.1));
    missing.map(|(ip, network)| Step::Hold(*ip, *network))
}

fn addresses_released<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    let unwanted = observed.held.keys().filter(|ip| !desired.held.contains_key(ip));
    unwanted.map(|ip| Step::Release(*ip))
}

fn endpoints_removed<'a>(
    desired: &'a NodePlan,
    observed: &'a Observed,
) -> impl Iterator<Item = Step> + 'a {
    observed
        .endpoints
        .keys()
        .filter(|addr| !desired.endpoints.contains_key(addr))
        .map(|addr| Step::RemoveEndpoint(*addr))
}
