//! Names of services of a tenant's other networks: those that have a VIP, which leads there from here.
//!
//! The rules of this file: a name of another network stands for its VIP and nothing else, since nothing
//! else of that network can be reached; a network that is shared with other tenants neither gives
//! names to others nor has theirs; and a change costs what changed, however many services there are.

use std::collections::{BTreeMap, BTreeSet};

use atoll_model::compile::{Rank, ServiceFront};
use atoll_types::Label;
use atoll_zones::{Backing, Fact, NamedPort, Service, ServiceKey};

use super::network::service_key;
use super::{Network, Views};
use crate::seen::{Delta, Quarter, Scope};

/// The services with a VIP of each namespace, once it was listed.
pub(super) type Vips = BTreeMap<Quarter, Option<Named>>;

/// What was seen of the namespaces of other networks.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    /// Whether it is known which networks the tenant has.
    pub(super) are_known: bool,
    seen: BTreeSet<Quarter>,
}

impl Views {
    /// Keeps exactly the namespaces of this scope, and who sees which.
    pub(super) fn follow_kin(&mut self, scope: &Scope) {
        let quarters = scope.quarters();
        self.vips.retain(|quarter, _| quarters.contains(quarter));
        for quarter in quarters {
            self.vips.entry(quarter).or_default();
        }
        for (name, known) in &mut self.networks {
            known.neighbours.are_known = scope.knows_kin_of(name);
            known.see(&scope.quarters_seen_from(name), &self.vips);
        }
    }

    /// Takes in what a namespace says of its services; who sees it has other names then.
    pub(super) fn absorb_fronts(&mut self, quarter: &Quarter, delta: &Delta<String, ServiceFront>) {
        let Some(known) = self.vips.get_mut(quarter) else { return };
        let news = take_in(known, &quarter.1, delta);
        // A list is news by itself: somebody may have waited for it.
        if news.is_empty() && !matches!(delta, Delta::All(_)) {
            return;
        }
        let tenant = quarter.0.split_inclusive('.').next().unwrap_or_default();
        let networks = self.networks.range_mut(tenant.to_owned()..);
        for (name, network) in networks.take_while(|(name, _)| name.starts_with(tenant)) {
            if network.neighbours.seen.contains(quarter) {
                network.hear_of_others(&news);
                self.touched.insert(name.clone());
            }
        }
    }
}

/// The services with a VIP of one namespace.
type Named = BTreeMap<String, Service>;

/// Takes in what a namespace says, and tells what is otherwise than before.
fn take_in(
    known: &mut Option<Named>,
    namespace: &str,
    delta: &Delta<String, ServiceFront>,
) -> Vec<Fact> {
    match (delta, known) {
        (Delta::All(all), known) => {
            let vip =
                |(name, front): (&String, _)| Some((name.clone(), named(namespace, name, front)?));
            let after: Named = all.iter().filter_map(vip).collect();
            let news = difference(known.as_ref().unwrap_or(&Named::new()), &after);
            *known = Some(after);
            news
        }
        (Delta::Put(name, front), Some(known)) => {
            exchange(known, name, named(namespace, name, front)).into_iter().collect()
        }
        (Delta::Gone(name), Some(known)) => exchange(known, name, None).into_iter().collect(),
        (Delta::Put(..) | Delta::Gone(_), None) => vec![],
    }
}

/// Has this under a name instead of what was there, where it is another.
fn exchange(known: &mut Named, name: &str, after: Option<Service>) -> Option<Fact> {
    let before = known.remove(name);
    known.extend(after.iter().map(|service| (name.to_owned(), service.clone())));
    let key = before.as_ref().or(after.as_ref())?.key.clone();
    (before != after).then_some(Fact::Service(key, after))
}

/// What makes one of the other.
fn difference(before: &Named, after: &Named) -> Vec<Fact> {
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let gone = gone.map(|(_, service)| Fact::Service(service.key.clone(), None));
    let put = after.iter().filter(|(name, it)| before.get(*name) != Some(it));
    gone.chain(put.map(|(_, it)| Fact::Service(it.key.clone(), Some(it.clone())))).collect()
}

impl Network {
    /// Whether everything was listed that gives it names of other networks.
    pub(super) fn knows_neighbours(&self, vips: &Vips) -> bool {
        let listed = |quarter| vips.get(quarter).is_some_and(Option::is_some);
        self.neighbours.are_known && self.neighbours.seen.iter().all(listed)
    }

    /// Has the names of exactly these namespaces of other networks.
    fn see(&mut self, quarters: &BTreeSet<Quarter>, vips: &Vips) {
        let former = std::mem::replace(&mut self.neighbours.seen, quarters.clone());
        for left in former.difference(quarters) {
            // Its network is gone, and with it what was known of it: the names that stand go.
            let keys: Vec<_> = self.view.services_in(&left.1).cloned().collect();
            let is_own = self.namespaces.contains_key(&left.1);
            for key in keys.into_iter().filter(|_| !is_own) {
                self.is_changed = true;
                self.learn(Fact::Service(key, None));
            }
        }
        for joined in quarters.difference(&former) {
            let there = vips.get(joined).and_then(Option::as_ref);
            there.iter().for_each(|there| self.hear_of_others(&difference(&Named::new(), there)));
        }
    }

    /// Names of other networks are otherwise than before.
    fn hear_of_others(&mut self, news: &[Fact]) {
        for fact in news {
            self.is_changed = true;
            self.learn(fact.clone());
        }
    }
}

