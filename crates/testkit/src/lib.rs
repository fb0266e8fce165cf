//! What tests need to work with real kernels: network namespaces, a private BPF file system, raw
//! sockets, forged frames, a steady load, the maps that a node has pinned, the list of threats, and the
//! record rules of DNS.
//!
//! The rule of this crate: nothing outlives the test process, however it ends. Namespaces are held
//! by file descriptors and mounts live in a mount namespace of one thread, so that the kernel
//! cleans up even after a kill. What touches the kernel needs root, and panics with that word without it.

mod bpffs;
pub mod forge;
pub mod load;
mod machine;
pub mod names;
mod namespace;
mod packet_socket;
pub mod pinned;
pub mod threats;
mod wait;
mod worker;

pub use bpffs::BpfFileSystem;
pub use machine::{Machine, Talk};
pub use namespace::Namespace;
pub use packet_socket::{Direction, PacketSocket};
pub use wait::{Hears, Stops, bound, eventually, uninterrupted};
pub use worker::Worker;
