//! What the controller can be told.

use std::convert::Infallible;
use std::net::{AddrParseError, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_model::Settings;
use atoll_model::resolver::DnsPods;
use atoll_types::Cidr;

/// Settings of the controller.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ControllerConfig {
    /// A Network manifest from which every new tenant gets its network `default`; `{{tenant}}` in
    /// it is the tenant's name. Without it, tenants get only what their own spec asks for.
    #[arg(long = "default-network-template-path", value_name = "FILE", value_parser = any_path)]
    pub default_network_template: Option<PathBuf>,

    /// Seconds that a freed address rests before another pod may get it.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub address_rest: u64,

    /// Seconds that a claim may stand without its holder before it is given back. More than a
    /// request to the API can take.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub claim_grace: u64,

    /// The ranges that flat networks share, IPv4, IPv6 or both. Each flat network gets blocks of
    /// them (of 24 and 64 bits) and no two have the same.
    #[arg(long, value_name = "CIDRS", value_delimiter = ',', default_values_t = flat_cidrs())]
    pub flat_cidrs: Vec<Cidr>,

    /// The ranges from which services of tenants that name none get addresses.
    #[arg(long, value_name = "CIDRS", value_delimiter = ',', default_values_t = service_cidrs())]
    pub service_cidrs: Vec<Cidr>,

    /// The namespace of the lease by which several controllers agree on the one that works.
    /// Without it, this one works at once.
    #[arg(long, value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,

    /// Seconds that the addresses of a StatefulSet's pod that does not come again are kept.
    #[arg(long, default_value_t = 86_400)]
    pub address_keep: u64,

    /// Where metrics are served for Prometheus, at `/metrics`, such as `127.0.0.1:9641`. Without it, or
    /// where it is empty, nowhere.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = any_address, default_value = "")]
    pub metrics_address: MaybeAddress,

    /// The image of the DNS pods of networks that have their own: one with `atoll` in its path.
    #[arg(long, value_name = "IMAGE", default_value_t = dns_image())]
    pub dns_image: String,

    /// How many DNS pods such a network gets.
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    pub dns_replicas: u32,

    /// Where the API's questions about probes of new pods are answered, by HTTPS, such as
    /// `0.0.0.0:9643`. Without it, nowhere.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub admission_address: Option<SocketAddr>,

    /// Seconds that a controller which is told to end goes on answering there: it is asked until everybody
    /// knows that it ends, and a question without an answer is a pod that is not made.
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    pub admission_linger: u64,

    /// The namespace of the Service by which the API asks, and of the Secret with the certificate.
    #[arg(long, value_name = "NAMESPACE", default_value = "atoll-system")]
    pub admission_namespace: String,

    /// How many objects are worked on at the same time; of each type of network, as many again.
    #[arg(long, default_value_t = 32)]
    pub workers: usize,
}

/// An address or none: clap would take an `Option` for a flag that can be left out, not for one that
/// can be empty.
type MaybeAddress = Option<SocketAddr>;

/// An address, or none of an empty text.
fn any_address(text: &str) -> Result<MaybeAddress, AddrParseError> {
    if text.is_empty() { Ok(None) } else { text.parse().map(Some) }
}

/// Any text, also the empty one, which clap would refuse as a path.
fn any_path(text: &str) -> Result<PathBuf, Infallible> {
    Ok(PathBuf::from(text))
}

fn flat_cidrs() -> Vec<Cidr> {
    Settings::default().flat
}

/// The image of this very version.
fn dns_image() -> String {
    concat!("atoll.dev/atoll:", env!("CARGO_PKG_VERSION")).to_owned()
}

fn service_cidrs() -> Vec<Cidr> {
    Settings::default().service
}

impl Default for ControllerConfig {
    fn default() -> Self {
        ControllerConfig {
            default_network_template: None,
            address_rest: 30,
            claim_grace: 30,
            flat_cidrs: flat_cidrs(),
            address_keep: 86_400,
            service_cidrs: service_cidrs(),
            lease_namespace: None,
            metrics_address: None,
            dns_image: dns_image(),
            dns_replicas: 2,
            admission_address: None,
            admission_linger: 3,
            admission_namespace: "atoll-system".to_owned(),
            workers: 32,
        }
    }
}

impl ControllerConfig {
    /// The template's file; an empty path means none.
    pub(crate) fn template_file(&self) -> Option<PathBuf> {
        self.default_network_template.clone().filter(|path| path != Path::new(""))
    }

    /// What DNS pods are made with.
    pub(crate) fn dns_pods(&self) -> DnsPods {
        DnsPods { image: self.dns_image.clone(), replicas: self.dns_replicas }
    }

    /// What the model needs of it.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            rest: Duration::from_secs(self.address_rest),
            grace: Duration::from_secs(self.claim_grace),
            flat: self.flat_cidrs.clone(),
            keep: Duration::from_secs(self.address_keep),
            service: self.service_cidrs.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        config: ControllerConfig,
    }

    #[test]
    fn the_command_line_and_the_code_have_the_same_defaults() {
        assert_eq!(Command::parse_from(["controller"]).config, ControllerConfig::default());
    }

    #[test]
    fn an_empty_path_means_no_template() {
        let given = ["controller", "--default-network-template-path", ""];
        assert_eq!(Command::parse_from(given).config.template_file(), None);
    }

    #[test]
    fn metrics_are_served_at_an_address_or_where_it_is_empty_nowhere() {
        let read = |text: &str| {
            let given = format!("--metrics-address={text}");
            Command::try_parse_from(["controller", &given]).map(|it| it.config.metrics_address)
        };
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("0.0.0.0:9641").unwrap(), Some(([0, 0, 0, 0], 9641).into()));
        assert!(read("9641").is_err());
    }
}
