//! What follows from what people wrote: intent, numbers, conditions, and what is to be done next.
//!
//! The rule of this crate: it thinks and never touches. No clock, no I/O, no async; time and what
//! was seen come in as values, and what shall be done goes out as values.

mod action;
pub mod compile;
mod conditions;
mod decide;
pub mod devices;
pub mod export;
pub mod intent;
pub mod opening;
pub mod outside;
mod port_change;
pub mod probes;
pub mod resolver;
mod world;

pub use atoll_vpc::Moment;

pub use action::{Action, Decision, Key, Seat, Target, Tone};
pub use conditions::Verdict;
pub use port_change::{Binding, Filling, PortChange};
pub use world::{Addresses, Now, Settings, Tally, Touched, World};
