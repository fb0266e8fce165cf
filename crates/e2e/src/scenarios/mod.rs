//! What is tried on the cluster, by subject.

pub(crate) mod agents;
pub(crate) mod away;
pub(crate) mod beside;
pub(crate) mod by_others;
pub(crate) mod defaults;
pub(crate) mod families;
pub(crate) mod infra;
pub(crate) mod lab;
pub(crate) mod leaving;
pub(crate) mod life;
pub(crate) mod names;
pub(crate) mod nodes;
pub(crate) mod plain;
pub(crate) mod plain_ports;
pub(crate) mod plain_services;
pub(crate) mod power;
pub(crate) mod probes;
pub(crate) mod reach;
pub(crate) mod restored;
pub(crate) mod services;
pub(crate) mod upgraded;
pub(crate) mod users;
pub(crate) mod workloads;
