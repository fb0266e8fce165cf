//! A pod's network namespace: made, plugged in by the CNI plugin as a runtime would, and removed.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::NodeContext;
use super::cni::{self, Attachment, PLUGIN, Verb};
use crate::namespace;

/// A plugin that takes longer is given up on. It has a shorter patience of its own with the agent.
const PLUGIN_PATIENCE: Duration = Duration::from_secs(90);

/// The network of one pod.
#[derive(Clone)]
pub(crate) struct Sandbox {
    context: Arc<NodeContext>,
    attachment: Attachment,
    on_host: bool,
}

impl Sandbox {
    pub(crate) fn of(context: &Arc<NodeContext>, pod: &Pod) -> Self {
        let uid = pod.uid().unwrap_or_default();
        let attachment = Attachment {
            container_id: uid.replace('-', ""),
            namespace: context.home.pod_namespace(&uid),
            pod_namespace: pod.namespace().unwrap_or_default(),
            pod_name: pod.name_any(),
            pod_uid: uid,
            agent_socket: context.node.agent_socket(),
            plugins: context.home.plugins(),
        };
        let on_host = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
        Sandbox { context: context.clone(), attachment, on_host }
    }

    /// The namespace that the pod's containers run in.
    pub(crate) fn namespace(&self) -> PathBuf {
        match self.on_host {
            true => self.context.node.namespace.clone(),
            false => self.attachment.namespace.clone(),
        }
    }

    /// Makes it: the pod's addresses. A failed try leaves nothing behind.
    pub(crate) async fn make(&self) -> Result<Vec<IpAddr>, String> {
        if self.on_host {
            return Ok(vec![self.context.host]);
        }
        self.remove_namespace().await?;
        let path = self.attachment.namespace.clone();
        blocking(move || namespace::create(&path)).await?;
        let added = match self.call(Verb::Add).await {
            Ok(output) => cni::understand_add(output.status.success(), &output.stdout),
            Err(error) => Err(format!("{error:#}")),
        };
        if added.is_err()
            && let Err(error) = self.unplug().await
        {
            tracing::warn!(
                pod = self.attachment.pod_name,
                error,
                "cannot undo a failed attachment"
            );
        }
        added
    }

    /// Removes it; what is gone already is fine.
    pub(crate) async fn remove(&self) -> Result<(), String> {
        if self.on_host {
            return Ok(());
        }
        self.unplug().await
    }

    async fn unplug(&self) -> Result<(), String> {
        let output = self.call(Verb::Del).await.map_err(|error| format!("{error:#}"))?;
        cni::understand_done(output.status.success(), &output.stdout)?;
        self.remove_namespace().await
    }

    async fn remove_namespace(&self) -> Result<(), String> {
        let path = self.attachment.namespace.clone();
        blocking(move || Ok(namespace::remove(&path)?)).await
    }

    async fn call(&self, verb: Verb) -> anyhow::Result<Output> {
        let mut child = Command::new(&self.context.program)
            .args(["lab", "enter", "--netns"])
            .arg(&self.context.node.namespace)
            .arg("--")
            .arg(self.attachment.plugins.join(PLUGIN))
            .env_clear()
            .envs(self.attachment.environment(verb))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the CNI plugin")?;
        let configuration = self.attachment.configuration();
        if let Some(mut stdin) = child.stdin.take() {
            stdin
                .write_all(configuration.as_bytes())
                .await
                .context("the CNI plugin does not listen")?;
        }
        let ended = tokio::time::timeout(PLUGIN_PATIENCE, child.wait_with_output()).await;
        let seconds = PLUGIN_PATIENCE.as_secs();
        Ok(ended.with_context(|| format!("the CNI plugin did not end within {seconds} s"))??)
    }
}

async fn blocking(
    work: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
) -> Result<(), String> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?;
    done.map_err(|error| format!("{error:#}"))
}
