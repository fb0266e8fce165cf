//! What happens to objects without a request for it: the first objects of a new cluster, custom
//! kinds coming and going with their definitions, garbage collection, ends of namespaces.

mod bootstrap;
mod chores;
mod definitions;
mod janitor;

pub(crate) use bootstrap::bootstrap;
pub(crate) use definitions::follow;
pub(crate) use janitor::run as clean_up;
