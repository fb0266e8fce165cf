//! What can be measured, as Prometheus reads it: a page of text, and the address that serves it.
//!
//! The rule of this crate: a page is written when somebody asks for it, from counters that are kept
//! elsewhere; nothing is counted here.

mod page;
mod serve;

pub use page::Page;
pub use serve::{listen, serve, share};
