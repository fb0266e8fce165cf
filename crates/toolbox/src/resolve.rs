//! Asking for a name the way every program of the pod does: through the resolver of its C library
//! and its `resolv.conf`.

use std::net::{IpAddr, ToSocketAddrs};
use std::process::ExitCode;

use serde_json::json;

use crate::ResolveArgs;

/// `resolve`: exit 0 with the addresses, 1 with the reason.
pub(crate) fn run(args: &ResolveArgs) -> anyhow::Result<ExitCode> {
    let found = match (args.name.as_str(), 0).to_socket_addrs() {
        Ok(found) => found,
        Err(error) => {
            eprintln!("{}: {error}", args.name);
            return Ok(ExitCode::FAILURE);
        }
    };
    let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    addresses.sort();
    addresses.dedup();
    println!("{}", json!({"name": args.name, "addresses": addresses}));
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(name: &str) -> ExitCode {
        run(&ResolveArgs { name: name.into() }).unwrap()
    }

    #[test]
    fn an_address_is_itself_and_a_name_that_cannot_be_is_a_failure() {
        assert_eq!(resolve("192.0.2.1"), ExitCode::SUCCESS);
        assert_eq!(resolve("not a name"), ExitCode::FAILURE);
    }
}
