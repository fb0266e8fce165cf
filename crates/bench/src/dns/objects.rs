//! The names as services of a cluster, for the resolver that reads those.

use std::path::Path;

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::{Api, PostParams};
use serde_json::json;

use super::zone::{NAMES, NAMESPACES, address, service};
use crate::api::client;

/// Objects that are under way at one moment.
const AT_ONCE: usize = 64;

/// Makes a service of every name, in this thread alone: it may be in another network.
pub(crate) fn fill(kubeconfig: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = client(kubeconfig).await?;
        let namespaces = Api::<Namespace>::all(client.clone());
        for n in 0..NAMESPACES {
            let object = json!({"metadata": {"name": service(n).1}});
            namespaces.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        }
        let made = futures::stream::iter(0..NAMES).map(|n| {
            let client = client.clone();
            async move {
                let api = Api::<Service>::namespaced(client, &service(n).1);
                let object = serde_json::from_value(object(n))?;
                api.create(&PostParams::default(), &object).await.context("cannot make a service")
            }
        });
        made.buffer_unordered(AT_ONCE).try_for_each(|_| std::future::ready(Ok(()))).await
    })
}

fn object(n: u32) -> serde_json::Value {
    let ports = json!([{"port": 80}]);
    json!({"metadata": {"name": service(n).0},
           "spec": {"clusterIP": address(n).to_string(), "ports": ports}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_the_name_and_the_address_that_are_asked_for() {
        let object = object(257);
        assert_eq!(object["metadata"]["name"], "h257");
        assert_eq!(object["spec"]["clusterIP"], "10.96.2.1");
        assert_eq!(service(257).1, "ns57");
    }
}
