//! The whole path, from `kubectl apply` to a packet in the kernel, on labs of real namespaces.
//!
//! Needs root, and says so. Every test has a lab of its own, or shares one and keeps to tenants of
//! its own; it is taken down, also when a test fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod across;
mod asking;
mod bad_input;
mod balancers;
mod compatible;
mod connection_states;
mod cycles;
mod datapath;
mod documents;
mod exchanged;
mod exported_datagrams;
mod fixture;
mod flat;
mod health_ports;
mod infra;
mod inside;
mod isolation;
mod layouts;
mod lifecycle;
mod local_balancers;
mod machines;
mod masks;
mod names;
mod news;
mod node_loss;
mod observe;
mod openings;
mod outside;
mod policy;
mod records;
mod repair;
mod resolvers;
mod restart;
mod service_cases;
mod service_slices;
mod service_types;
mod services;
mod several_networks;
mod tenancy;
mod tenants;
mod threats;
mod threats_by_kind;
mod threats_to_doors;
mod threats_to_flows;
mod threats_to_names;
mod threats_to_policy;
mod threats_to_services;
mod threats_to_the_agent;
mod tunnel_port;
mod underlay_ipv6;
mod workflows;
