//! The controller against an API server over TLS: the embedded one, or the cluster that
//! `CONTRACT_KUBECONFIG` names.

#![allow(clippy::unwrap_used, reason = "what a test needs must be there")]

mod bad_input;
mod balancers;
mod device_status;
mod kept;
mod lists;
mod metrics;
mod networks;
mod phases;
mod pods;
mod providers;
mod resolvers;
mod restarts;
mod services;
mod subject;
mod sweep;
mod tenants;
mod types;
mod workflows;
