//! Does one action, and tells what came to light.
//!
//! The rule: an answer that differs from what was thought is no failure. It is news, and the
//! matter is decided again.

use atoll_api::{Claim, ClaimHolder, PortPhase, marks};
use atoll_model::intent::{Kind, ObjectName, Thing};
use atoll_model::{Action, Key, Seat, Target, Tone};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::response::Status;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Error};
use serde::Serialize;
use serde_json::{Value, json};

use crate::device_status;
use crate::kinds::{Known, reference, with_kind};
use crate::reconcile::News;

/// What came of an action.
pub(crate) struct Executed {
    /// What came to light.
    pub(crate) news: Vec<News>,
    /// Whether all was as it was thought when the action was decided. If not, what was to follow
    /// must not be done.
    pub(crate) as_thought: bool,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Does one action.
pub(crate) async fn execute(client: &Client, action: &Action) -> Result<Executed> {
    match action {
        Action::Confirm(key, known) => confirm(client, key, known.as_ref()).await,
        Action::Claim(thing, holder) => claim(client, thing, holder).await,
        Action::Release(thing, holder) => release(client, thing, holder).await,
        Action::CreateNetwork(network) => create(client, network.as_ref()).await,
        Action::CreateSubnet(subnet) => create(client, subnet.as_ref()).await,
        Action::CreatePort(port) => create(client, port.as_ref()).await,
        Action::CreateRole(role) => create(client, role.as_ref()).await,
        Action::Delete(target) => delete(client, target).await,
        Action::SetFinalizers(target, finalizers) => {
            set_finalizers(client, target, finalizers).await
        }
        Action::SetRules(target, rules) => write(client, target, json!({"rules": rules})).await,
        Action::ChangePort(target, change) => {
            write(client, target, json!({"spec": change.patch()})).await
        }
        Action::TellPod(target, text) => {
            annotate(client, target, marks::NETWORK_STATUS, Some(text)).await
        }
        Action::TellService(target, text) => {
            annotate(client, target, marks::VIP, text.as_ref()).await
        }
        Action::TellClaim { pod, claim, interfaces } => {
            device_status::tell(client, pod, claim, interfaces).await
        }
        Action::DetachPort(target) => {
            let detached = json!({"phase": PortPhase::Allocated, "hostInterface": null});
            write_status(client, target, &detached).await
        }
        Action::TellBalancer(target, ips) => {
            let ingress: Vec<Value> =
                ips.iter().map(|ip| json!({"ip": ip.to_string(), "ipMode": "VIP"})).collect();
            write_status(client, target, &json!({"loadBalancer": {"ingress": ingress}})).await
        }
        Action::Seat(target, Seat { network, node }) => {
            write(client, target, json!({"spec": {"network": network, "node": node}})).await
        }
        Action::SetPoolStatus(target, status) => write_status(client, target, status).await,
        Action::SetTypeStatus(target, status) => write_status(client, target, status).await,
        Action::SetTenantStatus(target, status) => write_status(client, target, status).await,
        Action::SetNetworkStatus(target, status) => write_status(client, target, status).await,
        Action::SetSubnetStatus(target, status) => write_status(client, target, status).await,
        Action::Say(target, tone, reason, message) => {
            say(client, target, *tone, &reason.to_string(), message).await
        }
    }
}

impl Executed {
    pub(crate) fn as_thought(news: impl IntoIterator<Item = News>) -> Self {
        Executed { news: news.into_iter().collect(), as_thought: true }
    }

