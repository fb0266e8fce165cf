//! The CNI plugin: the small program that a container runtime starts for each pod interface.
//!
//! The rule of this crate: it thinks nothing. It checks what the runtime said
//! ([`Invocation::parse`]), hands it to the node's agent over a unix socket ([`wire`]), and
//! prints the answer in the shape of the version it was asked in. What the agent says is none of
//! ours goes through the [`Door`].

mod attachment;
mod error;
mod event;
mod invocation;
mod plugin;
mod result;

pub mod door;
pub mod wire;

pub use attachment::{Attached, AttachedInterface, AttachmentId, AttachmentRequest};
pub use door::{Answer, Chain, Door};
pub use error::{CniError, ErrorCode};
pub use event::{EventFilter, EventKind, EventReport, PacketEnd};
pub use invocation::{Action, Invocation, SUPPORTED_VERSIONS};
pub use plugin::run;
pub use result::CniResult;

#[cfg(test)]
mod tests {
    mod door;
    mod invocation;
    mod result;
}
