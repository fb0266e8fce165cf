//! The control plane's thinking, held against a simulated API: scenarios as sentences, and
//! properties over random histories with late news, crashes and two controllers.

mod cluster;
mod controller;
mod networks;
mod pods;
mod properties;
mod tenants;