/// What the name of a service stands for in other networks; none where it has no VIP.
fn named(namespace: &str, name: &str, front: &ServiceFront) -> Option<Service> {
    let vips = front.addresses.iter().filter(|(_, rank)| **rank == Rank::Vip);
    let addresses: Vec<_> = vips.map(|(ip, _)| *ip).collect();
    let ports = front.ports.iter().filter_map(|port| {
        let name = port.name.parse::<Label>().ok()?;
        Some(NamedPort { name, protocol: port.protocol, port: port.port.get() })
    });
    let backing = Backing::Vip { addresses: addresses.clone(), ports: ports.collect() };
    let key: ServiceKey = service_key(namespace, name)?;
    (!addresses.is_empty()).then_some(Service { key, backing })
}

#[cfg(test)]
mod tests {
    use atoll_types::NetworkId;
    use serde_json::{Value, json};

    use super::super::tests::{has, views as no_views};
    use super::*;
    use crate::seen::{Change, Presence, Seen};

    const FRONT: &str = "acme.front";
    const BACK: &str = "acme.back";
    const OTHER: &str = "globex.default";

    fn front(more: &Value) -> ServiceFront {
        let mut object = json!({
            "metadata": {"annotations": {"atoll.dev/vip": "198.18.0.9"}},
            "spec": {"clusterIPs": ["10.96.0.9"], "ports": [{"name": "http", "port": 80}]},
        });
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ServiceFront::read(&serde_json::from_value(object).unwrap()).unwrap()
    }

    /// Three networks here, the first two of one tenant; `namespace` is of the second.
    fn scope(own: &[&str], namespace: &str) -> Scope {
        let presence = |id: u32, namespaces: &[&str]| Presence {
            id: NetworkId::try_from(id).unwrap(),
            namespaces: namespaces.iter().map(|&it| it.to_owned()).collect(),
        };
        let networks = [
            (FRONT.to_owned(), presence(1, &[])),
            (BACK.to_owned(), presence(2, &[namespace])),
            (OTHER.to_owned(), presence(3, &[])),
        ];
        let own = own.iter().map(|&it| it.to_owned()).collect();
        Scope { networks: networks.into(), own, is_whole: true, ..Scope::default() }
    }

    fn tell(views: &mut Views, front: ServiceFront) {
        let fronts = [("web".to_owned(), front)].into();
        views.absorb(&Change::Fronts((BACK.into(), "store".into()), Delta::All(fronts)));
    }

    fn views(own: &[&str]) -> Views {
        let mut views = no_views();
        views.follow(&scope(own, "store"), &Seen::default());
        tell(&mut views, front(&json!({})));
        views
    }

    const WEB: &str = "web.store.svc.cluster.local";

    #[test]
    fn a_service_with_a_vip_has_its_name_in_every_network_of_its_tenant_and_in_no_other() {
        let views = views(&[FRONT, BACK, OTHER]);
        assert!(has(&views, FRONT, WEB));
        assert!(!has(&views, OTHER, WEB));
    }

    #[test]
    fn a_shared_network_has_no_names_of_others() {
        assert!(!has(&views(&[BACK, OTHER]), FRONT, WEB));
        assert!(!has(&views(&[FRONT, OTHER]), FRONT, WEB));
    }

    #[test]
    fn what_has_no_vip_has_no_name_elsewhere() {
        let mut views = views(&[FRONT, BACK, OTHER]);
        tell(&mut views, front(&json!({"metadata": {}})));
        assert!(!has(&views, FRONT, WEB), "its ClusterIP leads nowhere from there");
    }

    #[test]
    fn a_change_is_one_word_to_others_however_many_services_there_are() {
        let [vip, none] = [json!({}), json!({"metadata": {}})].map(|more| front(&more));
        let mut known = None;
        let mut news = |delta| take_in(&mut known, "store", &delta).len();
        assert_eq!(news(Delta::Put("early".into(), vip.clone())), 0, "it is listed first");
        let all = (0..100).map(|number| (format!("web-{number}"), vip.clone()));
        assert_eq!(news(Delta::All(all.collect())), 100);
        assert_eq!(news(Delta::Put("web-7".into(), vip.clone())), 0, "it is as it was");
        assert_eq!(news(Delta::Put("web-7".into(), none.clone())), 1);
        assert_eq!(news(Delta::Put("web-7".into(), none)), 0, "it has no name to lose");
        assert_eq!(news(Delta::Put("web-7".into(), vip.clone())), 1);
        assert_eq!(news(Delta::Gone("web-8".into())), 1);
        assert_eq!(news(Delta::Gone("web-8".into())), 0);
        assert_eq!(news(Delta::All([("web-7".to_owned(), vip)].into())), 98);
    }

    #[test]
    fn a_name_goes_with_its_service_and_with_its_namespace() {
        let mut views = views(&[FRONT, BACK, OTHER]);
        let gone = Delta::Gone("web".to_owned());
        views.absorb(&Change::Fronts((BACK.into(), "store".into()), gone));
        assert!(!has(&views, FRONT, WEB));
        tell(&mut views, front(&json!({})));
        assert!(has(&views, FRONT, WEB));
        views.follow(&scope(&[FRONT, BACK, OTHER], "elsewhere"), &Seen::default());
        assert!(!has(&views, FRONT, WEB));
    }

    #[test]
    fn names_are_told_first_when_the_namespaces_of_other_networks_were_listed() {
        let mut views = no_views();
        views.follow(&scope(&[FRONT, BACK, OTHER], "store"), &Seen::default());
        let known = &views.networks[FRONT];
        assert!(!known.knows_neighbours(&views.vips));
        assert!(views.networks[OTHER].knows_neighbours(&views.vips), "it has nobody to wait for");
        tell(&mut views, front(&json!({})));
        assert!(views.networks[FRONT].knows_neighbours(&views.vips));
    }
}
