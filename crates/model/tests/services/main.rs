//! Services of the networks on a node: who takes the connections of which address and port.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod across;
mod health;
mod leads_where;
mod order;
mod plain;
mod resolvers;
mod room;
mod stage;
