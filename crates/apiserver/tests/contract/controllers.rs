//! What kube-rs builds on the API: controllers, events, leases.

use crate::Subject;
use crate::server::{refusal, until};
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event as NewEvent, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizer, finalizer};
use kube::runtime::{Controller, watcher};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn config_map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

#[tokio::test]
async fn a_controller_reconciles_with_a_finalizer_from_first_to_last() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let reconcile = |object: Arc<ConfigMap>, api: Arc<kube::Api<ConfigMap>>| async move {
        if object.name_any() != "mine" {
            return Ok(Action::await_change());
        }
        finalizer(&api, "atoll.dev/contract", object, |event| async {
            match event {
                Finalizer::Apply(object) => {
                    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": {"name": object.name_any()}, "data": {"seen": "yes"}});
                    let params = PatchParams::apply("contract").force();
                    api.patch(&object.name_any(), &params, &Patch::Apply(patch)).await?;
                    Ok::<_, kube::Error>(Action::await_change())
                }
                Finalizer::Cleanup(_) => Ok(Action::await_change()),
            }
        })
        .await
    };
    let controller = Controller::new(api.clone(), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_millis(200)),
            Arc::new(api.clone()),
        )
        .for_each(|_| std::future::ready(()));
    let running = tokio::spawn(controller);
    api.create(&PostParams::default(), &config_map("mine")).await.unwrap();
    let seen = async || {
        let object = api.get("mine").await.unwrap();
        object.data.is_some_and(|data| data.get("seen").is_some_and(|v| v == "yes"))
    };
    until(seen, "the controller never saw its object").await;
    api.delete("mine", &Default::default()).await.unwrap();
    until(async || api.get_opt("mine").await.unwrap().is_none(), "the finalizer stays").await;
    running.abort();
}

#[tokio::test]
async fn recorded_events_are_found_by_the_object_they_are_about() {
    let subject = Subject::new().await;
    let api = subject.api::<ConfigMap>();
    let object = api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let reporter = Reporter { controller: "atoll.dev/contract".to_owned(), instance: None };
    let recorder = Recorder::new(subject.client.clone(), reporter);
    let event = NewEvent {
        type_: EventType::Warning,
        reason: "Overlap".to_owned(),
        note: Some("10.0.0.0/8 overlaps 10.1.0.0/16".to_owned()),
        action: "Check".to_owned(),
        secondary: None,
    };
    for _ in 0..2 {
        recorder.publish(&event, &object.object_ref(&())).await.unwrap();
    }
    let about = format!("involvedObject.uid={},reason=Overlap", object.uid().unwrap());
    let found = subject.api::<Event>().list(&ListParams::default().fields(&about)).await.unwrap();
    assert_eq!(found.items.len(), 1);
    assert_eq!(found.items[0].message.as_deref(), Some("10.0.0.0/8 overlaps 10.1.0.0/16"));
    assert_eq!(found.items[0].series.as_ref().and_then(|series| series.count), Some(2));
    let new_api = subject.api::<k8s_openapi::api::events::v1::Event>();
    let same = new_api.get(&found.items[0].name_any()).await.unwrap();
    assert_eq!(same.note, found.items[0].message);
    assert_eq!(same.regarding.unwrap().uid, object.uid());
}

#[tokio::test]
async fn only_one_of_two_takes_a_lease() {
    let subject = Subject::new().await;
    let api = subject.api::<Lease>();
    let lease: Lease = serde_json::from_value(json!({"metadata": {"name": "leader"}, "spec": {
        "holderIdentity": "", "leaseDurationSeconds": 15}}))
    .unwrap();
    let created = api.create(&PostParams::default(), &lease).await.unwrap();
    let claim = |who: &str| {
        let mut claim = created.clone();
        claim.spec.as_mut().unwrap().holder_identity = Some(who.to_owned());
        claim
    };
    let params = PostParams::default();
    let (one, two) = (claim("one"), claim("two"));
    let (first, second) =
        tokio::join!(api.replace("leader", &params, &one), api.replace("leader", &params, &two));
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    let loser = if first.is_err() { first } else { second };
    assert_eq!(refusal(loser).code, 409);
}
