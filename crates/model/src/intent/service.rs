//! A service: whether it is to have addresses of its tenant, and which it asks for or has.

use std::net::IpAddr;

use atoll_api::{Reason, marks};
use k8s_openapi::api::core::v1 as core;

use super::namespace::mark;
use super::{Malformed, Meta};
use crate::opening::{Opening, OpeningError};

/// A service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Metadata.
    pub meta: Meta,
    /// Whether it stands for its backends at an address: it is neither headless nor another name.
    pub has_address: bool,
    /// Whether it has addresses of IPv4, and of IPv6: both where it does not say.
    pub families: (bool, bool),
    /// The addresses in its annotation, at most one of each family.
    pub vips: Result<Vec<IpAddr>, Malformed>,
    /// The annotation as it is written.
    pub annotation: Option<String>,
    /// What it wants of the outside, where it is a load balancer of ours.
    pub balancer: Option<Balancer>,
    /// Why it is open to nobody, where it says that it is to somebody.
    pub opening: Result<(), Malformed>,
    /// At which addresses or names its status says that the outside knows it.
    pub ingress: Vec<String>,
}

/// A service that wants to be known outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balancer {
    /// The address that it asks for by name.
    pub asked: Result<Option<IpAddr>, Malformed>,
    /// Whether it wants an address of IPv4, and one of IPv6.
    pub families: (bool, bool),
    /// Whether only pods of the node that a connection comes in by take it.
    pub local_only: bool,
}

impl From<&core::Service> for Service {
    fn from(service: &core::Service) -> Self {
        let annotation = mark(service.metadata.annotations.as_ref(), marks::VIP);
        let spec = service.spec.as_ref();
        let is_name = spec.is_some_and(|spec| spec.type_.as_deref() == Some("ExternalName"));
        let is_headless = spec.is_some_and(|spec| spec.cluster_ip.as_deref() == Some("None"));
        Service {
            meta: Meta::from(&service.metadata),
            has_address: !is_name && !is_headless,
            families: families(spec).unwrap_or((true, true)),
            vips: parse(annotation.as_deref().unwrap_or_default()),
            annotation,
            balancer: spec.and_then(balancer),
            opening: opening(service),
            ingress: ingress(service.status.as_ref()),
        }
    }
}

fn opening(service: &core::Service) -> Result<(), Malformed> {
    let malformed =
        |error: OpeningError| Malformed::new(Reason::RequestMalformed, error.to_string());
    Opening::read(service).map_or(Ok(()), |read| read.map(drop).map_err(malformed))
}

/// A service that names the class of somebody else is left to them.
fn balancer(spec: &core::ServiceSpec) -> Option<Balancer> {
    let class = spec.load_balancer_class.as_deref();
    if spec.type_.as_deref() != Some("LoadBalancer")
        || class.is_some_and(|class| class != marks::LOAD_BALANCER_CLASS)
    {
        return None;
    }
    let named = spec.load_balancer_ip.as_deref().filter(|text| !text.is_empty());
    Some(Balancer {
        asked: named.map(asked).transpose(),
        families: families(Some(spec)).unwrap_or((true, false)),
        local_only: spec.external_traffic_policy.as_deref() == Some("Local"),
    })
}

/// Whether IPv4 and IPv6 are among the families that a service says it has; none where it says
/// nothing.
fn families(spec: Option<&core::ServiceSpec>) -> Option<(bool, bool)> {
    let families = spec?.ip_families.as_ref().filter(|families| !families.is_empty())?;
    let has = |family: &str| families.iter().any(|one| one == family);
    Some((has("IPv4"), has("IPv6")))
}

fn ingress(status: Option<&core::ServiceStatus>) -> Vec<String> {
    let ingress = status.and_then(|status| status.load_balancer.as_ref()?.ingress.clone());
    ingress.into_iter().flatten().filter_map(|one| one.ip.or(one.hostname)).collect()
}

fn asked(text: &str) -> Result<IpAddr, Malformed> {
    let ip = text.parse::<IpAddr>().map(|ip| ip.to_canonical());
    ip.map_err(|_| {
        let message = format!("spec.loadBalancerIP: {text:?} is no IP address; name one, or none");
        Malformed::new(Reason::RequestMalformed, message)
    })
}

impl Service {
    /// Whether it has addresses of the family of this one.
    pub fn has_family_of(&self, ip: IpAddr) -> bool {
        if ip.is_ipv4() { self.families.0 } else { self.families.1 }
    }

    /// Whether only pods of the node that answers for its address of the outside are reached there.
    pub fn is_local_outside(&self) -> bool {
        self.balancer.as_ref().is_some_and(|balancer| balancer.local_only)
    }

    /// Whether its annotation says that it has this address.
    pub fn has(&self, ip: IpAddr) -> bool {
        self.vips.as_ref().is_ok_and(|vips| vips.contains(&ip))
    }
}

