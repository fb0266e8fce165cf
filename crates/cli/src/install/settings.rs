//! What an installation can be told, and where each word of it goes in the manifests.

use std::net::{IpAddr, SocketAddr};

use atoll_model::intent::Template;
use atoll_types::{Cidr, InfraMode};
use serde::{Deserialize, Serialize};

/// The settings of an installation. What is not said keeps its default, or in an upgrade what it
/// was.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Settings {
    /// The image of all parts; by default the one of this version.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    /// HOST:PORT by which nodes reach the API; needed where no kube-proxy runs.
    #[arg(long, value_name = "HOST:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_server: Option<HostPort>,
    /// The UDP port of the tunnel, 4789 by default.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tunnel_port: Option<u16>,
    /// kubelet's clusterDNS, 10.96.0.10 by default; with a comma between, one of each family.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cluster_dns: Vec<IpAddr>,
    /// kubelet's clusterDomain, cluster.local by default.
    #[arg(long, value_name = "DOMAIN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster_domain: Option<String>,
    /// Servers for names outside of the cluster; by default such names are refused.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) dns_upstream: Vec<String>,
    /// The ranges that flat networks share.
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) flat_cidrs: Vec<Cidr>,
    /// The ranges from which services of tenants that name none get addresses.
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) service_cidrs: Vec<Cidr>,
    /// A Network manifest from which each new tenant gets its network `default`, unless its own spec
    /// says another; by default a vpc of 10.0.0.0/16. With an empty path tenants get none. The text is
    /// kept, not the path.
    #[arg(long = "default-network-template-path", value_name = "FILE", value_parser = template_in)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_network_template: Option<String>,
    /// Seconds that a freed address rests before another pod may get it, 30 by default.
    #[arg(long, value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address_rest: Option<u64>,
    /// Seconds that the addresses of a StatefulSet's pod that does not come again are kept, a day by
    /// default.
    #[arg(long, value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address_keep: Option<u64>,
    /// Where the controllers' metrics are served on their nodes, 0.0.0.0:9641 by default; nowhere where
    /// it is empty.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address_or_none)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics_address: Option<String>,
    /// Where each agent serves its metrics on its node; by default nowhere, because they name networks.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address_or_none)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent_metrics_address: Option<String>,
    /// Ranges that no pod reaches outside, beside nodes and their podCIDRs.
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) egress_deny: Vec<Cidr>,
    /// The network of the nodes that pods of no tenant are handed to; by default the first that is
    /// not ours.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delegate: Option<String>,
    /// The newest version of CNI that the nodes' container runtimes may speak, 1.0.0 or 1.1.0; 1.0.0 by
    /// default.
    #[arg(long, value_name = "VERSION", value_parser = ["1.0.0", "1.1.0"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cni_version: Option<String>,
    /// Be the only network: pods of no tenant get addresses of their nodes' podCIDRs, which are
    /// parts of this range (one of each family).
    #[arg(long, value_name = "CIDRS", value_delimiter = ',', conflicts_with = "delegate")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) plain_network: Vec<Cidr>,
    /// Whether the services of namespaces of no tenant are led for the pods of the plain network, the
    /// nodes' own processes and who comes to their node ports, as they are by default; say false where
    /// kube-proxy does that.
    #[arg(long, value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plain_services: Option<bool>,
    /// Whether pods of tenants reach the nodes and the pods of no tenant directly; isolated by default.
    #[arg(long, value_name = "isolated|compatible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) infra_mode: Option<InfraMode>,
}

/// An address and a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl std::str::FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not HOST:PORT, such as 192.0.2.10:6443");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = port.parse().ok().filter(|port| *port != 0 && !host.is_empty());
        Ok(HostPort { host, port: port.ok_or_else(wrong)? })
    }
}

