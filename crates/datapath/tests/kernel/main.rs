//! The datapath against the real kernel, in namespaces of its own. Needs root, `ip` and `ethtool`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod across;
mod across_parts;
mod across_policy;
mod balancers;
mod balancers_sctp;
#[path = "../../../oracle/tests/bridge/mod.rs"]
mod bridge;
mod connections;
mod counting;
mod decisions;
mod doors;
mod downgrade;
mod egress_address;
mod egress_errors;
mod fabric;
mod floods;
mod fragments;
mod gateway;
mod held;
mod infra;
mod interfaces;
mod isolation;
mod lifecycle;
mod masks;
mod node_ports;
mod openings;
mod openings_stage;
mod outside;
mod overlay;
mod overlay_ipv6;
mod plain_node;
mod plain_outside;
mod plain_sctp;
mod plain_services;
mod plain_stage;
mod plain_tunnel;
mod policy;
mod policy_evasion;
mod policy_threats;
mod port_scan;
#[path = "../../../oracle/tests/random/mod.rs"]
mod random;
mod service_choice;
mod service_datagrams;
mod service_doors;
mod service_maps;
mod service_packets;
mod service_share;
mod services;
mod settled;
mod several_interfaces;
mod spoofing;
mod talk;
mod taps;
mod tenants;
mod threats;
mod under_load;
mod upgrade;
mod usual;
mod verdicts;

use atoll_testkit::forge;
