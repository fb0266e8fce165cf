//! Whatever happens, in whatever order it is heard, whoever is killed: no address twice, nothing
//! forgotten.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_model::Key;
use atoll_model::intent::Template;
use proptest::prelude::*;
use serde_json::Value;

use crate::cluster::{Cluster, Message, Object};
use crate::controller::Controller;
use crate::history::{History, restless, step};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_address_is_given_twice_and_nothing_is_forgotten(
        steps in prop::collection::vec(step(), 0..400)
    ) {
        let mut history = History::new();
        for step in &steps {
            history.take(step);
            history.check();
        }
        history.come_to_rest();
        history.check();
        history.check_at_rest();
        history.delete_everything();
        history.come_to_rest();
        history.check();
        let left: Vec<_> = history.cluster.objects.keys().collect();
        prop_assert!(left.is_empty(), "{:?} is left", left);
    }

    #[test]
    fn the_same_news_in_any_order_lead_to_the_same_decisions_and_to_the_same_end(
        steps in prop::collection::vec(step(), 0..150),
        order in any::<prop::sample::Index>(),
        doubled in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut history = History::new();
        steps.iter().for_each(|step| history.take(step));
        let straight = decisions(&history.cluster.log);
        let mut shuffled: Vec<Message> = history.cluster.log.iter().rev().cloned().collect();
        let turn = order.index(shuffled.len());
        shuffled.rotate_left(turn);
        for index in doubled {
            let message = shuffled[index.index(shuffled.len())].clone();
            shuffled.push(message);
        }
        prop_assert_eq!(decisions(&shuffled), straight);
        let straight = end(&history.cluster, &history.cluster.log);
        prop_assert_eq!(end(&history.cluster, &shuffled), straight);
    }

    #[test]
    fn who_learned_everything_before_deciding_decides_as_who_heard_it_piece_by_piece(
        steps in prop::collection::vec(step(), 0..150),
    ) {
        let mut history = History::new();
        steps.iter().for_each(|step| history.take(step));
        let History { cluster, .. } = &history;
        let learned =
            Controller::start_with(cluster, &Template::None, restless(), Duration::ZERO);
        prop_assert_eq!(learned.intentions(), decisions(&cluster.log));
    }
}

/// What is there in the end, when a controller that heard these news has done all that it wants to.
fn end(cluster: &Cluster, news: &[Message]) -> BTreeMap<Key, Value> {
    let mut cluster = cluster.clone();
    let mut controller = heard(news);
    controller.skip_news(&cluster);
    for _ in 0..8 {
        controller.wait(&mut cluster, Duration::from_secs(10));
    }
    cluster.objects.iter().map(|(key, object)| (key.clone(), contents(object))).collect()
}

/// What an object says, without marks that differ from one incarnation to the next.
fn contents(object: &Object) -> Value {
    let mut value = object.json();
    forget(&mut value);
    value
}

fn forget(value: &mut Value) {
    const MARKS: [&str; 4] = ["uid", "resourceVersion", "creationTimestamp", "lastTransitionTime"];
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !MARKS.contains(&name.as_str()));
            fields.values_mut().for_each(forget);
        }
        Value::Array(items) => items.iter_mut().for_each(forget),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn heard(news: &[Message]) -> Controller {
    let cluster = Cluster::default();
    let mut controller =
        Controller::start_with(&cluster, &Template::None, restless(), Duration::ZERO);
    news.iter().for_each(|message| controller.hear(message.clone()));
    controller
}

/// What a controller that heard these news, and did nothing yet, would do about each object.
fn decisions(news: &[Message]) -> Vec<String> {
    heard(news).intentions()
}
