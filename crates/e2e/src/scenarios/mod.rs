//! What is tried on the cluster, by subject.

pub(crate) mod agents;
pub(crate) mod leaving;
pub(crate) mod names;
pub(crate) mod nodes;
pub(crate) mod power;
pub(crate) mod reach;
pub(crate) mod users;
