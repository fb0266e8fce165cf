//! The embedded Kubernetes API of the lab: for one machine, for trying and testing. It speaks what
//! kubectl and kube-rs use of the real API, keeps its objects in one redb file, and serves them
//! over TLS to the holders of its client certificate.
//!
//! What it is not: it authorizes nobody (every holder of the certificate may do everything), runs
//! no admission webhooks, and converts between versions of a kind by name only.
//!
//! Requests pass `http` (paths and headers) → `verbs` (what is done) → `store` (one transaction).
//! `schema`, `patch`, `selector`, `table` and `kinds` are pure; `lifecycle` and
//! `controllers` act on their own.

mod clock;
mod controllers;
mod failure;
mod http;
mod kinds;
mod lifecycle;
mod object;
mod patch;
mod registry;
mod schema;
mod seeds;
mod selector;
mod server;
mod store;
mod table;
mod tls;
mod verbs;
mod watch;

pub use server::{ApiConfig, ApiError, ApiServer};
pub use store::StoreError;
pub use tls::TlsError;
