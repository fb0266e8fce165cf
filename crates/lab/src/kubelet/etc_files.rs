//! The files of `/etc` that a pod has for itself: its name, its hosts, its resolver.

use std::fs;
use std::io;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig};

use super::launch_plan::hostname;
use crate::home::PodHome;

/// Where stock pods look for the cluster's DNS.
pub(crate) const CLUSTER_DNS: &str = "10.96.0.10";
const CLUSTER_DOMAIN: &str = "cluster.local";

/// Writes the files of `pod` into its home.
pub(crate) fn write(home: &PodHome, pod: &Pod, ips: &[IpAddr]) -> io::Result<()> {
    let machines_own = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    fs::write(home.etc("hostname"), format!("{}\n", hostname(pod)))?;
    fs::write(home.etc("hosts"), hosts(hostname(pod), ips))?;
    fs::write(home.etc("resolv.conf"), resolver(pod, &machines_own))
}

fn hosts(name: &str, ips: &[IpAddr]) -> String {
    let own = ips.iter().map(|ip| format!("{ip}\t{name}\n"));
    let fixed = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n".to_owned();
    fixed + &own.collect::<String>()
}

/// The resolver's configuration by the pod's `dnsPolicy`; `machines_own` is what `Default` means.
fn resolver(pod: &Pod, machines_own: &str) -> String {
    let spec = pod.spec.as_ref();
    let policy = spec.and_then(|spec| spec.dns_policy.as_deref()).unwrap_or("ClusterFirst");
    let on_host = spec.is_some_and(|spec| spec.host_network == Some(true));
    let base = match policy {
        "None" => String::new(),
        "Default" => machines_own.to_owned(),
        "ClusterFirst" if on_host => machines_own.to_owned(),
        _ => cluster_first(pod.metadata.namespace.as_deref().unwrap_or("default")),
    };
    base + &spec.and_then(|spec| spec.dns_config.as_ref()).map(additions).unwrap_or_default()
}

fn cluster_first(namespace: &str) -> String {
    format!(
        "search {namespace}.svc.{CLUSTER_DOMAIN} svc.{CLUSTER_DOMAIN} {CLUSTER_DOMAIN}\n\
         nameserver {CLUSTER_DNS}\noptions ndots:5\n"
    )
}

fn additions(config: &PodDNSConfig) -> String {
    let servers = config.nameservers.iter().flatten().map(|ip| format!("nameserver {ip}\n"));
    let searches = config.searches.iter().flatten().cloned().collect::<Vec<_>>().join(" ");
    let search = (!searches.is_empty()).then(|| format!("search {searches}\n"));
    let options = config.options.iter().flatten().filter_map(|option| {
        let name = option.name.as_ref()?;
        let value = option.value.as_ref().map(|value| format!(":{value}")).unwrap_or_default();
        Some(format!("options {name}{value}\n"))
    });
    servers.chain(search).chain(options).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resolver_of(spec: &serde_json::Value) -> String {
        let metadata = json!({"name": "web-1", "namespace": "acme"});
        let pod: Pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        resolver(&pod, "nameserver 192.0.2.1\n")
    }

    #[test]
    fn a_pod_finds_its_own_name_in_its_hosts() {
        let text = hosts("web-1", &[[10, 0, 0, 5].into()]);
        assert!(text.contains("127.0.0.1\tlocalhost\n"));
        assert!(text.ends_with("10.0.0.5\tweb-1\n"));
    }

    #[test]
    fn stock_pods_ask_the_clusters_dns_and_search_their_namespace_first() {
        let text = resolver_of(&json!({"containers": []}));
        assert!(
            text.starts_with("search acme.svc.cluster.local svc.cluster.local cluster.local\n")
        );
        assert!(text.contains("nameserver 10.96.0.10\n"));
        assert!(text.contains("options ndots:5\n"));
    }

    #[test]
    fn the_machines_own_resolver_serves_those_who_ask_and_pods_on_the_host() {
        for spec in [
            json!({"containers": [], "dnsPolicy": "Default"}),
            json!({"containers": [], "hostNetwork": true}),
        ] {
            assert_eq!(resolver_of(&spec), "nameserver 192.0.2.1\n");
        }
    }

    #[test]
    fn a_pod_may_bring_its_own_resolver() {
        let config = json!({
            "nameservers": ["10.0.0.53"], "searches": ["a", "b"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}],
        });
        let spec = json!({"containers": [], "dnsPolicy": "None", "dnsConfig": config});
        let text = resolver_of(&spec);
        assert_eq!(text, "nameserver 10.0.0.53\nsearch a b\noptions ndots:2\noptions rotate\n");
    }
}
