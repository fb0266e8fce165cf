//! Node ports of services of namespaces of no tenant: two programs at the uplink, which are there while
//! there is such a port.
//!
//! The rule: they come after the tenants' program on the same link, and are never on any other. Like those
//! of plain pods they live with their link, and are replaced in place.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use atoll_abi::{PlainKey, PlainWay};
use aya::include_bytes_aligned;
use aya::programs::TcAttachType;

use crate::as_words;
use crate::error::{Attempt, DatapathError};
use crate::maps::check_shape;
use crate::netlink::{Link, Netlink};
use crate::outside::Uplink;
use crate::pins::unpin;
use crate::program::{Loader, NodePortConstants, Program, remove_filter};

static PROGRAMS: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/plain_outside.o"));

const FROM_OUTSIDE: &str = "from_outside";
const TO_OUTSIDE: &str = "to_outside";
/// Where what is known of connections is pinned.
const WAYS: &str = "outside_ways";

/// Where clients from outside come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsideConfig {
    /// This node's address on the uplink.
    pub underlay: IpAddr,
    /// The UDP port of the tunnel.
    pub overlay_port: u16,
}

/// The programs as they are on the uplink.
pub(crate) struct Entrance {
    config: OutsideConfig,
    maps: PathBuf,
    there: Option<There>,
}

struct There {
    uplink: Uplink,
    from_outside: Program,
    to_outside: Program,
}

impl Entrance {
    /// Nothing is looked at yet; `maps` is the folder of all maps of plain services.
    pub(crate) fn new(config: OutsideConfig, maps: &Path) -> Self {
        Entrance { config, maps: maps.to_owned(), there: None }
    }

    /// The node's addresses that node ports are served at.
    pub(crate) async fn addresses(&self, netlink: &Netlink) -> Result<Vec<IpAddr>, DatapathError> {
        let uplink = Uplink::find(netlink, self.config.underlay).await?;
        let ipv4 = uplink.ipv4.map(IpAddr::from);
        Ok(ipv4.into_iter().chain(uplink.ipv6.map(IpAddr::from)).collect())
    }

    /// Has the programs at the uplink, or has them not. Repeatable, also where the uplink is another.
    pub(crate) async fn mind(
        &mut self,
        netlink: &Netlink,
        is_needed: bool,
    ) -> Result<(), DatapathError> {
        let uplink = Uplink::find(netlink, self.config.underlay).await?;
        if !is_needed {
            self.there = None;
            take_off(&uplink.link)?;
            return unpin(&self.maps.join(WAYS));
        }
        if let Some(there) =
            self.there.take_if(|there| there.uplink.link.index != uplink.link.index)
        {
            take_off(&there.uplink.link)?;
        }
        if !self.there.as_ref().is_some_and(|there| there.uplink.is_as(&uplink)) {
            self.there = Some(There::load(uplink, self.config, &self.maps)?);
        }
        match &mut self.there {
            Some(there) => there.put_on(netlink).await,
            None => Ok(()),
        }
    }
}

impl There {
    fn load(uplink: Uplink, config: OutsideConfig, maps: &Path) -> Result<Self, DatapathError> {
        let (first_face, faces) = uplink.faces.unwrap_or_default();
        let constants = NodePortConstants {
            ipv4: uplink.ipv4.map_or(0, |ip| u32::from_ne_bytes(ip.octets())),
            ipv6: uplink.ipv6.map_or([0; 4], |ip| as_words(ip.octets())),
            first_face: first_face.into(),
            faces: faces.into(),
            face_secret: secret()?,
            tunnel_port: config.overlay_port.into(),
        };
        let load = |name| Loader::of_node_ports(maps, &constants).load(name, PROGRAMS);
        let from_outside = load(FROM_OUTSIDE)?.after_others();
        let to_outside = load(TO_OUTSIDE)?.of_egress().after_others();
        Ok(There { uplink, from_outside, to_outside })
    }

    /// What gives answers their source first.
    async fn put_on(&mut self, netlink: &Netlink) -> Result<(), DatapathError> {
        for program in [&mut self.to_outside, &mut self.from_outside] {
            if !program.is_on(netlink, &self.uplink.link).await? {
                program.put_on(netlink, &self.uplink.link).await?;
            }
        }
        Ok(())
    }
}

/// What nobody outside can guess.
fn secret() -> Result<u32, DatapathError> {
    getrandom::u32().map_err(std::io::Error::other).attempt(|| "draw a secret".to_owned())
}

/// Takes both programs, of any version, off a link.
pub(crate) fn take_off(link: &Link) -> Result<(), DatapathError> {
    let entrance = remove_filter(FROM_OUTSIDE, &link.name, TcAttachType::Ingress);
    entrance.and(remove_filter(TO_OUTSIDE, &link.name, TcAttachType::Egress))
}

/// Refuses pinned maps whose entries have other sizes than ours.
pub(crate) fn check_pinned(dir: &Path) -> Result<(), DatapathError> {
    check_shape::<PlainKey, PlainWay>(&dir.join(WAYS))
}
