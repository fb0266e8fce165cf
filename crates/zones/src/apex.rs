//! What every name of a network has in common: the zone, how long answers keep, and where the
//! resolver is.

use std::net::IpAddr;

use atoll_types::Cidr;
use serde::{Deserialize, Serialize};

use crate::name::{DomainName, push_label};
use crate::records::{Kind, Rrsets};

/// The version of the naming rules, as `dns-version` tells it.
const VERSION: &str = "1.1.0";

/// What a network's zones are made from beside its objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The zone of services and pods, in most clusters `cluster.local`.
    pub zone: DomainName,
    /// The network's ranges: names of addresses in them are ours and asked of nobody else.
    pub cidrs: Vec<Cidr>,
    /// The addresses of the resolver, for `ns.dns.<zone>`.
    pub resolver: Vec<IpAddr>,
    /// How many seconds an answer keeps.
    pub ttl: u32,
}

/// The settings, and the records that follow from them.
#[derive(Debug)]
pub struct Apex {
    pub(crate) settings: Settings,
    pub(crate) labels: usize,
    pub(crate) top: Rrsets,
    pub(crate) server: Rrsets,
    pub(crate) version: Rrsets,
    /// The records of a name that is only on the way to others.
    pub(crate) empty: Rrsets,
    soa: Box<[u8]>,
    soa_records: Rrsets,
}

/// A "no": where its zone starts in the name asked for, and the rest of the zone's SOA record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negative<'a> {
    /// The byte of the name at which the zone starts.
    pub zone_at: usize,
    /// The SOA record without its owner.
    pub soa: &'a [u8],
}

impl Apex {
    pub(crate) fn new(settings: Settings) -> Self {
        let ttl = settings.ttl;
        let server = below(&settings.zone, &["ns", "dns"]);
        let soa = soa_data(&server, &settings);
        let text = [&[VERSION.len() as u8], VERSION.as_bytes()].concat();
        let soa_records = Rrsets::new(&[], Kind::Soa, &[soa], ttl);
        let record = soa_records.of(Kind::Soa).bytes;
        Apex {
            labels: settings.zone.labels(),
            top: Rrsets::new(&[], Kind::Ns, &[server], ttl),
            server: Rrsets::addresses(&settings.resolver, ttl),
            version: Rrsets::new(&[], Kind::Txt, &[text], ttl),
            empty: Rrsets::default(),
            soa: record[2..].into(),
            soa_records,
            settings,
        }
    }

    pub(crate) fn zone(&self) -> &[u8] {
        self.settings.zone.wire()
    }

    pub(crate) fn negative(&self, zone_at: usize) -> Negative<'_> {
        Negative { zone_at, soa: &self.soa }
    }

    pub(crate) fn soa(&self) -> &Rrsets {
        &self.soa_records
    }
}

/// The name with these labels below the zone.
pub(crate) fn below(zone: &DomainName, labels: &[&str]) -> Vec<u8> {
    let mut name = vec![];
    labels.iter().for_each(|label| push_label(&mut name, label));
    name.extend(zone.wire());
    name
}

/// The zone is never transferred, so its serial number stays; the last number says how long a
/// "no" keeps.
fn soa_data(server: &[u8], settings: &Settings) -> Vec<u8> {
    let mut data = server.to_vec();
    data.extend(below(&settings.zone, &["hostmaster"]));
    for number in [1, 7200, 1800, 86400, settings.ttl] {
        data.extend(number.to_be_bytes());
    }
    data
}
