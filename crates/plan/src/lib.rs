//! What one node must look like, as a value.
//!
//! [`NodePlan`] is desired, [`Observed`] is what the kernel has, and [`diff`] gives the ordered
//! [`Step`]s from one to the other. The rule of this crate: it decides and never touches. Steps
//! make before they break, and no pod's interface is raised before it is guarded.

mod diff;
mod interface;
mod node;
mod outside;
mod service;
mod service_room;
mod step;

pub use diff::{diff, diff_services};
pub use interface::{HostInterface, HostInterfaceError};
pub use node::{
    Device, Doors, Endpoint, Guard, NodePlan, Observed, ObservedInterface, Place, PodInterface,
    Reach, Resolver, ServiceDoor,
};
pub use outside::{Closed, Egress, Exit, Exits, Infra, Opening};
pub use service::{Backend, PLAIN, Service, ServiceKey, Side};
pub use service_room::ServiceRoom;
pub use step::Step;
