//! Networks that have no pod on this node, and yet something to do with it: the outside reaches them
//! here, or they leave here for the outside.
//!
//! The rule of this file: a network is a guest for as long as this node answers for an address of it, or
//! has a port that leads to a service of it, and no longer. A network that has neither an address nor
//! such a service costs nothing where it has no pod.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use atoll_model::outside::Held;
use atoll_types::NetworkId;

use super::Seen;

impl Seen {
    /// The networks that have a pod here, and their numbers.
    pub(super) fn with_pods(&self) -> BTreeMap<&str, NetworkId> {
        let own = self.own_ports.iter().flat_map(BTreeMap::values);
        own.map(|own| (own.name.as_str(), own.network)).collect()
    }

    /// The networks that an address is for which this node answers for.
    fn answered_for(&self) -> impl Iterator<Item = &str> {
        self.answered.iter().flat_map(BTreeMap::values).map(Held::network)
    }

    /// The addresses that this node answers for, as claims say.
    pub(crate) fn answered_addresses(&self) -> BTreeSet<IpAddr> {
        self.answered.iter().flat_map(BTreeMap::values).map(|held| held.address).collect()
    }

    /// The networks of services that every node leads the outside to. One whose namespace is not known
    /// is of nobody.
    fn exposed_here(&self) -> impl Iterator<Item = &str> {
        let services = self.exposed.values().flatten();
        let everywhere = services.filter(|(_, exposed)| exposed.is_everywhere);
        everywhere.filter_map(|((namespace, _), _)| self.network_of_services(namespace))
    }

    /// All networks that have to do with this node.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let of_pods = self.with_pods().into_keys();
        of_pods.chain(self.reached_here()).map(ToOwned::to_owned).collect()
    }

    /// The networks that the outside reaches by this node, or that leave by it.
    fn reached_here(&self) -> impl Iterator<Item = &str> {
        self.answered_for().chain(self.exposed_here())
    }

    /// Those that have no pod here, as far as their numbers are known. One whose number a network with
    /// a pod here has, too, is there already.
    pub(super) fn guests(&self) -> BTreeMap<&str, NetworkId> {
        let with_pods = self.with_pods();
        let strangers = self.reached_here().filter(|name| !with_pods.contains_key(name));
        strangers.filter_map(|name| Some((name, self.number_of(name)?))).collect()
    }

    /// The number of a network, as its object says.
    fn number_of(&self, name: &str) -> Option<NetworkId> {
        self.outlets.get(name)?.as_ref()?.get(name)?.id
    }

    /// The addresses that this node answers for, and the networks that they are for.
    pub(super) fn answers_for(&self) -> BTreeMap<IpAddr, NetworkId> {
        let with_pods = self.with_pods();
        let number = |name| with_pods.get(name).copied().or_else(|| self.number_of(name));
        let all = self.answered.iter().flat_map(BTreeMap::values);
        all.filter_map(|held| Some((held.address, number(held.network())?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use atoll_model::compile::Outlet;
    use atoll_model::outside::Purpose;
    use atoll_plan::Resolver;

    use super::*;
    use crate::seen::{Change, Delta, Exposed, Exposure, Joined, Tenancy};

    fn network(number: u32) -> NetworkId {
        number.try_into().unwrap()
    }

    /// A claim on an address of `hooli.default` for which this node answers.
    fn answered() -> (String, Held) {
        let purpose = Purpose::Egress { network: "hooli.default".into() };
        let held = Held { address: [192, 0, 2, 9].into(), node: "node1".into(), purpose };
        ("outside.192.0.2.9".to_owned(), held)
    }

    fn outlet() -> Change {
        let outlet = Outlet { id: Some(network(9)), ..Outlet::default() };
        let all = [("hooli.default".to_owned(), outlet)];
        Change::Outlet("hooli.default".into(), Delta::All(all.into()))
    }

    /// A pod of one network, and the namespaces of two.
    fn seen() -> Seen {
        let mut seen = Seen::default();
        let own = Joined { network: network(1), name: "acme.default".into() };
        let own = [(("acme".to_owned(), "web".to_owned()), own)];
        seen.absorb(Change::OwnPorts(Delta::All(own.into())));
        let namespaces = [("acme", "acme.default"), ("shop", "hooli.default")];
        let namespaces = namespaces
            .map(|(name, network)| (name.to_owned(), Tenancy::Tenant(network.to_owned()).into()));
        seen.absorb(Change::Namespaces(Delta::All(namespaces.into())));
        seen
    }

    fn held(seen: &Seen) -> BTreeMap<IpAddr, NetworkId> {
        seen.view("node1", 1450, [].iter(), Resolver::default(), &BTreeSet::new()).held
    }

    #[test]
    fn a_network_without_a_pod_here_is_a_guest_while_this_node_answers_for_it() {
        let mut seen = seen();
        seen.absorb(Change::Answered(Delta::All([answered()].into())));
        let scope = seen.scope();
        assert!(scope.names.contains("hooli.default") && scope.guests.is_empty());
        assert!(held(&seen).is_empty(), "nobody knows its number yet");
        seen.absorb(outlet());
        assert_eq!(seen.scope().guests["hooli.default"].id, network(9));
        assert_eq!(held(&seen), [(IpAddr::from([192, 0, 2, 9]), network(9))].into());
        assert!(!seen.scope().networks.contains_key("hooli.default"), "it has no names to answer");
        seen.absorb(Change::NetworkPorts(network(9), Delta::All(BTreeMap::new())));
        assert!(seen.ports_of(network(9)).is_some());
        seen.absorb(Change::Answered(Delta::Gone(answered().0)));
        assert!(!seen.scope().names.contains("hooli.default"));
        assert!(seen.ports_of(network(9)).is_none() && held(&seen).is_empty());
    }

    #[test]
    fn a_network_whose_service_every_node_leads_to_is_a_guest_while_there_is_one() {
        let mut seen = seen();
        let service = |namespace: &str| (namespace.to_owned(), "web".to_owned());
        let exposed = Exposed { is_everywhere: true, health_port: None, opening: None };
        let all = [(service("shop"), exposed.clone()), (service("unknown"), exposed)];
        seen.absorb(Change::Exposed(Exposure::NodePort, Delta::All(all.into())));
        let names: Vec<String> = seen.scope().names.into_iter().collect();
        assert_eq!(names, ["acme.default", "hooli.default"]);
        seen.absorb(outlet());
        assert_eq!(seen.scope().guests.keys().collect::<Vec<_>>(), ["hooli.default"]);
        seen.absorb(Change::Exposed(Exposure::NodePort, Delta::Gone(service("shop"))));
        assert!(seen.scope().guests.is_empty());
    }

    #[test]
    fn nothing_is_complete_before_it_is_known_whose_guests_there_are() {
        let mut seen = Seen::default();
        seen.absorb(Change::Nodes(Delta::All(BTreeMap::new())));
        seen.absorb(Change::Pools(Delta::All(BTreeMap::new())));
        seen.absorb(Change::OwnPorts(Delta::All(BTreeMap::new())));
        seen.absorb(Change::Answered(Delta::All(BTreeMap::new())));
        for exposure in Exposure::ALL {
            assert!(!seen.is_complete());
            seen.absorb(Change::Exposed(exposure, Delta::All(BTreeMap::new())));
        }
        assert!(seen.is_complete());
        seen.absorb(Change::Answered(Delta::Put(answered().0, answered().1)));
        assert!(!seen.is_complete(), "not before everything of the guest was seen");
    }
}
