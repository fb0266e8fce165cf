//! The oracle of network policy: a plain, slow reading of what the API's words mean.
//!
//! The rule of this crate: it shares no code with the compiler that feeds the kernel. It reads the
//! objects themselves, asks every question anew for every packet, and remembers nothing. Where the
//! two disagree, one of them is wrong.
//!
//! It also holds the cases by which both are tried: scenes of one tenant, with what must pass and
//! what must not, to be played in two tenants at once.

pub mod cases;
mod cluster_words;
mod reading;
mod scene;
mod words;
mod world;

pub use reading::{Says, Side, says};
pub use scene::{Case, OPEN, PORTS, PROTOCOLS, Scene};
pub use world::{Namespace, Node, Pod, World};
