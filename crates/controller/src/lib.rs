//! The controller: what needs one writer. Network ids, addresses, default networks, status.
//!
//! It watches, asks [`atoll_model::World`] what to do, and does it. The rule of this crate: hands
//! do not think. Whatever depends on more than one object is decided in the model.

mod admission;
mod config;
mod device_status;
mod execute;
mod heard;
mod kinds;
mod leader;
mod metrics;
mod queue;
mod reconcile;
mod resolvers;
mod template;
mod watch;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kube::Client;
use tokio::task::JoinSet;

pub use config::ControllerConfig;

use leader::Candidate;
use reconcile::Desk;

/// Runs the controller until `shutdown` is done.
pub async fn run(
    client: Client,
    config: ControllerConfig,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let desk = Arc::new(Desk::new(&config));
    let (mut tasks, mut answering) = (JoinSet::new(), JoinSet::new());
    if let Some(address) = config.metrics_address {
        let (listener, desk) = (atoll_metrics::share(address)?, desk.clone());
        tasks.spawn(atoll_metrics::serve(listener, move || desk.metrics()));
    }
    if let Some(address) = config.admission_address {
        let namespace = &config.admission_namespace;
        admission::start(client.clone(), namespace, address, &mut answering).await?;
    }
    watch::start(&client, &desk, &mut tasks);
    tasks.spawn(template::follow(config.template_file(), desk.clone()));
    let lease_namespace = config.lease_namespace.as_deref();
    let candidate = lease_namespace.map(|namespace| Candidate::new(client.clone(), namespace));
    match candidate.clone() {
        Some(candidate) => drop(tasks.spawn(candidate.follow(desk.clone()))),
        None => desk.lead(true),
    }
    tasks.spawn(resolvers::follow(client.clone(), config.dns_pods(), desk.clone()));
    for _ in 0..config.workers {
        tasks.spawn(reconcile::work(client.clone(), desk.clone()));
    }
    shutdown.await;
    desk.lead(false);
    tasks.shutdown().await;
    if let Some(candidate) = candidate {
        candidate.give_up().await;
    }
    if !answering.is_empty() {
        tokio::time::sleep(Duration::from_secs(config.admission_linger)).await;
        answering.shutdown().await;
    }
    Ok(())
}
