//! From what a node has watched to what its kernel must look like.
//!
//! The rule of this module: a node compiles its own plan, and only from networks of tenants that are
//! present on it. What cannot be parsed or contradicts itself gets no packet and is named as a
//! [`Complaint`].

mod egress;
mod infra;
mod openings;
mod placed_port;
mod services;
mod tenants;
mod topology;

pub use egress::{Outlet, OutletOf, never_outside, only};
pub use openings::Opened;
pub use placed_port::{PlacedPort, PortError};
pub use services::{
    EndpointGroup, Followed, PlainBook, PlainGroup, PlainHealth, Rank, ResolverFront, ServiceBook,
    ServiceComplaint, ServiceError, ServiceFront, ServiceName,
};
pub use topology::{
    Answers, Attachment, Compiled, Complaint, Front, NodeView, Occupant, OwnResolver, compile,
};
