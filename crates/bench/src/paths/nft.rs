//! Rules of the shape that kube-proxy writes in its nft mode: a verdict map from service address
//! to a chain, address translation on connection start, and a look at every forwarded packet.

use std::fmt::Write;
use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use atoll_testkit::Namespace;

use super::VIP;
use crate::traffic::PORTS;

/// As many services as a middling cluster has.
const SERVICES: u16 = 500;

/// Puts the rules into a namespace; the measured service leads to `server`.
pub(super) fn load(namespace: &Namespace, server: Ipv4Addr) -> Result<()> {
    let file = tempfile::NamedTempFile::new().context("cannot make a file for nft rules")?;
    std::fs::write(file.path(), rules(SERVICES, server))?;
    let output = namespace.command("nft", &["-f", &file.path().to_string_lossy()]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nft refused the rules: {complaint}");
    Ok(())
}

fn rules(services: u16, server: Ipv4Addr) -> String {
    let addresses = |number: u16| (number / 250, number % 250 + 1);
    let mut endpoints = String::new();
    let mut elements = vec![];
    for number in 0..services {
        let (third, fourth) = addresses(number);
        // Writing to a string cannot fail.
        let _ = writeln!(
            endpoints,
            "chain endpoint-{number} {{ meta l4proto tcp dnat to 10.200.{third}.{fourth}:8080 ; }}\n\
             chain service-{number} {{ numgen random mod 1 vmap {{ 0 : goto endpoint-{number} }} ; }}"
        );
        elements.push(format!("10.96.{third}.{fourth} . tcp . 80 : goto service-{number}"));
    }
    for (protocol, port) in PORTS {
        let protocol = protocol.name().to_lowercase();
        let _ = writeln!(
            endpoints,
            "chain endpoint-to-{port} {{ meta l4proto {protocol} dnat to {server}:{port} ; }}\n\
             chain service-to-{port} {{ numgen random mod 1 vmap {{ 0 : goto endpoint-to-{port} }} ; }}"
        );
        elements.push(format!("{VIP} . {protocol} . {port} : goto service-to-{port}"));
    }
    let elements = elements.join(",\n");
    format!(
        "table ip services {{
{endpoints}
map service-ips {{ type ipv4_addr . inet_proto . inet_service : verdict
elements = {{ {elements} }} }}
set without-endpoints {{ type ipv4_addr ; elements = {{ 10.97.0.1, 10.97.0.2 }} }}
chain services {{ ip daddr . meta l4proto . th dport vmap @service-ips ; }}
chain nat-prerouting {{ type nat hook prerouting priority dstnat ; jump services ; }}
chain nat-output {{ type nat hook output priority -100 ; jump services ; }}
chain masquerading {{ meta mark & 0x4000 == 0 return ; masquerade ; }}
chain nat-postrouting {{ type nat hook postrouting priority srcnat ; jump masquerading ; }}
chain check-endpoints {{ ip daddr @without-endpoints reject ; }}
chain filter-forward {{ type filter hook forward priority filter ;
ct state invalid drop ; ct state new jump check-endpoints ; ct state established,related accept ; }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_has_an_address_of_its_own_and_a_chain() {
        let rules = rules(300, [10, 0, 0, 2].into());
        assert!(rules.contains("10.96.0.1 . tcp . 80 : goto service-0"));
        assert!(rules.contains("10.96.1.50 . tcp . 80 : goto service-299"));
        assert_eq!(rules.matches("chain service-").count(), 300 + PORTS.len());
    }

    #[test]
    fn the_measured_service_leads_to_the_server() {
        let rules = rules(1, [10, 0, 0, 2].into());
        assert!(rules.contains("198.18.255.1 . tcp . 7001 : goto service-to-7001"));
        assert!(rules.contains("dnat to 10.0.0.2:7001"));
    }

    #[test]
    fn nft_takes_the_rules() {
        load(&Namespace::new(), [10, 0, 0, 2].into()).unwrap();
    }
}
