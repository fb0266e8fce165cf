//! The resolver of a node: each pod is answered from the view of its own network.
//!
//! The rule of this crate: who asks decides the view, and an asker that nobody knows gets no
//! answer. A network's names are swapped whole; what is not the network's own is asked of its
//! upstreams, or of nobody. Answers of the network's own names are written by threads of their
//! own that neither wait nor allocate; TCP and forwarding live on one other thread.

mod answer;
mod asker;
mod cache;
mod check;
mod config;
mod counters;
mod ears;
mod feed;
mod follow;
mod forward;
mod hearing;
mod limits;
mod network;
mod numbers;
mod query;
mod record;
mod reply;
mod response;
mod secondary;
mod server;
mod slow;
mod tcp;
mod udp;

pub use asker::{Asker, Askers, NetworkKey, PodId, TenantId};
pub use check::check;
pub use config::{Config, Forwarding, Limits, Rate};
pub use counters::{Answered, Counts, Refused};
pub use feed::Feed;
pub use hearing::{hear_all, hear_only};
pub use secondary::{Secondary, SecondaryError};
pub use server::{Ledger, Server, ServerError};
