//! What tests of names have in common: the record rules, a server outside that may lie, and pods
//! that listen for a change.

mod listener;
mod outside;
mod records;

pub use listener::{Listener, addresses, hear};
pub use outside::{Asked, Part, Upstream, add, asked_name, reply};
pub use records::{
    Row, number, question, read_framed, rows_of, summary, table, wire_name, write_framed,
};
