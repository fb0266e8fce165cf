//! The kinds that the controller reads and writes, as kube-rs knows them.

use std::fmt::Debug;

use atoll_api::{AddressPool, Claim, Network, NetworkType, Port, Subnet, Tenant};
use atoll_model::intent::{Kind, ObjectName, Seen};
use atoll_model::{Key, Target};
use k8s_openapi::api::core::v1::{Namespace, Node, ObjectReference, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::heard::{
    AddressPoolWords, ClaimWords, NamespaceWords, NetworkTypeWords, NetworkWords, NodeWords,
    PodWords, PortWords, RoleWords, ServiceWords, SliceWords, SubnetWords, TenantWords,
};

/// A kind that the controller reads and writes.
pub(crate) trait Known:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The kind.
    const KIND: Kind;

    /// What is read of it where it is listed and followed.
    type Words: DeserializeOwned + Into<Self>;

    /// Where one object is read and written.
    fn api(client: &Client, name: &ObjectName) -> Api<Self>;

    /// What the model sees of it.
    fn seen(&self) -> Seen;

    /// Its key.
    fn key(&self) -> Key {
        let name = ObjectName::inside(self.namespace().unwrap_or_default(), self.name_any());
        Key::new(Self::KIND, name)
    }
}

macro_rules! known {
    ($kind:ident, $words:ty, $api:expr) => {
        impl Known for $kind {
            const KIND: Kind = Kind::$kind;

            type Words = $words;

            fn api(client: &Client, name: &ObjectName) -> Api<Self> {
                let api: fn(Client, &ObjectName) -> Api<Self> = $api;
                api(client.clone(), name)
            }

            fn seen(&self) -> Seen {
                Seen::$kind(self.into())
            }
        }
    };
}

known!(Tenant, TenantWords, |client, _| Api::all(client));
known!(Network, NetworkWords, |client, _| Api::all(client));
known!(Subnet, SubnetWords, |client, _| Api::all(client));
known!(Claim, ClaimWords, |client, _| Api::all(client));
known!(Namespace, NamespaceWords, |client, _| Api::all(client));
known!(ClusterRole, RoleWords, |client, _| Api::all(client));
known!(AddressPool, AddressPoolWords, |client, _| Api::all(client));
known!(Node, NodeWords, |client, _| Api::all(client));
known!(NetworkType, NetworkTypeWords, |client, _| Api::all(client));
known!(Port, PortWords, |client, name| Api::namespaced(client, &name.namespace));
known!(Pod, PodWords, |client, name| Api::namespaced(client, &name.namespace));
known!(Service, ServiceWords, |client, name| Api::namespaced(client, &name.namespace));
known!(EndpointSlice, SliceWords, |client, name| Api::namespaced(client, &name.namespace));

/// Evaluates an expression in which `$known` is the type of a [`Kind`] that is known at run time.
macro_rules! with_kind {
    ($kind:expr, $known:ident => $body:expr) => {
        match $kind {
            atoll_model::intent::Kind::Tenant => {
                type $known = atoll_api::Tenant;
                $body
            }
            atoll_model::intent::Kind::Network => {
                type $known = atoll_api::Network;
                $body
            }
            atoll_model::intent::Kind::Subnet => {
                type $known = atoll_api::Subnet;
                $body
            }
            atoll_model::intent::Kind::Port => {
                type $known = atoll_api::Port;
                $body
            }
            atoll_model::intent::Kind::Claim => {
                type $known = atoll_api::Claim;
                $body
            }
            atoll_model::intent::Kind::Namespace => {
                type $known = k8s_openapi::api::core::v1::Namespace;
                $body
            }
            atoll_model::intent::Kind::Pod => {
                type $known = k8s_openapi::api::core::v1::Pod;
                $body
            }
            atoll_model::intent::Kind::Service => {
                type $known = k8s_openapi::api::core::v1::Service;
                $body
            }
            atoll_model::intent::Kind::ClusterRole => {
                type $known = k8s_openapi::api::rbac::v1::ClusterRole;
                $body
            }
            atoll_model::intent::Kind::AddressPool => {
                type $known = atoll_api::AddressPool;
                $body
            }
            atoll_model::intent::Kind::Node => {
                type $known = k8s_openapi::api::core::v1::Node;
                $body
            }
            atoll_model::intent::Kind::NetworkType => {
                type $known = atoll_api::NetworkType;
                $body
            }
            atoll_model::intent::Kind::EndpointSlice => {
                type $known = k8s_openapi::api::discovery::v1::EndpointSlice;
                $body
            }
        }
    };
}

pub(crate) use with_kind;

/// How an event names the object that it is about.
pub(crate) fn reference(target: &Target) -> ObjectReference {
    let Target { key, uid, .. } = target;
    let namespace = (!key.name.namespace.is_empty()).then(|| key.name.namespace.clone());
    with_kind!(key.kind, K => ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: Some(key.name.name.clone()),
        namespace,
        uid: Some(uid.clone()),
        ..ObjectReference::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_its_object_as_kubectl_looks_for_it() {
        let target = Target {
            key: Key::new(Kind::Pod, ObjectName::inside("shop", "web")),
            uid: "u".into(),
            revision: 1,
        };
        let about = reference(&target);
        assert_eq!(
            (about.api_version.as_deref(), about.kind.as_deref()),
            (Some("v1"), Some("Pod"))
        );
        assert_eq!(about.namespace.as_deref(), Some("shop"));
        let tenant = Key::new(Kind::Tenant, ObjectName::cluster("acme"));
        let about = reference(&Target { key: tenant, ..target });
        assert_eq!(about.api_version.as_deref(), Some("atoll.dev/v1alpha1"));
        assert_eq!(about.namespace, None);
    }
}