/// Options of a program: the name of each, and what it is to be.
pub(crate) type Options = Vec<(&'static str, String)>;

impl Settings {
    /// These settings, and where they say nothing those of `before`.
    pub(crate) fn over(self, before: Settings) -> Settings {
        Settings {
            image: self.image.or(before.image),
            api_server: self.api_server.or(before.api_server),
            tunnel_port: self.tunnel_port.or(before.tunnel_port),
            cluster_dns: either(self.cluster_dns, before.cluster_dns),
            cluster_domain: self.cluster_domain.or(before.cluster_domain),
            dns_upstream: either(self.dns_upstream, before.dns_upstream),
            flat_cidrs: either(self.flat_cidrs, before.flat_cidrs),
            service_cidrs: either(self.service_cidrs, before.service_cidrs),
            default_network_template: self
                .default_network_template
                .or(before.default_network_template),
            address_rest: self.address_rest.or(before.address_rest),
            address_keep: self.address_keep.or(before.address_keep),
            metrics_address: self.metrics_address.or(before.metrics_address),
            agent_metrics_address: self.agent_metrics_address.or(before.agent_metrics_address),
            egress_deny: either(self.egress_deny, before.egress_deny),
            delegate: self.delegate.or(before.delegate),
            cni_version: self.cni_version.or(before.cni_version),
            plain_network: either(self.plain_network, before.plain_network),
            plain_services: self.plain_services.or(before.plain_services),
            infra_mode: self.infra_mode.or(before.infra_mode),
        }
    }

    /// What the agent is told.
    pub(crate) fn of_agent(&self) -> Options {
        let port = self.tunnel_port.map(|port| port.to_string());
        let options = [
            ("--cni-delegate", self.delegate.clone()),
            ("--cni-version", self.cni_version.clone()),
            ("--plain-network", joined(&self.plain_network)),
            ("--plain-services", self.plain_services.map(|it| it.to_string())),
            ("--tunnel-port", port),
            ("--cluster-dns", joined(&self.cluster_dns)),
            ("--cluster-domain", self.cluster_domain.clone()),
            ("--dns-upstream", joined(&self.dns_upstream)),
            ("--egress-deny", joined(&self.egress_deny)),
            ("--metrics-address", self.agent_metrics_address.clone().filter(|it| !it.is_empty())),
            ("--infra-mode", self.infra_mode.map(|mode| mode.to_string())),
        ];
        said(options)
    }

    /// What the controller is told.
    pub(crate) fn of_controller(&self) -> Options {
        let no_template = self.template() == Some("");
        said([
            ("--dns-image", self.image.clone()),
            ("--default-network-template-path", no_template.then(String::new)),
            ("--flat-cidrs", joined(&self.flat_cidrs)),
            ("--service-cidrs", joined(&self.service_cidrs)),
            ("--address-rest", self.address_rest.map(|it| it.to_string())),
            ("--address-keep", self.address_keep.map(|it| it.to_string())),
            ("--metrics-address", self.metrics_address.clone()),
        ])
    }

    /// The text of the template for default networks, where one was said; without any it is empty.
    pub(crate) fn template(&self) -> Option<&str> {
        self.default_network_template.as_deref()
    }

    /// The port of the metrics, where an address was said; without any it is none.
    pub(crate) fn metrics_port(&self) -> Option<Option<u16>> {
        let said = self.metrics_address.as_deref()?;
        Some(said.parse::<SocketAddr>().ok().map(|address| address.port()))
    }
}

/// The text of a template that gives a network; of an empty path, none.
fn template_in(path: &str) -> Result<String, String> {
    if path.is_empty() {
        return Ok(String::new());
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read it: {error}"))?;
    let tenant = "tenant".parse().map_err(|error| format!("{error}"))?;
    let template = Template::Text(text.clone());
    template.render(&tenant).map_err(|error| error.to_string())?;
    Ok(text)
}

fn address_or_none(text: &str) -> Result<String, String> {
    let wrong = |_| format!("{text:?} is not ADDRESS:PORT, such as 0.0.0.0:9641");
    match text {
        "" => Ok(String::new()),
        text => text.parse::<SocketAddr>().map(|address| address.to_string()).map_err(wrong),
    }
}

fn either<T>(now: Vec<T>, before: Vec<T>) -> Vec<T> {
    if now.is_empty() { before } else { now }
}

fn said<const N: usize>(options: [(&'static str, Option<String>); N]) -> Options {
    options.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn joined(values: &[impl ToString]) -> Option<String> {
    let texts: Vec<_> = values.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_a_port_is_read_in_both_families_and_half_of_it_is_refused() {
        let read = |text: &str| text.parse::<HostPort>().map(|it| (it.host, it.port));
        assert_eq!(read("192.0.2.10:6443").unwrap(), ("192.0.2.10".into(), 6443));
        assert_eq!(read("[2001:db8::1]:6443").unwrap(), ("2001:db8::1".into(), 6443));
        for wrong in ["192.0.2.10", ":6443", "api:0", "api:https"] {
            assert!(read(wrong).unwrap_err().contains("HOST:PORT"), "{wrong}");
        }
    }

    #[test]
    fn an_upgrade_keeps_what_it_is_not_told_anew() {
        let before = Settings {
            tunnel_port: Some(4790),
            cluster_dns: vec!["10.43.0.10".parse().unwrap()],
            ..Settings::default()
        };
        let given = Settings { tunnel_port: Some(4791), ..Settings::default() };
        let settings = given.over(before.clone());
        assert_eq!((settings.tunnel_port, settings.cluster_dns), (Some(4791), before.cluster_dns));
    }

    #[test]
    fn whether_plain_services_are_led_is_said_to_the_agent_where_it_was_said_at_all() {
        let agent = |plain_services| Settings { plain_services, ..Settings::default() }.of_agent();
        assert_eq!(agent(None), []);
        assert_eq!(agent(Some(false)), [("--plain-services", "false".to_owned())]);
        let kept = Settings::default()
            .over(Settings { plain_services: Some(false), ..Settings::default() });
        assert_eq!(kept.plain_services, Some(false));
    }

    #[test]
    fn a_template_is_read_and_tried_when_it_is_named_and_its_text_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let text = "kind: Network\nspec: {type: vpc, vpcID: {{tenant}}, cidrs: [10.0.0.0/16]}\n";
        assert_eq!(template_in(&file("good", text)).unwrap(), text);
        assert_eq!(template_in("").unwrap(), "");
        let odd = template_in(&file("odd", "kind: Pod\nspec: {type: vpc}\n")).unwrap_err();
        assert!(odd.contains("its kind is \"Pod\""), "{odd}");
        let gone = template_in(folder.path().join("gone").to_str().unwrap()).unwrap_err();
        assert!(gone.starts_with("cannot read it: "), "{gone}");
    }

    #[test]
    fn metrics_are_at_an_address_or_nowhere_and_anything_else_is_refused() {
        let port = |said: Option<&str>| {
            let metrics_address = said.map(|text| address_or_none(text).unwrap());
            Settings { metrics_address, ..Settings::default() }.metrics_port()
        };
        assert_eq!(port(None), None);
        assert_eq!(port(Some("")), Some(None));
        assert_eq!(port(Some("[::1]:9700")), Some(Some(9700)));
        assert!(address_or_none("9641").unwrap_err().contains("ADDRESS:PORT"));
    }

    #[test]
    fn what_is_kept_in_the_cluster_is_what_was_said_and_reads_back() {
        let said = Settings { tunnel_port: Some(4790), ..Settings::default() };
        let kept = serde_json::to_string(&said).unwrap();
        assert_eq!(kept, r#"{"tunnelPort":4790}"#);
        assert_eq!(serde_json::from_str::<Settings>(&kept).unwrap(), said);
    }
}
