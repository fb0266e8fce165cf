//! The whole path, from `kubectl apply` to a packet in the kernel, on labs of real namespaces.
//!
//! Needs root, and says so. Every test has a lab of its own and takes it down, also when it fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod across;
mod bad_input;
mod balancers;
mod documents;
mod fixture;
mod flat;
mod infra;
mod inside;
mod isolation;
mod lifecycle;
mod machines;
mod names;
mod observe;
mod outside;
mod policy;
mod records;
mod resolvers;
mod restart;
mod service_cases;
mod services;
mod several_networks;
mod tenants;
mod threats;
mod threats_to_flows;
