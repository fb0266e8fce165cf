//! Manifests of the seeds, turned into ours. The seeds are the designs that Atoll grew from: the
//! multi-tenancy networks of Arktos, the multi-tenant networking proposal of Kubernetes, and
//! Arktos on Mizar. They put `network`, `nics` and `extraNetworks` into pods, `network` into
//! namespaces, `tenant` into metadata, and know a `Network` of `v1` and `arktos.futurewei.com/v1`.
//!
//! The rule of this crate: an object is looked at, never touched, and what has to change is told as
//! [`Edit`]s. No edits means that the manifest is printed as it was written, to the byte. What was
//! decided on the way is told as [`Note`]s; what cannot be meant is a [`Refusal`].

mod document;
mod edit;
mod finding;
mod namespace;
mod network;
mod object;
mod owner;
mod pod;
mod seed_view;

pub use document::{ConvertError, Converted, Document, convert};
pub use edit::Edit;
pub use finding::{Findings, Note, Place, Refusal};
pub use object::examine;
pub use owner::{DEFAULT_TENANT, Settings};
pub use seed_view::SeedVersion;
