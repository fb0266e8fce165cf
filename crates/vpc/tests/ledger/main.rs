//! The ledger of VPCs, whose things have names that mean nothing.

#![allow(clippy::unwrap_used, reason = "what a test needs must be there")]

mod grants;
mod histories;
mod places;
mod stage;
mod store;
mod user;
