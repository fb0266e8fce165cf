//! What must hold in every history: at every moment, and when nothing is left to do.

use std::collections::BTreeSet;

use atoll_api::{ClaimHolder, Port, PortPhase, SubnetPhase};
use atoll_model::Key;
use atoll_model::intent::{Kind, ObjectName, Thing, holder_of_port};
use atoll_types::{Cidr, NetAddr, NetworkId};

use crate::cluster::{Message, Object};
use crate::history::History;
use crate::services::vip;
use crate::tenants::key;

impl History {
    /// What must hold at every moment.
    pub(crate) fn check(&mut self) {
        let mut addresses = BTreeSet::new();
        for object in self.cluster.of_kind(Kind::Port) {
            let Object::Port(port) = object else { unreachable!() };
            for ip in &port.spec.ips {
                let address = (port.spec.network_id, ip.clone());
                assert!(addresses.insert(address), "{ip} is given twice");
            }
        }
        for position in self.checked..self.cluster.log.len() {
            let message = self.cluster.log[position].clone();
            self.phases.hear(&message);
            match message {
                Message::There(object) => self.note_port(&object),
                Message::Gone(key, _) => self.check_end(&key),
            }
        }
        self.checked = self.cluster.log.len();
    }

    /// No port that goes with its pod is deleted while the pod needs it.
    fn note_port(&mut self, object: &Object) {
        let Object::Port(port) = object else { return };
        let ends = port.metadata.deletion_timestamp.is_some() && !port.spec.persistent;
        assert!(!ends || !self.pod_lives(port), "{} loses its port", port.spec.pod);
        self.ports.insert(object.key(), port.clone());
    }

    /// No pod loses its port while it needs it.
    fn check_end(&mut self, gone: &Key) {
        let Some(port) = self.ports.remove(gone) else { return };
        assert!(!self.pod_lives(&port), "{} lost its port", port.spec.pod);
    }

    /// What must hold when nothing is left to do.
    pub(crate) fn check_at_rest(&self) {
        let mut wanted = BTreeSet::new();
        for object in self.cluster.of_kind(Kind::Port) {
            let Object::Port(port) = object else { unreachable!() };
            self.check_claims(port, &mut wanted);
            let (name, spec) = (&port.metadata.name, &port.spec);
            let outlives = spec.persistent || spec.pod_uid.is_empty();
            assert!(outlives || self.pod_lives(port), "{name:?} outlived its pod");
            assert!(spec.pod_uid.is_empty() || self.pod_lives(port), "{name:?} keeps a dead pod");
            let attached = port.status.as_ref().map(|it| it.phase) == Some(PortPhase::Attached);
            assert!(!attached || !spec.pod_uid.is_empty(), "{name:?} is attached to nobody");
            assert!(self.has_others(port), "{name:?} is there without its other interfaces");
            self.check_routes(port);
        }
        for object in self.cluster.of_kind(Kind::Claim) {
            let Object::Claim(claim) = object else { unreachable!() };
            let name = claim.metadata.name.clone().unwrap();
            if let Some(vip) = name.strip_prefix("vip.acme.") {
                assert!(self.service_has(&claim.spec.holder, vip), "{name} is held by nobody");
                continue;
            }
            let known = wanted.contains(&name) || !name.starts_with("address.");
            assert!(known || self.is_awaited(claim), "{name} is held by nobody");
        }
        let ids = self.cluster.objects.keys().filter(|it| it.name.name.starts_with("network-id."));
        let vpcs = self.cluster.objects.keys().filter(|it| it.name.name.starts_with("vpc."));
        assert_eq!(ids.count(), vpcs.count(), "one VPC has one number");
        self.check_services();
        self.check_counts();
    }

    /// What subnets and tenants tell of themselves is what can be counted.
    fn check_counts(&self) {
        let claims = |prefix: &str| -> Vec<String> {
            let names = self.cluster.objects.keys().filter(|key| key.kind == Kind::Claim);
            let names =
                names.filter_map(|key| Some(key.name.name.strip_prefix(prefix)?.to_owned()));
            names.collect()
        };
        for object in self.cluster.of_kind(Kind::Subnet) {
            let Object::Subnet(subnet) = object else { unreachable!() };
            let Some(status) = subnet.status.clone().filter(|it| it.phase == SubnetPhase::Active)
            else {
                continue;
            };
            let id = self.cluster.network(&subnet.spec.network).status.clone().unwrap().id.unwrap();
            let range: Cidr = subnet.spec.cidr.parse().unwrap();
            let held = claims(&format!("address.{id}."));
            let held = held
                .iter()
                .filter(|ip| range.contains(ip.replace('-', ":").parse().unwrap()))
                .count();
            let kept_back = if range.is_ipv4() { 3 } else { 2 };
            let all = i64::try_from(range.size()).unwrap() - kept_back;
            let name = &subnet.metadata.name;
            assert_eq!(status.used, i64::try_from(held).unwrap(), "{name:?}");
            assert_eq!(status.free, all - status.used, "{name:?}");
        }
        let told = self.cluster.tenant("acme").status.clone().unwrap();
        let vips = claims("vip.acme.").len();
        let networks = self.cluster.of_kind(Kind::Network).len();
        assert_eq!((told.vips as usize, told.networks as usize), (vips, networks));
    }

