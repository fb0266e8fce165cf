//! A port asks for addresses of its network: what is to be claimed for it, or what it hears instead.

use std::net::IpAddr;

use atoll_api::{ClaimHolder, Reason};
use atoll_types::{NetAddr, NetworkId, NetworkName};
use atoll_vpc::{Ask, Exhausted, Moment, Refused};

use super::wait::Complaint;
use crate::action::Action;
use crate::intent::{Claim, ObjectName, PortHolder, Thing, holder_of_port};
use crate::world::{Now, World};

/// How long a pod waits before it asks again for an address of a full subnet.
const FULL_SUBNET_PAUSE: Moment = Moment::from_secs(5);

/// The network that a port is in.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    pub(super) name: NetworkName,
    pub(super) id: NetworkId,
}

/// A port that is to get addresses, and what is asked for it.
pub(super) struct Asker<'a> {
    pub(super) holder: PortHolder,
    pub(super) subnet: Option<&'a str>,
    pub(super) ips: &'a [IpAddr],
}

/// The addresses of a port, and the subnet of the first.
pub(super) struct Granted {
    pub(super) subnet: String,
    pub(super) ips: Vec<IpAddr>,
    holder: ClaimHolder,
}

impl Granted {
    /// The claims that have to be made for it.
    pub(super) fn claims(&self, network: NetworkId) -> Vec<Action> {
        let thing = |ip: &IpAddr| Thing::Address(NetAddr::new(network, *ip));
        self.ips.iter().map(|ip| Action::Claim(thing(ip), self.holder.clone())).collect()
    }
}

impl World {
    /// One address of each family that the network has.
    pub(super) fn grant(
        &mut self,
        asker: Asker<'_>,
        network: &Joined,
        now: &Now,
    ) -> Result<Granted, Complaint> {
        let subnets: Vec<ObjectName> =
            asker.subnet.into_iter().flat_map(|asked| called(asked, &network.name)).collect();
        let ask = Ask {
            holder: asker.holder,
            network: &network.name,
            vpc: network.id,
            subnets: &subnets,
            ips: asker.ips,
        };
        match self.vpcs.grant(&ask, now.moment) {
            Ok(granted) => Ok(Granted {
                subnet: granted.subnet.name,
                ips: granted.ips,
                holder: holder_of_port(&ask.holder.name, &ask.holder.incarnation),
            }),
            Err(refused) => Err(self.refusal(refused, asker.subnet, network, now)),
        }
    }

    fn refusal(
        &self,
        refused: Refused<ObjectName>,
        subnet: Option<&str>,
        network: &Joined,
        now: &Now,
    ) -> Complaint {
        let name = &network.name;
        let complaint = |reason, message| Complaint::new(reason, message).waiting_for(name, None);
        match refused {
            Refused::NoSubnet => complaint(Reason::SubnetNotReady, no_subnet(subnet, name)),
            Refused::Outside { ip, ranges } => {
                let ranges = ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let message =
                    format!("address {ip} is outside the ranges of network {name}: {ranges}");
                complaint(Reason::AddressOutside, message)
            }
            Refused::Reserved { ip, subnet } => {
                let message = format!("address {ip} is reserved in subnet {subnet}");
                complaint(Reason::AddressReserved, message)
            }
            Refused::InUse(ip) => self.in_use(NetAddr::new(network.id, ip), name),
            Refused::Exhausted(why) => full(name, why, now),
        }
    }

    fn in_use(&self, address: NetAddr, network: &NetworkName) -> Complaint {
        let thing = Thing::Address(address);
        let holder = self.claim_on(&thing).map(holder_text);
        let holder = holder.or_else(|| {
            self.vpcs.holdings().on_the_way_to(address).map(|port| format!("port {port}"))
        });
        let holder = holder.unwrap_or_else(|| "somebody".into());
        let message = format!("address {} of network {network} is in use by {holder}", address.ip);
        Complaint::new(Reason::AddressInUse, message).waiting_for(network, Some(thing))
    }
}

pub(super) fn holder_text(claim: &Claim) -> String {
    let holder = &claim.holder;
    match &holder.namespace {
        Some(namespace) => {
            format!("{} {namespace}/{}", holder.kind.to_lowercase(), holder.name)
        }
        None => format!("{} {}", holder.kind, holder.name),
    }
}

/// The subnets that are called so: by the object name, or by what follows the network's in it.
fn called(asked: &str, network: &NetworkName) -> [ObjectName; 2] {
    [ObjectName::cluster(asked), ObjectName::cluster(format!("{network}.{asked}"))]
}

fn no_subnet(asked: Option<&str>, network: &NetworkName) -> String {
    match asked {
        Some(asked) => format!("network {network} has no subnet {asked} that gives addresses"),
        None => format!("network {network} has no subnet that gives addresses yet"),
    }
}

fn full(network: &NetworkName, exhausted: Option<Exhausted>, now: &Now) -> Complaint {
    let detail = exhausted.map_or_else(String::new, |error| format!(": {error}"));
    let until = match exhausted {
        Some(Exhausted::Resting { until, .. }) => until,
        Some(Exhausted::Full(_)) | None => now.moment + FULL_SUBNET_PAUSE,
    };
    let message = format!("network {network} has no free address{detail}");
    Complaint::new(Reason::SubnetExhausted, message).waiting_for(network, None).again_at(until)
}
