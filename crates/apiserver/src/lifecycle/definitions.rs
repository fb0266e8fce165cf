//! Keeping in step with committed changes: custom kinds follow their definitions before the writer
//! of the change gets its answer.

use crate::object;
use crate::registry::{CRDS, Registry, from_definition};
use crate::seeds;
use crate::store::Change;
use crate::verbs::Api;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Takes over what the store holds and follows what changes.
/// The changes themselves come out of each receiver.
pub(crate) fn follow<const N: usize>(api: &Api) -> [UnboundedReceiver<Arc<Change>>; N] {
    let mut changes = Vec::new();
    let receivers = std::array::from_fn(|_| {
        let (sender, receiver) = unbounded_channel();
        changes.push(sender);
        receiver
    });
    let follower = Follower { registry: api.registry.clone(), changes };
    {
        let state = api.store.read();
        state.list(CRDS, "").for_each(|stored| follower.register(&stored.value));
    }
    api.store.observe(Box::new(move |changes| changes.iter().for_each(|c| follower.note(c))));
    receivers
}

/// What follows; it must not hold the store, which holds it.
struct Follower {
    registry: Registry,
    changes: Vec<UnboundedSender<Arc<Change>>>,
}

impl Follower {
    fn note(&self, change: &Arc<Change>) {
        for receiver in &self.changes {
            // Without a receiver nobody cleans up, which is so while the server ends.
            let _ = receiver.send(Arc::clone(change));
        }
        match (&*change.object.key.collection, change.is_deletion()) {
            (CRDS, false) => self.register(&change.object.value),
            (CRDS, true) => self.forget(&change.object.value),
            _ => {}
        }
    }

    fn register(&self, crd: &Value) {
        match from_definition(crd) {
            Ok(resource) => {
                self.registry.insert(resource);
                seeds::aliases(crd).into_iter().for_each(|alias| self.registry.insert(alias));
            }
            Err(why) => tracing::error!(crd = object::name(crd), why, "cannot serve a kind"),
        }
    }

    fn forget(&self, crd: &Value) {
        self.registry
            .remove(object::text(crd, "spec.group"), object::text(crd, "spec.names.plural"));
        for alias in seeds::aliases(crd) {
            self.registry.remove(&alias.group, &alias.plural);
        }
    }
}
