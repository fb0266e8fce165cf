//! The names of a network: from its services, endpoints and pods to answers that are ready to send.
//!
//! The rule of this crate: a [`ZoneSet`] holds the names of one network and nothing of any other,
//! and a change of one service costs the same however many others there are. It thinks and never
//! touches: no sockets, no clock.

mod address;
mod apex;
#[cfg(test)]
mod cost;
mod endpoints;
mod fact;
mod name;
mod packed;
mod pointer;
mod records;
mod service;
mod set;
mod tell;
mod trie;
mod view;

pub use address::is_private;
pub use apex::{Apex, Negative, Settings};
pub use atoll_types::Protocol;
pub use endpoints::{Endpoint, Homes, Slice};
pub use fact::Fact;
pub use name::{Asked, DomainName, DomainNameError, MAX_NAME};
pub use records::{Kind, Records, Rrsets};
pub use service::{Backing, NamedPort, Names, Service, ServiceError, ServiceKey};
pub use set::{Found, ZoneSet};
pub use tell::Told;
pub use view::{Home, View};