    /// What is reached through an interface that is not the first: all of its VPC, unless that is
    /// the first one's, too.
    fn check_routes(&self, port: &Port) {
        if port.spec.pod.is_empty()
            || port.spec.primary
            || port.metadata.deletion_timestamp.is_some()
        {
            return;
        }
        let mut ranges = match port.spec.network.as_str() {
            "acme.extra-2" => self.cluster.network("acme.extra-2").spec.cidrs.clone(),
            _ => Vec::new(),
        };
        ranges.sort();
        assert_eq!(port.spec.routes, ranges, "{:?}", port.metadata.name);
    }

    /// Whether this service lives and says that it has the address.
    fn service_has(&self, holder: &ClaimHolder, ip: &str) -> bool {
        let found = self.cluster.objects.get(&key(Kind::Service, &format!("shop/{}", holder.name)));
        let lives = found.is_some_and(|found| found.meta().uid == holder.uid);
        lives && vip(&self.cluster, &format!("shop/{}", holder.name)).as_deref() == Some(ip)
    }

    /// There are fewer services than addresses: who has none asked for what it cannot have.
    fn check_services(&self) {
        for object in self.cluster.of_kind(Kind::Service) {
            let name = object.key().name.to_string();
            let vip = vip(&self.cluster, &name).unwrap_or_else(|| panic!("{name} has no address"));
            let claim = self.cluster.objects.get(&key(Kind::Claim, &format!("vip.acme.{vip}")));
            let is_kept_back = ["198.18.0.0", "198.18.0.1", "198.18.0.7", "198.18.0.8"];
            assert!(claim.is_some() != is_kept_back.contains(&vip.as_str()), "{name}: {vip}");
        }
    }

    /// Every address of a port is claimed by it.
    fn check_claims(&self, port: &Port, wanted: &mut BTreeSet<String>) {
        let name = ObjectName::inside("shop", port.metadata.name.clone().unwrap());
        let own = port.metadata.uid.clone().unwrap();
        let uid = if port.spec.persistent { &own } else { &port.spec.pod_uid };
        let Ok(network) = NetworkId::try_from(port.spec.network_id) else { return };
        for ip in &port.spec.ips {
            let thing = Thing::Address(NetAddr::new(network, ip.parse().unwrap())).to_string();
            let Some(Object::Claim(found)) = self.cluster.objects.get(&key(Kind::Claim, &thing))
            else {
                panic!("{name} has no claim on {ip}");
            };
            assert_eq!(found.spec.holder, holder_of_port(&name, uid));
            wanted.insert(thing);
        }
    }

    /// The first interface's port comes last, so that the others are there with it.
    fn has_others(&self, port: &Port) -> bool {
        port.spec.other_interfaces.iter().all(|interface| {
            let other = self.cluster.port("shop", &format!("{}.{interface}", port.spec.pod));
            other.is_some_and(|other| other.spec.pod_uid == port.spec.pod_uid)
        })
    }

    /// Whether a claim is for a pod or a port that waits for the rest of what it needs.
    fn is_awaited(&self, claim: &atoll_api::Claim) -> bool {
        let holder = claim.spec.holder.uid.as_deref();
        let mut live = self.cluster.objects.values();
        let Some(found) = live.find(|object| object.meta().uid.as_deref() == holder) else {
            return false;
        };
        match found {
            Object::Pod(pod) => {
                let name = pod.metadata.name.as_deref().unwrap();
                self.cluster.port("shop", &format!("{name}.eth0")).is_none()
            }
            Object::Port(port) => port.spec.network_id == 0,
            _ => false,
        }
    }

    fn pod_lives(&self, port: &Port) -> bool {
        let pod = key(Kind::Pod, &format!("shop/{}", port.spec.pod));
        let Some(Object::Pod(pod)) = self.cluster.objects.get(&pod) else { return false };
        let finished = pod.status.as_ref().is_some_and(|status| status.phase.is_some());
        pod.metadata.uid.as_deref() == Some(&port.spec.pod_uid) && !finished
    }
}