    pub(crate) fn otherwise(news: impl IntoIterator<Item = News>) -> Self {
        Executed { news: news.into_iter().collect(), as_thought: false }
    }
}

async fn confirm(client: &Client, key: &Key, known: Option<&Target>) -> Result<Executed> {
    let found = with_kind!(key.kind, K => find::<K>(client, &key.name).await?);
    Ok(match (found, known) {
        (None, None) => Executed::as_thought([]),
        (Some((target, _)), Some(known)) if target == *known => Executed::as_thought([]),
        (Some((_, news)), _) => Executed::otherwise([news]),
        (None, Some(known)) => Executed::otherwise([gone(known)]),
    })
}

async fn claim(client: &Client, thing: &Thing, holder: &ClaimHolder) -> Result<Executed> {
    let claim = thing.claimed_by(holder.clone());
    let name = ObjectName::cluster(thing.to_string());
    let api = Claim::api(client, &name);
    match api.create(&PostParams::default(), &claim).await {
        Ok(made) => Ok(Executed::as_thought([there(&made)])),
        Err(Error::Api(status)) if status.is_already_exists() => {
            Ok(match api.get_opt(&name.name).await? {
                Some(standing) if standing.spec.holder == *holder => {
                    Executed::as_thought([there(&standing)])
                }
                Some(standing) => Executed::otherwise([there(&standing)]),
                None => Executed::otherwise([]),
            })
        }
        Err(error) => Err(error),
    }
}

async fn release(client: &Client, thing: &Thing, holder: &ClaimHolder) -> Result<Executed> {
    let name = ObjectName::cluster(thing.to_string());
    match Claim::api(client, &name).get_opt(&name.name).await? {
        Some(standing) if standing.spec.holder == *holder => {
            delete(client, &target(&standing)).await
        }
        Some(standing) => Ok(Executed::as_thought([there(&standing)])),
        None => Ok(Executed::as_thought([])),
    }
}

async fn create<K: Known>(client: &Client, object: &K) -> Result<Executed> {
    let name = object.key().name;
    match K::api(client, &name).create(&PostParams::default(), object).await {
        Ok(made) => Ok(Executed::as_thought([there(&made)])),
        Err(Error::Api(status)) if status.is_already_exists() => {
            let standing = find::<K>(client, &name).await?;
            Ok(Executed::otherwise(standing.map(|(_, news)| news)))
        }
        Err(error) => Err(error),
    }
}

async fn delete(client: &Client, target: &Target) -> Result<Executed> {
    let preconditions = Preconditions { uid: Some(target.uid.clone()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let name = &target.key.name;
    let answer = with_kind!(target.key.kind, K => {
        let answer = K::api(client, name).delete(&name.name, &params).await;
        answer.map(|answer| answer.map_left(|object| settled(&object)).left())
    });
    match answer {
        Ok(Some(news)) => Ok(Executed::as_thought([news])),
        Ok(None) => Ok(Executed::as_thought([gone(target)])),
        Err(Error::Api(status)) => missed(client, target, status).await,
        Err(error) => Err(error),
    }
}

/// An object that is being deleted goes with its last finalizer; if others hold it, it stays.
async fn set_finalizers(
    client: &Client,
    target: &Target,
    finalizers: &[String],
) -> Result<Executed> {
    let change = json!({"metadata": {"finalizers": finalizers}});
    let done = write(client, target, change).await?;
    let ends = done.news.iter().any(|news| match news {
        News::There(seen) => seen.meta().deleting,
        News::Gone(..) => true,
        News::All(..) => false,
    });
    Ok(match (done.as_thought, ends, finalizers.is_empty()) {
        (true, true, true) => Executed::as_thought([gone(target)]),
        (true, true, false) => Executed::otherwise(done.news),
        (true, false, _) | (false, _, _) => done,
    })
}

async fn annotate(
    client: &Client,
    target: &Target,
    mark: &str,
    text: Option<&String>,
) -> Result<Executed> {
    write(client, target, json!({"metadata": {"annotations": {mark: text}}})).await
}

async fn write(client: &Client, target: &Target, change: Value) -> Result<Executed> {
    patch(client, target, Part::Object, change).await
}

async fn write_status(
    client: &Client,
    target: &Target,
    status: &impl Serialize,
) -> Result<Executed> {
    patch(client, target, Part::Status, json!({"status": status})).await
}

/// Which part of an object is written.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Status,
}

/// Changes an object that must still be at the version on which the change was decided.
async fn patch(
    client: &Client,
    target: &Target,
    part: Part,
    mut change: Value,
) -> Result<Executed> {
    change["metadata"]["resourceVersion"] = json!(target.revision.to_string());
    change["metadata"]["uid"] = json!(target.uid);
    let name = &target.key.name;
    match with_kind!(target.key.kind, K => send::<K>(client, name, part, &change).await) {
        Ok(news) => Ok(Executed::as_thought([news])),
        Err(Error::Api(status)) => missed(client, target, status).await,
        Err(error) => Err(error),
    }
}

async fn send<K: Known>(
    client: &Client,
    name: &ObjectName,
    part: Part,
    change: &Value,
) -> Result<News> {
    let (api, params, change) =
        (K::api(client, name), PatchParams::default(), Patch::Merge(change));
    let answer = match part {
        Part::Object => api.patch(&name.name, &params, &change).await,
        Part::Status => api.patch_status(&name.name, &params, &change).await,
    };
    answer.map(|object| settled(&object))
}

/// A write that found its object changed, replaced or gone brings to light how it is.
async fn missed(client: &Client, target: &Target, status: Box<Status>) -> Result<Executed> {
    if !status.is_conflict() && !status.is_not_found() {
        return Err(Error::Api(status));
    }
    let found = with_kind!(target.key.kind, K => find::<K>(client, &target.key.name).await?);
    Ok(match found {
        None => Executed::otherwise([gone(target)]),
        Some((found, news)) if found.uid == target.uid => Executed::otherwise([news]),
        Some((_, news)) => Executed::otherwise([gone(target), news]),
    })
}

/// Tells people. What was said before is not counted up here: the model says a thing once.
pub(crate) async fn say(
    client: &Client,
    target: &Target,
    tone: Tone,
    reason: &str,
    message: &str,
) -> Result<Executed> {
    let reporter = Reporter { controller: "atoll.dev/controller".into(), instance: None };
    let event = Event {
        type_: match tone {
            Tone::Normal => EventType::Normal,
            Tone::Warning => EventType::Warning,
        },
        reason: reason.to_owned(),
        note: Some(cut(message).to_owned()),
        action: "Reconcile".into(),
        secondary: None,
    };
    let recorder = Recorder::new(client.clone(), reporter);
    recorder.publish(&event, &reference(target)).await?;
    Ok(Executed::as_thought([]))
}

/// The API refuses a note of more bytes, and messages quote what users wrote.
const LONGEST_NOTE: usize = 1024;

fn cut(message: &str) -> &str {
    &message[..message.floor_char_boundary(LONGEST_NOTE)]
}

async fn find<K: Known>(client: &Client, name: &ObjectName) -> Result<Option<(Target, News)>> {
    let found = K::api(client, name).get_opt(&name.name).await?;
    Ok(found.map(|object| (target(&object), there(&object))))
}

fn there<K: Known>(object: &K) -> News {
    News::There(Box::new(object.seen()))
}

/// What the answer to a write says: an object that is being deleted and held by nobody is gone.
fn settled<K: Known>(object: &K) -> News {
    let meta = object.meta();
    let held = meta.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
    let ends_by_itself = matches!(K::KIND, Kind::Pod | Kind::Namespace | Kind::Service);
    if meta.deletion_timestamp.is_some() && !held && !ends_by_itself {
        return gone(&target(object));
    }
    there(object)
}

fn gone(target: &Target) -> News {
    News::Gone(target.key.clone(), target.uid.clone())
}

fn target<K: Known>(object: &K) -> Target {
    Target::new(K::KIND, object.seen().meta())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_between_letters_to_what_the_api_takes() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"a".repeat(5000)).len(), 1024);
        assert_eq!(cut(&format!("a{}", "ä".repeat(5000))).len(), 1023);
    }
}
