//! The control plane's thinking, held against a simulated API: scenarios as sentences, and
//! properties over random histories with late news, crashes and two controllers.

#![allow(clippy::unwrap_used, reason = "what a test needs must be there")]
#![allow(clippy::large_enum_variant, clippy::result_large_err, reason = "a test has room")]

mod balancers;
mod cluster;
mod controller;
mod dns;
mod flat;
mod flat_requests;
mod history;
mod interfaces;
mod invariants;
mod kept;
mod killed;
mod local_balancers;
mod networks;
mod outside_history;
mod phases;
mod pods;
mod properties;
mod providers;
mod scale;
mod services;
mod tenants;
mod two_tenants;
