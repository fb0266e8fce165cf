//! Names of services of the cluster's own, in the networks of the tenants that may call them.
//!
//! The rule of this file: a name that a network has of its own namespaces is not taken from it.

use std::collections::BTreeMap;

use atoll_model::export::{Audience, ServiceName};
use atoll_zones::{Fact, Service, ServiceKey};

use super::{Network, Views};
use crate::seen::Exported;

/// What is exported, and to whom.
pub(super) type Exports = BTreeMap<ServiceKey, (Service, Audience)>;

impl Views {
    /// Exactly these services are exported.
    pub(in crate::names) fn export(&mut self, exported: &BTreeMap<&ServiceName, &Exported>) {
        let entry =
            |it: &&Exported| (it.named.key.clone(), (it.named.clone(), it.export.to.clone()));
        let exports: Exports = exported.values().map(entry).collect();
        if self.exports.as_ref() != Some(&exports) {
            self.networks.values_mut().for_each(|network| network.export(&exports));
            self.touched = self.networks.keys().cloned().collect();
            self.exports = Some(exports);
        }
    }
}

impl Network {
    /// Has the names of exactly those of these services that its tenant may call.
    pub(super) fn export(&mut self, exports: &Exports) {
        let tenant = self.name.split('.').next().unwrap_or_default();
        let meant = exports.iter().filter(|(_, (_, to))| to.has(tenant));
        let meant = meant.filter(|(key, _)| !self.namespaces.contains_key(key.namespace.as_str()));
        let wanted: BTreeMap<_, _> =
            meant.map(|(key, (service, _))| (key.clone(), service.clone())).collect();
        if wanted == self.exported {
            return;
        }
        self.is_changed = true;
        let gone = self.exported.keys().filter(|key| !wanted.contains_key(*key));
        for key in gone.cloned().collect::<Vec<_>>() {
            self.learn(Fact::Service(key, None));
        }
        for (key, service) in &wanted {
            self.learn(Fact::Service(key.clone(), Some(service.clone())));
        }
        self.exported = wanted;
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use atoll_model::export::Export;
    use atoll_zones::Backing;

    use super::super::tests::{both, has};
    use super::*;

    fn exported(name: &str, to: Audience) -> (ServiceName, Exported) {
        let addresses: Vec<IpAddr> = vec![[10, 96, 0, 1].into()];
        let label = |text: &str| text.parse().unwrap();
        let key = ServiceKey { namespace: label("infra"), name: label(name) };
        let backing = Backing::Vip { addresses: addresses.clone(), ports: vec![] };
        let export = Export { to, addresses, ports: vec![] };
        let named = Service { key, backing };
        (("infra".to_owned(), name.to_owned()), Exported { export, named })
    }

    fn tell(views: &mut Views, all: &[(ServiceName, Exported)]) {
        views.export(&all.iter().map(|(name, exported)| (name, exported)).collect());
    }

    #[test]
    fn an_exported_service_has_its_name_in_the_networks_of_the_tenants_it_is_meant_for() {
        let mut views = both();
        let listed = Audience::Listed(["globex".to_owned()].into());
        let all = [exported("api", Audience::All), exported("registry", listed)];
        tell(&mut views, &all);
        assert_eq!(views.updates().len(), 2);
        let name = |name: &str| format!("{name}.infra.svc.cluster.local");
        for network in ["acme.open", "globex.open"] {
            assert!(has(&views, network, &name("api")));
        }
        assert!(has(&views, "globex.open", &name("registry")));
        assert!(!has(&views, "acme.open", &name("registry")));
        tell(&mut views, &all);
        assert_eq!(views.updates().len(), 0, "nothing has changed");
        tell(&mut views, &all[..1]);
        assert_eq!(views.updates().len(), 1);
        assert!(!has(&views, "globex.open", &name("registry")));
        assert!(has(&views, "globex.open", &name("api")));
    }
}
