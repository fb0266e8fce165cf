//! Whatever happens, in whatever order it is heard, whoever is killed: no address twice, nothing
//! forgotten.

use std::time::Duration;

use atoll_model::intent::Template;
use proptest::prelude::*;

use crate::cluster::{Cluster, Message};
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
    fn the_same_news_in_any_order_lead_to_the_same_decisions(
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

/// What a controller that heard these news, and did nothing yet, would do about each object.
fn decisions(news: &[Message]) -> Vec<String> {
    let cluster = Cluster::default();
    let mut controller =
        Controller::start_with(&cluster, &Template::None, restless(), Duration::ZERO);
    news.iter().for_each(|message| controller.hear(message.clone()));
    controller.intentions()
}
