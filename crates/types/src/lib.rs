//! Values that are parsed once and then trusted.
//!
//! The rule of this crate: a value that exists is valid. Every constructor checks, every field is
//! private, and nothing here does I/O. The key of anything that can hold two tenants is
//! [`NetAddr`], never a bare IP address.

mod cidr;
mod gateway;
mod infra_mode;
mod mac;
mod name;
mod netaddr;
mod network_id;
mod protocol;

pub use cidr::{Cidr, CidrError};
pub use gateway::{GATEWAY_V4, GATEWAY_V6, gateway_of};
pub use infra_mode::{InfraMode, InfraModeError};
pub use mac::{MacAddr, MacError};
pub use name::{Label, NameError, NetworkName, PodRef};
pub use netaddr::NetAddr;
pub use network_id::{NetworkId, NetworkIdError};
pub use protocol::Protocol;
