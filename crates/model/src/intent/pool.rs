//! A pool of addresses of the outside: its ranges, and whose they are.

use atoll_api as api;
use atoll_api::Reason;
use atoll_types::Cidr;

use super::{Malformed, Meta};

/// Addresses that mean this machine, this link, everybody or nobody.
const NOBODYS: [&str; 7] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/3",
    "::/127",
    "fe80::/10",
    "ff00::/8",
];

/// A pool.
#[derive(Clone, Debug)]
pub struct AddressPool {
    /// Metadata.
    pub meta: Meta,
    /// Its ranges.
    pub ranges: Result<Vec<Cidr>, Malformed>,
    /// The tenants that may have its addresses; all, if it names none.
    pub tenants: Option<Vec<String>>,
    /// The status as it stands.
    pub status: Option<api::AddressPoolStatus>,
}

impl From<&api::AddressPool> for AddressPool {
    fn from(pool: &api::AddressPool) -> Self {
        let ranges = pool.spec.cidrs.iter().enumerate();
        AddressPool {
            meta: Meta::from(&pool.metadata),
            ranges: ranges.map(|(position, text)| range(position, text)).collect(),
            tenants: pool.spec.tenants.clone(),
            status: pool.status.clone(),
        }
    }
}

impl AddressPool {
    /// Whether a tenant may have its addresses.
    pub fn serves(&self, tenant: &str) -> bool {
        !self.meta.deleting
            && self.tenants.as_ref().is_none_or(|all| all.iter().any(|one| one == tenant))
    }

    /// Its ranges, none where one of them is wrong.
    pub fn ranges(&self) -> &[Cidr] {
        self.ranges.as_deref().unwrap_or_default()
    }
}

fn range(position: usize, text: &str) -> Result<Cidr, Malformed> {
    let wrong = |what: String| {
        Malformed::new(Reason::CidrMalformed, format!("spec.cidrs[{position}]: {what}"))
    };
    let cidr: Cidr = text.parse().map_err(|error| wrong(format!("{error}")))?;
    let nobodys = NOBODYS.iter().filter_map(|text| text.parse::<Cidr>().ok());
    match nobodys.into_iter().find(|nobodys| nobodys.overlaps(&cidr)) {
        None => Ok(cidr),
        Some(nobodys) => Err(wrong(format!(
            "{cidr} has addresses of {nobodys}, at which no machine outside is reached; name \
             addresses of the network that the nodes are in"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(cidrs: &[&str]) -> AddressPool {
        let cidrs = cidrs.iter().map(ToString::to_string).collect();
        let spec = api::AddressPoolSpec { cidrs, tenants: Some(vec!["acme".into()]) };
        AddressPool::from(&api::AddressPool::new("edge", spec))
    }

    #[test]
    fn ranges_that_no_machine_outside_can_reach_are_refused_with_their_place() {
        assert_eq!(pool(&["192.0.2.0/28", "2001:db8::/120"]).ranges().len(), 2);
        for wrong in ["127.0.0.0/8", "160.0.0.0/3", "224.0.0.0/4", "0.0.0.0/0", "fe80::/64"] {
            let message = pool(&["192.0.2.0/28", wrong]).ranges.unwrap_err().message;
            assert!(message.starts_with("spec.cidrs[1]: "), "{message}");
            assert!(pool(&["192.0.2.0/28", wrong]).ranges().is_empty(), "none of it is given");
        }
    }

    #[test]
    fn a_pool_that_names_tenants_is_theirs_alone() {
        let mut named = pool(&["192.0.2.0/28"]);
        assert!(named.serves("acme") && !named.serves("globex"));
        named.tenants = None;
        assert!(named.serves("globex"));
    }
}
