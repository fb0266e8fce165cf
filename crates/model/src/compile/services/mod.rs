//! The services of the networks on a node: from Services, EndpointSlices and ports to who takes
//! the connections of each address and port.
//!
//! The rules: a service leads only to pods of its own tenant, by the addresses they have in their
//! networks, and to those of the client's own VPC first; an address that a pod has is no service's; and a
//! change costs what it touches.

mod across;
mod book;
mod choice;
mod front;
mod fronts;
mod grievances;
mod health;
mod homes;
mod network;
mod outside;
mod plain;
mod rationed;
mod served;
mod share;
mod slice;

pub use across::Followed;
pub use book::{ServiceBook, ServiceName};
pub use front::{ServiceError, ServiceFront};
pub use fronts::{Rank, ServiceComplaint};
pub use health::PlainHealth;
pub use network::ResolverFront;
pub use plain::{PlainBook, PlainGroup};
pub use slice::EndpointGroup;
