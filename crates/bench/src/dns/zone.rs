//! The names that every server has, in the form that each reads, and the questions about them.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};

/// How many names have an address.
pub(crate) const NAMES: u32 = 10_000;
/// How many namespaces they are in.
pub(crate) const NAMESPACES: u32 = 100;
/// The first address, among those that a cluster's services have. The resolver that is measured
/// makes up the same ones.
const FIRST: u32 = 0x0a60_0100;
const HEAD: &str = "$TTL 5\n@ SOA ns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5\n@ NS ns.cluster.local.\n";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    Address,
    Pointer,
    Nothing,
}

impl Asking {
    pub(crate) const ALL: [Asking; 3] = [Asking::Address, Asking::Pointer, Asking::Nothing];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Asking::Address => "A",
            Asking::Pointer => "PTR",
            Asking::Nothing => "NXDOMAIN",
        }
    }

    /// What dnsperf prints when every answer is right.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Asking::Address | Asking::Pointer => "NOERROR",
            Asking::Nothing => "NXDOMAIN",
        }
    }

    pub(crate) fn file(self) -> String {
        format!("ask-{}", self.title())
    }

    fn question(self, n: u32) -> String {
        match self {
            Asking::Address => format!("{}.cluster.local A", host(n)),
            Asking::Pointer => format!("{}.10.in-addr.arpa PTR", reverse(n)),
            Asking::Nothing => {
                format!("www{n}.example.com.ns{}.svc.cluster.local A", n % NAMESPACES)
            }
        }
    }
}

/// The service that a name is, and its namespace.
pub(crate) fn service(n: u32) -> (String, String) {
    (format!("h{n}"), format!("ns{}", n % NAMESPACES))
}

fn host(n: u32) -> String {
    let (name, namespace) = service(n);
    format!("{name}.{namespace}.svc")
}

fn reverse(n: u32) -> String {
    let [_, b, c, d] = address(n).octets();
    format!("{d}.{c}.{b}")
}

/// The address that a name has.
pub(crate) fn address(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST + n)
}

/// Writes zone files, unbound's local data, and the questions, in an order that is not theirs.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let all = |line: &dyn Fn(u32) -> String| {
        (0..NAMES).fold(String::new(), |mut text, n| {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "{}", line(n));
            text
        })
    };
    let save = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    save(
        "forward.zone",
        format!("{HEAD}ns A 10.255.0.1\n{}", all(&|n| format!("{} A {}", host(n), address(n)))),
    )?;
    save(
        "reverse.zone",
        format!("{HEAD}{}", all(&|n| format!("{} PTR {}.cluster.local.", reverse(n), host(n)))),
    )?;
    let local = |n| {
        let (host, ip) = (host(n), address(n));
        format!(
            "local-data: \"{host}.cluster.local. 5 A {ip}\"\nlocal-data-ptr: \"{ip} 5 {host}.cluster.local.\""
        )
    };
    save("local.conf", all(&local))?;
    for asking in Asking::ALL {
        let shuffled = |n: u32| asking.question(n.wrapping_mul(7_919) % NAMES);
        save(&asking.file(), all(&shuffled))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_asked_for_once() {
        let mut all: Vec<u32> = (0..NAMES).map(|n| n.wrapping_mul(7_919) % NAMES).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len() as u32, NAMES);
    }

    #[test]
    fn an_address_and_its_name_belong_together() {
        assert_eq!(address(257).to_string(), "10.96.2.1");
        assert_eq!(Asking::Pointer.question(257), "1.2.96.10.in-addr.arpa PTR");
        assert_eq!(Asking::Address.question(257), "h257.ns57.svc.cluster.local A");
    }
}
