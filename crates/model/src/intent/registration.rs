//! A type of network that a provider registered for.

use atoll_api as api;

use super::Meta;

/// That a provider serves a type of network. The object's name is the type.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Metadata.
    pub meta: Meta,
    /// The provider's name.
    pub provider: String,
    /// The status as it stands.
    pub status: Option<api::NetworkTypeStatus>,
}

impl From<&api::NetworkType> for Registration {
    fn from(type_: &api::NetworkType) -> Self {
        Registration {
            meta: Meta::from(&type_.metadata),
            provider: type_.spec.provider.clone(),
            status: type_.status.clone(),
        }
    }
}
