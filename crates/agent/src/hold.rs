//! The addresses of the outside that this node answers for, as the claims say.
//!
//! The rules: nothing is taken away before all claims were seen; an address that comes is announced
//! several times, since a neighbour may miss a word; and what somebody else takes off the link is
//! put back.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use atoll_api::Claim;
use atoll_datapath::{Datapath, DatapathError};
use atoll_model::outside::Held;
use futures::{Stream, StreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};

/// How often an address that came is announced, and how long it is between.
const WORDS: u8 = 3;
const BETWEEN_WORDS: Duration = Duration::from_secs(1);
/// How long an address may be missing that somebody else took away.
const LOOK: Duration = Duration::from_secs(15);

/// Has this node's uplink have the addresses that are its own, for good.
pub(crate) async fn keep(client: Client, node: &str, underlay: IpAddr) -> Result<()> {
    let own = watcher::Config::default().fields(&format!("spec.node={node}"));
    let claims = watcher(Api::<Claim>::all(client), own).default_backoff();
    let mut changes = std::pin::pin!(addresses(claims, node.to_owned()));
    let Some(first) = changes.next().await else { bail!("the watch of claims ended") };
    let mut keeper = Keeper { underlay, wanted: first, untold: BTreeMap::new() };
    loop {
        let pause = keeper.do_what_is_due().await;
        match tokio::time::timeout(pause, changes.next()).await {
            Ok(Some(wanted)) => keeper.wanted = wanted,
            Ok(None) => bail!("the watch of claims ended"),
            Err(_) => {}
        }
    }
}

struct Keeper {
    underlay: IpAddr,
    wanted: BTreeSet<IpAddr>,
    /// What is still to be announced, and how often.
    untold: BTreeMap<IpAddr, u8>,
}

impl Keeper {
    /// Puts the uplink right and announces what came; says when to look again.
    async fn do_what_is_due(&mut self) -> Duration {
        match Datapath::hold(self.underlay, &self.wanted).await {
            Ok(taken) => {
                for ip in taken {
                    tracing::info!(%ip, "this node answers for an address of the outside");
                    self.untold.insert(ip, WORDS);
                }
            }
            Err(error) => report(&error),
        }
        self.untold.retain(|ip, words| *words > 0 && self.wanted.contains(ip));
        if self.untold.is_empty() {
            return LOOK;
        }
        let now: BTreeSet<IpAddr> = self.untold.keys().copied().collect();
        if let Err(error) = Datapath::announce(self.underlay, &now).await {
            report(&error);
        }
        self.untold.values_mut().for_each(|words| *words -= 1);
        BETWEEN_WORDS
    }
}

fn report(error: &DatapathError) {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    tracing::warn!(%error, ?cause, "addresses of the outside are not as they should be");
}

/// All addresses of this node, after each change of them, once all claims were seen.
fn addresses(
    events: impl Stream<Item = watcher::Result<Event<Claim>>>,
    node: String,
) -> impl Stream<Item = BTreeSet<IpAddr>> {
    let mut claims: BTreeMap<String, IpAddr> = BTreeMap::new();
    let (mut told, mut is_whole) = (None, false);
    events.filter_map(move |event| {
        match event {
            Ok(Event::Init) => {
                claims.clear();
                is_whole = false;
            }
            Ok(Event::InitApply(claim) | Event::Apply(claim)) => {
                let held = Held::read(&claim).filter(|held| held.node == node);
                match held {
                    Some(held) => drop(claims.insert(claim.name_any(), held.address)),
                    None => drop(claims.remove(&claim.name_any())),
                }
            }
            Ok(Event::Delete(claim)) => drop(claims.remove(&claim.name_any())),
            Ok(Event::InitDone) => is_whole = true,
            Err(error) => tracing::warn!(%error, "watch of claims interrupted, trying again"),
        }
        let wanted: BTreeSet<IpAddr> = claims.values().copied().collect();
        let is_new = is_whole && told.as_ref() != Some(&wanted);
        if is_new {
            told = Some(wanted.clone());
        }
        std::future::ready(is_new.then_some(wanted))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(name: &str, node: &str) -> Claim {
        let holder = json!({"kind": "Service", "namespace": "shop", "name": "web", "uid": "u1"});
        let spec = json!({"holder": holder, "network": "acme.default", "node": node});
        let json = json!({"apiVersion": "atoll.dev/v1alpha1", "kind": "Claim",
            "metadata": {"name": name}, "spec": spec});
        serde_json::from_value(json).unwrap()
    }

    async fn heard(events: Vec<Event<Claim>>) -> Vec<Vec<String>> {
        let events = futures::stream::iter(events.into_iter().map(Ok));
        let all: Vec<_> = addresses(events, "node1".into()).collect().await;
        let texts = |ips: BTreeSet<IpAddr>| ips.iter().map(ToString::to_string).collect();
        all.into_iter().map(texts).collect()
    }

    #[tokio::test]
    async fn nothing_is_said_before_all_claims_were_seen_and_then_every_change() {
        let (five, six) =
            (claim("outside.192.0.2.5", "node1"), claim("outside.192.0.2.6", "node1"));
        let moved = claim("outside.192.0.2.6", "node2");
        let events = vec![
            Event::Init,
            Event::InitApply(five.clone()),
            Event::InitApply(six),
            Event::InitDone,
            Event::Apply(five.clone()),
            Event::Apply(moved),
            Event::Delete(five),
        ];
        let said = heard(events).await;
        assert_eq!(said, [vec!["192.0.2.5", "192.0.2.6"], vec!["192.0.2.5"], vec![]]);
    }

    #[tokio::test]
    async fn a_node_that_has_none_hears_that_too() {
        assert_eq!(heard(vec![Event::Init, Event::InitDone]).await, [Vec::<String>::new()]);
        assert!(heard(vec![Event::Init]).await.is_empty());
    }
}
