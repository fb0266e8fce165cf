//! Admission of tenants' pods: the API asks before it makes one, and is told how its probes and
//! hooks are led to the agent of its node, or why it cannot be.
//!
//! The rule of this module: [`atoll_model::probes`] decides; here is only how the API asks. Every
//! replica answers, whether it leads or not.

mod credentials;
mod review;
mod serve;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;

use self::credentials::Credentials;
pub(crate) use self::review::answer;

/// The name of the Secret, of the Service and of the configuration by which the API asks.
const NAME: &str = "atoll-probes";

/// How often it is made sure that the API knows the certificate.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// How long after a failure it is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// Answers the API at `address` and keeps it told whom to believe.
pub(crate) async fn start(
    client: Client,
    namespace: &str,
    address: SocketAddr,
    tasks: &mut JoinSet<()>,
) -> Result<()> {
    let credentials = Credentials::kept_in(&client, namespace, NAME)
        .await
        .with_context(|| format!("cannot have a certificate in secret {namespace}/{NAME}"))?;
    let listener = serve::listen(address)?;
    let tls = Arc::new(credentials.server_config()?);
    let configurations = Api::<MutatingWebhookConfiguration>::all(client);
    tasks.spawn(async move {
        // Who is not yet believed is not ready, and does not answer as if it were.
        introduce(&configurations, &credentials).await;
        tokio::join!(serve::run(listener, tls), stay_known(&configurations, &credentials));
    });
    Ok(())
}

/// The configuration may be applied anew, without what was written into it.
async fn stay_known(configurations: &Api<MutatingWebhookConfiguration>, credentials: &Credentials) {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        introduce(configurations, credentials).await;
    }
}

/// Tries until the API knows whom to believe.
async fn introduce(configurations: &Api<MutatingWebhookConfiguration>, credentials: &Credentials) {
    while let Err(error) = introduce_once(configurations, credentials).await {
        tracing::warn!(%error, "cannot tell the API whom to ask about probes");
        tokio::time::sleep(RETRY).await;
    }
}

async fn introduce_once(
    configurations: &Api<MutatingWebhookConfiguration>,
    credentials: &Credentials,
) -> Result<(), kube::Error> {
    let known = configurations.get(NAME).await?;
    let hooks = known.webhooks.iter().flatten();
    let ours = |bytes: &k8s_openapi::ByteString| bytes.0 == credentials.authority.as_bytes();
    if hooks.clone().all(|hook| hook.client_config.ca_bundle.as_ref().is_some_and(ours)) {
        return Ok(());
    }
    let bundle = k8s_openapi::ByteString(credentials.authority.clone().into_bytes());
    let webhooks: Vec<_> = hooks
        .map(|hook| json!({"name": hook.name, "clientConfig": {"caBundle": bundle}}))
        .collect();
    let patch = json!({"webhooks": webhooks});
    configurations
        .patch(&known.name_any(), &PatchParams::default(), &Patch::Strategic(patch))
        .await?;
    tracing::info!("the API knows whom to ask about probes");
    Ok(())
}