fn parse(text: &str) -> Result<Vec<IpAddr>, Malformed> {
    let texts = text.split(',').map(str::trim).filter(|text| !text.is_empty());
    let mut vips: Vec<IpAddr> = Vec::new();
    for text in texts {
        let ip: IpAddr = text.parse().map_err(|_| malformed(&format!("{text:?} is none")))?;
        let ip = ip.to_canonical();
        if let Some(other) = vips.iter().find(|other| other.is_ipv4() == ip.is_ipv4()) {
            return Err(malformed(&format!("{other} and {ip} are of the same family")));
        }
        vips.push(ip);
    }
    Ok(vips)
}

fn malformed(what: &str) -> Malformed {
    let right = "it is one IP address, or one of IPv4 and one of IPv6 with a comma between";
    let message = format!("annotation {}: {what}; {right}", marks::VIP);
    Malformed::new(Reason::RequestMalformed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_whatever_the_spaces() {
        let read = |text| parse(text).unwrap();
        assert_eq!(read(""), Vec::<IpAddr>::new());
        assert_eq!(
            read(" 198.18.0.5 , fd18::5"),
            ["198.18.0.5", "fd18::5"].map(|ip| ip.parse::<IpAddr>().unwrap())
        );
        assert_eq!(read("::ffff:198.18.0.5"), ["198.18.0.5".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn what_is_no_address_is_named_with_what_would_be_right() {
        for (text, wrong) in [
            ("198.18.0", "\"198.18.0\" is none"),
            ("198.18.0.5/16", "\"198.18.0.5/16\" is none"),
            ("198.18.0.5,198.18.0.6", "198.18.0.5 and 198.18.0.6 are of the same family"),
        ] {
            let message = parse(text).unwrap_err().message;
            assert!(
                message.starts_with(&format!("annotation atoll.dev/vip: {wrong}; it is one")),
                "{message}"
            );
        }
    }

    #[test]
    fn a_load_balancer_is_ours_unless_it_names_another_class() {
        let balancer = |spec: serde_json::Value| {
            let service = serde_json::json!({"spec": spec});
            Service::from(&serde_json::from_value::<core::Service>(service).unwrap()).balancer
        };
        let plain = balancer(serde_json::json!({"type": "LoadBalancer"})).unwrap();
        assert_eq!((plain.asked, plain.families), (Ok(None), (true, false)));
        assert!(!plain.local_only);
        let local = serde_json::json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
        assert!(balancer(local).unwrap().local_only);
        let ours = serde_json::json!({"type": "LoadBalancer", "loadBalancerClass": "atoll.dev/pool",
            "ipFamilies": ["IPv6", "IPv4"], "loadBalancerIP": "2001:db8::5"});
        let ours = balancer(ours).unwrap();
        assert_eq!(ours.asked, Ok(Some("2001:db8::5".parse().unwrap())));
        assert_eq!(ours.families, (true, true));
        let theirs =
            serde_json::json!({"type": "LoadBalancer", "loadBalancerClass": "example.org/x"});
        assert_eq!(balancer(theirs), None);
        assert_eq!(balancer(serde_json::json!({"type": "NodePort"})), None);
        let wrong = serde_json::json!({"type": "LoadBalancer", "loadBalancerIP": "here"});
        let message = balancer(wrong).unwrap().asked.unwrap_err().message;
        assert!(message.starts_with("spec.loadBalancerIP: \"here\" is no IP address"), "{message}");
    }

    #[test]
    fn a_service_has_the_families_that_it_names_and_both_where_it_names_none() {
        let read = |families: &[&str]| {
            let spec = serde_json::json!({"spec": {"ipFamilies": families}});
            Service::from(&serde_json::from_value::<core::Service>(spec).unwrap())
        };
        let (four, six) = (IpAddr::from([198, 18, 0, 5]), "fd18::5".parse().unwrap());
        for (families, has) in [
            (vec!["IPv4"], (true, false)),
            (vec!["IPv6"], (false, true)),
            (vec!["IPv6", "IPv4"], (true, true)),
            (vec![], (true, true)),
        ] {
            let service = read(&families);
            let told = (service.has_family_of(four), service.has_family_of(six));
            assert_eq!(told, has, "{families:?}");
        }
    }

    #[test]
    fn headless_services_and_other_names_have_no_address() {
        let service = |type_: &str, cluster_ip: &str| {
            let spec = core::ServiceSpec {
                type_: Some(type_.into()),
                cluster_ip: Some(cluster_ip.into()),
                ..core::ServiceSpec::default()
            };
            Service::from(&core::Service { spec: Some(spec), ..core::Service::default() })
        };
        for type_ in ["ClusterIP", "NodePort", "LoadBalancer"] {
            assert!(service(type_, "10.96.0.1").has_address);
            assert!(!service(type_, "None").has_address);
        }
        assert!(!service("ExternalName", "").has_address);
    }
}
