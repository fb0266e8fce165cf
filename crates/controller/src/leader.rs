//! Which of several controllers works: the one that holds the lease.
//!
//! All of them watch, so that the next one can go on at once. The rule: who could not renew in
//! time stops before anybody else may begin, by its own clock alone; clocks of different machines
//! are never compared. Who is told to end gives the lease up, and the next one goes on at once.
//! (Even two at once would give nothing out twice: see claims.)

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, Error};

use crate::reconcile::Desk;

const NAME: &str = "atoll-controller";

/// How long a lease stands after its last renewal, as others see it.
const DURATION: Duration = Duration::from_secs(15);

/// How long its holder relies on it.
const RELIANCE: Duration = Duration::from_secs(10);

/// How often it is looked at.
const PACE: Duration = Duration::from_secs(2);

/// What was last seen of the lease, and since when it has been like that.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sight {
    version: Option<String>,
    since: Instant,
}

/// What to do about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// Nobody ever had it.
    Create,
    /// It is ours, or nobody renewed it for long enough.
    Take,
    /// Somebody else has it.
    Wait,
}

/// One who takes part in the election.
#[derive(Clone)]
pub(crate) struct Candidate {
    api: Api<Lease>,
    me: String,
}

impl Candidate {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Candidate { api: Api::namespaced(client, namespace), me: identity() }
    }

    /// Takes part for ever, and tells the desk when it may hand out work.
    pub(crate) async fn follow(self, desk: Arc<Desk>) {
        let mut sight = None;
        let mut held_since: Option<Instant> = None;
        loop {
            let asked = Instant::now();
            match tokio::time::timeout(PACE, self.step(&mut sight)).await {
                Ok(Ok(true)) => held_since = Some(asked),
                Ok(Ok(false)) => held_since = None,
                Ok(Err(error)) => tracing::warn!(%error, "cannot read or write the lease"),
                Err(_) => tracing::warn!("the lease was not answered in time"),
            }
            let leading = held_since.is_some_and(|since| since.elapsed() < RELIANCE);
            desk.lead(leading);
            tokio::time::sleep(PACE).await;
        }
    }

    /// Looks at the lease and makes the next move; says whether it is ours now.
    async fn step(&self, sight: &mut Option<Sight>) -> Result<bool, Error> {
        let lease = self.api.get_opt(NAME).await?;
        let seen = look(sight.take(), lease.as_ref(), Instant::now());
        let next = judge(lease.as_ref(), &self.me, &seen, Instant::now());
        *sight = Some(seen);
        let spec = Some(spec(&self.me));
        let written = match (next, lease) {
            (Move::Wait, _) => return Ok(false),
            (Move::Take, Some(lease)) => self.write(&Lease { spec, ..lease }).await,
            (Move::Create | Move::Take, _) => {
                let metadata = ObjectMeta { name: Some(NAME.into()), ..ObjectMeta::default() };
                self.api.create(&PostParams::default(), &Lease { metadata, spec }).await
            }
        };
        was_first(written)
    }

    /// Lets go of the lease where it is ours, so that who comes next need not wait for its end. Only
    /// once nothing is done any more on the strength of it.
    pub(crate) async fn give_up(self) {
        match tokio::time::timeout(PACE, self.let_go()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot give the lease up; it runs out"),
            Err(_) => tracing::warn!("the lease was not given up in time; it runs out"),
        }
    }

    /// A renewal that was on its way may come first, and then it is tried again.
    async fn let_go(&self) -> Result<(), Error> {
        loop {
            let Some(lease) = self.api.get_opt(NAME).await? else { return Ok(()) };
            if holder(&lease) != Some(self.me.as_str()) {
                return Ok(());
            }
            let spec = Some(LeaseSpec { holder_identity: None, ..spec(&self.me) });
            if was_first(self.write(&Lease { spec, ..lease }).await)? {
                return Ok(());
            }
        }
    }

    async fn write(&self, lease: &Lease) -> Result<Lease, Error> {
        self.api.replace(NAME, &PostParams::default(), lease).await
    }
}

/// Whether something was written before somebody else wrote.
fn was_first(written: Result<Lease, Error>) -> Result<bool, Error> {
    match written {
        Ok(_) => Ok(true),
        Err(Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(false),
        Err(error) => Err(error),
    }
}

/// What is seen now: the same as before keeps its time.
fn look(before: Option<Sight>, lease: Option<&Lease>, now: Instant) -> Sight {
    let version = lease.and_then(|lease| lease.metadata.resource_version.clone());
    match before {
        Some(before) if before.version == version => before,
        Some(_) | None => Sight { version, since: now },
    }
}

fn judge(lease: Option<&Lease>, me: &str, sight: &Sight, now: Instant) -> Move {
    let Some(lease) = lease else { return Move::Create };
    let stale = now.duration_since(sight.since) > DURATION;
    match holder(lease) {
        Some(holder) if holder != me && !holder.is_empty() && !stale => Move::Wait,
        Some(_) | None => Move::Take,
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref())
}

fn spec(me: &str) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    }
}

/// A name that no other controller has, also not an earlier one of the same pod.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "controller".into());
    format!("{host}_{}_{:x}", std::process::id(), Timestamp::now().as_nanosecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, version: &str) -> Lease {
        let metadata =
            ObjectMeta { resource_version: Some(version.into()), ..ObjectMeta::default() };
        Lease { metadata, spec: Some(spec(holder)) }
    }

    /// What `me` does about a lease that has looked the same for so long.
    fn after(holder: &str, seconds: u64) -> Move {
        let (begin, lease) = (Instant::now(), lease(holder, "1"));
        let sight = look(None, Some(&lease), begin);
        judge(Some(&lease), "me", &sight, begin + Duration::from_secs(seconds))
    }

    #[test]
    fn a_lease_of_somebody_else_is_taken_only_when_it_was_not_renewed() {
        assert_eq!(after("other", 0), Move::Wait);
        assert_eq!(after("other", 15), Move::Wait);
        assert_eq!(after("other", 16), Move::Take);
    }

    #[test]
    fn our_own_and_a_given_up_lease_are_taken_at_once() {
        assert_eq!(after("me", 0), Move::Take);
        assert_eq!(after("", 0), Move::Take);
    }

    #[test]
    fn a_renewal_begins_the_wait_anew() {
        let begin = Instant::now();
        let first = look(None, Some(&lease("other", "1")), begin);
        let later = begin + Duration::from_secs(10);
        assert_eq!(look(Some(first.clone()), Some(&lease("other", "1")), later), first);
        let renewed = look(Some(first), Some(&lease("other", "2")), later);
        assert_eq!(renewed.since, later);
    }

    #[test]
    fn its_holder_stops_before_others_may_begin() {
        assert!(RELIANCE + PACE + PACE < DURATION);
    }
}
