//! The lab's API as its own commands reach it.

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::home::Home;

/// A client of the lab's API.
pub(crate) async fn client(home: &Home) -> anyhow::Result<Client> {
    let path = home.kubeconfig();
    let cannot = || format!("cannot use the kubeconfig {}", path.display());
    let file = Kubeconfig::read_from(&path).with_context(cannot)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.with_context(cannot)?).with_context(cannot)
}
