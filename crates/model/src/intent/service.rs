//! A service: whether it is to have addresses of its tenant, and which it asks for or has.

use std::net::IpAddr;

use atoll_api::{Reason, marks};
use k8s_openapi::api::core::v1 as core;

use super::namespace::mark;
use super::{Malformed, Meta};

/// A service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Metadata.
    pub meta: Meta,
    /// Whether it stands for its backends at an address: it is neither headless nor another name.
    pub has_address: bool,
    /// The addresses in its annotation, at most one of each family.
    pub vips: Result<Vec<IpAddr>, Malformed>,
    /// The annotation as it is written.
    pub annotation: Option<String>,
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
            vips: parse(annotation.as_deref().unwrap_or_default()),
            annotation,
        }
    }
}

impl Service {
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
