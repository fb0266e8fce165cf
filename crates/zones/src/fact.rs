//! What can be learned of a network's names, object by object, in a form that can be passed on.
//!
//! Its rule: whoever learned the same facts has the same names, in whatever order they came.

use serde::{Deserialize, Serialize};

use crate::endpoints::Slice;
use crate::service::{Service, ServiceKey};
use crate::view::{Home, ObjectKey};

/// One object as it is, or that it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The port of this name is at this home.
    Home(ObjectKey, Option<Home>),
    /// The service of this name is this one.
    Service(ServiceKey, Option<Service>),
    /// The slice of this name is this one.
    Slice(ObjectKey, Option<Slice>),
}

impl Fact {
    /// What it is about: a later fact about the same takes its place.
    pub fn about(&self) -> String {
        match self {
            Fact::Home((namespace, name), _) => format!("home {namespace}/{name}"),
            Fact::Service(key, _) => format!("service {}/{}", key.namespace, key.name),
            Fact::Slice((namespace, name), _) => format!("slice {namespace}/{name}"),
        }
    }

    /// The fact that what `about` names is gone.
    pub fn gone(about: &str) -> Option<Fact> {
        let (kind, key) = about.split_once(' ')?;
        let (namespace, name) = key.split_once('/')?;
        let object = || (namespace.to_owned(), name.to_owned());
        match kind {
            "home" => Some(Fact::Home(object(), None)),
            "service" => {
                let key =
                    ServiceKey { namespace: namespace.parse().ok()?, name: name.parse().ok()? };
                Some(Fact::Service(key, None))
            }
            "slice" => Some(Fact::Slice(object(), None)),
            _ => None,
        }
    }

    /// Whether it says that the object is gone.
    pub fn is_gone(&self) -> bool {
        match self {
            Fact::Home(_, home) => home.is_none(),
            Fact::Service(_, service) => service.is_none(),
            Fact::Slice(_, slice) => slice.is_none(),
        }
    }
}
