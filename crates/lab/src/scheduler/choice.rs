//! Which node a pod goes to: those its selector allows, and of them the one with the fewest pods.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;

/// What is known about pods and nodes.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    nodes: BTreeMap<String, Node>,
    /// The node of each pod that has one and still runs, by the pod's uid.
    placed: HashMap<String, String>,
    /// Pods without a node, by uid.
    waiting: BTreeMap<String, Pod>,
}

/// What to do with one waiting pod.
#[derive(Debug, PartialEq)]
pub(crate) struct Decision {
    pub(crate) pod: Pod,
    /// The node, or why there is none.
    pub(crate) node: Result<String, String>,
}

impl Ledger {
    pub(crate) fn node_seen(&mut self, node: Node) {
        self.nodes.insert(node.name_any(), node);
    }

    pub(crate) fn node_gone(&mut self, uid: &str) {
        self.nodes.retain(|_, node| node.uid().as_deref() != Some(uid));
    }

    pub(crate) fn pod_seen(&mut self, pod: Pod) {
        let uid = pod.uid().unwrap_or_default();
        self.pod_gone(&uid);
        if is_over(&pod) {
            return;
        }
        match node_of(&pod) {
            Some(node) => drop(self.placed.insert(uid, node.to_owned())),
            None => drop(self.waiting.insert(uid, pod)),
        }
    }

    pub(crate) fn pod_gone(&mut self, uid: &str) {
        self.placed.remove(uid);
        self.waiting.remove(uid);
    }

    /// A decision for every waiting pod. Those that get a node count for it from now on.
    pub(crate) fn decide(&mut self) -> Vec<Decision> {
        let waiting = std::mem::take(&mut self.waiting);
        let mut decisions = Vec::new();
        for (uid, pod) in waiting {
            let node = self.choose(&pod);
            match &node {
                Ok(node) => drop(self.placed.insert(uid, node.clone())),
                Err(_) => drop(self.waiting.insert(uid, pod.clone())),
            }
            decisions.push(Decision { pod, node });
        }
        decisions
    }

    /// Puts a pod back that could not be bound after all.
    pub(crate) fn undo(&mut self, pod: Pod) {
        let uid = pod.uid().unwrap_or_default();
        self.placed.remove(&uid);
        self.waiting.insert(uid, pod);
    }

    fn choose(&self, pod: &Pod) -> Result<String, String> {
        let fits = |node: &&Node| accepts(node) && matches(pod, node);
        let best = self.nodes.values().filter(fits).min_by_key(|node| self.load(&node.name_any()));
        best.map(ResourceExt::name_any).ok_or_else(|| self.why_none(pod))
    }

    fn load(&self, node: &str) -> usize {
        self.placed.values().filter(|placed| *placed == node).count()
    }

    fn why_none(&self, pod: &Pod) -> String {
        let all = self.nodes.len();
        let closed = self.nodes.values().filter(|node| !accepts(node)).count();
        let unmatched = self.nodes.values().filter(|node| accepts(node) && !matches(pod, node));
        format!(
            "0/{all} nodes are available: {closed} unschedulable or not ready, \
             {} didn't match the pod's node selector",
            unmatched.count()
        )
    }
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"))
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn accepts(node: &Node) -> bool {
    let closed = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut ready = conditions.into_iter().flatten().filter(|condition| condition.type_ == "Ready");
    !closed && ready.any(|condition| condition.status == "True")
}

fn matches(pod: &Pod, node: &Node) -> bool {
    let wanted = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
    wanted.into_iter().flatten().all(|(key, value)| node.labels().get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap()
    }

    fn pod(uid: &str, spec: &serde_json::Value) -> Pod {
        let metadata = json!({"name": uid, "uid": uid});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn free_pod(uid: &str) -> Pod {
        pod(uid, &json!({"containers": []}))
    }

    fn ledger(nodes: &[&str]) -> Ledger {
        let mut ledger = Ledger::default();
        nodes.iter().for_each(|name| ledger.node_seen(node(name)));
        ledger
    }

    fn chosen(ledger: &mut Ledger) -> Vec<Result<String, String>> {
        ledger.decide().into_iter().map(|decision| decision.node).collect()
    }

    #[test]
    fn pods_spread_over_the_nodes() {
        let mut ledger = ledger(&["node1", "node2", "node3"]);
        (0..6).for_each(|number| ledger.pod_seen(free_pod(&format!("p{number}"))));
        let mut nodes: Vec<_> = chosen(&mut ledger).into_iter().flatten().collect();
        nodes.sort();
        assert_eq!(nodes, ["node1", "node1", "node2", "node2", "node3", "node3"]);
        assert_eq!(chosen(&mut ledger), [], "each is decided once");
    }

    #[test]
    fn a_selector_names_the_node() {
        let mut ledger = ledger(&["node1", "node2"]);
        let selector = json!({"kubernetes.io/hostname": "node2"});
        ledger.pod_seen(pod("p", &json!({"containers": [], "nodeSelector": selector})));
        assert_eq!(chosen(&mut ledger), [Ok("node2".to_owned())]);
    }

    #[test]
    fn pods_that_are_over_leave_room() {
        let mut ledger = ledger(&["node1", "node2"]);
        for number in 0..2 {
            let mut done =
                pod(&format!("d{number}"), &json!({"containers": [], "nodeName": "node1"}));
            done.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
            ledger.pod_seen(done);
        }
        ledger.pod_seen(pod("r", &json!({"containers": [], "nodeName": "node2"})));
        ledger.pod_seen(free_pod("p"));
        assert_eq!(chosen(&mut ledger), [Ok("node1".to_owned())]);
    }

    #[test]
    fn a_pod_that_fits_nowhere_waits_with_the_reason_and_goes_once_it_fits() {
        let mut ledger = ledger(&["node1"]);
        let selector = json!({"disk": "ssd"});
        ledger.pod_seen(pod("p", &json!({"containers": [], "nodeSelector": selector})));
        let said = chosen(&mut ledger).remove(0).unwrap_err();
        assert!(said.contains("0/1 nodes") && said.contains("1 didn't match"), "{said}");
        let mut fast = node("node2");
        fast.labels_mut().insert("disk".into(), "ssd".into());
        ledger.node_seen(fast);
        assert_eq!(chosen(&mut ledger), [Ok("node2".to_owned())]);
    }

    #[test]
    fn closed_and_unready_nodes_get_nothing() {
        let mut ledger = ledger(&[]);
        let mut closed = node("node1");
        closed.spec = serde_json::from_value(json!({"unschedulable": true})).unwrap();
        let mut unready = node("node2");
        unready.status = None;
        ledger.node_seen(closed);
        ledger.node_seen(unready);
        ledger.pod_seen(free_pod("p"));
        assert!(
            chosen(&mut ledger)[0].as_ref().is_err_and(|said| said.contains("2 unschedulable"))
        );
    }

    #[test]
    fn deleted_pods_and_nodes_are_forgotten() {
        let mut ledger = ledger(&["node1"]);
        ledger.pod_seen(free_pod("p"));
        ledger.pod_gone("p");
        assert_eq!(chosen(&mut ledger), []);
        ledger.node_gone("node1");
        ledger.pod_seen(free_pod("q"));
        assert!(chosen(&mut ledger)[0].is_err());
    }
}
