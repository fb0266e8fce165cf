//! Writes the device status of a pod's resource claims.
//!
//! The rule: a claim is read when it is to be told, and not followed. A pod's claims are allocated
//! before it gets a node, and a cluster may have many claims that are none of ours, or not have the
//! API at all.

use atoll_api::Reason;
use atoll_model::devices::{self, Told};
use atoll_model::intent::ObjectName;
use atoll_model::{Target, Tone};
use k8s_openapi::api::resource::v1::{NetworkDeviceData, ResourceClaim};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Error};
use serde_json::json;

use crate::execute::{Executed, Result, say};

/// Tells a claim about the interfaces of a pod that uses it.
pub(crate) async fn tell(
    client: &Client,
    pod: &Target,
    claim: &ObjectName,
    interfaces: &[NetworkDeviceData],
) -> Result<Executed> {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), &claim.namespace);
    let Some(standing) = claims.get_opt(&claim.name).await? else {
        return Ok(Executed::as_thought([]));
    };
    let Told { devices, complaint } = devices::told(&standing, &pod.uid, interfaces);
    if let Some(devices) = devices {
        let metadata = json!({"uid": standing.metadata.uid,
                              "resourceVersion": standing.metadata.resource_version});
        let change = Patch::Merge(json!({"metadata": metadata, "status": {"devices": devices}}));
        match claims.patch_status(&claim.name, &PatchParams::default(), &change).await {
            Ok(_) => {}
            Err(Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                return Ok(Executed::otherwise([]));
            }
            Err(error) => return Err(error),
        }
    }
    match complaint {
        Some(message) => {
            say(client, pod, Tone::Warning, &Reason::PartlyServed.to_string(), &message).await
        }
        None => Ok(Executed::as_thought([])),
    }
}
